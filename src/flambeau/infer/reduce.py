"""Shapes and dtypes of reductions, distances and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.infer.rules import (
    Dim,
    InferenceError,
    Meta,
    broadcast,
    broadcast_metas,
    dtype_or,
    infer_rule,
    normal_dim,
    promoted,
    promoted_float,
    sizes,
)
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType, promote


def reduced(shape: Sequence[Dim], dims: Any, keepdim: bool) -> tuple[Dim, ...]:
    """Drop the reduced dims from a shape, or make them 1 with `keepdim`; None and the empty list mean all dims."""
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


def sum_dtype(x: Meta, code: int | None) -> DType:
    """Choose the dtype of a sum: the one that `code` names, or else int64 of integers and that of `x` of the rest."""
    return dtype_or(code, dtypes.int64 if x.dtype.is_integral else x.dtype)


@infer_rule("aten.sum", "aten.prod")
def total(x: Meta, dtype: int | None) -> Meta:
    return Meta((), sum_dtype(x, dtype))


@infer_rule("aten.sum.dim_IntList", "aten.nansum", "aten.prod.dim_int")
def sum_dims(x: Meta, dims: Any, keepdim: bool, dtype: int | None) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), sum_dtype(x, dtype))


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


@infer_rule("aten.mean")
def mean(x: Meta, dtype: int | None) -> Meta:
    return Meta((), dtype_or(dtype, x.dtype))


@infer_rule("aten.mean.dim")
def mean_dims(x: Meta, dims: Any, keepdim: bool, dtype: int | None) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), dtype_or(dtype, x.dtype))


@infer_rule("aten.amax", "aten.amin")
def extremes(x: Meta, dims: Any, keepdim: bool) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), x.dtype)


@infer_rule("aten.aminmax")
def aminmax(x: Meta, dim: int | None, keepdim: bool) -> tuple[Meta, Meta]:
    return extremes(x, dim, keepdim), extremes(x, dim, keepdim)


@infer_rule("aten.max", "aten.min")
def extreme(x: Meta) -> Meta:
    return Meta((), x.dtype)


@infer_rule("aten.max.dim", "aten.min.dim")
def extreme_dim(x: Meta, dim: int, keepdim: bool) -> tuple[Meta, Meta]:
    if x.shape and x.shape[normal_dim(dim, len(x.shape))] == 0:
        raise InferenceError(f"dim {dim} has size 0: there is nothing to choose from")
    shape = reduced(x.shape, dim, keepdim)
    return Meta(shape, x.dtype), Meta(shape, dtypes.int64)


@infer_rule("aten.argmax", "aten.argmin")
def arg_extreme(x: Meta, dim: int | None, keepdim: bool) -> Meta:
    return Meta(reduced(x.shape, dim, keepdim), dtypes.int64)


@infer_rule("aten.all.dims", "aten.any.dims", "aten.all.dim", "aten.any.dim")
def all_dims(x: Meta, dims: Any, keepdim: bool) -> Meta:
    """Infer `all` and `any` over dims: unlike other reductions, an empty list of dims reduces none."""
    shape = x.shape if dims == [] else reduced(x.shape, dims, keepdim)
    return Meta(shape, dtypes.uint8 if x.dtype is dtypes.uint8 else dtypes.bool_)


infer_rule("aten.all", "aten.any")(lambda x: all_dims(x, None, False))


@infer_rule("aten.hash_tensor")
def hash_tensor(x: Meta, dims: Any, keepdim: bool, mode: int) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), dtypes.uint64)


@infer_rule("aten.var.correction", "aten.std.correction")
def var(x: Meta, dims: Any, correction: Any, keepdim: bool) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), x.dtype.real)


infer_rule("aten.var.dim", "aten.std.dim")(lambda x, dims, unbiased, keepdim: var(x, dims, None, keepdim))
infer_rule("aten.var", "aten.std")(lambda x, unbiased: var(x, None, None, False))


@infer_rule("prims.var")
def prims_var(x: Meta, dims: Any, correction: Any, dtype: int | None) -> Meta:
    return Meta(reduced(x.shape, dims, False), dtype_or(dtype, x.dtype.real))


@infer_rule("aten.var_mean.correction", "aten.std_mean.correction")
def var_mean(x: Meta, dims: Any, correction: Any, keepdim: bool) -> tuple[Meta, Meta]:
    shape = reduced(x.shape, dims, keepdim)
    return Meta(shape, x.dtype.real), Meta(shape, x.dtype)


infer_rule("aten.var_mean.dim", "aten.std_mean.dim")(lambda x, dims, _, keepdim: var_mean(x, dims, None, keepdim))
infer_rule("aten.var_mean", "aten.std_mean")(lambda x, unbiased: var_mean(x, None, None, False))


@infer_rule("aten.logsumexp", "aten.special_logsumexp")
def logsumexp(x: Meta, dims: Any, keepdim: bool) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), promoted_float(x))


@infer_rule("aten.linalg_vector_norm", "aten.linalg_norm", "aten.norm.ScalarOpt_dim_dtype")
def vector_norm(x: Meta, order: Any, dims: Any, keepdim: bool, dtype: int | None) -> Meta:
    return Meta(reduced(x.shape, dims, keepdim), dtype_or(dtype, x.dtype).real)


infer_rule("aten.norm.Scalar")(lambda x, p: vector_norm(x, p, None, False, None))
infer_rule("aten.norm.ScalarOpt_dtype")(lambda x, p, dtype: vector_norm(x, p, None, False, dtype))
infer_rule("aten.norm.ScalarOpt_dim")(lambda x, p, dims, keepdim: vector_norm(x, p, dims, keepdim, None))
infer_rule("aten.frobenius_norm.dim")(lambda x, dims, keepdim: vector_norm(x, 2, dims, keepdim, None))


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


@infer_rule("aten._cdist_forward")
def cdist(x: Meta, y: Meta, p: float, mode: Any = None) -> Meta:
    batch = broadcast(x.shape[:-2], y.shape[:-2])
    return Meta((*batch, x.shape[-2], y.shape[-2]), x.dtype)


@infer_rule("aten._pdist_forward")
def pdist(x: Meta, p: float = 2.0) -> Meta:
    n = x.shape[0]
    return Meta((None if n is None else n * (n - 1) // 2,), x.dtype)


@infer_rule("aten.histc")
def histc(x: Meta, bins: int = 100, *_: Any) -> Meta:
    return Meta((bins if isinstance(bins, int) else None,), x.dtype)


@infer_rule("aten._histogramdd_bin_edges")
def histogramdd_bin_edges(x: Meta, bins: list[int], *_: Any) -> list[Meta]:
    return [Meta((None if n is None else n + 1,), x.dtype) for n in sizes(bins)]


infer_rule("aten._histogramdd_from_bin_cts")(lambda x, bins, *_: Meta(sizes(bins), x.dtype))


@infer_rule("aten._histogramdd_from_bin_tensors")
def histogramdd(x: Meta, edges: list[Meta], *_: Any) -> Meta:
    return Meta(tuple(None if e.shape[0] is None else e.shape[0] - 1 for e in edges), x.dtype)
