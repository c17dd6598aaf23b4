"""Writing a slice without an op for it: the source is padded to the whole, and one loop chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.verbs import RuleBuilder


def insert_by_select(
    b: RuleBuilder, source: Tensor, into: Tensor, starts: Sequence[Size], steps: Sequence[Size]
) -> Tensor:
    """What `tensor.insert_slice` gives: a copy of `into` with `source` at `starts`, `starts + steps`, and so on."""
    whole, placed = b.sizes(into), source
    for dim, (start, step) in enumerate(zip(starts, steps, strict=True)):
        if step != 1:
            placed = spread(b, placed, dim, step, b.sub(whole[dim], start))
    covered = b.sizes(placed)
    after = [b.sub(b.sub(n, start), size) for n, start, size in zip(whole, starts, covered, strict=True)]
    padded = b.pad(placed, starts, after, 0)

    def choose(position: Sequence[SSAValue], old: Any, new: Any) -> Any:
        inside = None
        for at, start, size, step, n in zip(position, starts, covered, steps, whole, strict=True):
            if (start, step, size) == (0, 1, n):
                continue
            offset = b.scalar(at) - b.scalar(b.index(start))
            here = (offset >= 0) & (offset < b.scalar(b.index(size)))
            if step != 1:
                here = here & (offset.fmod(b.scalar(b.index(step))) == 0)
            inside = here if inside is None else inside & here
        return new if inside is None else inside.select(new, old)

    return b.map_indexed([into, padded], whole, into.dtype, choose)


def spread(b: RuleBuilder, x: Tensor, dim: int, step: Size, limit: Size) -> Tensor:
    """The slices of a dim `step` apart, with zeros between them, cut off at a limit."""
    sizes = b.sizes(x)
    low: list[Size] = [0] * (x.rank + 1)
    high: list[Size] = [b.sub(step, 1) if i == dim + 1 else 0 for i in range(x.rank + 1)]
    reach = b.mul(sizes[dim], step)
    flat = b.reshape(b.pad(b.unsqueeze(x, dim + 1), low, high, 0), [*sizes[:dim], reach, *sizes[dim + 1 :]])
    kept = [*sizes[:dim], b.minimum(reach, limit), *sizes[dim + 1 :]]
    return b.slice(flat, [0] * x.rank, kept, [1] * x.rank)
