"""Shapes and dtypes of tensors that are made from numbers."""

from __future__ import annotations

import math
from typing import Any

from flambeau.infer.rules import (
    InferenceError,
    Meta,
    Unknown,
    dtype_or,
    infer_rule,
    known,
    product,
    promoted,
    same,
    size,
    sizes,
)
from flambeau.ir import dtypes
from flambeau.ir.dtypes import Category, DType

infer_rule(
    "aten.fill.Scalar", "aten.fill.Tensor", "aten.zero", "aten.tril", "aten.triu"
)(same)  # fmt: skip


@infer_rule("aten.zeros", "aten.ones", "aten.empty.memory_format")
def zeros(shape: list[Any], dtype: int | None, *_: Any) -> Meta:
    return Meta(sizes(shape), dtype_or(dtype, dtypes.float32))


@infer_rule("aten.empty_strided", "aten.empty_permuted")
def strided(shape: list[Any], layout: Any, dtype: int | None, *_: Any) -> Meta:
    return zeros(shape, dtype)


@infer_rule("aten.full")
def full(shape: list[Any], value: Any, dtype: int | None, *_: Any) -> Meta:
    return Meta(sizes(shape), promoted(value) if dtype is None else dtype_or(dtype, dtypes.float32))


@infer_rule("aten.zeros_like", "aten.ones_like", "aten.empty_like")
def zeros_like(x: Meta, dtype: int | None, *_: Any) -> Meta:
    return Meta(x.shape, dtype_or(dtype, x.dtype))


infer_rule("aten.full_like")(lambda x, value, dtype, *_: zeros_like(x, dtype))


@infer_rule("aten.new_zeros", "aten.new_ones", "aten.new_empty")
def new_zeros(x: Meta, shape: list[Any], dtype: int | None, *_: Any) -> Meta:
    return Meta(sizes(shape), dtype_or(dtype, x.dtype))


infer_rule("aten.new_full", "aten.new_empty_strided")(lambda x, shape, value, dtype, *_: new_zeros(x, shape, dtype))


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


infer_rule("aten.arange")(lambda end, dtype, *_: arange_step(0, end, 1, dtype))
infer_rule("aten.arange.start")(lambda start, end, dtype, *_: arange_step(start, end, 1, dtype))


@infer_rule("prims.iota")
def iota(length: Any, start: Any, step: Any, dtype: int, *_: Any) -> Meta:
    return Meta((size(length),), dtype_or(dtype, dtypes.int64))


@infer_rule(
    "aten.linspace", "aten.linspace.Tensor_Tensor", "aten.linspace.Tensor_Scalar", "aten.linspace.Scalar_Tensor"
)
def linspace(start: Any, end: Any, steps: Any, dtype: int | None, *_: Any) -> Meta:
    default = dtypes.complex64 if promoted(start, end).is_complex else dtypes.float32
    return Meta(sizes([steps]), dtype_or(dtype, default))


infer_rule("aten.logspace")(lambda start, end, steps, base, dtype, *_: linspace(start, end, steps, dtype))
infer_rule("aten.eye")(lambda n, dtype, *_: zeros([n, n], dtype))
infer_rule("aten.eye.m")(lambda n, m, dtype, *_: zeros([n, m], dtype))


@infer_rule("aten.tril_indices")
def tril_indices(rows: Any, columns: Any, offset: Any, dtype: int | None, *_: Any) -> Meta:
    count = _below(rows, columns, offset) if known(rows, columns, offset) else None
    return Meta((2, count), dtype_or(dtype, dtypes.int64))


@infer_rule("aten.triu_indices")
def triu_indices(rows: Any, columns: Any, offset: Any, dtype: int | None, *_: Any) -> Meta:
    count = rows * columns - _below(rows, columns, offset - 1) if known(rows, columns, offset) else None
    return Meta((2, count), dtype_or(dtype, dtypes.int64))


def _below(rows: int, columns: int, offset: int) -> int:
    """Count the elements of a matrix that are on the diagonal `offset` or below it."""
    return sum(min(max(row + 1 + offset, 0), columns) for row in range(rows))


infer_rule("aten.hann_window.periodic")(lambda length, periodic, dtype, *_: zeros([length], dtype))


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


# --- Numbers out of tensors ---


@infer_rule("aten._local_scalar_dense")
def first_element(x: Meta) -> Unknown:
    return Unknown(_ELEMENTS[x.dtype.category])


_ELEMENTS: dict[Category, type] = {
    Category.BOOL: bool,
    Category.INT: int,
    Category.FLOAT: float,
    Category.COMPLEX: complex,
}


@infer_rule("aten.item", "aten.ScalarImplicit")
def item(x: Meta) -> Unknown:
    if product(x.shape) not in (1, None):
        raise InferenceError(f"a tensor of shape {list(x.shape)} is not one number")
    return first_element(x)


infer_rule("aten.Int.Tensor", "aten.IntImplicit")(lambda x: Unknown(int))
infer_rule("aten.Float.Tensor", "aten.FloatImplicit")(lambda x: Unknown(float))
infer_rule("aten.Bool.Tensor", "aten.is_nonzero")(lambda x: Unknown(bool))


@infer_rule(
    "aten.bartlett_window", "aten.bartlett_window.periodic", "aten.blackman_window", "aten.blackman_window.periodic",
    "aten.hamming_window", "aten.hamming_window.periodic", "aten.hamming_window.periodic_alpha",
    "aten.hamming_window.periodic_alpha_beta", "aten.kaiser_window", "aten.kaiser_window.periodic",
    "aten.kaiser_window.beta", "aten.fft_fftfreq",
)  # fmt: skip
def window(length: Any, *rest: Any) -> Meta:
    """Make as many numbers, of the dtype that is the first of the last four arguments."""
    return zeros([length], rest[-4])


@infer_rule("aten.fft_rfftfreq")
def rfftfreq(length: Any, d: Any, dtype: int | None, *_: Any) -> Meta:
    return zeros([length // 2 + 1 if known(length) else length], dtype)


@infer_rule("aten.range.step")
def range_by_steps(start: Any, end: Any, step: Any, dtype: int | None, *_: Any) -> Meta:
    if not known(start, end, step):
        return Meta((None,), dtype_or(dtype, dtypes.float32))
    if step == 0 or (end - start) * step < 0:
        raise InferenceError(f"steps of {step} do not lead from {start} to {end}")
    return Meta((math.floor((end - start) / step) + 1,), dtype_or(dtype, dtypes.float32))


infer_rule("aten.range")(lambda start, end, dtype, *_: range_by_steps(start, end, 1, dtype))
