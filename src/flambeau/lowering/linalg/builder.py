"""The verbs that linalg rules are written with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from xdsl.dialects import arith, scf, tensor
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    TensorType,
    i64,
)
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import FillOp, GenericOp, IndexOp, TransposeOp, YieldOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from flambeau.diagnostics import Unsupported
from flambeau.dialects.linalg_named import implied_properties, named_op, segments
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import (
    INDEX,
    LoweringBuilder,
    Size,
    Tensor,
    i64_array,
    index_attr,
    static,
    tensor_type,
)
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
def _reassociation(groups: tuple[tuple[int, ...], ...]) -> ArrayAttr[Any]:
    return ArrayAttr([ArrayAttr([IntegerAttr(i, i64) for i in g]) for g in groups])


@cache
def _fill_properties() -> dict[str, Attribute]:
    return {"operandSegmentSizes": segments(1, 1)}


class LinalgBuilder(LoweringBuilder):
    """Builds linalg on tensors."""

    index_guards = True
    """Whether to check at run time that indices are in range, as PyTorch does."""

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

    def elementwise(
        self, tensors: Sequence[Tensor], body: Body, dtype: DType | Sequence[DType], sizes: Sequence[Size] | None = None
    ) -> Any:
        """One loop over all elements; operands are broadcast."""
        if sizes is None:
            sizes = self.broadcast_sizes(*(self.sizes(t) for t in tensors))
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
        return tuple(
            None if d == 1 and sizes[offset + i] != 1 else offset + i for i, d in enumerate(x.shape)
        )

    def along(
        self, x: Tensor, rows: Sequence[Tensor], dims: Sequence[int], body: Body, dtype: DType
    ) -> Tensor:
        """Elementwise over `x` and tensors that lack its `dims`: what a reduction over them gave."""
        identity = tuple(range(x.rank))
        kept = tuple(i for i in identity if i not in dims)
        count = 1 + len(rows)
        return self.generic(
            [x, *rows],
            [identity, *[kept] * len(rows)],
            [self.empty(self.sizes(x), dtype)],
            [identity],
            x.rank,
            lambda *elements: body(*elements[:count]),
        )[0]

    def to(self, x: Tensor, dtype: DType) -> Tensor:
        """Convert the elements of a tensor."""
        if x.dtype is dtype:
            return x
        if x.dtype.builtin == dtype.builtin:
            return Tensor(x.value, dtype, x._sizes)
        return self.elementwise([x], lambda e: e.to(dtype), dtype)  # type: ignore[no-any-return]

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

        return self.elementwise(tensors, with_indices, dtype, sizes)  # type: ignore[no-any-return]

    def load(self, x: Tensor, indices: Sequence[Size]) -> Element:
        """Inside a body: an element of any tensor."""
        value = self.value(tensor.ExtractOp, (x.value, *(self.index(i) for i in indices)), x.dtype.builtin)
        return Element(self, value, x.dtype)

    def as_index(self, element: Element) -> SSAValue:
        """An integer element as an index."""
        wide = element.to(dtypes.int64)
        return self.value(arith.IndexCastOp, (wide.value,), INDEX)

    # --- Loops ---

    def while_loop(
        self,
        carried: Sequence[Element],
        condition: Callable[..., Element],
        body: Callable[..., Sequence[Element]],
    ) -> list[Element]:
        """`scf.while`, also inside a body: `carried = body(*carried)` as long as `condition(*carried)` holds.

        Numbers only: IREE mixes up the sizes of dynamic tensors that a while loop carries. Use `loop` for tensors.
        """
        types = [c.value.type for c in carried]

        def region(function: Callable[..., tuple[type[Operation], list[Element]]]) -> Region:
            block = Block(arg_types=types)
            outer, self.block = self.block, block
            try:
                terminator, results = function(*(_with_value(c, a) for c, a in zip(carried, block.args, strict=True)))
                self.emit(terminator, [r.value for r in results])
            finally:
                self.block = outer
            return Region(block)

        before = region(lambda *args: (scf.ConditionOp, [condition(*args), *args]))
        after = region(lambda *args: (scf.YieldOp, list(body(*args))))
        op = self.emit(scf.WhileOp, [c.value for c in carried], types, regions=(before, after))
        return [_with_value(c, r) for c, r in zip(carried, op.results, strict=True)]

    def doublings(self, size: Size) -> Size:
        """How often 1 must be doubled to reach a size: the passes of a parallel scan or sort."""
        if isinstance(size, int):
            return max(size - 1, 0).bit_length()
        limit, start = self.scalar(size), [self.element(n, dtypes.int64) for n in (0, 1)]
        passes = self.while_loop(start, lambda _, reach: reach < limit, lambda n, reach: (n + 1, reach + reach))
        return self.as_index(passes[0])


    # --- Filling ---

    def full(self, sizes: Sequence[Size], value: Any, dtype: DType) -> Tensor:
        """A tensor with one value everywhere; the value is a number, an Element or a scalar SSA value."""
        scalar = self.element(value, dtype).value
        return self.fill(self.empty(sizes, dtype), scalar)

    def fill(self, out: Tensor, scalar: SSAValue) -> Tensor:
        key = ("fill", out.value, scalar)
        found = self._memo.get(key) if self.block is self.entry else None
        if found is None:
            region = self.region([out.dtype, out.dtype], lambda value, _: value, [out.dtype])
            op = self.emit(
                FillOp, (scalar, out.value), (out.value.type,), _fill_properties(), regions=(region,)
            )
            found = op.results[0]
            if self.block is self.entry:
                self._memo[key] = found
        return Tensor(found, out.dtype, out._sizes)

    # --- Reductions ---

    def reduce(
        self,
        tensors: Sequence[Tensor],
        dims: Sequence[int],
        inits: Sequence[tuple[Any, DType]],
        body: Body,
        keepdim: bool = False,
        indexed: bool = False,
    ) -> list[Tensor]:
        """Reduce over dims. `body(*elements, *accumulators)` gives the new accumulators, which start at `inits`.

        The first tensor has all dims; a further one of lower rank has those that are kept. With `indexed`, the body's
        first argument is the list of loop indices.
        """
        x = tensors[0]
        sizes = self.sizes(x)
        kept = [i for i in range(x.rank) if i not in dims]
        outs = [self.full([sizes[i] for i in kept], value, dtype) for value, dtype in inits]

        def with_indices(*elements: Element) -> Any:
            return body([self.loop_index(i) for i in range(x.rank)], *elements)

        results = self.generic(
            tensors,
            [tuple(range(x.rank)) if t.rank == x.rank else tuple(kept) for t in tensors],
            outs,
            [tuple(kept)] * len(outs),
            x.rank,
            with_indices if indexed else body,
            reduced=dims,
        )
        if keepdim:
            shape = [1 if i in dims else s for i, s in enumerate(sizes)]
            results = [self.reshape(r, shape) for r in results]
        return results

    def window_reduce(
        self,
        x: Tensor,
        kernel: Sequence[Size],
        out: Sequence[Size],
        strides: Sequence[int],
        dilations: Sequence[int],
        inits: Sequence[tuple[Any, DType]],
        body: Body,
        indexed: bool = False,
    ) -> list[Tensor]:
        """Reduce sliding windows over the last dims: `out` windows of `kernel` elements in each of them.

        `body(element, *accumulators)` gives the new accumulators, which start at `inits`. With `indexed`, its first
        argument is the list of loop indices: those of the result, then those inside the window.
        """
        n, lead = len(kernel), x.rank - len(kernel)
        places = tuple(((lead + i, strides[i]), (x.rank + i, dilations[i])) for i in range(n))
        sizes = [*self.sizes(x)[:lead], *out]
        return self.windows([x], [(*range(lead), *places)], sizes, kernel, inits, body, indexed)

    def windows(
        self,
        ins: Sequence[Tensor],
        in_maps: Sequence[tuple[MapResult, ...]],
        sizes: Sequence[Size],
        kernel: Sequence[Size],
        inits: Sequence[tuple[Any, DType]],
        body: Body,
        indexed: bool = False,
    ) -> list[Tensor]:
        """For each element of a result of the given sizes, reduce over a window of `kernel` steps."""
        rank, n = len(sizes), len(kernel)
        outs = [self.full(sizes, value, dtype) for value, dtype in inits]
        # The kernel's sizes can be seen from no operand but one that has them as its shape.
        shape_only = self.empty(kernel, dtypes.bool_)

        def without_shape(*elements: Element) -> Any:
            indices = [[self.loop_index(i) for i in range(rank + n)]] if indexed else []
            return body(*indices, *elements[: len(ins)], *elements[len(ins) + 1 :])

        return self.generic(
            [*ins, shape_only],
            [*in_maps, tuple(range(rank, rank + n))],
            outs,
            [tuple(range(rank))] * len(outs),
            rank + n,
            without_shape,
            reduced=range(rank, rank + n),
        )

    # --- Loops ---

    def loop(
        self, lower: Size, upper: Size, carried: Sequence[Tensor], body: Callable[[SSAValue, list[Tensor]], Sequence[Tensor]]
    ) -> list[Tensor]:
        """`scf.for`: `body(i, carried)` gives the tensors for the next turn; their shapes stay what they are.

        Values that the body makes must not be used after it: ask for the sizes of outer tensors before the loop.
        IREE 3.13 forgets where in a shared allocation a carried tensor lies, and two computed together then overlap:
        carry one tensor, and start with `empty`.
        """
        types = [t.value.type for t in carried]
        block = Block(arg_types=[INDEX, *types])
        outer, self.block = self.block, block
        try:
            inside = [Tensor(a, t.dtype, t._sizes) for a, t in zip(block.args[1:], carried, strict=True)]
            results = body(block.args[0], inside)
            self.emit(scf.YieldOp, [self.cast(r, t.shape).value for r, t in zip(results, carried, strict=True)])
        finally:
            self.block = outer
        operands = [self.index(lower), self.index(upper), self.index(1), *(t.value for t in carried)]
        op = self.emit(scf.ForOp, operands, types, regions=(Region(block),))
        return [Tensor(r, t.dtype, t._sizes) for r, t in zip(op.results, carried, strict=True)]

    # --- Shapes ---

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
            while not _same_product(a, b):
                # Grow the side that has fewer elements so far; unknown sizes are grown on both.
                grow_left = _static_part(a) < _static_part(b) or (
                    _static_part(a) == _static_part(b) and len(a[1]) <= len(b[1])
                )
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
        return self.elementwise([x], lambda e: e, x.dtype, sizes)  # type: ignore[no-any-return]

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
        sizes = [
            self.add(self.add(s, lo), hi) for s, lo, hi in zip(self.sizes(x), low, high, strict=True)
        ]
        if x.dtype.is_complex:
            # IREE crashes on a tensor.pad of complex numbers.
            return self.insert_slice(x, self.full(sizes, value, x.dtype), low, [1] * x.rank)
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

    # --- Named contractions ---

    def named(
        self,
        name: str,
        ins: Sequence[Tensor],
        out: Tensor,
        body: Body,
        properties: dict[str, Attribute] | None = None,
    ) -> Tensor:
        """A named linalg op that accumulates into `out`."""
        region = self.region([*(t.dtype for t in ins), out.dtype], body, [out.dtype])
        op = self.emit(
            named_op(name),
            [*(t.value for t in ins), out.value],
            (out.value.type,),
            {"operandSegmentSizes": segments(len(ins), 1), **implied_properties(name), **(properties or {})},
            regions=(region,),
        )
        return Tensor(op.results[0], out.dtype, out._sizes)

    def contract(
        self, name: str, ins: Sequence[Tensor], sizes: Sequence[Size], properties: dict[str, Attribute] | None = None
    ) -> Tensor:
        """A named multiply-and-add; 16-bit floats accumulate in f32, the result is in the accumulator's dtype."""
        dtype = ins[0].dtype.compute
        out = self.full(sizes, 0, dtype)
        return self.named(name, ins, out, lambda a, b, c: c + a.to(dtype) * b.to(dtype), properties)

    # --- Guards on contents ---

    def check_range(self, indices: Tensor, size: Size, message: str, negative: bool = True) -> None:
        """Guard that every index is in [-size, size), or in [0, size) where the op takes no negative ones."""
        if not self.index_guards:
            return
        limit = self.index(size)

        def in_range(e: Element, acc: Element) -> Element:
            bound = self.scalar(limit)
            wide = e.to(dtypes.int64)
            return acc & (wide < bound) & (wide >= (-bound if negative else 0))

        flat = self.reduce([indices], range(indices.rank), [(True, dtypes.bool_)], in_range)[0]
        self.guard(self.value(tensor.ExtractOp, (flat.value,), dtypes.bool_.builtin), message)

    def item(self, x: Tensor) -> SSAValue:
        """The one element of a tensor as a scalar value."""
        return self.value(tensor.ExtractOp, (x.value, *[self.index(0)] * x.rank), x.dtype.builtin)

    def from_scalar(self, value: Any, dtype: DType) -> Tensor:
        """A 0-d tensor."""
        return self.full([], value, dtype)


def window_properties(strides: Sequence[int], dilations: Sequence[int]) -> dict[str, Attribute]:
    """The attributes of linalg's convolutions and poolings."""
    type_ = TensorType(i64, [len(strides)])
    return {
        "strides": DenseIntOrFPElementsAttr.from_list(type_, list(strides)),
        "dilations": DenseIntOrFPElementsAttr.from_list(type_, list(dilations)),
    }


_DYNAMIC = -(1 << 63)


def _with_value(like: Element, value: SSAValue) -> Element:
    return Element(like.b, value, like.dtype)


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


def _same_product(a: Factors, b: Factors) -> bool:
    return a == b


def _static_part(a: Factors) -> int:
    return a[0]


def _product(values: Sequence[int]) -> int:
    total = 1
    for v in values:
        total *= v
    return total


_ = (Unsupported, index_attr)
