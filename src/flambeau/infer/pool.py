"""Shapes of pooling."""

from __future__ import annotations

from typing import Any

from flambeau.infer.conv import window_count
from flambeau.infer.rules import Dim, InferenceError, Meta, infer_rule, known, size, sizes, spread
from flambeau.ir import dtypes


def _pooled(length: Dim, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Dim:
    """Count the windows of a pool; with `ceil`, one may overhang the end if it starts within it."""
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


@infer_rule("aten.fractional_max_pool2d", "aten.fractional_max_pool3d")
def fractional_max_pool(x: Meta, kernel: list[int], output: list[Any], samples: Meta) -> tuple[Meta, Meta]:
    shape = (*x.shape[: -len(kernel)], *sizes(output))
    return Meta(shape, x.dtype), Meta(shape, dtypes.int64)
