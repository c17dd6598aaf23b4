"""Reading and writing at computed positions, in TOSA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects.builtin import i32, i64
from xdsl.ir import SSAValue

from flambeau.ir import dtypes
from flambeau.lowering.builder import Size, Tensor, is_same, tensor_type
from flambeau.lowering.combining import JOINS, neutral
from flambeau.lowering.element import Element
from flambeau.lowering.tosa import wide
from flambeau.lowering.tosa.constants import array_of
from flambeau.lowering.whole.values import element_of, shape_of

if TYPE_CHECKING:
    from flambeau.lowering.tosa.ops import TosaOps


Walk = tuple[int | None, int, int]
"""The loop that an index goes along, or None where it stays; where it starts; its step."""


def load(t: TosaOps, x: Tensor, indices: Sequence[SSAValue], common: Sequence[Size]) -> SSAValue:
    """Read x at indices: along dims whose indices go in even steps by a slice, along others by a gather."""
    sizes = t.b.frames[-1]
    walks = [_walk(t, x, i, w) for i, w in enumerate(indices)]
    for i, walk in enumerate(walks):
        # A dim of the loops that two indices depend on is gathered.
        if walk is not None and walk[0] is not None:
            others = [w for j, w in enumerate(indices) if j != i]
            if any(shape_of(w)[walk[0]] != 1 for w in others):
                walks[i] = None
    if all(w is None for w in walks):
        return t.gather(x, indices, common)
    part = _walked(t, x, walks, common)
    own = t.b.sizes(part)
    straight = [i for i, w in enumerate(walks) if w is not None]
    rest = [i for i, w in enumerate(walks) if w is None]
    along: list[int] = []
    for i in straight:
        walk = walks[i]
        if walk is not None and walk[0] is not None:
            along.append(walk[0])
    moving = [i for i in straight if walks[i] is not None and walks[i][0] is not None]  # type: ignore[index]
    fixed = [i for i in straight if i not in moving]
    lead = [d for d in range(len(sizes)) if d not in along]
    if not rest:
        value = t.transpose(part.value, [*(m for _, m in sorted(zip(along, moving, strict=True))), *fixed])
        return t.reshape(value, [s if i in along else 1 for i, s in enumerate(common)])
    table = t.b.transpose(part, [*rest, *moving, *fixed])
    rows, width = t.b.product([own[i] for i in rest]), t.b.product([own[i] for i in moving])
    places = _linear(t, [indices[i] for i in rest], [own[i] for i in rest])
    spots = [common[d] for d in lead]
    count = t.b.product(spots)
    places = t.broadcast(places, [1 if d in along else s for d, s in enumerate(common)])
    values = t.b.reshape(table, [1, rows, width])
    taken = _gather(t, values.value, t.reshape(places, [1, count]))
    inner = [common[d] for d in along]
    shaped = t.reshape(taken, [*spots, *inner])
    order = [*lead, *along]
    return t.transpose(shaped, [order.index(d) for d in range(len(sizes))])


def _walk(t: TosaOps, x: Tensor, dim: int, index: SSAValue) -> Walk | None:
    """Return (loop, start, step) if an index goes in even steps along one loop or none; None for all others."""
    loop = t.b.positions.get(index)
    size = t.b.size(x, dim)
    if loop is not None and is_same(size, t.b.frames[-1][loop]):
        return (loop, 0, 1)
    array = array_of(index)
    if array is None or not isinstance(size, int):
        return None
    loops = [i for i, s in enumerate(array.shape) if s != 1]
    if not loops:
        start = int(array.item())
        return (None, start, 1) if 0 <= start < size else None
    if len(loops) > 1:
        return None
    values = array.reshape(-1)
    step = int(values[1] - values[0])
    if step == 0 or (np.diff(values) != step).any() or min(values[0], values[-1]) < 0:
        return None
    return (loops[0], int(values[0]), step) if max(values[0], values[-1]) < size else None


def _walked(t: TosaOps, x: Tensor, walks: Sequence[Walk | None], common: Sequence[Size]) -> Tensor:
    """Slice the part of a tensor that indices in even steps go over."""
    starts: list[Size] = []
    lengths: list[Size] = []
    steps: list[Size] = []
    backwards: list[int] = []
    for i, walk in enumerate(walks):
        if walk is None:
            starts.append(0)
            lengths.append(t.b.size(x, i))
            steps.append(1)
            continue
        loop, start, step = walk
        length = common[loop] if loop is not None else 1
        if step < 0:
            assert isinstance(length, int)
            start, step = start + (length - 1) * step, -step
            backwards.append(i)
        starts.append(start)
        lengths.append(length)
        steps.append(step)
    return t.b.reverse(t.b.slice(x, starts, lengths, steps), backwards)


def _linear(t: TosaOps, indices: Sequence[SSAValue], sizes: Sequence[Size]) -> SSAValue:
    """Combine indices into several dims to one row-major index into all of them."""
    total: Size = indices[0]
    for index, size in zip(indices[1:], sizes[1:], strict=True):
        total = t.b.add(t.b.mul(total, size), index)
    assert isinstance(total, SSAValue)
    return total


def _gather(t: TosaOps, values: SSAValue, places: SSAValue) -> SSAValue:
    """Gather from [1, rows, width] at [1, count] to [1, count, width], folding constants; i64 goes by its halves."""
    array, at = array_of(values), array_of(places)
    if array is not None and at is not None:
        inside = np.clip(at.reshape(-1), 0, array.shape[1] - 1)
        return t.known(np.take(array, inside, axis=1), t.logical(values))
    if element_of(values) == i64:
        return wide.joined(t, *(_gather(t, half, places) for half in wide.halves(t, values)))
    shape = (1, shape_of(places)[1], shape_of(values)[2])
    return t.make("gather", (values, t.convert(places, i32)), tensor_type(shape, element_of(values)))


def gather(t: TosaOps, x: Tensor, indices: Sequence[SSAValue], sizes: Sequence[Size]) -> SSAValue:
    """Read x at tensors of indices, one for each dim."""
    places = t.broadcast(_linear(t, indices, t.b.sizes(x)), sizes)
    values = t.b.reshape(x, [1, t.b.product(t.b.sizes(x)), 1])
    flat = t.reshape(places, [1, t.b.product(sizes)])
    return t.reshape(_gather(t, values.value, flat), sizes)


def slice_from(t: TosaOps, x: Tensor, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size]) -> SSAValue:
    """Take a slice of known size from starts that the run time computes, for which TOSA has a gather only."""

    def element(*position: SSAValue) -> Element:
        at = zip(position, starts, steps, strict=True)
        return t.b.load(x, [t.b.add(t.b.mul(p, step), start) for p, start, step in at])

    return t.b.generate(sizes, x.dtype, element).value


def insert_slice(
    t: TosaOps, source: Tensor, into: Tensor, starts: Sequence[Size], steps: Sequence[Size]
) -> SSAValue | None:
    """Write a slice of known size at starts that the run time computes: each element asks whether it is inside."""
    if None in (*source.shape, *into.shape) or any(s != 1 for s in steps) or all(isinstance(s, int) for s in starts):
        return None
    b = t.b

    def choose(position: Sequence[SSAValue], old: Element) -> Element:
        inside, places = None, []
        for at, start, size, whole in zip(position, starts, source.shape, into.shape, strict=True):
            if size == whole:
                places.append(at)
                continue
            offset = b.scalar(at) - b.scalar(b.index(start))
            here = (offset >= 0) & (offset < size)
            inside = here if inside is None else inside & here
            places.append(b.as_index(offset.maximum(0).minimum((size or 1) - 1)))
        new = b.load(source, places)
        return new if inside is None else inside.select(new, old)

    return b.map_indexed([into], b.sizes(into), into.dtype, choose).value


def scatter(t: TosaOps, x: Tensor, rows: Tensor, updates: Tensor, combine: str | None) -> Tensor:
    """Write rows. TOSA's scatter writes each row once, so every row asks all updates whether they are for it."""
    (height, width), count = t.b.sizes(x), t.b.size(rows, 0)
    if 0 in (*x.shape, *updates.shape):
        return x
    own = t.b.reshape(t.b.to(rows, dtypes.int64), [1, count])
    if combine is None:

        def latest(at: Sequence[Any], row: Element) -> Element:
            return (row == t.b.scalar(at[0])).select(t.b.scalar(at[1]), -1)

        numbers = t.b.map_indexed([own], [height, count], dtypes.int64, latest)
        last = t.b.reduce([numbers], [1], [(-1, dtypes.int64)], lambda e, acc: acc.maximum(e), keepdim=True)[0]

        def choose(at: Sequence[Any], old: Element, number: Element) -> Element:
            new = t.b.load(updates, [t.b.as_index(number.maximum(0)), at[1]])
            return (number >= 0).select(new, old)

        return t.b.map_indexed([x, last], [height, width], x.dtype, choose)
    nothing = neutral(combine, x.dtype)
    mine = t.b.reshape(own, [count, 1])

    def meant(at: Sequence[Any], row: Element, update: Element) -> Element:
        return (row == t.b.scalar(at[0])).select(update, nothing)

    sizes = [height, count, width]
    wide = t.b.map_indexed([mine, updates], sizes, x.dtype, meant)
    function = JOINS[combine]
    total = t.b.reduce([wide], [1], [(nothing, x.dtype)], lambda e, acc: function(acc, e))[0]
    return t.b.elementwise([x, total], function, x.dtype, [height, width])
