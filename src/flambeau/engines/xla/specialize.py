"""Programs of dynamic shapes, specialised to the shapes of a call: XLA compiles for known sizes only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap, AffineSymExpr

from flambeau.dialects.torch.ops import BindSymbolicShapeOp, OperatorOp, StaticInfoCastOp
from flambeau.dialects.torch.types import TensorType
from flambeau.infer.builder import rules
from flambeau.ir.builder import erase
from flambeau.lowering.external import External
from flambeau.passes.pipelines import infer_everything, to_backend_contract
from flambeau.passes.symbol_dce import functions_of

Shape = tuple[int, ...]


def specialize(origin: ModuleOp, name: str, shapes: Sequence[Shape | None], external: Sequence[str] = ()) -> ModuleOp:
    """Specialise a function of a module in the torch dialect to arguments of these shapes.

    None stands for an argument that is no tensor. All shapes are inferred anew; the module stays as it is, and the new
    one satisfies the backend contract; `external` ops stay whole. Raises CompileError if the program does not take the
    shapes.
    """
    copy = origin.clone()
    for other, function in functions_of(copy).items():
        if other != name:
            erase(function)
    function = functions_of(copy)[name]
    _type_foreign_ops(function, shapes)
    _forget_symbols(function)
    for argument, shape in zip(function.body.block.args, shapes, strict=True):
        if shape is not None and isinstance(argument.type, TensorType):
            argument._type = type(argument.type)((shape, argument.type.element_type))
    function.update_function_type()  # type: ignore[no-untyped-call]
    whole = [External.parse(text).overload for text in external]
    return to_backend_contract(_without_casts(infer_everything(copy)), whole)


def _type_foreign_ops(function: func.FuncOp, shapes: Sequence[Shape | None]) -> None:
    """Give the results of ops that nobody has shape rules for their sizes: custom ops, whose types PyTorch gave.

    What it said of their sizes is in terms of symbols, and those are sizes of arguments.
    """
    bindings = [op for op in function.body.walk() if isinstance(op, BindSymbolicShapeOp)]
    known: dict[SSAValue, int] = {}
    given: dict[SSAValue, Shape | None] = dict(zip(function.body.block.args, shapes, strict=True))
    for op in bindings:
        for size, shown in zip(given.get(op.operands[0]) or (), _map_of(op).results):
            if isinstance(shown, AffineSymExpr):
                known[op.operands[1:][shown.position]] = size
    for op in bindings:
        value, symbols = op.operands[0], op.operands[1:]
        owner, old = value.owner, value.type
        if not isinstance(owner, OperatorOp) or owner.overload in rules() or not isinstance(old, TensorType):
            continue
        if all(symbol in known for symbol in symbols):
            sizes = _map_of(op).eval([], [known[symbol] for symbol in symbols])
            value._type = type(old)((tuple(sizes), old.element_type))


def _without_casts(module: ModuleOp) -> ModuleOp:
    """Let ops that nobody has shape rules for take what is known of their operands, in place."""
    for op in module.walk():
        if isinstance(op, OperatorOp):
            for i, operand in enumerate(op.operands):
                if isinstance(operand.owner, StaticInfoCastOp):
                    op.operands[i] = operand.owner.operands[0]
    return module


def _map_of(op: BindSymbolicShapeOp) -> AffineMap:
    """Return the sizes of a tensor in terms of the op's symbols."""
    expressions: Any = op.properties["shape_expressions"]
    return expressions.data


def _forget_symbols(function: func.FuncOp) -> None:
    """Take out what names the sizes that are not known: now they are."""
    symbols: list[Any] = []
    for op in list(function.body.walk()):
        if op.name == "torch.bind_symbolic_shape":
            erase(op)
        elif op.name == "torch.symbolic_int":
            symbols.append(op)
    for op in symbols:
        if _is_unused(op):
            erase(op)


def _is_unused(op: Operation) -> bool:
    return not any(result.uses for result in op.results)
