"""Ops that sort, written with `aten.sort`; and that itself by counting, for targets that have no op for it.

Counting takes the number of elements that come before an element for its place. That is n² comparisons, all
independent of each other: right everywhere. The few greatest of many are found one by one instead.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition, require_size

FEW = 16
"""Up to so many greatest elements are found one by one."""

SELECTED = 1024
"""Up to this place the k-th element is the last of k that are selected, and not found in all of them sorted."""


def _along(t: TorchBuilder, x: SSAValue, dim: int, count: Any) -> SSAValue:
    """Make the positions along a dim of x: 0, 1, 2, ..."""
    rank = len(t.shape(x))
    return t.view(t.arange(count, dtype=dtypes.int64), [count if i == dim else 1 for i in range(rank)])


def _comes_before(t: TorchBuilder, a: SSAValue, b: SSAValue, descending: bool) -> SSAValue:
    """Tell elementwise whether a is sorted before b; NaN counts as greater than all."""
    less, greater = (b, a) if descending else (a, b)
    before = t.lt(less, greater)
    if t.dtype(a).is_float:
        nan = t.ne(greater, greater)
        before = t.logical_or(before, t.logical_and(nan, t.eq(less, less)))
    return before


def places(t: TorchBuilder, x: SSAValue, dim: int, descending: bool) -> SSAValue:
    """Count for each element those before it in the sorted order; equal elements keep theirs."""
    sizes = t.shape(x)
    mine, others = t.unsqueeze(x, dim + 1), t.unsqueeze(x, dim)
    earlier = t.lt(_along(t, others, dim + 1, sizes[dim]), _along(t, mine, dim, sizes[dim]))
    before = _comes_before(t, others, mine, descending)
    after = _comes_before(t, mine, others, descending)
    tie = t.logical_and(t.logical_not(t.logical_or(before, after)), earlier)
    return t.sum(t.to(t.logical_or(before, tie), dtypes.int64), [dim + 1])


def sort_by_counting(t: TorchBuilder, x: SSAValue, dim: int, descending: bool) -> tuple[SSAValue, SSAValue]:
    """Sort a dim, and give the positions that the elements came from."""
    sizes = t.shape(x)
    if not sizes:
        return x, t.zeros_like(x, dtype=dtypes.int64)
    dim %= len(sizes)
    values = t.to(x, dtypes.uint8) if t.dtype(x).is_bool else x
    place = places(t, values, dim, descending)
    positions = t.expand(_along(t, x, dim, sizes[dim]), sizes)
    indices = t.scatter(t.zeros_like(place), dim, place, positions)
    return t.gather(x, dim, indices), indices


@decomposition("aten.sort")
def sort(t: TorchBuilder, x: SSAValue, dim: int, descending: bool) -> tuple[SSAValue, SSAValue]:
    return sort_by_counting(t, x, dim, descending)


decomposition("aten.sort.stable")(lambda t, x, stable, dim, descending: sort_by_counting(t, x, dim, descending))


def _sorted(t: TorchBuilder, x: SSAValue, dim: int, descending: bool) -> tuple[SSAValue, SSAValue]:
    return t.call("aten.sort.stable", x, stable=True, dim=dim, descending=descending)


@decomposition("aten.argsort")
def argsort(t: TorchBuilder, x: SSAValue, dim: int, descending: bool) -> SSAValue:
    return _sorted(t, x, dim, descending)[1]


@decomposition("aten.topk")
def topk(t: TorchBuilder, x: SSAValue, k: Any, dim: int, largest: bool, sort: bool) -> tuple[SSAValue, SSAValue]:
    rank = len(t.shape(x))
    _require_place(t, x, k, dim, 0)
    if rank and isinstance(k, int) and 0 < k <= FEW and t.shape(x)[dim % rank] != 0:
        return _one_by_one(t, x, k, dim % rank, largest)
    values, indices = _sorted(t, x, dim, largest)
    return (values, indices) if not rank else (t.slice(values, dim, 0, k, 1), t.slice(indices, dim, 0, k, 1))


def _require_place(t: TorchBuilder, x: SSAValue, k: Any, dim: int, least: int) -> None:
    """Refuse a number of elements, or the place of one, that a dim does not have."""
    sizes = t.shape(x)
    require_size(t, sizes[dim] if sizes else 1, "ge", k, "k is larger than the dimension")
    require_size(t, k, "ge", least, "k is too small")


def _one_by_one(t: TorchBuilder, x: SSAValue, k: int, dim: int, largest: bool) -> tuple[SSAValue, SSAValue]:
    dtype = t.dtype(x)
    best = t.max if largest else t.min
    last: float | int = dtype.min if largest else dtype.max
    if dtype.is_float:
        last = float("-inf") if largest else float("inf")
    position = _along(t, x, dim, t.shape(x)[dim])
    taken = t.zeros_like(x, dtype=dtypes.bool_)
    values, indices = [], []
    for _ in range(k):
        rest = t.masked_fill(x, taken, last)
        if dtype.is_float and not largest:
            # NaN is the greatest, and min would give it first.
            rest = t.masked_fill(rest, t.isnan(rest), last)
        value, _ = best(rest, dim, True)
        free = t.logical_not(taken)
        score = t.to(t.logical_and(t.eq(x, value), free), dtypes.int64)
        if dtype.is_float:
            # What is equal comes before what is not a number.
            last_of_all = t.logical_and(t.logical_and(t.isnan(x), free), _only_nan_left(t, value, largest))
            score = t.add(t.mul(score, 2), t.to(last_of_all, dtypes.int64))
        index = t.argmax(score, dim, True)
        values.append(t.gather(x, dim, index))
        indices.append(index)
        taken = t.logical_or(taken, t.eq(position, index))
    return t.cat(values, dim), t.cat(indices, dim)


def _only_nan_left(t: TorchBuilder, value: SSAValue, largest: bool) -> SSAValue:
    return t.isnan(value) if largest else t.eq(value, float("inf"))


@decomposition("aten.kthvalue")
def kthvalue(t: TorchBuilder, x: SSAValue, k: Any, dim: int, keepdim: bool) -> tuple[SSAValue, SSAValue]:
    _require_place(t, x, k, dim, 1)
    is_few = t.shape(x) and isinstance(k, int) and k <= SELECTED
    values, indices = t.topk(x, k, dim, False, True) if is_few else _sorted(t, x, dim, False)
    if not t.shape(x):
        return values, indices
    at = k - 1 if isinstance(k, int) else t.op("aten.sub.int", (k, t.constant(1)), (k.type,))[0]
    found = t.select(values, dim, at), t.select(indices, dim, at)
    return (t.unsqueeze(found[0], dim), t.unsqueeze(found[1], dim)) if keepdim else found


# --- Medians and modes ---


def _median(t: TorchBuilder, x: SSAValue, dim: int, keepdim: bool, skip_nan: bool) -> tuple[SSAValue, SSAValue]:
    """Take the lower of the two in the middle. NaN is sorted last: it is the median if there is one, or not counted."""
    values, indices = _sorted(t, x, dim, False)
    if not t.shape(x):
        return values, indices
    count = t.shape(x)[dim]
    if count == 0:
        raise Unsupported(f"dim {dim} has size 0: there is no median")
    total = t.full([], count, dtype=dtypes.int64)
    at = t.div(t.sub(total, 1), 2, rounding_mode="floor")
    if t.dtype(x).is_float:
        numbers = t.sub(total, t.sum(t.to(t.isnan(x), dtypes.int64), [dim], True))
        middle = t.clamp(t.div(t.sub(numbers, 1), 2, rounding_mode="floor"), 0)
        at = middle if skip_nan else t.where(t.lt(numbers, total), numbers, at)
    else:
        at = t.expand(at, [1 if i == dim % len(t.shape(x)) else n for i, n in enumerate(t.shape(x))])
    found = t.gather(values, dim, at), t.gather(indices, dim, at)
    return found if keepdim else (t.squeeze(found[0], dim), t.squeeze(found[1], dim))


decomposition("aten.median.dim")(lambda t, x, dim, keepdim: _median(t, x, dim, keepdim, False))
decomposition("aten.nanmedian.dim")(lambda t, x, dim, keepdim: _median(t, x, dim, keepdim, True))


def _median_of_all(t: TorchBuilder, x: SSAValue, skip_nan: bool) -> SSAValue:
    # What PyTorch gives of nothing: what it makes of NaN in that dtype, through 32 bits where that is narrower.
    dtype = t.dtype(x)
    of_integers = dtype.is_bool or (dtype.min if dtype.bits >= 32 else 0)
    nothing = t.full([1], float("nan") if dtype.is_float else of_integers, dtype=dtype)
    if 0 in t.shape(x):
        return t.reshape(nothing, [])
    flat = t.reshape(x, [-1])
    count = t.shape(flat)[0]
    if isinstance(count, int):
        return _median(t, flat, 0, False, skip_nan)[0]
    # Behind the last element, where the first one is looked for if there is none.
    values = t.cat([_sorted(t, flat, 0, False)[0], nothing], 0)
    total = t.full([1], count, dtype=dtypes.int64)
    numbers = t.sub(total, t.sum(t.to(t.isnan(flat), dtypes.int64), [0], True)) if dtype.is_float else total
    at = t.clamp(t.div(t.sub(numbers, 1), 2, rounding_mode="floor"), 0)
    if not skip_nan:
        at = t.where(t.lt(numbers, total), numbers, at)
    return t.reshape(t.index_select(values, 0, at), [])


decomposition("aten.median")(lambda t, x: _median_of_all(t, x, False))
decomposition("aten.nanmedian")(lambda t, x: _median_of_all(t, x, True))


@decomposition("aten.mode")
def mode(t: TorchBuilder, x: SSAValue, dim: int, keepdim: bool) -> tuple[SSAValue, SSAValue]:
    """Find the least of the most frequent elements, and where it is last; NaN is never the same as another."""
    sizes = t.shape(x)
    if not sizes:
        return x, t.zeros_like(x, dtype=dtypes.int64)
    dim %= len(sizes)
    values = t.to(x, dtypes.uint8) if t.dtype(x).is_bool else x
    same = t.eq(t.unsqueeze(values, dim + 1), t.unsqueeze(values, dim))
    frequency = t.clamp(t.sum(t.to(same, dtypes.int64), [dim + 1]), 1)
    most = t.amax(frequency, [dim], True)
    place = places(t, values, dim, False)
    first = t.amin(t.where(t.eq(frequency, most), place, t.full_like(place, dtypes.int32.max)), [dim], True)
    index = t.argmax(t.to(t.eq(place, t.sub(t.add(first, most), 1)), dtypes.int64), dim, True)
    found = t.gather(x, dim, index), index
    return found if keepdim else (t.squeeze(found[0], dim), t.squeeze(found[1], dim))


# --- Distinct elements ---


def _runs(
    t: TorchBuilder, flat: SSAValue, inverse: bool, counts: bool
) -> tuple[SSAValue, SSAValue | None, SSAValue | None]:
    """Find the first of each run of equal elements, the run's number for each element, and the runs' lengths."""
    n = t.shape(flat)[0]
    total = t.full([], n, dtype=dtypes.int64)
    is_first = t.ne(flat, t.roll(flat, [1], [0]))
    is_first = t.logical_or(is_first, t.eq(_along(t, flat, 0, n), 0))
    starts = t.squeeze(t.nonzero(is_first), 1)
    values = t.index_select(flat, 0, starts)
    number = t.sub(t.cumsum(t.to(is_first, dtypes.int64), 0), 1) if inverse else None
    lengths = None
    if counts:
        ends = t.roll(starts, [-1], [0])
        lengths = t.sub(t.where(t.gt(ends, starts), ends, total), starts)
    return values, number, lengths


def _or_nothing(t: TorchBuilder, value: SSAValue | None) -> SSAValue:
    """Replace a result that nobody asked for by an empty one, as PyTorch does."""
    return t.zeros([0], dtype=dtypes.int64) if value is None else value


@decomposition("aten._unique2")
def unique(
    t: TorchBuilder, x: SSAValue, is_sorted: bool, inverse: bool, counts: bool
) -> tuple[SSAValue, SSAValue, SSAValue]:
    ordered, indices = _sorted(t, t.reshape(x, [-1]), 0, False)
    values, number, lengths = _runs(t, ordered, inverse, counts)
    if number is not None:
        number = t.reshape(t.scatter(t.zeros_like(number), 0, indices, number), t.shape(x))
    return values, _or_nothing(t, number), _or_nothing(t, lengths)


@decomposition("aten.unique_consecutive")
def unique_consecutive(
    t: TorchBuilder, x: SSAValue, inverse: bool, counts: bool, dim: int | None
) -> tuple[SSAValue, SSAValue, SSAValue]:
    if dim is not None and len(t.shape(x)) != 1:
        raise Unsupported("slices that are equal to their neighbours are not found yet, only elements")
    # Along a dim, PyTorch gives all three whatever is asked for; 0 of a 1-d tensor is no dim to it.
    if dim not in (None, 0):
        inverse = counts = True
    values, number, lengths = _runs(t, t.reshape(x, [-1]), inverse, counts)
    if number is not None:
        number = t.reshape(number, t.shape(x))
    return values, _or_nothing(t, number), _or_nothing(t, lengths)


@decomposition("aten.msort")
def msort(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return t.sort(x, 0)[0]


@decomposition("aten.argsort.stable")
def argsort_stable(t: TorchBuilder, x: SSAValue, stable: bool, dim: int, descending: bool) -> SSAValue:
    return t.sort(x, stable=stable, dim=dim, descending=descending)[1]
