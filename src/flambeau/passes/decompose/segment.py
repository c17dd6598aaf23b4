"""Parts of a dim whose lengths are data: segments, repetitions, histograms."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition
from flambeau.passes.decompose.search import place

INF, NAN = float("inf"), float("nan")
NEUTRAL = {"sum": 0.0, "mean": 0.0, "max": -INF, "min": INF, "prod": 1.0}
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
    """Every segment looks at the whole dim and takes what is its own."""
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
        empty = t.full_like(result, NAN) if initial is None else result
        result = t.where(t.eq(count, 0), empty, t.div(result, t.to(count, t.dtype(x))))
    return result


@decomposition("aten.repeat_interleave.Tensor")
def repeat_interleave(t: TorchBuilder, repeats: SSAValue, output_size: Any) -> SSAValue:
    """0 as often as the first number says, 1 as often as the second says, and so on."""
    ends = t.cumsum(repeats, 0, dtype=dtypes.int64)
    if output_size is None:
        output_size = t.call("aten.Int.Tensor", t.sum(repeats, dtype=dtypes.int64))
    return t.to(place(t, ends, t.arange(output_size, dtype=dtypes.int64), True), t.dtype(repeats))


# --- Histograms ---


def _histogram(
    t: TorchBuilder, x: SSAValue, edges: SSAValue, weight: SSAValue | None, density: bool
) -> tuple[SSAValue, SSAValue]:
    """How much lies between neighbouring edges; the last interval has both of its ends."""
    dtype = t.dtype(x)
    flat = t.reshape(x, [-1])
    first, last = t.select(edges, 0, 0), t.select(edges, 0, -1)
    is_inside = t.logical_and(t.ge(flat, first), t.le(flat, last))
    bins = t.sub(t.full([], t.shape(edges)[0], dtype=dtypes.int64), 2)
    at = t.minimum(t.clamp(t.sub(place(t, edges, flat, True), 1), 0), bins)
    amount = t.to(is_inside, dtype)
    if weight is not None:
        amount = t.where(is_inside, t.reshape(weight, [-1]), t.zeros_like(amount))
    widths = t.sub(t.slice(edges, 0, 1), t.slice(edges, 0, 0, -1))
    counts = t.index_add(t.zeros_like(widths), 0, at, amount)
    if density:
        counts = t.div(t.div(counts, t.sum(counts)), widths)
    return counts, edges


@decomposition("aten.histogram.bins_tensor")
def histogram_of_edges(
    t: TorchBuilder, x: SSAValue, bins: SSAValue, weight: SSAValue | None, density: bool
) -> tuple[SSAValue, SSAValue]:
    return _histogram(t, x, bins, weight, density)


@decomposition("aten.histogram.bin_ct")
def histogram(
    t: TorchBuilder, x: SSAValue, bins: int, range_: list[float] | None, weight: SSAValue | None, density: bool
) -> tuple[SSAValue, SSAValue]:
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
        most = t.full([1], float("inf"), dtype=dtype)
        low = t.where(is_empty, t.zeros([], dtype=dtype), t.amin(t.cat([flat, most], 0), [0]))
        high = t.where(is_empty, t.ones([], dtype=dtype), t.amax(t.cat([flat, t.neg(most)], 0), [0]))
    half = t.mul(t.to(t.eq(low, high), dtype), 0.5)
    low, high = t.sub(low, half), t.add(high, half)
    # From both ends to the middle, as PyTorch does it.
    step = t.div(t.sub(high, low), bins)
    number = t.arange(bins + 1, dtype=dtype)
    from_low = t.add(low, t.mul(step, number))
    from_high = t.sub(high, t.mul(step, t.rsub(number, bins)))
    edges = t.where(t.lt(number, (bins + 1) // 2), from_low, from_high)
    return _histogram(t, x, edges, weight, density)
