"""Reductions in terms of simpler ones."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.infer.builder import TorchBuilder, meta_of
from flambeau.infer.rules import promoted
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition, require_element


def _broadcast(t: TorchBuilder, x: SSAValue, y: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Both in the shape that they have together."""
    shapes = [t.shape(x), t.shape(y)]
    rank = max(map(len, shapes))
    first, second = ([1] * (rank - len(s)) + s for s in shapes)
    sizes = [n if m == 1 or (isinstance(n, int) and n != 1) else m for m, n in zip(first, second, strict=True)]
    return t.expand(x, sizes), t.expand(y, sizes)


@decomposition("aten.cosine_similarity")
def cosine_similarity(t: TorchBuilder, x: SSAValue, y: SSAValue, dim: int, eps: float) -> SSAValue:
    if eps < 0:
        raise Unsupported(f"eps is {eps}, which is negative")
    # What is repeated along the dim counts as often in its length.
    dtype = promoted(meta_of(x), meta_of(y))
    x, y = _broadcast(t, *(t.to(v, dtype) if t.dtype(v).is_integral else v for v in (x, y)))

    def length(v: SSAValue) -> Any:
        return t.clamp(t.linalg_vector_norm(v, 2, [dim], True), eps)

    return t.sum(t.mul(t.div(x, length(x)), t.div(y, length(y))), [dim])


@decomposition("aten.pairwise_distance")
def pairwise_distance(t: TorchBuilder, x: SSAValue, y: SSAValue, p: float, eps: float, keepdim: bool) -> SSAValue:
    return t.linalg_vector_norm(t.add(t.sub(x, y), eps), p, [-1], keepdim)


@decomposition("aten.dist")
def dist(t: TorchBuilder, x: SSAValue, y: SSAValue, p: float) -> SSAValue:
    return t.linalg_vector_norm(t.sub(x, y), p)


@decomposition("aten.linalg_vecdot")
def vecdot(t: TorchBuilder, x: SSAValue, y: SSAValue, dim: int) -> SSAValue:
    dtype = promoted(meta_of(x), meta_of(y))
    if dtype.is_integral:
        raise Unsupported(f"linalg_vecdot of {dtype}")
    if len(t.shape(x)) == len(t.shape(y)) == 1:
        return t.vdot(x, y)
    return t.sum(t.mul(t.conj_physical(x) if t.dtype(x).is_complex else x, y), [dim])


@decomposition("aten.trace")
def trace(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return t.sum(t.diagonal(x))


@decomposition("aten.nanmean")
def nanmean(t: TorchBuilder, x: SSAValue, dims: Any, keepdim: bool, dtype: Any) -> SSAValue:
    every = list(range(len(t.shape(x)))) if dims is None else dims
    count = t.sum(t.eq(x, x), every, keepdim)
    return t.div(t.nansum(x, dims, keepdim, dtype=dtype), count)


@decomposition("aten.histc")
def histc(t: TorchBuilder, x: SSAValue, bins: int, low: Any, high: Any) -> SSAValue:
    """How many elements are in each of so many intervals of equal length; the last one has both of its ends."""
    dtype = t.dtype(x)
    low, high = (int(v) if isinstance(v, bool) else v for v in (low, high))
    if bins <= 0 or low > high:
        raise Unsupported(f"a histogram of {bins} intervals from {low} to {high}")
    if 0 in t.shape(x):
        return t.zeros([bins], dtype=dtype)
    flat = t.reshape(x, [-1])
    if low == high:  # Then PyTorch asks the data.
        low, high = t.amin(flat, [0]), t.amax(flat, [0])
        if dtype.is_float:
            is_finite = t.logical_and(t.isfinite(low), t.isfinite(high))
            require_element(t, is_finite, "the range of a histogram is not finite")
        is_one_point = t.to(t.eq(low, high), dtype)
        low, high = t.sub(low, is_one_point), t.add(high, is_one_point)
    is_inside = t.logical_and(t.ge(flat, low), t.le(flat, high))
    # In PyTorch's order: an element on an edge may fall to either side.
    span = t.sub(high, low) if isinstance(high, SSAValue) else high - low
    place = t.div(t.mul(t.sub(flat, low), bins), span)
    place = t.clamp(t.to(t.where(is_inside, place, t.zeros_like(place)), dtypes.int64), 0, bins - 1)
    return t.index_add(t.zeros([bins], dtype=dtype), 0, place, t.to(is_inside, dtype))
