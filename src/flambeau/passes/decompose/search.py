"""Searching sorted sequences by counting: the place of a value is the number of elements that come before it."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition


def place(t: TorchBuilder, ascending: SSAValue, x: Any, after_equals: bool) -> SSAValue:
    """Count for each of x the elements before it in the last dim of a sorted tensor; NaN comes last of all.

    The leading dims of the sorted tensor are those of x, or it has none.
    """
    x = t.unsqueeze(x, -1)
    row = ascending if len(t.shape(ascending)) == 1 else t.unsqueeze(ascending, -2)
    before = t.le(row, x) if after_equals else t.lt(row, x)
    if t.dtype(x).is_float:
        before = t.logical_or(before, t.isnan(x))
    return t.sum(t.to(before, dtypes.int64), [-1])


def _of_width(t: TorchBuilder, places: SSAValue, out_int32: bool) -> SSAValue:
    return t.to(places, dtypes.int32 if out_int32 else dtypes.int64)


@decomposition("aten.searchsorted.Tensor")
def searchsorted(
    t: TorchBuilder,
    ascending: SSAValue,
    x: SSAValue,
    out_int32: bool,
    right: bool,
    side: str | None,
    sorter: SSAValue | None,
) -> SSAValue:
    if sorter is not None:
        ascending = t.gather(ascending, -1, sorter)
    return _of_width(t, place(t, ascending, x, right or side == "right"), out_int32)


def find(t: TorchBuilder, ascending: SSAValue, x: SSAValue, out_int32: bool, right: bool) -> SSAValue:
    """Count for each x the elements before it in a sorted tensor; with `right`, also those equal to it."""
    return t.call("aten.searchsorted.Tensor", ascending, x, out_int32=out_int32, right=right)


@decomposition("aten.searchsorted.Scalar")
def searchsorted_scalar(
    t: TorchBuilder, ascending: SSAValue, x: Any, out_int32: bool, right: bool, side: str | None, sorter: Any
) -> SSAValue:
    if sorter is not None:
        ascending = t.gather(ascending, -1, sorter)
    return find(t, ascending, _number(t, x, ascending), out_int32, right or side == "right")


def _number(t: TorchBuilder, x: Any, ascending: SSAValue) -> SSAValue:
    """Make a number a tensor to search for; among integers, one with a fraction lies between two of them."""
    is_between = t.dtype(ascending).is_integral and isinstance(x, float)
    return t.full([], x, dtype=dtypes.float64 if is_between else t.dtype(ascending))


@decomposition("aten.bucketize.Tensor")
def bucketize(t: TorchBuilder, x: SSAValue, boundaries: SSAValue, out_int32: bool, right: bool) -> SSAValue:
    return find(t, boundaries, x, out_int32, right)


@decomposition("aten.bucketize.Scalar")
def bucketize_scalar(t: TorchBuilder, x: Any, boundaries: SSAValue, out_int32: bool, right: bool) -> SSAValue:
    return find(t, boundaries, _number(t, x, boundaries), out_int32, right)


@decomposition("aten.nonzero_static")
def nonzero_static(t: TorchBuilder, x: SSAValue, size: Any, fill: int) -> SSAValue:
    """Find `size` positions of what is not zero: the n-th is where the running count gets to n."""
    sizes = t.shape(x)
    if 0 in sizes:
        return t.full([size, len(sizes)], fill, dtype=dtypes.int64)
    flat = t.reshape(x, [-1])
    counts = t.cumsum(t.to(t.ne(flat, 0), dtypes.int64), 0)
    at = find(t, counts, t.arange(size, dtype=dtypes.int64), False, True)
    columns: list[SSAValue] = []
    rest = at
    for n in reversed(sizes):
        # A size of zero leaves nothing to be found.
        n = n if isinstance(n, int) else t.op("prim.max.int", (n, t.constant(1)), (n.type,))[0]
        columns.insert(0, t.remainder(rest, n))
        rest = t.div(rest, n, rounding_mode="floor")
    if not columns:
        return t.full([size, 0], fill, dtype=dtypes.int64)
    is_there = t.unsqueeze(t.lt(at, t.shape(flat)[0]), 1)
    found = t.stack(columns, 1)
    return t.where(is_there, found, t.full_like(found, fill))
