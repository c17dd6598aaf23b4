"""Shapes and dtypes of reductions, softmax, normalisations and scans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.infer.rules import Dim, Meta, infer_rule, normal_dim, promoted_float
from flambeau.ir import dtypes
from flambeau.ir.dtypes import BY_CODE, DType


def reduced(shape: Sequence[Dim], dims: Any, keepdim: bool) -> tuple[Dim, ...]:
    """The shape without the reduced dims; None and the empty list mean all."""
    rank = len(shape)
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        gone = set(range(rank))
    else:
        gone = {normal_dim(d, rank) for d in (dims if isinstance(dims, (list, tuple)) else [dims])}
    if keepdim:
        return tuple(1 if i in gone else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in gone)


def _sum_dtype(x: Meta, code: int | None) -> DType:
    if code is not None:
        return BY_CODE[code]
    return dtypes.int64 if x.dtype.is_integral else x.dtype


def _float_dtype(x: Meta, code: int | None) -> DType:
    return BY_CODE[code] if code is not None else x.dtype


@infer_rule("aten.sum", "aten.prod")
def total(x: Meta, dtype: int | None) -> Meta:
    return Meta((), _sum_dtype(x, dtype))


@infer_rule("aten.sum.dim_IntList")
def sum_dims(x: Meta, dims: Any, keepdim: bool, dtype: int | None) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), _sum_dtype(x, dtype))


@infer_rule("aten.prod.dim_int")
def prod_dim(x: Meta, dim: int, keepdim: bool, dtype: int | None) -> Meta:
    return Meta(reduced(x.shape, dim, keepdim), _sum_dtype(x, dtype))


@infer_rule("aten.mean")
def mean(x: Meta, dtype: int | None) -> Meta:
    return Meta((), _float_dtype(x, dtype))


@infer_rule("aten.mean.dim")
def mean_dims(x: Meta, dims: Any, keepdim: bool, dtype: int | None) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), _float_dtype(x, dtype))


@infer_rule("aten.amax", "aten.amin")
def extremes(x: Meta, dims: Any, keepdim: bool) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), x.dtype)


@infer_rule("aten.max", "aten.min")
def extreme(x: Meta) -> Meta:
    return Meta((), x.dtype)


@infer_rule("aten.max.dim", "aten.min.dim")
def extreme_dim(x: Meta, dim: int, keepdim: bool) -> tuple[Meta, Meta]:
    shape = reduced(x.shape, dim, keepdim)
    return Meta(shape, x.dtype), Meta(shape, dtypes.int64)


@infer_rule("aten.argmax", "aten.argmin")
def arg_extreme(x: Meta, dim: int | None, keepdim: bool) -> Meta:
    return Meta(reduced(x.shape, dim, keepdim), dtypes.int64)


@infer_rule("aten.all", "aten.any")
def all_(x: Meta) -> Meta:
    return Meta((), dtypes.uint8 if x.dtype is dtypes.uint8 else dtypes.bool_)


@infer_rule("aten.all.dim", "aten.any.dim", "aten.all.dims", "aten.any.dims")
def all_dims(x: Meta, dims: Any, keepdim: bool) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), dtypes.uint8 if x.dtype is dtypes.uint8 else dtypes.bool_)


@infer_rule("aten.var.correction", "aten.std.correction")
def var(x: Meta, dims: Any, correction: Any, keepdim: bool) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), x.dtype.real)


@infer_rule("aten.var_mean.correction", "aten.std_mean.correction")
def var_mean(x: Meta, dims: Any, correction: Any, keepdim: bool) -> tuple[Meta, Meta]:
    shape = reduced(x.shape, dims, keepdim)
    return Meta(shape, x.dtype.real), Meta(shape, x.dtype)


@infer_rule("aten.logsumexp")
def logsumexp(x: Meta, dims: Any, keepdim: bool) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), promoted_float(x))


@infer_rule("aten.softmax.int", "aten.log_softmax.int")
def softmax(x: Meta, dim: int, dtype: int | None) -> Meta:
    return Meta(x.shape, _float_dtype(x, dtype))


@infer_rule("aten.cumsum", "aten.cumprod")
def cumsum(x: Meta, dim: int, dtype: int | None) -> Meta:
    return Meta(x.shape, _sum_dtype(x, dtype))


@infer_rule("aten.layer_norm", "aten.group_norm", "aten.batch_norm", "aten.rms_norm", "aten.instance_norm")
def norm(x: Meta, *_: Any) -> Meta:
    return x


@infer_rule("aten.linalg_vector_norm")
def vector_norm(x: Meta, order: Any, dims: Any, keepdim: bool, dtype: int | None) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), _float_dtype(x, dtype).real)
