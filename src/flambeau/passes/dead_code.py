"""Remove what nobody uses."""

from __future__ import annotations

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.transforms.dead_code_elimination import would_be_trivially_dead

from flambeau.dialects.torch.ops import BindSymbolicShapeOp
from flambeau.ir.builder import erase


def eliminate_dead_code(module: ModuleOp) -> ModuleOp:
    """Erase pure ops without uses, in place. A shape binding is not a use: it goes with its tensor."""
    for function in module.ops:
        if isinstance(function, func.FuncOp):
            for block in function.body.blocks:
                op = block.last_op
                while op is not None:
                    previous = op.prev_op
                    if _is_dead(op):
                        for result in op.results:
                            for use in list(result.uses):
                                erase(use.operation)
                        erase(op)
                    op = previous
    return module


def _is_dead(op: Operation) -> bool:
    if not op.results or op.regions:
        return False
    is_unused = all(
        isinstance(use.operation, BindSymbolicShapeOp) and use.index == 0
        for result in op.results
        for use in result.uses
    )
    return is_unused and would_be_trivially_dead(op)
