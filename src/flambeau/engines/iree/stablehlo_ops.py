"""StableHLO ops that IREE 3.13 does not take, or not in every form, in terms of what it does take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue

from flambeau.dialects import stablehlo
from flambeau.engines.errors import EngineError
from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of
from flambeau.ir import dtypes
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.combining import JOINS
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.linalg.conv import convolve_padded
from flambeau.lowering.linalg.pad import resize_border
from flambeau.lowering.slices import spread
from flambeau.lowering.stablehlo.ops import REDUCERS
from flambeau.lowering.verbs import Windows
from flambeau.lowering.whole.values import shape_of


@cache
def _in_order(n: int) -> Attribute:
    """Make the layouts [batch, channels, *n], [features, channels, *n] to [batch, features, *n]."""
    places = tuple(range(2, 2 + n))
    return stablehlo.conv_dimension_numbers(0, 1, places, 1, 0, places, 0, 1, places)


def _is_dynamic(op: Operation) -> bool:
    return any(None in shape_of(v) for v in (*op.operands, op.results[0]))


def _reshape(b: LinalgBuilder, op: Operation) -> Tensor:
    return b.reshape(_operand(op, 0), sizes_of(op.operands[1], b))


def _pad(b: LinalgBuilder, op: Operation) -> Tensor:
    x = _operand(op, 0)
    fill = b.value(tensor.ExtractOp, (op.operands[1],), x.dtype.builtin)
    return b.pad(x, sizes_of(op.operands[2], b), sizes_of(op.operands[3], b), Element(b, fill, x.dtype))


def _concatenation(b: LinalgBuilder, op: Operation) -> Tensor:
    dim = {"dim": op.properties["dimension"]}
    return Tensor(b.value(tensor.ConcatOp, op.operands, op.results[0].type, dim), dtype_of(op.results[0]))


def _gathers_elements(op: Operation) -> bool:
    """Tell whether single elements are gathered, at positions whose number is dynamic."""
    sizes: Any = op.properties["slice_sizes"]
    return _is_dynamic(op) and set(sizes.get_values()) <= {1}


def _gather(b: LinalgBuilder, op: Operation) -> Tensor:
    x, indices = _operand(op, 0), Tensor(op.operands[1], dtypes.int64)
    *sizes, _ = b.sizes(indices)

    def element(*at: SSAValue) -> Element:
        return b.load(x, [b.as_index(b.load(indices, [*at, d])) for d in range(x.rank)])

    return b.generate(sizes, x.dtype, element)


def _is_awkward_convolution(op: Operation) -> bool:
    """Tell whether IREE does not take a convolution, or gets it wrong. Ours have their dims in one order.

    It takes dynamic sizes of the batch only, and none at all in groups; dies of complex numbers that are padded or
    spread; has no grouped convolution whose result is wider than its operands; and trips over what lies behind a single
    window.
    """
    (batch, *places), kernel = (shape_of(v) for v in op.operands)
    n = len(kernel) - 2
    if op.properties["dimension_numbers"] != _in_order(n):
        return False
    groups: Any = op.properties["feature_group_count"]
    in_groups, narrow, wide = groups.value.data > 1, dtype_of(op.operands[0]), dtype_of(op.results[0])
    if None in (*places, *kernel) or (in_groups and (batch is None or narrow.size < wide.size)):
        return True
    edges: Any = op.properties["padding"]
    given = list(edges.get_values())
    spread, dilations = _numbers(op, "lhs_dilation", n), _numbers(op, "rhs_dilation", n)
    if wide.is_complex and any(number > 0 for number in (*given, *(s - 1 for s in spread))):
        return True
    return any(
        shape_of(op.results[0])[2 + i] == 1
        and (places[1 + i] - 1) * spread[i] + given[2 * i] + given[2 * i + 1] > (kernel[2 + i] - 1) * dilations[i]  # type: ignore[operator]
        for i in range(n)
    )


def _product(b: LinalgBuilder, op: Operation) -> Tensor:
    """Lower a `dot_general` to a product of matrices, or of a batch of them."""
    numbers: Any = op.properties["dot_dimension_numbers"]
    x_batch, y_batch, x_sum, y_sum = numbers.data
    x, y = _operand(op, 0), _operand(op, 1)
    x_free = [d for d in range(x.rank) if d not in (*x_batch, *x_sum)]
    y_free = [d for d in range(y.rank) if d not in (*y_batch, *y_sum)]
    xs, ys = b.sizes(x), b.sizes(y)
    left = _grouped(b, x, x_batch, x_free, x_sum)
    right = _grouped(b, y, y_batch, y_sum, y_free)
    name = "batch_matmul" if x_batch else "matmul"
    out = b.contract(name, [left, right], [*b.sizes(left)[:-1], b.size(right, -1)])
    sizes = [*(xs[d] for d in (*x_batch, *x_free)), *(ys[d] for d in y_free)]
    return b.to(b.reshape(out, sizes), dtype_of(op.results[0]))


def _convolution(b: LinalgBuilder, op: Operation) -> Tensor:
    x, weight = _operand(op, 0), _operand(op, 1)
    n = x.rank - 2
    strides, apart, dilations = (_numbers(op, name, n) for name in ("window_strides", "lhs_dilation", "rhs_dilation"))
    for dim, step in enumerate(apart, start=2):
        if step > 1:
            x = spread(b, x, dim, step, b.add(b.mul(b.sub(b.size(x, dim), 1), step), 1))
    edges: Any = op.properties["padding"]
    given = list(edges.get_values())
    low, high = ([0, 0, *given[side::2]] for side in (0, 1))
    groups: Any = op.properties["feature_group_count"]
    padded = resize_border(b, x, low, high, 0)
    return b.to(convolve_padded(b, padded, weight, strides, dilations, groups.value.data), dtype_of(op.results[0]))


def _numbers(op: Operation, name: str, n: int) -> list[int]:
    found: Any = op.properties.get(name)
    return [int(v) for v in found.get_values()] if found is not None else [1] * n


def _grouped(b: LinalgBuilder, x: Tensor, *groups: Sequence[int]) -> Tensor:
    """Reshape to one dim for each group of dims; an empty first group has none."""
    sizes = b.sizes(x)
    kept = groups if groups[0] else groups[1:]
    return b.reshape(
        b.transpose(x, [d for g in kept for d in g]), [b.product([sizes[d] for d in group]) for group in kept]
    )


def sizes_of(operand: SSAValue, b: LinalgBuilder) -> list[Size]:
    """Return the sizes that a shape operand was made of; EngineError if it was not made of sizes."""
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


def _is_awkward_window(op: Operation) -> bool:
    """Tell whether windows are over a dynamic size, which IREE refuses, or one is single, which it cuts wrongly."""
    window: Any = op.properties["window_dimensions"]
    plain = not {"padding", "base_dilations"} & op.properties.keys()
    single = any(k > 1 and size == 1 for k, size in zip(window.get_values(), shape_of(op.results[0]), strict=True))
    return plain and len(op.results) == 1 and (single or _is_dynamic(op)) and kind_of(op) is not None


def _windows(b: LinalgBuilder, op: Operation) -> Tensor:
    x, kind = _operand(op, 0), kind_of(op)
    assert kind is not None
    kernel, strides, dilations = (
        _numbers(op, f"window_{name}", x.rank) for name in ("dimensions", "strides", "dilations")
    )
    lead = next((i for i, k in enumerate(kernel) if k > 1), x.rank - 1)
    out = [
        b.add(b.floordiv(b.sub(b.sub(size, (k - 1) * d), 1), s), 1)
        for size, k, s, d in zip(b.sizes(x), kernel, strides, dilations, strict=True)
    ]
    start = Element(b, b.value(tensor.ExtractOp, (op.operands[1],), x.dtype.builtin), x.dtype)
    at = Windows(kernel[lead:], out[lead:], strides[lead:], dilations[lead:])
    return b.window_reduce(x, at, [(start, x.dtype)], JOINS[kind])[0]


_KINDS = {f"stablehlo.{name}": kind for kind, name in REDUCERS.items()}


def kind_of(op: Operation) -> str | None:
    """Return how a reduction's or scatter's region combines two elements, a kind of `JOINS`; None for other regions."""
    inner = list(op.regions[0].block.ops)
    return _KINDS.get(inner[0].name) if len(inner) == 2 else None


def _operand(op: Operation, index: int) -> Tensor:
    return Tensor(op.operands[index], dtype_of(op.operands[index]))


Dynamic = tuple[Callable[[Operation], bool], Callable[[LinalgBuilder, Operation], Tensor]]
_TAKEN_OVER: dict[str, Dynamic] = {
    "stablehlo.dynamic_reshape": (lambda op: True, _reshape),
    "stablehlo.dynamic_pad": (lambda op: True, _pad),
    "stablehlo.gather": (_gathers_elements, _gather),
    # IREE puts parts that are computed on the stack, whatever their size.
    "stablehlo.concatenate": (_is_dynamic, _concatenation),
    # IREE reshapes rows, columns and factors of outer products, which fails at dynamic sizes.
    "stablehlo.dot_general": (_is_dynamic, _product),
    "stablehlo.convolution": (_is_awkward_convolution, _convolution),
    "stablehlo.reduce_window": (_is_awkward_window, _windows),
}
"""Whether an op is one that IREE does not take, and what it is in linalg."""


def _found(module: ModuleOp) -> Iterator[Operation]:
    return (op for op in module.walk() if op.name in _TAKEN_OVER and _TAKEN_OVER[op.name][0](op))


def _replace(op: Operation) -> SSAValue:
    b = builder_before(op)
    value = _TAKEN_OVER[op.name][1](b, op).value
    wanted = op.results[0].type
    return value if value.type == wanted else b.value(tensor.CastOp, (value,), wanted)


DYNAMIC_OPS = Rewrite(_found, _replace)
