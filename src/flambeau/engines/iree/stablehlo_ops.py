"""StableHLO ops that IREE 3.13 does not take, or not in every form, in terms of what it does take."""

from __future__ import annotations

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.ir import Operation, SSAValue

from flambeau.engines.errors import EngineError
from flambeau.engines.iree.rewriting import builder_before, dtype_of, set_apart
from flambeau.ir import dtypes
from flambeau.ir.builder import erase
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.whole.values import shape_of

NAMES = frozenset({"stablehlo.dynamic_reshape", "stablehlo.dynamic_pad", "stablehlo.gather"})


def _is_taken_over(op: Operation) -> bool:
    if op.name == "stablehlo.gather":
        # Of elements, at positions whose number is dynamic.
        shapes = [shape_of(v) for v in (*op.operands, op.results[0])]
        return any(None in s for s in shapes) and set(op.properties["slice_sizes"].get_values()) <= {1}  # type: ignore[attr-defined]
    if op.name == "stablehlo.concatenate":
        # IREE puts parts that are computed on the stack, whatever their size.
        return any(None in shape_of(v) for v in op.operands)
    return op.name in NAMES


def protect_scatters(module: ModuleOp) -> ModuleOp:
    """Keep IREE 3.13 from moving reshapes into the indices of a scatter, whose shape it then finds wrong. In place."""
    for op in list(module.walk()):
        if op.name == "stablehlo.scatter" and None not in shape_of(op.operands[len(op.results)]):
            set_apart(op, len(op.results))
    return module


def has_scatters(module: ModuleOp) -> bool:
    return any(op.name == "stablehlo.scatter" for op in module.walk())


def has_dynamic_ops(module: ModuleOp) -> bool:
    """Whether a program has ops that IREE does not take."""
    return any(_is_taken_over(op) for op in module.walk())


def replace_dynamic_ops(module: ModuleOp) -> ModuleOp:
    """Rewrite the module in place."""
    for op in list(module.walk()):
        if _is_taken_over(op):
            _replace(op)
    return module


def _replace(op: Operation) -> None:
    b = builder_before(op)
    x = Tensor(op.operands[0], dtype_of(op.operands[0]))
    if op.name == "stablehlo.dynamic_reshape":
        new = b.reshape(x, sizes_of(op.operands[1], b))
    elif op.name == "stablehlo.concatenate":
        dim = {"dim": op.properties["dimension"]}
        new = Tensor(b.value(tensor.ConcatOp, op.operands, op.results[0].type, dim), x.dtype)
    elif op.name == "stablehlo.gather":
        indices = Tensor(op.operands[1], dtypes.int64)
        *sizes, _ = b.sizes(indices)

        def element(*at: SSAValue) -> Element:
            found = [b.as_index(b.load(indices, [*at, d])) for d in range(x.rank)]
            return b.load(x, found)

        new = b.generate(sizes, x.dtype, element)
    else:
        low, high = sizes_of(op.operands[2], b), sizes_of(op.operands[3], b)
        fill = b.value(tensor.ExtractOp, (op.operands[1],), x.dtype.builtin)
        new = b.pad(x, low, high, Element(b, fill, x.dtype))
    value = new.value
    if value.type != op.results[0].type:
        value = b.value(tensor.CastOp, (value,), op.results[0].type)
    op.results[0].replace_all_uses_with(value)
    erase(op)


def sizes_of(operand: SSAValue, b: LinalgBuilder) -> list[Size]:
    """The sizes that a shape operand was made of."""
    owner = operand.owner
    if not isinstance(owner, tensor.FromElementsOp):
        raise EngineError("a dynamic op whose shape is not made of sizes")
    return [_size(part, b) for part in owner.operands]


def _size(part: SSAValue, b: LinalgBuilder) -> Size:
    owner = part.owner
    if isinstance(owner, arith.ConstantOp) and isinstance(value := owner.properties["value"], IntegerAttr):
        return int(value.value.data)
    if isinstance(owner, arith.IndexCastOp):
        return owner.operands[0]
    raise EngineError("a dynamic op whose shape is not made of sizes")
