"""Reductions, distances, segments and histograms in terms of simpler reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.infer.builder import TorchBuilder, meta_of
from flambeau.infer.rules import promoted
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import (
    broadcast_sizes,
    decomposition,
    listed,
    minus,
    require_element,
    require_size,
    times,
)
from flambeau.passes.decompose.search import find


def _broadcast(t: TorchBuilder, x: SSAValue, y: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Expand both to the shape that they broadcast to."""
    shapes = [t.shape(x), t.shape(y)]
    rank = max(map(len, shapes))
    first, second = ([1] * (rank - len(s)) + s for s in shapes)
    sizes = broadcast_sizes(first, second)
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


decomposition("aten.dist")(lambda t, x, y, p: t.linalg_vector_norm(t.sub(x, y), p))


@decomposition("aten.linalg_vecdot")
def vecdot(t: TorchBuilder, x: SSAValue, y: SSAValue, dim: int) -> SSAValue:
    dtype = promoted(meta_of(x), meta_of(y))
    if dtype.is_integral:
        raise Unsupported(f"linalg_vecdot of {dtype}")
    if len(t.shape(x)) == len(t.shape(y)) == 1:
        return t.vdot(x, y)
    return t.sum(t.mul(t.conj_physical(x) if t.dtype(x).is_complex else x, y), [dim])


decomposition("aten.trace")(lambda t, x: t.sum(t.diagonal(x)))


@decomposition("aten.nanmean")
def nanmean(t: TorchBuilder, x: SSAValue, dims: Any, keepdim: bool, dtype: Any) -> SSAValue:
    every = list(range(len(t.shape(x)))) if dims is None else dims
    count = t.sum(t.eq(x, x), every, keepdim)
    return t.div(t.nansum(x, dims, keepdim, dtype=dtype), count)


@decomposition("aten.histc")
def histc(t: TorchBuilder, x: SSAValue, bins: int, low: Any, high: Any) -> SSAValue:
    """Count the elements in each of `bins` intervals of equal length; the last one has both of its ends."""
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
    at = t.div(t.mul(t.sub(flat, low), bins), span)
    at = t.clamp(t.to(t.where(is_inside, at, t.zeros_like(at)), dtypes.int64), 0, bins - 1)
    return t.index_add(t.zeros([bins], dtype=dtype), 0, at, t.to(is_inside, dtype))


# --- Distances between rows ---


def _distance(t: TorchBuilder, x: SSAValue, y: SSAValue, p: float) -> SSAValue:
    """Compute the norm of order `p` of the difference over the last dim."""
    difference = t.sub(x, y)
    columns = t.shape(difference)[-1]
    if columns == 0:
        return t.sum(difference, [-1])
    if math.isinf(p) and not isinstance(columns, int):
        # There may be none at run time, and rows of nothing are not apart.
        return t.amax(t.constant_pad_nd(t.abs(difference), [0, 1], 0.0), [-1])
    return t.linalg_vector_norm(difference, p, [-1])


@decomposition("aten._cdist_forward")
def cdist(t: TorchBuilder, x: SSAValue, y: SSAValue, p: float, compute_mode: Any) -> SSAValue:
    require_size(t, t.shape(x)[-1], "eq", t.shape(y)[-1], "both tensors must have the same number of columns")
    return _distance(t, t.unsqueeze(x, -2), t.unsqueeze(y, -3), p)


@decomposition("aten._pdist_forward")
def pdist(t: TorchBuilder, x: SSAValue, p: float) -> SSAValue:
    """Pair each row with those after it: row i is the first of rows - 1 - i pairs, which are numbered row by row."""
    rows = t.shape(x)[0]
    if not isinstance(rows, int):
        raise Unsupported("the pairs of as many rows as only the run time knows")
    pairs = rows * (rows - 1) // 2
    number, row = t.arange(pairs, dtype=dtypes.int64), t.arange(rows, dtype=dtypes.int64)
    ends = t.cumsum(t.rsub(row, rows - 1), 0)
    first = find(t, ends, number, False, True)
    begins = t.sub(t.index_select(ends, 0, first), t.rsub(first, rows - 1))
    second = t.add(t.add(t.sub(number, begins), first), 1)
    return _distance(t, t.index_select(x, 0, first), t.index_select(x, 0, second), p)


# --- Segments, and histograms ---

NEUTRAL = {"sum": 0.0, "mean": 0.0, "max": -math.inf, "min": math.inf, "prod": 1.0}
"""What each reduction starts with."""


@decomposition("aten.segment_reduce")
def segment_reduce(
    t: TorchBuilder,
    x: SSAValue,
    reduce: str,
    lengths: SSAValue | None,
    indices: SSAValue | None,
    offsets: SSAValue | None,
    axis: int,
    unsafe: bool,
    initial: Any,
) -> SSAValue:
    """Let every segment look at the whole dim and reduce what is its own."""
    if offsets is not None:
        starts, ends = t.slice(offsets, axis, 0, -1), t.slice(offsets, axis, 1)
    else:
        ends = t.cumsum(lengths, axis)
        starts = t.sub(ends, lengths)
    position = t.arange(t.shape(x)[axis], dtype=dtypes.int64)
    is_mine = t.logical_and(t.ge(position, t.unsqueeze(starts, -1)), t.lt(position, t.unsqueeze(ends, -1)))
    count = t.sub(ends, starts)
    for _ in t.shape(x)[axis + 1 :]:
        is_mine, count = t.unsqueeze(is_mine, -1), t.unsqueeze(count, -1)
    start = NEUTRAL[reduce] if initial is None else float(initial)
    mine = t.unsqueeze(x, axis)
    mine = t.where(is_mine, mine, t.full_like(mine, NEUTRAL[reduce]))
    if reduce in ("sum", "mean"):
        result = t.add(t.sum(mine, [axis + 1]), start)
    elif reduce == "prod":
        result = t.mul(t.prod(mine, axis + 1), start)
    else:
        result = (
            t.clamp(t.amax(mine, [axis + 1]), start)
            if reduce == "max"
            else t.clamp(t.amin(mine, [axis + 1]), None, start)
        )
    if reduce == "mean":
        empty = t.full_like(result, math.nan) if initial is None else result
        result = t.where(t.eq(count, 0), empty, t.div(result, t.to(count, t.dtype(x))))
    return result


def _interval(t: TorchBuilder, edges: SSAValue, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Find between which neighbouring edges each number lies, and whether it lies between any."""
    first, last = t.select(edges, 0, 0), t.select(edges, 0, -1)
    bins = t.sub(t.full([], t.shape(edges)[0], dtype=dtypes.int64), 2)
    at = t.minimum(t.clamp(t.sub(find(t, edges, x, False, True), 1), 0), bins)
    return at, t.logical_and(t.ge(x, first), t.le(x, last))


def _widths(t: TorchBuilder, edges: SSAValue) -> SSAValue:
    return t.sub(t.slice(edges, 0, 1), t.slice(edges, 0, 0, -1))


def _histogram(
    t: TorchBuilder, x: SSAValue, edges: SSAValue, weight: SSAValue | None, density: bool
) -> tuple[SSAValue, SSAValue]:
    """Add up how much lies between neighbouring edges; the last interval has both of its ends."""
    at, is_inside = _interval(t, edges, t.reshape(x, [-1]))
    amount = t.to(is_inside, t.dtype(x))
    if weight is not None:
        amount = t.where(is_inside, t.reshape(weight, [-1]), t.zeros_like(amount))
    widths = _widths(t, edges)
    counts = t.index_add(t.zeros_like(widths), 0, at, amount)
    if density:
        counts = t.div(t.div(counts, t.sum(counts)), widths)
    return counts, edges


decomposition("aten.histogram.bins_tensor")(lambda t, x, bins, weight, density: _histogram(t, x, bins, weight, density))


@decomposition("aten.histogram.bin_ct")
def histogram(
    t: TorchBuilder, x: SSAValue, bins: int, range_: list[float] | None, weight: SSAValue | None, density: bool
) -> tuple[SSAValue, SSAValue]:
    return _histogram(t, x, _edges(t, x, bins, range_), weight, density)


def _edges(t: TorchBuilder, x: SSAValue, bins: int, range_: Sequence[float] | None) -> SSAValue:
    """Compute the edges of intervals of equal length, over a range or over all that there is."""
    dtype = t.dtype(x)
    low: Any
    high: Any
    if range_ is not None:
        low, high = (t.full([], float(v), dtype=dtype) for v in range_)
    elif 0 in t.shape(x):
        low, high = t.zeros([], dtype=dtype), t.ones([], dtype=dtype)  # What PyTorch gives of nothing.
    elif isinstance((count := t.shape(flat := t.reshape(x, [-1]))[0]), int):
        low, high = t.amin(flat, [0]), t.amax(flat, [0])
    else:
        is_empty = t.eq(t.full([], count, dtype=dtypes.int64), 0)
        most = t.full([1], math.inf, dtype=dtype)
        low = t.where(is_empty, t.zeros([], dtype=dtype), t.amin(t.cat([flat, most], 0), [0]))
        high = t.where(is_empty, t.ones([], dtype=dtype), t.amax(t.cat([flat, t.neg(most)], 0), [0]))
    half = t.mul(t.to(t.eq(low, high), dtype), 0.5)
    low, high = t.sub(low, half), t.add(high, half)
    # From both ends to the middle, as PyTorch does it.
    step = t.div(t.sub(high, low), bins)
    number = t.arange(bins + 1, dtype=dtype)
    from_low = t.add(low, t.mul(step, number))
    from_high = t.sub(high, t.mul(step, t.rsub(number, bins)))
    return t.where(t.lt(number, (bins + 1) // 2), from_low, from_high)


@decomposition("aten._histogramdd_bin_edges")
def histogramdd_bin_edges(
    t: TorchBuilder, x: SSAValue, bins: Sequence[int], ranges: Sequence[float] | None, weight: Any, density: bool
) -> SSAValue:
    """Compute the edges along each coordinate of points, which the last dim has."""
    points = t.reshape(x, [-1, len(bins)])
    pairs = [None if ranges is None else ranges[2 * i : 2 * i + 2] for i in range(len(bins))]
    return listed(t, [_edges(t, t.select(points, 1, i), n, pairs[i]) for i, n in enumerate(bins)])


@decomposition("aten._histogramdd_from_bin_tensors")
def histogramdd(
    t: TorchBuilder, x: SSAValue, edges: Sequence[SSAValue], weight: SSAValue | None, density: bool
) -> SSAValue:
    """Add up how many points, or how much weight, lie in each box between neighbouring edges."""
    points = t.reshape(x, [-1, len(edges)])
    at: SSAValue | None = None
    inside: SSAValue | None = None
    sizes = [minus(t, t.shape(e)[0], 1) for e in edges]
    for i, (size, along) in enumerate(zip(sizes, edges, strict=True)):
        here, is_inside = _interval(t, along, t.select(points, 1, i))
        at = here if at is None else t.add(t.mul(at, size), here)
        inside = is_inside if inside is None else t.logical_and(inside, is_inside)
    assert at is not None
    assert inside is not None
    amount = t.to(inside, t.dtype(x))
    if weight is not None:
        amount = t.where(inside, t.reshape(weight, [-1]), t.zeros_like(amount))
    counts = t.index_add(t.zeros([times(t, *sizes)], dtype=t.dtype(x)), 0, at, amount)
    counts = t.reshape(counts, sizes)
    if density:
        counts = t.div(counts, t.sum(counts))
        for i, along in enumerate(edges):
            counts = t.div(counts, t.reshape(_widths(t, along), [-1, *[1] * (len(edges) - 1 - i)]))
    return counts


@decomposition("aten._histogramdd_from_bin_cts")
def histogramdd_from_counts(
    t: TorchBuilder,
    x: SSAValue,
    bins: Sequence[int],
    ranges: Sequence[float] | None,
    weight: SSAValue | None,
    density: bool,
) -> SSAValue:
    points = t.reshape(x, [-1, len(bins)])
    pairs = [None if ranges is None else ranges[2 * i : 2 * i + 2] for i in range(len(bins))]
    edges = [_edges(t, t.select(points, 1, i), n, pairs[i]) for i, n in enumerate(bins)]
    return histogramdd(t, x, edges, weight, density)


@decomposition("prims.prod")
def prims_prod(t: TorchBuilder, x: SSAValue, dims: Sequence[int] | None, dtype: Any) -> SSAValue:
    """Multiply along dims, from the last on, so that those before it keep their places."""
    for dim in sorted(range(len(t.shape(x))) if dims is None else dims, reverse=True):
        x = t.prod(x, dim, dtype=dtype)
    return x
