"""Tensors out of nothing: filled, counted, triangular."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import IndexType
from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.verbs import RuleBuilder


@linalg_rule("aten.full")
def full(b: RuleBuilder, sizes: list[Size], value: Any, *_: Any) -> Tensor:
    return b.full(sizes, value, b.out_dtype)


@linalg_rule("aten.zeros", "aten.empty.memory_format", "aten.empty_permuted")
def zeros(b: RuleBuilder, sizes: list[Size], *_: Any) -> Tensor:
    return b.full(sizes, 0, b.out_dtype)


@linalg_rule("aten.empty_strided")
def empty_strided(b: RuleBuilder, sizes: list[Size], *_: Any) -> Tensor:
    return b.full(sizes, 0, b.out_dtype)


@linalg_rule("aten.ones")
def ones(b: RuleBuilder, sizes: list[Size], *_: Any) -> Tensor:
    return b.full(sizes, 1, b.out_dtype)


@linalg_rule("aten.full_like")
def full_like(b: RuleBuilder, x: Tensor, value: Any, *_: Any) -> Tensor:
    return b.full(b.sizes(x), value, b.out_dtype)


@linalg_rule("aten.zeros_like", "aten.empty_like")
def zeros_like(b: RuleBuilder, x: Tensor, *_: Any) -> Tensor:
    return b.full(b.sizes(x), 0, b.out_dtype)


@linalg_rule("aten.ones_like")
def ones_like(b: RuleBuilder, x: Tensor, *_: Any) -> Tensor:
    return b.full(b.sizes(x), 1, b.out_dtype)


@linalg_rule("aten.new_full")
def new_full(b: RuleBuilder, x: Tensor, sizes: list[Size], value: Any, *_: Any) -> Tensor:
    return b.full(sizes, value, b.out_dtype)


@linalg_rule("aten.new_zeros", "aten.new_empty", "aten.new_empty_strided")
def new_zeros(b: RuleBuilder, x: Tensor, sizes: list[Size], *_: Any) -> Tensor:
    return b.full(sizes, 0, b.out_dtype)


@linalg_rule("aten.new_ones")
def new_ones(b: RuleBuilder, x: Tensor, sizes: list[Size], *_: Any) -> Tensor:
    return b.full(sizes, 1, b.out_dtype)


@linalg_rule("aten.scalar_tensor")
def scalar_tensor(b: RuleBuilder, value: Any, *_: Any) -> Tensor:
    return b.full([], value, b.out_dtype)


@linalg_rule("aten.fill.Scalar")
def fill_scalar(b: RuleBuilder, x: Tensor, value: Any) -> Tensor:
    return b.full(b.sizes(x), value, x.dtype)


@linalg_rule("aten.fill.Tensor")
def fill_tensor(b: RuleBuilder, x: Tensor, value: Tensor) -> Tensor:
    return b.broadcast_to(b.to(value, x.dtype), b.sizes(x))


@linalg_rule("prim.NumToTensor.Scalar", "aten.tensor.int", "aten.tensor.float", "aten.tensor.bool")
def num_to_tensor(b: RuleBuilder, value: Any, *_: Any) -> Tensor:
    return b.full([], value, b.out_dtype)


@linalg_rule("aten.item", "aten._local_scalar_dense", "aten.ScalarImplicit")
def item(b: RuleBuilder, x: Tensor) -> Any:
    if x.dtype.is_float:
        return float_of(b, x)
    return b.item(x) if x.dtype.is_bool else int_of(b, x)


@linalg_rule("aten.Bool.Tensor")
def bool_of(b: RuleBuilder, x: Tensor) -> Any:
    return b.number_of(x, dtypes.bool_)


@linalg_rule("aten.Int.Tensor", "aten.IntImplicit")
def int_of(b: RuleBuilder, x: Tensor) -> Any:
    if x.dtype.is_float:
        b.check_elements(x, lambda e: abs(e.to(e.dtype.compute)) < 2.0**63, "a float that is no 64-bit integer")
    return b.as_index(Element(b, b.number_of(x, dtypes.int64), dtypes.int64))


@linalg_rule("aten.Float.Tensor", "aten.FloatImplicit")
def float_of(b: RuleBuilder, x: Tensor) -> Any:
    return b.number_of(x, dtypes.float64)


# --- Counting ---


@linalg_rule("aten.arange")
def arange(b: RuleBuilder, end: Any, *_: Any) -> Tensor:
    return arange_step(b, 0, end, 1)


@linalg_rule("aten.arange.start")
def arange_start(b: RuleBuilder, start: Any, end: Any, *_: Any) -> Tensor:
    return arange_step(b, start, end, 1)


@linalg_rule("aten.arange.start_step")
def arange_step(b: RuleBuilder, start: Any, end: Any, step: Any, *_: Any) -> Tensor:
    dtype = b.out_dtype
    known = b.out_shape[0]
    if known is not None:
        length: Size = known
    elif not (isinstance(step, int) or (isinstance(step, SSAValue) and isinstance(step.type, IndexType))):
        raise Unsupported("arange of a dynamic length with a step that is not an int")
    else:
        length = b.maximum(b.ceildiv(b.sub(end, start), step), 0)
    # Floats are counted in f64 and rounded once, as PyTorch does.
    counting = dtypes.float64 if dtype.is_float else dtypes.int64

    def value(i: SSAValue) -> Element:
        return b.scalar(i).to(counting) * b.element(step, counting) + b.element(start, counting)

    return b.generate([length], dtype, value)


@linalg_rule("prims.iota")
def iota(b: RuleBuilder, length: Size, start: Any, step: Any, *_: Any) -> Tensor:
    def value(i: SSAValue) -> Element:
        return b.scalar(i) * b.element(step, dtypes.int64) + b.element(start, dtypes.int64)

    return b.generate([length], b.out_dtype, value)


@linalg_rule("aten.linspace")
def linspace(b: RuleBuilder, start: Any, end: Any, steps: Any, *_: Any) -> Tensor:
    dtype = b.out_dtype
    compute = dtypes.float64 if dtype.is_integral or dtype is dtypes.float64 else dtypes.float32
    length = b.out_shape[0] if b.out_shape[0] is not None else steps

    def value(i: SSAValue) -> Element:
        position = b.scalar(i)
        count = b.scalar(b.index(length))
        last = count - 1
        low, high = b.element(start, compute), b.element(end, compute)
        step = (high - low) / (last == 0).select(last.like(1), last).to(compute)
        # From both ends, so that the last value is exact.
        from_end = high - step * (last - position).to(compute)
        return (position < count.floor_divide(2)).select(low + step * position.to(compute), from_end)

    if isinstance(length, int) and length == 1:
        return b.full([1], start, dtype)
    return b.generate([length], dtype, value)


@linalg_rule("aten.eye")
def eye(b: RuleBuilder, n: Size, *_: Any) -> Tensor:
    return _eye(b, n, n)


@linalg_rule("aten.eye.m")
def eye_m(b: RuleBuilder, n: Size, m: Size, *_: Any) -> Tensor:
    return _eye(b, n, m)


def _eye(b: RuleBuilder, *sizes: Size) -> Tensor:
    shape = [known if known is not None else size for known, size in zip(b.out_shape, sizes, strict=True)]

    def on_diagonal(i: SSAValue, j: SSAValue) -> Element:
        return b.scalar_bool(b.compare("eq", i, j))

    return b.generate(shape, b.out_dtype, on_diagonal)


# --- Triangles ---


def _triangle(b: RuleBuilder, x: Tensor, keep: Any) -> Tensor:
    def at(position: list[SSAValue], e: Element) -> Element:
        column_minus_row = b.sub(position[-1], position[-2])
        return b.scalar_bool(keep(column_minus_row)).select(e, 0)

    return b.map_indexed([x], b.sizes(x), x.dtype, at)


@linalg_rule("aten.tril")
def tril(b: RuleBuilder, x: Tensor, diagonal: Size) -> Tensor:
    return _triangle(b, x, lambda d: b.compare("sle", d, diagonal))


@linalg_rule("aten.triu")
def triu(b: RuleBuilder, x: Tensor, diagonal: Size) -> Tensor:
    return _triangle(b, x, lambda d: b.compare("sge", d, diagonal))
