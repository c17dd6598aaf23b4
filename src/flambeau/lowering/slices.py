"""Writing a slice without an op for it: one loop chooses between the source and what was there."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from flambeau.ir import dtypes
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.verbs import RuleBuilder


def insert_by_select(
    b: RuleBuilder, source: Tensor, into: Tensor, starts: Sequence[Size], steps: Sequence[Size]
) -> Tensor:
    """Copy `into` with `source` at `starts`, `starts + steps`, and so on, as `tensor.insert_slice` does."""
    whole, sizes = b.sizes(into), b.sizes(source)
    partial = [
        d for d, at in enumerate(zip(starts, steps, sizes, whole, strict=True)) if at[:2] != (0, 1) or at[2] != at[3]
    ]
    if b.loads_are_cheap and into.rank - 1 not in partial and all(isinstance(sizes[d], int) for d in partial):
        return _insert_rows(b, source, into, starts, steps, partial)
    placed = source
    for dim, (start, step) in enumerate(zip(starts, steps, strict=True)):
        if step != 1:
            placed = spread(b, placed, dim, step, b.sub(whole[dim], start))
    covered = b.sizes(placed)
    after = [b.sub(b.sub(n, start), size) for n, start, size in zip(whole, starts, covered, strict=True)]
    padded = b.pad(placed, starts, after, 0)

    def choose(position: Sequence[SSAValue], old: Element, new: Element) -> Element:
        return _is_inside(b, position, starts, covered, steps, partial).select(new, old)

    return b.map_indexed([into, padded], whole, into.dtype, choose)


def _insert_rows(
    b: RuleBuilder, source: Tensor, into: Tensor, starts: Sequence[Size], steps: Sequence[Size], partial: Sequence[int]
) -> Tensor:
    """Insert a non-empty slice that covers rows whole, by a loop that loads its rows from the source."""
    sizes = b.sizes(source)
    covered = [b.mul(size, step) for size, step in zip(sizes, steps, strict=True)]

    def choose(position: Sequence[SSAValue], old: Element) -> Element:
        at: list[Size] = list(position)
        for d in partial:
            # Outside of the slice any row will do: what is loaded there is not used.
            row = b.floordiv(b.sub(position[d], starts[d]), steps[d])
            at[d] = b.minimum(b.maximum(row, 0), b.sub(sizes[d], 1))
        new = b.load(source, at)
        return _is_inside(b, position, starts, covered, steps, partial).select(new, old)

    return b.map_indexed([into], b.sizes(into), into.dtype, choose)


def _is_inside(
    b: RuleBuilder,
    position: Sequence[SSAValue],
    starts: Sequence[Size],
    covered: Sequence[Size],
    steps: Sequence[Size],
    partial: Sequence[int],
) -> Element:
    """Tell whether a position is in a slice: at - start is in [0, covered) and a multiple of the step in each dim."""
    inside = b.element(True, dtypes.bool_)
    for d in partial:
        offset = b.scalar(position[d]) - b.scalar(b.index(starts[d]))
        inside = inside & (offset >= 0) & (offset < b.scalar(b.index(covered[d])))
        if steps[d] != 1:
            inside = inside & (offset.fmod(b.scalar(b.index(steps[d]))) == 0)
    return inside


def spread(b: RuleBuilder, x: Tensor, dim: int, step: Size, limit: Size) -> Tensor:
    """Spread the slices of a dim `step` apart, with zeros between them, cut off at a limit."""
    sizes = b.sizes(x)
    low: list[Size] = [0] * (x.rank + 1)
    high: list[Size] = [b.sub(step, 1) if i == dim + 1 else 0 for i in range(x.rank + 1)]
    reach = b.mul(sizes[dim], step)
    flat = b.reshape(b.pad(b.unsqueeze(x, dim + 1), low, high, 0), [*sizes[:dim], reach, *sizes[dim + 1 :]])
    kept = [*sizes[:dim], b.minimum(reach, limit), *sizes[dim + 1 :]]
    return b.slice(flat, [0] * x.rank, kept, [1] * x.rank)
