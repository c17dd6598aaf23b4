"""TOSA's reductions, products and windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import f32, i1, i8, i32, i64
from xdsl.ir import Attribute, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects import tosa
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor, static, tensor_type
from flambeau.lowering.combining import JOINS
from flambeau.lowering.element import Element
from flambeau.lowering.verbs import Body, Windows
from flambeau.lowering.whole.values import element_of, reduction_of, shape_of

if TYPE_CHECKING:
    from flambeau.lowering.tosa.ops import TosaOps

_REDUCE = {"add": "reduce_sum", "mul": "reduce_product", "max": "reduce_max", "min": "reduce_min"}
_REDUCE_BOOL = {
    "add": "reduce_any", "or": "reduce_any", "max": "reduce_any", "maxu": "reduce_any", "mul": "reduce_all",
    "and": "reduce_all", "min": "reduce_all", "minu": "reduce_all",
}  # fmt: skip


# --- Reductions ---


def reduce(t: TosaOps, kind: str, value: SSAValue, dims: Sequence[int], init: Any, dtype: DType) -> SSAValue:
    """Combine the elements along dims, which are dropped; narrow integers are combined in 32 bits."""
    shape = shape_of(value)
    element = element_of(value)
    names = _REDUCE_BOOL if element == i1 else _REDUCE
    narrow = element in (i8, dtypes.int16.builtin)
    if kind in names and not (kind == "mul" and dtype.is_int):
        work = t.convert(value, i32) if narrow else value
        source = work
        for dim in dims:
            work = _reduce_along(t, names[kind], work, dim)
        if dtype.is_float and kind in ("max", "min") and t.b.context.exact_extremes:
            work = _with_infinity(t, kind, source, work, dims)
        value = t.convert(work, element)
    else:
        for dim in dims:
            value = _halve(t, kind, value, dim, dtype)
    sizes = [1 if i in dims else s for i, s in enumerate(shape)]
    neutral = {"add": 0, "or": 0, "xor": 0, "mul": 1, "and": dtype.max if dtype.is_bool else -1}
    neutral |= {"max": dtype.min, "min": dtype.max, "maxu": dtype.min, "minu": dtype.max}
    if init != neutral[kind]:
        with t.b.frame([1] * len(sizes)):
            both = JOINS[kind](Element(t.b, value, dtype), init)
        value = both.value
    kept = [_length(t, value, i) for i in range(len(shape)) if i not in dims]
    return t.reshape(value, kept)


def _with_infinity(t: TosaOps, kind: str, source: SSAValue, found: SSAValue, dims: Sequence[int]) -> SSAValue:
    """Mend a maximum whose elements are all -inf (a minimum: inf), as engines start at the lowest finite number."""
    limit = float("-inf") if kind == "max" else float("inf")
    end = t.number(source, limit)
    only = t.on("equal", (source, end), i1)
    for dim in dims:
        only = _reduce_along(t, "reduce_all", only, dim)
    return t.on("select", (only, t.number(found, limit), found), element_of(found))


def _length(t: TosaOps, value: SSAValue, dim: int) -> Size:
    size = shape_of(value)[dim]
    return size if size is not None else t.dim_of([value], dim)


def _reduce_along(t: TosaOps, name: str, value: SSAValue, dim: int) -> SSAValue:
    shape = shape_of(value)
    properties: dict[str, Attribute] = {"axis": tosa.axis(dim)}
    if name in ("reduce_max", "reduce_min"):
        properties["nan_mode"] = tosa.nan_mode()
    type_ = tensor_type(tuple(1 if i == dim else s for i, s in enumerate(shape)), element_of(value))
    return t.make(name, (value,), type_, properties)


def _halve(t: TosaOps, kind: str, value: SSAValue, dim: int, dtype: DType) -> SSAValue:
    """Combine both halves of a dim until one element is left: for what TOSA has no reduction."""
    sizes = [_length(t, value, i) for i in range(len(shape_of(value)))]
    count = sizes[dim]
    if not isinstance(count, int):
        raise Unsupported(f"TOSA has no reduction ({kind}) of {dtype} along a size that only the run time knows")
    x = Tensor(value, dtype, sizes)
    steps = [1] * x.rank
    while count > 1:
        half, odd = divmod(count, 2)
        lengths = t.b.sizes(x)
        lengths[dim] = half
        first, second = (t.b.slice(x, [s if i == dim else 0 for i in range(x.rank)], lengths, steps) for s in (0, half))
        both = t.b.elementwise([first, second], JOINS[kind], dtype, lengths)
        if odd:
            lengths = [*lengths[:dim], 1, *lengths[dim + 1 :]]
            last = t.b.slice(x, [count - 1 if i == dim else 0 for i in range(x.rank)], lengths, steps)
            shape = tuple(half + 1 if i == dim else static(s) for i, s in enumerate(lengths))
            type_ = tensor_type(shape, element_of(both.value))
            both = Tensor(t.concatenate([both.value, last.value], dim, type_), dtype)
        x, count = both, half + odd
    return x.value


# --- Contractions and windows ---


def contract(t: TosaOps, name: str, ins: Sequence[Tensor], sizes: Sequence[Size], properties: Any) -> Tensor:
    """Build `matmul` and `batch_matmul`; integers accumulate in at least 32 bits."""
    dtype = ins[0].dtype.compute if t.b.context.zero_points is None else dtypes.int32
    if any(0 in x.shape for x in ins):
        return t.b.full(sizes, 0, dtype)
    if name not in ("matmul", "batch_matmul"):
        raise Unsupported(f"linalg.{name} in TOSA")
    if dtype.is_bool:
        raise Unsupported("a product of boolean matrices")
    batched = [x if name == "batch_matmul" else t.b.unsqueeze(x, 0) for x in ins]
    if dtype.is_int and t.b.context.zero_points is None:
        batched = [t.b.to(x, x.dtype if element_of(x.value) == i64 else dtypes.int32) for x in batched]
    zeros = t.zero_points(element_of(batched[0].value))
    shape = tuple(map(static, sizes if name == "batch_matmul" else [1, *sizes]))
    element = i32 if dtype.is_int and element_of(batched[0].value) != i64 else t.held(dtype.builtin)
    value = t.make("matmul", (*(x.value for x in batched), *zeros), tensor_type(shape, element))
    whole = sizes if name == "batch_matmul" else [1, *sizes]
    result = Tensor(value, dtypes.int32 if element == i32 and dtype.bits < 32 else dtype, whole)
    result = result if name == "batch_matmul" else t.b.reshape(result, sizes)
    return t.b.to(result, dtype)


def window_reduce(t: TosaOps, x: Tensor, at: Windows, init: tuple[Any, DType], body: Body) -> Tensor | None:
    """Reduce windows to a maximum or a sum by TOSA's poolings; None where they mean something else."""
    kernel = [k for k in at.kernel if isinstance(k, int)]
    if not len(kernel) == len(at.kernel) <= 2 or any(d != 1 for d in at.dilations):
        return None
    start, dtype = init
    lead, sizes = x.rank - len(kernel), t.b.sizes(x)
    if not (dtype.is_float or dtype is dtypes.int8) or 0 in x.shape:
        return None
    if None in x.shape[lead:] and any(s > 1 for s in at.strides):
        return None
    with t.b.frame(sizes):
        result = body(Element(t.b, x.value, x.dtype), t.b.accumulator(dtype))
        reduction = reduction_of(result.value)
        neutral = {"max": dtype.min, "add": 0 if dtype.is_float else None}
        if reduction is None or neutral.get(reduction.kind) != start:
            return None
        x = Tensor(t.b.spread(reduction.term, sizes), dtype, sizes)
    # Windows end with the input.
    reach = [
        size if not isinstance(o, int) else (o - 1) * s + k
        for size, o, s, k in zip(sizes[lead:], at.out, at.strides, kernel, strict=True)
    ]
    x = t.b.slice(x, [0] * x.rank, [*sizes[:lead], *reach], [1] * x.rank)
    return _pool(t, reduction.kind, x, kernel, at)


def _pool(t: TosaOps, kind: str, x: Tensor, kernel: list[int], at: Windows) -> Tensor:
    """Emit `max_pool2d`, or `avg_pool2d` times the number of elements."""
    lead, sizes = x.rank - len(kernel), t.b.sizes(x)
    plane, places, window, steps = sizes[lead:], list(at.out), kernel, list(at.strides)
    if len(kernel) == 1:
        plane, places, window, steps = [1, *plane], [1, *places], [1, *window], [1, *steps]
    # Batch and channels keep their places, other dims before the windows are one batch.
    channels = sizes[1] if lead == 2 else 1
    batch = sizes[0] if lead == 2 else t.b.product(sizes[:lead])
    last = t.b.transpose(t.b.reshape(x, [batch, channels, *plane]), [0, 2, 3, 1])
    wanted = [batch, *places, channels]
    type_ = tensor_type(tuple(map(static, wanted)), element_of(x.value))
    properties: dict[str, Attribute] = {
        "kernel": tosa.ints(window), "stride": tosa.ints(steps), "pad": tosa.ints([0] * 4),
    }  # fmt: skip
    if kind == "max":
        properties["nan_mode"] = tosa.nan_mode()
        value = t.make("max_pool2d", (last.value,), type_, properties)
        if x.dtype.is_float:
            # Engines start at the lowest number there is, where PyTorch starts at -inf.
            lowest = t.number(value, -dtypes.float32.largest)
            below = t.on("greater_equal", (lowest, value), i1)
            value = t.on("select", (below, t.number(value, float("-inf")), value), element_of(value))
    else:
        zero = t.zero_point(element_of(x.value))
        properties["acc_type"] = f32
        mean = t.make("avg_pool2d", (last.value, zero, zero), type_, properties)
        value = t.product_of(mean, t.number(mean, float(math.prod(kernel))))
    back = t.b.transpose(Tensor(value, x.dtype, wanted), [0, 3, 1, 2])
    return t.b.reshape(back, [*sizes[:lead], *at.out])
