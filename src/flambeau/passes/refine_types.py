"""RefineTypes: shapes and dtypes through the whole program.

The rules of `infer/` say what each op gives. Branches give what holds for both sides; loops are evaluated until the
types of what they carry no longer change.
"""

from __future__ import annotations

from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import Block, Region

from flambeau.dialects.torch.ops import ClassTypeOp, GlobalSlotOp, NnModuleOp
from flambeau.ir.builder import erase
from flambeau.ir.module_pass import TorchPass
from flambeau.passes.evaluate.evaluator import evaluate
from flambeau.passes.evaluate.state import Features


def refine_types(module: ModuleOp) -> ModuleOp:
    """Rewrite the module in place."""
    if module.body.blocks and module.body.block.first_op is not None:
        if not any(isinstance(op, func.FuncOp | ClassTypeOp | NnModuleOp | GlobalSlotOp) for op in module.ops):
            return _refine_loose_ops(module)
    return evaluate(module, "refine types", Features(infer=True))


class RefineTypes(TorchPass):
    """Refine shapes and dtypes through the program."""

    name = "torch-refine-types"
    run = staticmethod(refine_types)


def _refine_loose_ops(module: ModuleOp) -> ModuleOp:
    """Evaluate ops that stand in the module itself as the body of a function."""
    body = Block()
    _move(module.body.block, body)
    body.add_op(func.ReturnOp())
    function = func.FuncOp("loose", FunctionType.from_lists([], []), Region(body))
    module.body.block.add_op(function)
    evaluate(module, "refine types", Features(infer=True))
    body = function.body.block
    assert body.last_op is not None
    erase(body.last_op)
    _move(body, module.body.block)
    erase(function)
    return module


def _move(source: Block, target: Block) -> None:
    for op in list(source.ops):
        op.detach()  # type: ignore[no-untyped-call]
        target.add_op(op)
