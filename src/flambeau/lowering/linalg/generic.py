"""Loop nests: the verbs around `linalg.generic`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, IntegerAttr, i64
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import FillOp, GenericOp, IndexOp, YieldOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from flambeau.dialects.linalg_named import segments
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import INDEX, LoweringBuilder, Size, Tensor, static, tensor_type
from flambeau.lowering.element import Element

Body = Callable[..., Any]

_PARALLEL = IteratorTypeAttr(IteratorType.PARALLEL)
_REDUCTION = IteratorTypeAttr(IteratorType.REDUCTION)


MapResult = int | None | tuple[tuple[int, int], ...]
"""One result of an indexing map: a loop, None for the constant 0, or a sum of (loop, factor)."""


@cache
def _map(dims: int, results: tuple[MapResult, ...]) -> AffineMapAttr:
    """The map to the named loop dims; None stands for the constant 0 (a broadcast dimension)."""
    return AffineMapAttr(AffineMap(dims, 0, tuple(map(_map_result, results))))


def _map_result(result: MapResult) -> AffineExpr:
    if result is None:
        return AffineExpr.constant(0)
    if isinstance(result, int):
        return AffineExpr.dimension(result)
    terms = [AffineExpr.dimension(d) * f if f != 1 else AffineExpr.dimension(d) for d, f in result]
    return sum(terms[1:], terms[0])


@cache
def _generic_properties(maps: tuple[AffineMapAttr, ...], reductions: tuple[bool, ...], outs: int) -> dict[str, Any]:
    return {
        "indexing_maps": ArrayAttr(maps),
        "iterator_types": ArrayAttr([_REDUCTION if r else _PARALLEL for r in reductions]),
        "operandSegmentSizes": segments(len(maps) - outs, outs),
    }


@cache
def _fill_properties() -> dict[str, Attribute]:
    return {"operandSegmentSizes": segments(1, 1)}


class GenericBuilder(LoweringBuilder):
    """Builds loop nests over tensors."""

    # --- linalg.generic ---

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
        """A loop nest; `body` gets an Element for each operand and gives one for each result."""
        operands = [*ins, *outs]
        maps = tuple(_map(loops, tuple(m)) for m in (*in_maps, *out_maps))
        properties = _generic_properties(maps, tuple(i in reduced for i in range(loops)), len(outs))
        region = self.region([o.dtype for o in operands], body, [o.dtype for o in outs])
        op = self.emit(
            GenericOp,
            [o.value for o in operands],
            [o.value.type for o in outs],
            properties,
            regions=(region,),
        )
        return [Tensor(r, o.dtype, o._sizes) for r, o in zip(op.results, outs, strict=True)]

    def region(self, argument_dtypes: Sequence[DType], body: Body, result_dtypes: Sequence[DType]) -> Region:
        """A region whose block computes `body` on scalars and yields the results, converted to their dtypes."""
        block = Block(arg_types=[d.builtin for d in argument_dtypes])
        outer, self.block = self.block, block
        try:
            elements = [Element(self, a, d) for a, d in zip(block.args, argument_dtypes, strict=True)]
            results = body(*elements)
            results = results if isinstance(results, tuple) else (results,)
            self.emit(YieldOp, [self.element(r, d).value for r, d in zip(results, result_dtypes, strict=True)])
        finally:
            self.block = outer
        return Region(block)

    def element(self, value: Any, dtype: DType) -> Element:
        """A number, an index value or an Element as an Element of the given dtype."""
        if isinstance(value, Element):
            return value.to(dtype)
        if isinstance(value, SSAValue):
            return self.scalar(value).to(dtype)
        return Element(self, self.constant(value, dtype), dtype)

    def scalar(self, value: SSAValue) -> Element:
        """A scalar SSA value (index, i64, f64, i1) as an Element."""
        if value.type == INDEX:
            return Element(self, self.value(arith.IndexCastOp, (value,), i64), dtypes.int64)
        for dtype in (dtypes.int64, dtypes.float64, dtypes.bool_):
            if value.type == dtype.builtin:
                return Element(self, value, dtype)
        raise TypeError(f"not a scalar: {value.type}")

    def scalar_bool(self, condition: bool | SSAValue) -> Element:
        """A condition on sizes as an Element."""
        value = condition if isinstance(condition, SSAValue) else self.constant(condition, dtypes.bool_)
        return Element(self, value, dtypes.bool_)

    def loop_index(self, dim: int) -> SSAValue:
        """Inside a body: the loop variable of a dimension."""
        return self.value(IndexOp, (), INDEX, {"dim": IntegerAttr(dim, i64)})

    # --- Elementwise ---

    def broadcast_sizes(self, *shapes: Sequence[Size]) -> list[Size]:
        """The sizes that all shapes broadcast to; mismatches are guarded at run time."""
        rank = max((len(s) for s in shapes), default=0)
        result: list[Size] = [1] * rank
        for sizes in shapes:
            offset = rank - len(sizes)
            for i, size in enumerate(sizes):
                at = offset + i
                have = result[at]
                if isinstance(size, int) and size == 1:
                    continue
                if isinstance(have, int) and have == 1:
                    result[at] = size
                else:
                    result[at] = self.same_size(have, size, "sizes of tensors do not match for broadcasting")
        return result

    def loop_sizes(self, tensors: Sequence[Tensor], sizes: Sequence[Size] | None) -> Sequence[Size]:
        """The sizes of a loop over tensors that are broadcast; where sizes are given, guards that all tensors fit."""
        shapes = [self.sizes(t) for t in tensors]
        if sizes is None:
            return self.broadcast_sizes(*shapes)
        for shape in shapes:
            for size, wanted in zip(shape, sizes[len(sizes) - len(shape) :], strict=True):
                if not isinstance(size, int) or (size != 1 and not isinstance(wanted, int)):
                    self.same_size(wanted, size, "sizes of tensors do not match for broadcasting")
        return sizes

    def elementwise(
        self, tensors: Sequence[Tensor], body: Body, dtype: DType | Sequence[DType], sizes: Sequence[Size] | None = None
    ) -> Any:
        """One loop over all elements; operands are broadcast, to `sizes` where these are given."""
        sizes = self.loop_sizes(tensors, sizes)
        rank = len(sizes)
        identity = tuple(range(rank))
        in_maps = [self._broadcast_map(t, sizes) for t in tensors]
        out_dtypes = [dtype] if isinstance(dtype, DType) else list(dtype)
        outs = [self.empty(sizes, d) for d in out_dtypes]
        count = len(tensors)
        results = self.generic(
            tensors, in_maps, outs, [identity] * len(outs), rank, lambda *elements: body(*elements[:count])
        )
        return results[0] if isinstance(dtype, DType) else tuple(results)

    def elementwise_over(
        self, operands: Sequence[tuple[Tensor, Sequence[int]]], sizes: Sequence[Size], body: Body, dtype: DType
    ) -> Tensor:
        """One loop over all elements; each operand comes with the dims that its own dims run along."""
        for t, dims in operands:
            for d, size in zip(dims, self.sizes(t), strict=True):
                self.same_size(sizes[d], size, f"an operand does not have the size of dimension {d}")
        out = self.empty(sizes, dtype)
        tensors, maps = [t for t, _ in operands], [tuple(dims) for _, dims in operands]
        return self.generic(tensors, maps, [out], [tuple(range(len(sizes)))], len(sizes), lambda *e: body(*e[:-1]))[0]

    def _broadcast_map(self, x: Tensor, sizes: Sequence[Size]) -> tuple[int | None, ...]:
        offset = len(sizes) - x.rank
        return tuple(None if d == 1 and sizes[offset + i] != 1 else offset + i for i, d in enumerate(x.shape))

    def to(self, x: Tensor, dtype: DType) -> Tensor:
        """Convert the elements of a tensor."""
        if x.dtype is dtype:
            return x
        if x.dtype.builtin == dtype.builtin:
            return Tensor(x.value, dtype, x._sizes)
        return self.elementwise([x], lambda e: e.to(dtype), dtype)

    def generate(self, sizes: Sequence[Size], dtype: DType, body: Callable[..., Any]) -> Tensor:
        """A tensor whose elements are a function of their position (index values)."""
        rank = len(sizes)
        out = self.empty(sizes, dtype)
        identity = tuple(range(rank))

        def with_indices(_: Element) -> Any:
            return body(*(self.loop_index(i) for i in range(rank)))

        return self.generic([], [], [out], [identity], rank, with_indices)[0]

    def map_indexed(
        self, tensors: Sequence[Tensor], sizes: Sequence[Size], dtype: DType, body: Callable[..., Any]
    ) -> Tensor:
        """Elementwise with broadcast operands where `body(indices, *elements)` sees the position too."""
        rank = len(sizes)

        def with_indices(*elements: Element) -> Any:
            return body([self.loop_index(i) for i in range(rank)], *elements)

        return self.elementwise(tensors, with_indices, dtype, sizes)

    def load(self, x: Tensor, indices: Sequence[Size]) -> Element:
        """Inside a body: an element of any tensor."""
        value = self.value(tensor.ExtractOp, (x.value, *(self.index(i) for i in indices)), x.dtype.builtin)
        return Element(self, value, x.dtype)

    def as_index(self, element: Element) -> SSAValue:
        """An integer element as an index."""
        wide = element.to(dtypes.int64)
        return self.value(arith.IndexCastOp, (wide.value,), INDEX)

    # --- Filling ---

    def full(self, sizes: Sequence[Size], value: Any, dtype: DType) -> Tensor:
        """A tensor with one value everywhere; the value is a number, an Element or a scalar SSA value.

        `tensor.splat` where sizes are static and elements are no complex numbers, which it does not take.
        """
        if dtype.is_complex or not all(isinstance(s, int) for s in sizes):
            return self.filled(sizes, value, dtype)
        type_ = tensor_type(tuple(map(static, sizes)), dtype.builtin)
        return Tensor(self.value(tensor.SplatOp, (self.element(value, dtype).value,), type_), dtype, sizes)

    def filled(self, sizes: Sequence[Size], value: Any, dtype: DType) -> Tensor:
        """An accumulator that starts at one value everywhere."""
        return self.fill(self.empty(sizes, dtype), self.element(value, dtype).value)

    def fill(self, out: Tensor, scalar: SSAValue) -> Tensor:
        key = ("fill", out.value, scalar)
        found = self._memo.get(key) if self.block is self.entry else None
        if found is None:
            region = self.region([out.dtype, out.dtype], lambda value, _: value, [out.dtype])
            op = self.emit(FillOp, (scalar, out.value), (out.value.type,), _fill_properties(), regions=(region,))
            found = op.results[0]
            if self.block is self.entry:
                self._memo[key] = found
        return Tensor(found, out.dtype, out._sizes)
