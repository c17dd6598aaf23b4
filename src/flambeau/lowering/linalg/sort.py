"""Sorting, by a merge sort whose passes are parallel loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.ir import SSAValue

from flambeau.ir import dtypes
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.index import Read, doubling_passes
from flambeau.lowering.linalg.rules import loop_rule
from flambeau.lowering.verbs import RuleBuilder


def merge_sort(
    b: RuleBuilder, x: Tensor, dim: int, goes_first: Callable[[Sequence[SSAValue], Element, Element], Element]
) -> Tensor:
    """A tensor sorted along a dim.

    `goes_first(at, p, q)` tells whether p, which stands before q, stays before it. Each pass merges neighbouring runs:
    every place of the result finds by bisection how many elements of the left run come before it.
    """
    total = b.element(b.size(x, dim), dtypes.int64)

    def merge(at: Sequence[SSAValue], width: Element, read: Read) -> Element:
        here = b.scalar(at[dim])
        left = here & -(width * 2)
        right = (left + width).minimum(total)
        end = (left + width * 2).minimum(total)
        before = here - left

        def halve(low: Element, high: Element) -> tuple[Element, Element]:
            middle = (low + high).trunc_divide(2)
            is_left = goes_first(at, read(left + middle), read(right + before - 1 - middle))
            return is_left.select(middle + 1, low), is_left.select(high, middle)

        low, high = (before - (end - right)).maximum(0), before.minimum(right - left)
        from_left = b.while_loop([low, high], lambda low, high: low < high, halve)[0]
        p, q = left + from_left, right + before - from_left
        next_left, next_right = (read(i.minimum(total - 1)) for i in (p, q))
        is_left = (p < right) & ((q >= end) | goes_first(at, next_left, next_right))
        return is_left.select(next_left, next_right)

    return doubling_passes(b, x, dim, merge)


def comes_before(p: Element, q: Element, descending: bool) -> Element:
    """Whether p is sorted before q; NaN counts as greater than all numbers."""
    if descending:
        return comes_before(q, p, False)
    return (p < q) | ((q != q) & (p == p)) if p.dtype.is_float else p < q


@loop_rule("aten.sort")
def sort(b: RuleBuilder, x: Tensor, dim: int, descending: bool) -> list[Tensor]:
    """Sort the positions by the elements there, stably; then take the elements."""
    if not x.rank:
        return [x, b.full([], 0, dtypes.int64)]
    dim, sizes = b.dim(dim, x.rank), b.sizes(x)
    keys = b.to(x, dtypes.uint8) if x.dtype.is_bool else x

    def at_position(at: Sequence[SSAValue], position: Element) -> list[Size]:
        return [b.as_index(position) if i == dim else p for i, p in enumerate(at)]

    def goes_first(at: Sequence[SSAValue], p: Element, q: Element) -> Element:
        mine, other = (b.load(keys, at_position(at, position)) for position in (p, q))
        return ~comes_before(other, mine, descending)

    positions = b.generate(sizes, dtypes.int64, lambda *at: b.scalar(at[dim]))
    order = merge_sort(b, positions, dim, goes_first)
    taken = b.map_indexed([order], sizes, x.dtype, lambda at, position: b.load(x, at_position(at, position)))
    return [taken, order]


@loop_rule("aten.sort.stable")
def sort_stable(b: RuleBuilder, x: Tensor, stable: Any, dim: int, descending: bool) -> list[Tensor]:
    return sort(b, x, dim, descending)
