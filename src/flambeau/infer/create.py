"""Shapes and dtypes of tensors that are made from numbers."""

from __future__ import annotations

import math
from typing import Any

from flambeau.infer.rules import (
    InferenceError,
    Meta,
    Unknown,
    broadcast_metas,
    dtype_or,
    infer_rule,
    known,
    promoted,
    size,
    sizes,
)
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType


@infer_rule("aten.zeros", "aten.ones", "aten.empty.memory_format", "aten.rand", "aten.randn")
def zeros(shape: list[Any], dtype: int | None, *_: Any) -> Meta:
    return Meta(sizes(shape), dtype_or(dtype, dtypes.float32))


@infer_rule("aten.empty_strided", "aten.empty_permuted", "aten.randn.generator", "aten.rand.generator")
def strided(shape: list[Any], layout: Any, dtype: int | None, *_: Any) -> Meta:
    return zeros(shape, dtype)


@infer_rule("aten.full")
def full(shape: list[Any], value: Any, dtype: int | None, *_: Any) -> Meta:
    return Meta(sizes(shape), promoted(value) if dtype is None else dtype_or(dtype, dtypes.float32))


@infer_rule("aten.zeros_like", "aten.ones_like", "aten.empty_like", "aten.rand_like", "aten.randn_like")
def zeros_like(x: Meta, dtype: int | None, *_: Any) -> Meta:
    return Meta(x.shape, dtype_or(dtype, x.dtype))


@infer_rule("aten.full_like", "aten.randint_like")
def full_like(x: Meta, value: Any, dtype: int | None, *_: Any) -> Meta:
    return zeros_like(x, dtype)


@infer_rule("aten.randint_like.low_dtype")
def randint_like_low(x: Meta, low: Any, high: Any, dtype: int | None, *_: Any) -> Meta:
    return zeros_like(x, dtype)


@infer_rule("aten.new_zeros", "aten.new_ones", "aten.new_empty")
def new_zeros(x: Meta, shape: list[Any], dtype: int | None, *_: Any) -> Meta:
    return Meta(sizes(shape), dtype_or(dtype, x.dtype))


@infer_rule("aten.new_full", "aten.new_empty_strided")
def new_full(x: Meta, shape: list[Any], value: Any, dtype: int | None, *_: Any) -> Meta:
    return new_zeros(x, shape, dtype)


@infer_rule("aten.randint")
def randint(high: Any, shape: list[Any], dtype: int | None, *_: Any) -> Meta:
    return Meta(sizes(shape), dtype_or(dtype, dtypes.int64))


@infer_rule("aten.randint.low")
def randint_low(low: Any, high: Any, shape: list[Any], dtype: int | None, *_: Any) -> Meta:
    return randint(high, shape, dtype)


@infer_rule("aten.randperm")
def randperm(n: Any, dtype: int | None, *_: Any) -> Meta:
    return randint(n, [n], dtype)


@infer_rule("aten.arange")
def arange(end: Any, dtype: int | None, *_: Any) -> Meta:
    return arange_step(0, end, 1, dtype)


@infer_rule("aten.arange.start")
def arange_start(start: Any, end: Any, dtype: int | None, *_: Any) -> Meta:
    return arange_step(start, end, 1, dtype)


@infer_rule("aten.arange.start_step")
def arange_step(start: Any, end: Any, step: Any, dtype: int | None, *_: Any) -> Meta:
    if step == 0:
        raise InferenceError("the step of arange is zero")
    if dtype is None:
        result = dtypes.int64 if promoted(start, end, step).is_integral else dtypes.float32
    else:
        result = dtype_or(dtype, dtypes.int64)
    if not known(start, end, step):
        return Meta((None,), result)
    if (end - start) * step < 0:
        raise InferenceError(f"arange from {start} to {end} in steps of {step}")
    if result is dtypes.int64:
        start, end, step = int(start), int(end), int(step)
        return Meta((max(-((start - end) // step), 0),), result)
    return Meta((max(math.ceil((end - start) / step), 0),), result)


@infer_rule("prims.iota")
def iota(length: Any, start: Any, step: Any, dtype: int, *_: Any) -> Meta:
    return Meta((size(length),), dtype_or(dtype, dtypes.int64))


@infer_rule(
    "aten.linspace", "aten.linspace.Tensor_Tensor", "aten.linspace.Tensor_Scalar", "aten.linspace.Scalar_Tensor"
)
def linspace(start: Any, end: Any, steps: Any, dtype: int | None, *_: Any) -> Meta:
    default = dtypes.complex64 if promoted(start, end).is_complex else dtypes.float32
    return Meta(sizes([steps]), dtype_or(dtype, default))


@infer_rule("aten.logspace")
def logspace(start: Any, end: Any, steps: Any, base: Any, dtype: int | None, *_: Any) -> Meta:
    return linspace(start, end, steps, dtype)


@infer_rule("aten.eye")
def eye(n: Any, dtype: int | None, *_: Any) -> Meta:
    return zeros([n, n], dtype)


@infer_rule("aten.eye.m")
def eye_m(n: Any, m: Any, dtype: int | None, *_: Any) -> Meta:
    return zeros([n, m], dtype)


@infer_rule("aten.tril_indices")
def tril_indices(rows: Any, columns: Any, offset: Any, dtype: int | None, *_: Any) -> Meta:
    count = _below(rows, columns, offset) if known(rows, columns, offset) else None
    return Meta((2, count), dtype_or(dtype, dtypes.int64))


@infer_rule("aten.triu_indices")
def triu_indices(rows: Any, columns: Any, offset: Any, dtype: int | None, *_: Any) -> Meta:
    count = rows * columns - _below(rows, columns, offset - 1) if known(rows, columns, offset) else None
    return Meta((2, count), dtype_or(dtype, dtypes.int64))


def _below(rows: int, columns: int, offset: int) -> int:
    """How many elements of a matrix are on a diagonal or below it."""
    return sum(min(max(row + 1 + offset, 0), columns) for row in range(rows))


@infer_rule("aten.hann_window.periodic")
def window(length: Any, periodic: bool, dtype: int | None, *_: Any) -> Meta:
    return zeros([length], dtype)


@infer_rule("aten.scalar_tensor")
def scalar_tensor(value: Any, dtype: int | None, *_: Any) -> Meta:
    return Meta((), dtype_or(dtype, dtypes.float32))


@infer_rule("aten.tensor.int", "aten.tensor.float", "aten.tensor.bool", "aten.tensor.complex")
def tensor(value: Any, dtype: int | None, *_: Any) -> Meta:
    return full([], value, dtype)


@infer_rule("aten.tensor")
def tensor_of_list(values: Any, dtype: int | None, *_: Any) -> Meta:
    shape, elements = [], values
    while isinstance(elements, list):
        shape.append(len(elements))
        elements = elements[0] if elements else 0.0
    return full(shape, elements, dtype)


@infer_rule("prim.NumToTensor.Scalar", "prim.NumToTensor.bool")
def number_to_tensor(value: Any) -> Meta:
    kind = value.kind if isinstance(value, Unknown) else type(value)
    if kind not in _WIDE:
        raise InferenceError("the result's dtype depends on whether a number is an int or a float")
    return Meta((), _WIDE[kind])


_WIDE: dict[type, DType] = {
    bool: dtypes.bool_,
    int: dtypes.int64,
    float: dtypes.float64,
    complex: dtypes.complex128,
}
"""Python's numbers as tensors that lose nothing."""


@infer_rule("aten._shape_as_tensor")
def shape_as_tensor(x: Meta) -> Meta:
    return Meta((x.rank,), dtypes.int64)


@infer_rule("aten.multinomial")
def multinomial(x: Meta, count: Any, *_: Any) -> Meta:
    return Meta((*x.shape[:-1], size(count)), dtypes.int64)


@infer_rule("aten.normal.Tensor_Tensor", "aten.normal.Tensor_float")
def normal(mean: Meta, std: Any, generator: Any) -> Meta:
    return Meta(broadcast_metas(mean, std), mean.dtype)
