"""Shapes of pooling and resampling."""

from __future__ import annotations

import math
from typing import Any

from flambeau.infer.conv import window_count
from flambeau.infer.rules import Dim, InferenceError, Meta, infer_rule, known, size, spread
from flambeau.ir import dtypes


def _pooled(length: Dim, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Dim:
    """How many windows a pool has; with `ceil`, one may overhang the end if it starts within it."""
    if length is None or not known(kernel, stride, padding, dilation):
        return None
    overhang = stride - 1 if ceil else 0
    count = window_count(length, kernel, stride, 2 * padding + overhang, dilation)
    assert count is not None
    return count - 1 if ceil and (count - 1) * stride >= length + padding else count


def _pool(x: Meta, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Meta:
    if x.rank not in (rank + 1, rank + 2):
        raise InferenceError(f"a pool of {rank} dims takes tensors of rank {rank + 1} or {rank + 2}")
    settings = [spread(v, rank) for v in (kernel, stride or kernel, padding, dilation)]
    shape = [_pooled(d, k, s, p, dil, ceil) for d, k, s, p, dil in zip(x.shape[-rank:], *settings)]
    return Meta((*x.shape[:-rank], *shape), x.dtype)


def _pool_rules(rank: int) -> None:
    @infer_rule(f"aten.avg_pool{rank}d")
    def avg(x: Meta, kernel: Any, stride: Any, padding: Any, ceil: bool, *_: Any) -> Meta:
        return _pool(x, rank, kernel, stride, padding, [1], ceil)

    @infer_rule(f"aten.max_pool{rank}d")
    def maximum(x: Meta, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Meta:
        return _pool(x, rank, kernel, stride, padding, dilation, ceil)

    @infer_rule(f"aten.max_pool{rank}d_with_indices")
    def with_indices(x: Meta, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> tuple[Meta, Meta]:
        result = maximum(x, kernel, stride, padding, dilation, ceil)
        return result, Meta(result.shape, dtypes.int64)

    @infer_rule(f"aten.adaptive_avg_pool{rank}d", *([f"aten._adaptive_avg_pool{rank}d"] if rank > 1 else []))
    def adaptive_avg(x: Meta, output: Any) -> Meta:
        return Meta((*x.shape[:-rank], *map(size, spread(output, rank))), x.dtype)

    @infer_rule(f"aten.adaptive_max_pool{rank}d")
    def adaptive_max(x: Meta, output: Any) -> tuple[Meta, Meta]:
        result = adaptive_avg(x, output)
        return result, Meta(result.shape, dtypes.int64)


for _rank in (1, 2, 3):
    _pool_rules(_rank)


@infer_rule("aten.max_unpool2d")
def max_unpool2d(x: Meta, indices: Meta, output: list[Any]) -> Meta:
    return Meta((*x.shape[:-2], *map(size, output)), x.dtype)


@infer_rule("aten.max_unpool3d")
def max_unpool3d(x: Meta, indices: Meta, output: list[Any], *_: Any) -> Meta:
    return Meta((*x.shape[:-3], *map(size, output)), x.dtype)


# --- Resampling ---


@infer_rule(
    *(f"aten.{op}" for rank in (1, 2, 3) for op in (f"upsample_nearest{rank}d", f"_upsample_nearest_exact{rank}d")),
    "aten.upsample_linear1d", "aten.upsample_bilinear2d", "aten.upsample_bicubic2d", "aten.upsample_trilinear3d",
    "aten._upsample_bilinear2d_aa", "aten._upsample_bicubic2d_aa",
)  # fmt: skip
def upsample(x: Meta, output: Any, *_: Any) -> Meta:
    wanted = [size(n) for n in spread(output, x.rank - 2)]
    if len(wanted) != x.rank - 2 or 0 in (*wanted, *x.shape[2:]):
        raise InferenceError(f"images of {list(x.shape[2:])} pixels cannot be resized to {wanted}")
    return Meta((*x.shape[:2], *wanted), x.dtype)


def resampled(x: Meta, output: Any, scales: Any) -> Meta:
    """The result where either the sizes or their factors are given."""
    if output is not None:
        return upsample(x, output)
    if scales is None:
        raise InferenceError("neither sizes nor scale factors are given")
    factors = spread(scales, x.rank - 2)
    shape = [math.floor(d * s) if d is not None and known(s) else None for d, s in zip(x.shape[2:], factors)]
    return upsample(x, shape)


@infer_rule(*(f"aten.{op}.vec" for n in (1, 2, 3) for op in (f"upsample_nearest{n}d", f"_upsample_nearest_exact{n}d")))
def upsample_nearest_vec(x: Meta, output: Any, scales: Any) -> Meta:
    return resampled(x, output, scales)


@infer_rule(
    "aten.upsample_linear1d.vec", "aten.upsample_bilinear2d.vec", "aten.upsample_bicubic2d.vec",
    "aten.upsample_trilinear3d.vec", "aten._upsample_bilinear2d_aa.vec", "aten._upsample_bicubic2d_aa.vec",
)  # fmt: skip
def upsample_linear_vec(x: Meta, output: Any, align_corners: bool, scales: Any) -> Meta:
    return resampled(x, output, scales)


@infer_rule(
    "aten.__interpolate.scale_list", "aten.__interpolate.size_list_scale_list", "aten.__interpolate",
    "aten.__interpolate.size_list",
)  # fmt: skip
def interpolate(x: Meta, output: Any, scales: Any, *_: Any) -> Meta:
    return resampled(x, output, scales)


@infer_rule("aten.grid_sampler", "aten.grid_sampler_2d", "aten.grid_sampler_3d")
def grid_sampler(x: Meta, grid: Meta, *_: Any) -> Meta:
    return Meta((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
