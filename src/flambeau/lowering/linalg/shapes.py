"""Shapes: the verbs that rearrange elements and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from typing import Any

from xdsl.dialects import tensor
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, i64
from xdsl.dialects.linalg.ops import TransposeOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from flambeau.dialects.linalg_named import segments
from flambeau.lowering.builder import INDEX, Size, Tensor, i64_array, static, tensor_type
from flambeau.lowering.linalg.generic import GenericBuilder

_DYNAMIC = -(1 << 63)


@cache
def _reassociation(groups: tuple[tuple[int, ...], ...]) -> ArrayAttr[Any]:
    return ArrayAttr([ArrayAttr([IntegerAttr(i, i64) for i in g]) for g in groups])


class ShapeBuilder(GenericBuilder):
    """Builds reshapes, slices and pads."""

    def reshape(self, x: Tensor, sizes: Sequence[Size]) -> Tensor:
        """The same elements in the same order under another shape."""
        old = self.sizes(x)
        new = list(sizes)
        if len(old) == len(new) and all(_same(a, b) for a, b in zip(old, new, strict=True)):
            return x
        if any(isinstance(s, int) and s == 0 for s in (*old, *new)):
            return self.empty(new, x.dtype)
        if not old or not new:
            return self.expand(x, [], new) if not old else self.collapse(x, [])
        groups = self._match_groups(old, new)
        collapsed = self.collapse(x, [g[0] for g in groups])
        return self.expand(collapsed, [g[1] for g in groups], new)

    def _match_groups(self, old: list[Size], new: list[Size]) -> list[tuple[list[int], list[int]]]:
        """Pairs of dim groups with equal numbers of elements, as fine as can be known."""
        groups: list[tuple[list[int], list[int]]] = []
        i = j = 0
        while i < len(old) and j < len(new):
            left, right = [i], [j]
            a, b = self._factors(old[i]), self._factors(new[j])
            while a != b:
                # Grow the side that has fewer elements so far; unknown sizes are grown on both.
                grow_left = a[0] < b[0] or (a[0] == b[0] and len(a[1]) <= len(b[1]))
                if grow_left and left[-1] + 1 < len(old):
                    left.append(left[-1] + 1)
                    a = _times(a, self._factors(old[left[-1]]))
                elif right[-1] + 1 < len(new):
                    right.append(right[-1] + 1)
                    b = _times(b, self._factors(new[right[-1]]))
                elif left[-1] + 1 < len(old):
                    left.append(left[-1] + 1)
                    a = _times(a, self._factors(old[left[-1]]))
                else:
                    break
            i, j = left[-1] + 1, right[-1] + 1
            groups.append((left, right))
        # Size-1 dims at the end join the last group.
        rest_old, rest_new = list(range(i, len(old))), list(range(j, len(new)))
        if groups and (rest_old or rest_new):
            groups[-1] = (groups[-1][0] + rest_old, groups[-1][1] + rest_new)
        elif rest_old or rest_new:
            groups = [(rest_old, rest_new)]
        return groups

    def _factors(self, size: Size) -> tuple[int, tuple[int, ...]]:
        """A size as a static factor and the sorted ids of its dynamic factors."""
        if isinstance(size, int):
            return (size, ())
        known: dict[SSAValue, tuple[int, tuple[int, ...]]] = self._memo.setdefault("factors", {})
        return known.get(size, (1, (id(size),)))

    def mul(self, a: Size, b: Size) -> Size:
        product = super().mul(a, b)
        if isinstance(product, SSAValue):
            self._memo.setdefault("factors", {})[product] = _times(self._factors(a), self._factors(b))
        return product

    def divide_exact(self, numerator: Sequence[Size], denominator: Sequence[Size]) -> Size:
        """A product of sizes divided by another that it is a multiple of; equal factors cancel without a division."""
        (whole, symbols), (part, others) = self._factors_of(numerator), self._factors_of(denominator)
        if symbols == others and part and whole % part == 0:
            return whole // part
        top, bottom = list(numerator), list(denominator)
        for size in denominator:
            match = next((i for i, s in enumerate(top) if _same(s, size)), None)
            if match is not None:
                top.pop(match)
                bottom.pop(next(i for i, s in enumerate(bottom) if _same(s, size)))
        constant = _product([s for s in bottom if isinstance(s, int)])
        dynamic = [s for s in bottom if isinstance(s, SSAValue)]
        static_top = _product([s for s in top if isinstance(s, int)])
        rest: list[Size] = [s for s in top if isinstance(s, SSAValue)]
        if not dynamic and constant and static_top % constant == 0:
            return self.product([*rest, static_top // constant])
        return self.floordiv(self.product(top), self.product(bottom))

    def same_size(self, a: Size, b: Size, message: str) -> Size:
        if isinstance(a, SSAValue) and isinstance(b, SSAValue) and self._factors(a) == self._factors(b):
            return a
        return super().same_size(a, b, message)

    def is_same_product(self, a: Sequence[Size], b: Sequence[Size]) -> bool:
        """Whether two products of sizes are known to be equal."""
        return self._factors_of(a) == self._factors_of(b)

    def _factors_of(self, sizes: Sequence[Size]) -> Factors:
        nothing: Factors = (1, ())
        return reduce(_times, map(self._factors, sizes), nothing)

    def collapse(self, x: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
        """Merge neighbouring dims; no elements move."""
        if all(len(g) == 1 for g in groups) and len(groups) == x.rank:
            return x
        old = self.sizes(x)
        new = [self.product([old[i] for i in g]) for g in groups]
        type_ = tensor_type(tuple(map(static, new)), x.dtype.builtin)
        properties = {"reassociation": _reassociation(tuple(map(tuple, groups)))}
        return Tensor(self.value(tensor.CollapseShapeOp, (x.value,), type_, properties), x.dtype, new)

    def expand(self, x: Tensor, groups: Sequence[Sequence[int]], sizes: Sequence[Size]) -> Tensor:
        """Split dims into several; no elements move."""
        if all(len(g) == 1 for g in groups) and len(groups) == len(sizes):
            return x
        shape = tuple(map(static, sizes))
        # MLIR wants the collapsed size dynamic exactly where the group has a dynamic size.
        wanted = tuple(
            None if any(shape[i] is None for i in g) else _product([shape[i] or 0 for i in g]) for g in groups
        )
        x = self.cast(x, wanted)
        type_ = tensor_type(shape, x.dtype.builtin)
        dynamic = [s for s in sizes if isinstance(s, SSAValue)]
        properties: dict[str, Attribute] = {
            "reassociation": _reassociation(tuple(map(tuple, groups))),
            "static_output_shape": i64_array(tuple(_DYNAMIC if s is None else s for s in shape)),
        }
        value = self.value(tensor.ExpandShapeOp, (x.value, *dynamic), type_, properties)
        return Tensor(value, x.dtype, sizes)

    def unsqueeze(self, x: Tensor, dim: int) -> Tensor:
        sizes = self.sizes(x)
        return self.reshape(x, [*sizes[:dim], 1, *sizes[dim:]])

    def squeeze(self, x: Tensor, dims: Sequence[int]) -> Tensor:
        return self.reshape(x, [s for i, s in enumerate(self.sizes(x)) if i not in dims])

    def transpose(self, x: Tensor, permutation: Sequence[int]) -> Tensor:
        """Reorder dims."""
        if list(permutation) == list(range(x.rank)):
            return x
        sizes = self.sizes(x)
        out = self.empty([sizes[p] for p in permutation], x.dtype)
        region = self.region([x.dtype, x.dtype], lambda value, _: value, [x.dtype])
        op = self.emit(
            TransposeOp,
            (x.value, out.value),
            (out.value.type,),
            {"permutation": i64_array(tuple(permutation))},
            regions=(region,),
        )
        return Tensor(op.results[0], x.dtype, out._sizes)

    def broadcast_to(self, x: Tensor, sizes: Sequence[Size]) -> Tensor:
        """Repeat size-1 dims (and add leading ones) up to the given sizes."""
        if x.rank == len(sizes) and all(_same(a, b) for a, b in zip(self.sizes(x), sizes, strict=True)):
            return x
        return self.elementwise([x], lambda e: e, x.dtype, sizes)

    def slice(self, x: Tensor, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size]) -> Tensor:
        """`tensor.extract_slice`."""
        if all(isinstance(s, int) and s == 0 for s in starts) and all(
            _same(a, b) for a, b in zip(self.sizes(x), sizes, strict=True)
        ):
            return x
        if any(isinstance(s, int) and s == 0 for s in sizes):
            return self.empty(sizes, x.dtype)  # MLIR wants offsets inside the dimension
        type_ = tensor_type(tuple(map(static, sizes)), x.dtype.builtin)
        properties, operands = _slice_operands(starts, sizes, steps, 1)
        return Tensor(self.value(tensor.ExtractSliceOp, (x.value, *operands), type_, properties), x.dtype, sizes)

    def insert_slice(self, source: Tensor, into: Tensor, starts: Sequence[Size], steps: Sequence[Size]) -> Tensor:
        """`tensor.insert_slice`: a copy of `into` with `source` written at the given place."""
        sizes = self.sizes(source)
        if any(isinstance(s, int) and s == 0 for s in sizes):
            return into
        properties, operands = _slice_operands(starts, sizes, steps, 2)
        value = self.value(tensor.InsertSliceOp, (source.value, into.value, *operands), into.value.type, properties)
        return Tensor(value, into.dtype, into._sizes)

    def pad(self, x: Tensor, low: Sequence[Size], high: Sequence[Size], value: Any) -> Tensor:
        """Add a border of one value; amounts must not be negative."""
        if all(isinstance(p, int) and p == 0 for p in (*low, *high)):
            return x
        sizes = [self.add(self.add(s, lo), hi) for s, lo, hi in zip(self.sizes(x), low, high, strict=True)]
        type_ = tensor_type(tuple(map(static, sizes)), x.dtype.builtin)
        fill = self.element(value, x.dtype)
        block = Block(arg_types=[INDEX] * x.rank)
        outer, self.block = self.block, block
        self.emit(tensor.YieldOp, (fill.value,))
        self.block = outer
        properties = {
            "static_low": _static_list(low),
            "static_high": _static_list(high),
            "operandSegmentSizes": segments(
                1, sum(isinstance(p, SSAValue) for p in low), sum(isinstance(p, SSAValue) for p in high)
            ),
        }
        operands = [x.value, *(p for p in (*low, *high) if isinstance(p, SSAValue))]
        op = self.emit(tensor.PadOp, operands, (type_,), properties, regions=(Region(block),))
        return Tensor(op.results[0], x.dtype, sizes)


def _static_list(sizes: Sequence[Size]) -> DenseArrayBase[Any]:
    return i64_array(tuple(s if isinstance(s, int) else _DYNAMIC for s in sizes))


def _slice_operands(
    starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size], tensors: int
) -> tuple[dict[str, Attribute], list[SSAValue]]:
    groups = (starts, sizes, steps)
    dynamic = [[s for s in group if isinstance(s, SSAValue)] for group in groups]
    properties: dict[str, Attribute] = {
        "static_offsets": _static_list(starts),
        "static_sizes": _static_list(sizes),
        "static_strides": _static_list(steps),
        "operandSegmentSizes": segments(*([1] * tensors), *(len(d) for d in dynamic)),
    }
    return properties, [v for group in dynamic for v in group]


def _same(a: Size, b: Size) -> bool:
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


Factors = tuple[int, tuple[int, ...]]


def _times(a: Factors, b: Factors) -> Factors:
    return (a[0] * b[0], tuple(sorted(a[1] + b[1])))


def _product(values: Sequence[int]) -> int:
    total = 1
    for v in values:
        total *= v
    return total
