"""Sorting by counting: the place of an element is the number of elements that come before it.

That is n² comparisons, all independent of each other: right everywhere, and fast enough for the sizes that models sort.
The few greatest of many are found one by one instead.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition

FEW = 16
"""Up to so many greatest elements are found one by one."""


def _along(t: TorchBuilder, x: SSAValue, dim: int, count: Any) -> SSAValue:
    """0, 1, 2, ... along a dim of x."""
    rank = len(t.shape(x))
    return t.view(t.arange(count, dtype=dtypes.int64), [count if i == dim else 1 for i in range(rank)])


def _comes_before(t: TorchBuilder, a: SSAValue, b: SSAValue, descending: bool) -> SSAValue:
    """Whether a is sorted before b; NaN counts as greater than all."""
    less, greater = (b, a) if descending else (a, b)
    before = t.lt(less, greater)
    if t.dtype(a).is_float:
        nan = t.ne(greater, greater)
        before = t.logical_or(before, t.logical_and(nan, t.eq(less, less)))
    return before


def places(t: TorchBuilder, x: SSAValue, dim: int, descending: bool) -> SSAValue:
    """For each element its place in the sorted order; equal elements keep theirs."""
    sizes = t.shape(x)
    mine, others = t.unsqueeze(x, dim + 1), t.unsqueeze(x, dim)
    earlier = t.lt(_along(t, others, dim + 1, sizes[dim]), _along(t, mine, dim, sizes[dim]))
    before = _comes_before(t, others, mine, descending)
    after = _comes_before(t, mine, others, descending)
    tie = t.logical_and(t.logical_not(t.logical_or(before, after)), earlier)
    return t.sum(t.to(t.logical_or(before, tie), dtypes.int64), [dim + 1])


def sorted_with_indices(t: TorchBuilder, x: SSAValue, dim: int, descending: bool) -> tuple[SSAValue, SSAValue]:
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
    return sorted_with_indices(t, x, dim, descending)


@decomposition("aten.sort.stable")
def sort_stable(t: TorchBuilder, x: SSAValue, stable: Any, dim: int, descending: bool) -> tuple[SSAValue, SSAValue]:
    return sorted_with_indices(t, x, dim, descending)


@decomposition("aten.argsort")
def argsort(t: TorchBuilder, x: SSAValue, dim: int, descending: bool) -> SSAValue:
    return sorted_with_indices(t, x, dim, descending)[1]


@decomposition("aten.topk")
def topk(t: TorchBuilder, x: SSAValue, k: Any, dim: int, largest: bool, sort: bool) -> tuple[SSAValue, SSAValue]:
    rank = len(t.shape(x))
    if rank and isinstance(k, int) and 0 < k <= FEW and t.shape(x)[dim % rank] != 0:
        return _one_by_one(t, x, k, dim % rank, largest)
    values, indices = sorted_with_indices(t, x, dim, largest)
    return (values, indices) if not rank else (t.slice(values, dim, 0, k, 1), t.slice(indices, dim, 0, k, 1))


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
    values, indices = sorted_with_indices(t, x, dim, False)
    if not t.shape(x):
        return values, indices
    at = k - 1 if isinstance(k, int) else t.op("aten.sub.int", (k, t.constant(1)), (k.type,))[0]
    found = t.select(values, dim, at), t.select(indices, dim, at)
    return (t.unsqueeze(found[0], dim), t.unsqueeze(found[1], dim)) if keepdim else found
