"""Reading and writing at computed positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import TensorType, i32, i64
from xdsl.ir import SSAValue

from flambeau.ir import dtypes
from flambeau.lowering.builder import Size, Tensor, tensor_type
from flambeau.lowering.element import Element
from flambeau.lowering.tosa import wide
from flambeau.lowering.tosa.constants import array_of
from flambeau.lowering.tosa.moves import MoveBuilder
from flambeau.lowering.tosa.vocabulary import element_of
from flambeau.lowering.whole.values import shape_of

COMBINE: dict[str, Any] = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "max": lambda a, b: a.maximum(b),
    "min": lambda a, b: a.minimum(b), "maxu": lambda a, b: a.maximum(b), "minu": lambda a, b: a.minimum(b),
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
}  # fmt: skip
"""What combines two elements in reductions and scatters."""


class AccessBuilder(MoveBuilder):
    """Builds gathers and what stands for scatters."""

    def load(self, x: Tensor, indices: Sequence[Size]) -> Element:
        """A load is what TOSA has for it: along dims whose indices go in even steps a slice, along others a gather."""
        sizes = self.frames[-1]
        if not indices or 0 in x.shape:
            return super().load(x, indices)
        wides = [self._position(i) for i in indices]
        wides = [w if isinstance(w.type, TensorType) else self.widened(w, len(sizes)) for w in wides]
        common = self.common(wides)
        walks = [self._walk(x, i, w) for i, w in enumerate(wides)]
        for i, walk in enumerate(walks):
            # A dim of the loops that two indices depend on is gathered.
            if walk is not None and walk[0] is not None:
                others = [w for j, w in enumerate(wides) if j != i]
                if any(shape_of(w)[walk[0]] != 1 for w in others):
                    walks[i] = None
        if all(w is None for w in walks):
            return Element(self, self.gathered(x, wides, common), x.dtype)
        part = self._walked(x, walks, common)
        own = self.sizes(part)
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
            value = self.transposed(part.value, [*(m for _, m in sorted(zip(along, moving, strict=True))), *fixed])
            return Element(self, self.reshaped(value, [s if i in along else 1 for i, s in enumerate(common)]), x.dtype)
        table = self.transpose(part, [*rest, *moving, *fixed])
        rows, width = self.product([own[i] for i in rest]), self.product([own[i] for i in moving])
        places = self._linear([wides[i] for i in rest], [own[i] for i in rest])
        spots = [common[d] for d in lead]
        count = self.product(spots)
        places = self.broadcast(places, [1 if d in along else s for d, s in enumerate(common)])
        values = self.reshape(table, [1, rows, width])
        taken = self._gather(values.value, self.reshaped(places, [1, count]))
        inner = [common[d] for d in along]
        shaped = self.reshaped(taken, [*spots, *inner])
        order = [*lead, *along]
        return Element(self, self.transposed(shaped, [order.index(d) for d in range(len(sizes))]), x.dtype)

    def _walk(self, x: Tensor, dim: int, index: SSAValue) -> tuple[int | None, int, int] | None:
        """(loop, start, step) where an index goes in even steps along one loop or none; None for all others."""
        loop = self.positions.get(index)
        size = self.size(x, dim)
        if loop is not None and _same(size, self.frames[-1][loop]):
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

    def _walked(self, x: Tensor, walks: Sequence[tuple[int | None, int, int] | None], common: Sequence[Size]) -> Tensor:
        """The part of a tensor that indices in even steps go over."""
        starts: list[Size] = []
        lengths: list[Size] = []
        steps: list[Size] = []
        backwards: list[int] = []
        for i, walk in enumerate(walks):
            if walk is None:
                starts.append(0)
                lengths.append(self.size(x, i))
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
        return self.reversed(self.slice(x, starts, lengths, steps), backwards)

    def _linear(self, indices: Sequence[SSAValue], sizes: Sequence[Size]) -> SSAValue:
        """Indices into several dims as one into all of them."""
        total: Size = indices[0]
        for index, size in zip(indices[1:], sizes[1:], strict=True):
            total = self.add(self.mul(total, size), index)
        assert isinstance(total, SSAValue)
        return total

    def _gather(self, values: SSAValue, places: SSAValue) -> SSAValue:
        """[1, rows, width] at [1, count]."""
        array, at = array_of(values), array_of(places)
        if array is not None and at is not None:
            inside = np.clip(at.reshape(-1), 0, array.shape[1] - 1)
            return self.known(np.take(array, inside, axis=1), self.logical(values))
        if element_of(values) == i64:
            return wide.joined(self, *(self._gather(half, places) for half in wide.halves(self, values)))
        shape = (1, shape_of(places)[1], shape_of(values)[2])
        return self.make("gather", (values, self.converted(places, i32)), tensor_type(shape, element_of(values)))

    def gathered(self, x: Tensor, indices: Sequence[SSAValue], sizes: Sequence[Size]) -> SSAValue:
        places = self.broadcast(self._linear(indices, self.sizes(x)), sizes)
        values = self.reshape(x, [1, self.product(self.sizes(x)), 1])
        flat = self.reshaped(places, [1, self.product(sizes)])
        return self.reshaped(self._gather(values.value, flat), sizes)

    def scattered(self, x: Tensor, rows: Tensor, updates: Tensor, combine: str | None) -> Tensor:
        """TOSA's scatter writes each row once, so every row asks all updates whether they are for it."""
        (height, width), count = self.sizes(x), self.size(rows, 0)
        if 0 in (*x.shape, *updates.shape):
            return x
        own = self.reshape(self.to(rows, dtypes.int64), [1, count])
        if combine is None:

            def latest(at: Sequence[Any], row: Element) -> Element:
                return (row == self.scalar(at[0])).select(self.scalar(at[1]), -1)

            numbers = self.map_indexed([own], [height, count], dtypes.int64, latest)
            last = self.reduce([numbers], [1], [(-1, dtypes.int64)], lambda e, acc: acc.maximum(e), keepdim=True)[0]

            def choose(at: Sequence[Any], old: Element, number: Element) -> Element:
                new = self.load(updates, [self.as_index(number.maximum(0)), at[1]])
                return (number >= 0).select(new, old)

            return self.map_indexed([x, last], [height, width], x.dtype, choose)
        neutral = {"add": 0, "mul": 1, "max": x.dtype.min, "min": x.dtype.max}[combine]
        mine = self.reshape(own, [count, 1])

        def meant(at: Sequence[Any], row: Element, update: Element) -> Element:
            return (row == self.scalar(at[0])).select(update, neutral)

        sizes = [height, count, width]
        wide = self.map_indexed([mine, updates], sizes, x.dtype, meant)
        function = COMBINE[combine]
        total = self.reduce([wide], [1], [(neutral, x.dtype)], lambda e, acc: function(acc, e))[0]
        return self.elementwise([x, total], function, x.dtype, [height, width])


def _same(a: Size, b: Size) -> bool:
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)
