"""Shapes and dtypes of reductions, softmax and scans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.infer.rules import (
    Dim,
    InferenceError,
    Meta,
    broadcast_metas,
    dtype_or,
    infer_rule,
    normal_dim,
    promoted,
    promoted_float,
)
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType, promote


def reduced(shape: Sequence[Dim], dims: Any, keepdim: bool) -> tuple[Dim, ...]:
    """The shape without the reduced dims; None and the empty list mean all."""
    rank = len(shape)
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        gone = set(range(rank))
    else:
        given = [normal_dim(d, rank) for d in (dims if isinstance(dims, (list, tuple)) else [dims])]
        gone = set(given)
        if len(gone) != len(given):
            raise InferenceError(f"dims {list(dims)} name a dim twice")
    if keepdim:
        return tuple(1 if i in gone else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in gone)


def _sum_dtype(x: Meta, code: int | None) -> DType:
    return dtype_or(code, dtypes.int64 if x.dtype.is_integral else x.dtype)


def _float_dtype(x: Meta, code: int | None) -> DType:
    return dtype_or(code, x.dtype)


@infer_rule("aten.sum", "aten.prod")
def total(x: Meta, dtype: int | None) -> Meta:
    return Meta((), _sum_dtype(x, dtype))


@infer_rule("aten.sum.dim_IntList", "aten.nansum")
def sum_dims(x: Meta, dims: Any, keepdim: bool, dtype: int | None) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), _sum_dtype(x, dtype))


@infer_rule("aten.nanmean")
def nanmean(x: Meta, dims: Any, keepdim: bool, dtype: int | None) -> Meta:
    if not x.dtype.is_float:
        raise InferenceError(f"nanmean of {x.dtype}")
    return sum_dims(x, dims, keepdim, dtype)


@infer_rule("prims.sum", "prims.prod")
def prims_sum(x: Meta, dims: Any, dtype: int | None) -> Meta:
    return Meta(reduced(x.shape, dims, False), dtype_or(dtype, x.dtype))


@infer_rule("aten.trace")
def trace(x: Meta) -> Meta:
    if x.rank != 2:
        raise InferenceError(f"the trace is of a matrix, not of a tensor of rank {x.rank}")
    return total(x, None)


@infer_rule("aten.count_nonzero", "aten.count_nonzero.dim_IntList")
def count_nonzero(x: Meta, dims: Any) -> Meta:
    return Meta(reduced(x.shape, dims, False), dtypes.int64)


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


@infer_rule("aten.aminmax")
def aminmax(x: Meta, dim: int | None, keepdim: bool) -> tuple[Meta, Meta]:
    return extremes(x, dim, keepdim), extremes(x, dim, keepdim)


@infer_rule("aten.max", "aten.min", "aten.median", "aten.nanmedian")
def extreme(x: Meta) -> Meta:
    return Meta((), x.dtype)


@infer_rule("aten.max.dim", "aten.min.dim", "aten.median.dim", "aten.nanmedian.dim", "aten.mode")
def extreme_dim(x: Meta, dim: int, keepdim: bool) -> tuple[Meta, Meta]:
    if x.shape and x.shape[normal_dim(dim, len(x.shape))] == 0:
        raise InferenceError(f"dim {dim} has size 0: there is nothing to choose from")
    shape = reduced(x.shape, dim, keepdim)
    return Meta(shape, x.dtype), Meta(shape, dtypes.int64)


@infer_rule("aten.kthvalue")
def kthvalue(x: Meta, k: Any, dim: int, keepdim: bool) -> tuple[Meta, Meta]:
    return extreme_dim(x, dim, keepdim)


@infer_rule("aten.argmax", "aten.argmin")
def arg_extreme(x: Meta, dim: int | None, keepdim: bool) -> Meta:
    return Meta(reduced(x.shape, dim, keepdim), dtypes.int64)


@infer_rule("aten.all", "aten.any")
def all_(x: Meta) -> Meta:
    return Meta((), dtypes.uint8 if x.dtype is dtypes.uint8 else dtypes.bool_)


@infer_rule("aten.all.dims", "aten.any.dims")
def all_given_dims(x: Meta, dims: Any, keepdim: bool) -> Meta:
    """Unlike other reductions, an empty list of dims reduces none."""
    return all_dims(x, dims, keepdim) if dims != [] else Meta(x.shape, all_dims(x, None, keepdim).dtype)


@infer_rule("aten.all.dim", "aten.any.dim")
def all_dims(x: Meta, dims: Any, keepdim: bool) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), dtypes.uint8 if x.dtype is dtypes.uint8 else dtypes.bool_)


@infer_rule("aten.hash_tensor")
def hash_tensor(x: Meta, dims: Any, keepdim: bool, mode: int) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), dtypes.uint64)


@infer_rule("aten.var.correction", "aten.std.correction")
def var(x: Meta, dims: Any, correction: Any, keepdim: bool) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), x.dtype.real)


@infer_rule("aten.var.dim", "aten.std.dim")
def var_dim(x: Meta, dims: Any, unbiased: bool, keepdim: bool) -> Meta:
    return var(x, dims, None, keepdim)


@infer_rule("aten.var", "aten.std")
def var_all(x: Meta, unbiased: bool) -> Meta:
    return var(x, None, None, False)


@infer_rule("prims.var")
def prims_var(x: Meta, dims: Any, correction: Any, dtype: int | None) -> Meta:
    return Meta(reduced(x.shape, dims, False), dtype_or(dtype, x.dtype.real))


@infer_rule("aten.var_mean.dim", "aten.std_mean.dim")
def var_mean_dim(x: Meta, dims: Any, unbiased: bool, keepdim: bool) -> tuple[Meta, Meta]:
    return var_mean(x, dims, None, keepdim)


@infer_rule("aten.var_mean", "aten.std_mean")
def var_mean_all(x: Meta, unbiased: bool) -> tuple[Meta, Meta]:
    return var_mean(x, None, None, False)


@infer_rule("aten.var_mean.correction", "aten.std_mean.correction")
def var_mean(x: Meta, dims: Any, correction: Any, keepdim: bool) -> tuple[Meta, Meta]:
    shape = reduced(x.shape, dims, keepdim)
    return Meta(shape, x.dtype.real), Meta(shape, x.dtype)


@infer_rule("aten.logsumexp", "aten.special_logsumexp")
def logsumexp(x: Meta, dims: Any, keepdim: bool) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), promoted_float(x))


@infer_rule("aten.softmax.int", "aten.log_softmax.int", "aten._safe_softmax")
def softmax(x: Meta, dim: int, dtype: int | None) -> Meta:
    return Meta(x.shape, _float_dtype(x, dtype))


@infer_rule("aten._softmax", "aten._log_softmax")
def softmax_half(x: Meta, dim: int, half_to_float: bool) -> Meta:
    return Meta(x.shape, dtypes.float32 if half_to_float else x.dtype)


@infer_rule("aten._softmax_backward_data", "aten._log_softmax_backward_data")
def softmax_backward(gradient: Meta, output: Meta, dim: int, dtype: int) -> Meta:
    return Meta(gradient.shape, dtype_or(dtype, gradient.dtype))


@infer_rule("aten.cummax", "aten.cummin")
def cummax(x: Meta, dim: int) -> tuple[Meta, Meta]:
    return x, Meta(x.shape, dtypes.int64)


@infer_rule("aten.logcumsumexp")
def logcumsumexp(x: Meta, dim: int) -> Meta:
    return x


@infer_rule("aten.cumsum", "aten.cumprod")
def cumsum(x: Meta, dim: int, dtype: int | None) -> Meta:
    return Meta(x.shape, _sum_dtype(x, dtype))


@infer_rule("aten.linalg_vector_norm")
def vector_norm(x: Meta, order: Any, dims: Any, keepdim: bool, dtype: int | None) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), _float_dtype(x, dtype).real)


@infer_rule("aten.linalg_norm")
def linalg_norm(x: Meta, order: Any, dims: Any, keepdim: bool, dtype: int | None) -> Meta:
    return vector_norm(x, order, dims, keepdim, dtype)


@infer_rule("aten.norm.Scalar")
def norm(x: Meta, p: Any) -> Meta:
    return vector_norm(x, p, None, False, None)


@infer_rule("aten.norm.ScalarOpt_dtype")
def norm_dtype(x: Meta, p: Any, dtype: int) -> Meta:
    return vector_norm(x, p, None, False, dtype)


@infer_rule("aten.norm.ScalarOpt_dim")
def norm_dim(x: Meta, p: Any, dims: Any, keepdim: bool) -> Meta:
    return vector_norm(x, p, dims, keepdim, None)


@infer_rule("aten.norm.ScalarOpt_dim_dtype")
def norm_dim_dtype(x: Meta, p: Any, dims: Any, keepdim: bool, dtype: int) -> Meta:
    return vector_norm(x, p, dims, keepdim, dtype)


@infer_rule("aten.frobenius_norm.dim")
def frobenius_norm(x: Meta, dims: Any, keepdim: bool) -> Meta:
    return vector_norm(x, 2, dims, keepdim, None)


@infer_rule("aten.dist")
def dist(x: Meta, y: Meta, p: Any) -> Meta:
    return Meta((), promoted(x, y).real)


@infer_rule("aten.linalg_vecdot")
def vecdot(x: Meta, y: Meta, dim: int) -> Meta:
    if x.rank == y.rank == 1:  # Of two vectors it is the dot product, whatever the dim.
        return Meta((), x.dtype)
    return Meta(reduced(broadcast_metas(x, y), dim, False), promoted(x, y))


@infer_rule("aten.cosine_similarity")
def cosine_similarity(x: Meta, y: Meta, dim: int, eps: Any) -> Meta:
    return Meta(reduced(broadcast_metas(x, y), dim, False), promote(x.dtype, y.dtype))


@infer_rule("aten.pairwise_distance")
def pairwise_distance(x: Meta, y: Meta, p: Any, eps: Any, keepdim: bool) -> Meta:
    return Meta(reduced(broadcast_metas(x, y), -1, keepdim), promoted_float(x, y).real)
