"""Moves: the verbs that rearrange elements and compute nothing.

Where only the run time knows a size and TOSA has no op that takes it, the `tensor` dialect says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import IntegerType, TensorType, i1, i32, i64
from xdsl.ir import Attribute, Block, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects import tosa
from flambeau.ir.builder import OpBuilder
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor, static, tensor_type
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.generic import Body, MapResult
from flambeau.lowering.linalg.shapes import ShapeBuilder
from flambeau.lowering.tosa.constants import Counter, array_of, fitting, is_small
from flambeau.lowering.tosa.elements import ElementBuilder
from flambeau.lowering.tosa.vocabulary import element_of
from flambeau.lowering.whole.values import shape_of

COUNTING_ROW, COUNTING_LEVELS = 1024, 3
"""Positions along a size that only the run time knows are put together from rows, and rows of rows: up to 2^30."""


class MoveBuilder(ElementBuilder):
    """Builds reshapes, slices and pads."""

    def recast(self, value: SSAValue, type_: Attribute) -> SSAValue:
        assert isinstance(type_, TensorType)
        wanted = TensorType(element_of(value), type_.get_shape())
        return value if value.type == wanted else super().recast(value, wanted)

    def broadcast(self, value: SSAValue, sizes: Sequence[Size]) -> SSAValue:
        have, wanted = shape_of(value), tuple(map(static, sizes))
        if have == wanted:
            return value
        array = array_of(value)
        if array is not None and None not in wanted:
            spread = np.broadcast_to(array, [w for w in wanted if w is not None])
            if is_small(spread):
                return self.known(spread, self.logical(value))
        times = [w if h == 1 and w is not None else 1 for h, w in zip(have, wanted, strict=True)]
        if any(t != 1 for t in times):
            shape = tuple(t if t != 1 else h for t, h in zip(times, have, strict=True))
            value = self.make("tile", (value, self.shape_value(times)), tensor_type(shape, element_of(value)))
        for i, size in enumerate(sizes):
            if have[i] == 1 and isinstance(size, SSAValue):
                value = self._stretched(value, i, size)
        return value

    def _stretched(self, value: SSAValue, dim: int, size: SSAValue) -> SSAValue:
        """Repeat a dim as often as another tensor has elements along one of its own."""
        source, axis = self._of_length(size)
        rank = len(shape_of(source))
        row = source
        sizes = [1 if i != axis else -1 for i in range(rank)]
        if rank > 1:
            start = self.shape_value([0] * rank)
            type_ = tensor_type(tuple(1 if i != axis else None for i in range(rank)), element_of(source))
            row = self.make("slice", (source, start, self.shape_value(sizes)), type_)
        places = [1 if i != dim else -1 for i in range(len(shape_of(value)))]
        type_ = tensor_type(tuple(1 if p == 1 else None for p in places), element_of(source))
        row = self.make("reshape", (row, self.shape_value(places)), type_)
        element = element_of(row)
        same = self.on("equal", (row, row), i1) if element != i1 else row
        every = self.on("logical_or", (same, self._single(True, i1, [1] * len(places))), i1)
        return self.on("select", (every, value, value), element_of(value))

    def _of_length(self, size: SSAValue) -> tuple[SSAValue, int]:
        """A tensor that is so long along a dim."""
        owner = size.owner
        if not isinstance(owner, tensor.DimOp) or 0 in shape_of(owner.operands[0]):
            return self._line(size), 0
        at = owner.operands[1].owner
        assert isinstance(at, arith.ConstantOp)
        return owner.operands[0], at.properties["value"].value.data  # type: ignore[attr-defined]

    def reshaped(self, value: SSAValue, sizes: Sequence[Size]) -> SSAValue:
        have, wanted = shape_of(value), tuple(map(static, sizes))
        if have == wanted and have.count(None) <= 1:
            return value
        type_ = tensor_type(wanted, element_of(value))
        if type(value) is Counter:
            return Counter(type_, value.size)
        array = array_of(value)
        if array is not None and None not in wanted:
            flat = array.flat[0] if array.size and not any(array.strides) else None
            shape = [w for w in wanted if w is not None]
            return self.known(
                array.reshape(shape) if flat is None else np.broadcast_to(flat, shape), self.logical(value)
            )
        if 0 in wanted:
            return self.nothing([s for s in sizes if isinstance(s, SSAValue)], type_)
        if wanted.count(None) <= 1:
            # Of several in a row, the last one counts.
            source = self.flat.get(value, value)
            if shape_of(source) == wanted:
                return source
            given = self.shape_value([-1 if w is None else w for w in wanted])
            result = self.make("reshape", (source, given), type_)
            self.flat[result] = source
            return result
        old = self.lengths.get(value)
        own = Tensor(value, self.dtype_of(element_of(value)), old)
        groups = self._match_groups(self.sizes(own), list(sizes))
        merged = ShapeBuilder.collapse(self, own, [g[0] for g in groups])
        return ShapeBuilder.expand(self, merged, [g[1] for g in groups], sizes).value

    def measure(self, x: Tensor) -> None:
        """Remember the sizes of a tensor for when only its value is at hand."""
        if None not in shape_of(x.value):
            return
        owner = x.value.owner
        # In a branch or a loop, the sizes of a tensor outside are made here and not known outside.
        if (owner if isinstance(owner, Block) else owner.parent) is self.block:
            self.lengths[x.value] = self.sizes(x)

    def reshape(self, x: Tensor, sizes: Sequence[Size]) -> Tensor:
        self.measure(x)
        return super().reshape(x, sizes)

    def _aligned(self, x: Tensor, map_: Sequence[MapResult], loops: int) -> SSAValue:
        if x.value in self.fills:
            # One number everywhere, also where a tensor of that size was never made.
            return self.splat(self.fills[x.value], x.dtype, [1] * loops)
        self.measure(x)
        return super()._aligned(x, map_, loops)

    def transposed(self, value: SSAValue, order: Sequence[int]) -> SSAValue:
        order = tuple(order)
        if order == tuple(range(len(order))):
            return value
        array = array_of(value)
        if array is not None:
            return self.known(array.transpose(order), self.logical(value))
        if value in self.turned:
            # Two in a row are one; a transpose that meets its inverse is none.
            source, first = self.turned[value]
            return self.transposed(source, [first[i] for i in order])
        shape = shape_of(value)
        type_ = tensor_type(tuple(shape[i] for i in order), element_of(value))
        if 0 in shape and None in shape:
            return self.nothing([self._dim_of([value], i) for i in order if shape[i] is None], type_)
        result = self.make("transpose", (value,), type_, {"perms": tosa.perms(order)})
        self.turned[result] = (value, order)
        if value in self.lengths:
            self.lengths[result] = [self.lengths[value][i] for i in order]
        return result

    def sliced(self, x: Tensor, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size]) -> SSAValue:
        wanted = tuple(map(static, sizes))
        array = array_of(x.value)
        if array is not None and all(isinstance(v, int) for g in (starts, sizes, steps) for v in g):
            places = tuple(
                slice(s, s + (n - 1) * k + 1, k)  # type: ignore[operator]
                for s, n, k in zip(starts, sizes, steps, strict=True)
            )
            return self.known(array[places], self.logical(x.value))
        if not all(isinstance(v, int) for g in (starts, steps) for v in g) or any(
            n is None and not (s == 0 and k == 1 and n0 is z)
            for n, s, k, n0, z in zip(wanted, starts, steps, sizes, self.sizes(x), strict=True)
        ):
            own = Tensor(x.value, self.dtype_of(element_of(x.value)), x._sizes)
            return ShapeBuilder.slice(self, own, starts, sizes, steps).value
        value = x.value
        for i, (start, step) in enumerate(zip(starts, steps, strict=True)):
            if step != 1 and wanted[i] != 1:
                value = self._stepped(value, i, start, wanted[i], step)  # type: ignore[arg-type]
        own_shape = shape_of(value)
        first = [0 if k != 1 and n != 1 else s for s, n, k in zip(starts, wanted, steps, strict=True)]
        if own_shape == wanted and not any(first):
            return value
        type_ = tensor_type(wanted, element_of(value))
        counts = [-1 if w is None else w for w in wanted]
        return self.make("slice", (value, self.shape_value(first), self.shape_value(counts)), type_)  # type: ignore[arg-type]

    def _stepped(self, value: SSAValue, dim: int, start: int, count: int, step: int) -> SSAValue:
        """Every step-th element along a dim: rows of `step`, of which the first column is kept."""
        shape = list(shape_of(value))
        size = shape[dim]
        if size is None:
            raise Unsupported("TOSA has no slice with steps along a size that only the run time knows")
        if shape.count(None) > 1:
            raise Unsupported("TOSA has no slice with steps of a tensor with several sizes that are not known")
        end = start + count * step
        element = element_of(value)
        if end > size:
            edges = [0] * (2 * len(shape))
            edges[2 * dim + 1] = end - size
            shape[dim] = end
            operands = (value, self.shape_value(edges), self._single(0, element, [1]))
            value = self.make("pad", operands, tensor_type(tuple(shape), element))
        if start or end < size:
            shape[dim] = count * step
            first = [start if i == dim else 0 for i in range(len(shape))]
            counts = [-1 if s is None else s for s in shape]
            operands = (value, self.shape_value(first), self.shape_value(counts))
            value = self.make("slice", operands, tensor_type(tuple(shape), element))
        rows = [*shape[:dim], count, step, *shape[dim + 1 :]]
        value = self._reshape_static(value, rows)
        rows[dim + 1] = 1
        operands = (
            value,
            self.shape_value([0] * len(rows)),
            self.shape_value([-1 if r is None else r for r in rows]),
        )
        value = self.make("slice", operands, tensor_type(tuple(rows), element))
        shape[dim] = count
        return self._reshape_static(value, shape)

    def _reshape_static(self, value: SSAValue, shape: Sequence[int | None]) -> SSAValue:
        sizes = [-1 if s is None else s for s in shape]
        return self.make("reshape", (value, self.shape_value(sizes)), tensor_type(tuple(shape), element_of(value)))

    def padded(
        self, x: Tensor, low: Sequence[Size], high: Sequence[Size], value: Any, sizes: Sequence[Size]
    ) -> SSAValue:
        if 0 in x.shape:
            return self.full(sizes, value, x.dtype).value
        array = array_of(x.value)
        known = all(isinstance(p, int) for p in (*low, *high))
        number = not isinstance(value, SSAValue | Element)
        if array is not None and known and number:
            edges: Any = list(zip(low, high, strict=True))
            return self.known(np.pad(array, edges, constant_values=value), self.logical(x.value))
        if not known:
            held = Tensor(x.value, self.dtype_of(element_of(x.value)), x._sizes)
            if number and isinstance(held.dtype.builtin, IntegerType) and held.dtype.is_int:
                value = fitting(np.asarray(value, np.int64), held.dtype.builtin).item()
            return ShapeBuilder.pad(self, held, low, high, value).value
        if number:
            fill = self.splat(value, x.dtype, [1])
        else:
            with self.frame([1]):
                fill = self.spread(self.element(value, x.dtype).value, [1])
        amounts = self.shape_value([p for pair in zip(low, high, strict=True) for p in pair])  # type: ignore[misc]
        type_ = tensor_type(tuple(map(static, sizes)), element_of(x.value))
        return self.make("pad", (x.value, amounts, fill), type_)

    def concatenated(self, values: Sequence[SSAValue], dim: int, type_: Attribute) -> SSAValue:
        assert isinstance(type_, TensorType)
        full = [v for v in values if 0 not in shape_of(v)]
        if len(full) == 1:
            return self.recast(full[0], type_)
        wanted = TensorType(element_of(values[0]), type_.get_shape())
        arrays = [a for v in full if (a := array_of(v)) is not None]
        if full and len(arrays) == len(full):
            joined = np.concatenate(arrays, dim)
            if is_small(joined):
                return self.known(joined, self.logical(full[0]))
        return self.make("concat", full, wanted, {"axis": tosa.axis(dim)})

    def reversed(self, x: Tensor, dims: Sequence[int]) -> Tensor:
        """The same elements in the opposite order along some dims."""
        value = x.value
        for dim in dims:
            if x.shape[dim] != 1:
                value = self.make("reverse", (value,), value.type, {"axis": tosa.axis(dim)})
        return Tensor(value, x.dtype, x._sizes)

    def iota(self, size: Size) -> SSAValue:
        if isinstance(size, int):
            return self.known(np.arange(size), i64)
        return Counter(tensor_type((None,), self.held(i64)), size)

    def counted(self, positions: Counter) -> SSAValue:
        line, shape = self._line(positions.size), shape_of(positions)
        return line if len(shape) == 1 else self._reshape_static(line, shape)

    def _line(self, size: Size, levels: int = COUNTING_LEVELS) -> SSAValue:
        """0, 1, 2, ... up to a size. TOSA has no op that counts: rows of a constant, one below the other, are cut."""
        key = ("line", self.block, size)
        if key not in self._memo:
            line = self._memo.setdefault("row", self.known(np.arange(COUNTING_ROW), i64))
            length: Size = COUNTING_ROW
            if levels > 1:
                rows = self.ceildiv(size, COUNTING_ROW)
                starts = self.product_of(self._line(rows, levels - 1), self._single(COUNTING_ROW, i64, [1]))
                columns = self._reshape_static(line, [1, COUNTING_ROW])
                block = self.on("add", (self._reshape_static(starts, [None, 1]), columns), element_of(starts))
                line, length = self._reshape_static(block, [None]), self.mul(rows, COUNTING_ROW)
            whole = Tensor(line, self.dtype_of(element_of(line)), [length])
            self._memo[key] = ShapeBuilder.slice(self, whole, [0], [size], [1]).value
        return self._memo[key]

    def full(self, sizes: Sequence[Size], value: Any, dtype: DType) -> Tensor:
        if 0 not in sizes:
            return super().full(sizes, value, dtype)
        made = self.empty(sizes, dtype)
        if not isinstance(value, Element | SSAValue):
            self.fills[made.value] = value
        return made

    def empty(self, sizes: Sequence[Size], dtype: DType) -> Tensor:
        shape = [s for s in sizes if isinstance(s, int)]
        if len(shape) == len(sizes) and not dtype.is_complex:
            return Tensor(self.splat(0, dtype, shape), dtype, sizes)
        # Only its sizes are read.
        held = i32 if dtype.builtin == i64 and self.narrow else dtype.builtin
        dynamic = [s for s in sizes if isinstance(s, SSAValue)]
        value = OpBuilder.value(self, tensor.EmptyOp, dynamic, tensor_type(tuple(map(static, sizes)), held))
        return Tensor(value, dtype, sizes)

    def filled(self, sizes: Sequence[Size], value: Any, dtype: DType) -> Tensor:
        if all(isinstance(s, int) for s in sizes) or isinstance(value, Element | SSAValue):
            return super().filled(sizes, value, dtype)
        # A reduction reads nothing of it but the number.
        out = self.empty(sizes, dtype)
        self.fills[out.value] = value
        return out

    # --- Loop nests ---

    def generic(
        self,
        ins: Sequence[Tensor],
        in_maps: Sequence[tuple[MapResult, ...]],
        outs: Sequence[Tensor],
        out_maps: Sequence[tuple[MapResult, ...]],
        loops: int,
        body: Body,
        reduced: Sequence[int] = (),
    ) -> list[Tensor]:
        if any(0 in o.shape for o in outs):
            return list(outs)
        if any(0 in t.shape for t in ins):
            return [self.full(self.sizes(o), self.fills.get(o.value, 0), o.dtype) for o in outs]
        return super().generic(ins, in_maps, outs, out_maps, loops, body, reduced)

    def _into(self, value: SSAValue, out: Tensor, map_: Sequence[MapResult], sizes: Sequence[Size]) -> Tensor:
        result = super()._into(value, out, map_, sizes)
        self.measure(result)
        return result
