"""The verbs of rules as linalg: loop nests, named ops, and the `tensor` dialect for what moves elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from xdsl.dialects import tensor
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, IntegerAttr, i64
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import FillOp, GenericOp, IndexOp, TransposeOp, YieldOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from flambeau.dialects.linalg_named import implied_properties, named_op, segments
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering import tensor_dialect
from flambeau.lowering.builder import INDEX, Size, Tensor, i64_array, is_same, static, tensor_type
from flambeau.lowering.element import Element
from flambeau.lowering.loops import inside
from flambeau.lowering.verbs import Body, MapResult, RuleBuilder, Windows, window_properties

_PARALLEL = IteratorTypeAttr(IteratorType.PARALLEL)
_REDUCTION = IteratorTypeAttr(IteratorType.REDUCTION)


@cache
def _map(dims: int, results: tuple[MapResult, ...]) -> AffineMapAttr:
    """Make the affine map to the named loop dims; None stands for the constant 0 (a broadcast dimension)."""
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


class LinalgBuilder(RuleBuilder):
    """Builds linalg on tensors."""

    loads_are_cheap = True

    def __init__(self, block: Block, scatter_op: Callable[..., Tensor] | None = None) -> None:
        super().__init__(block)
        self.scatter_op = scatter_op
        """Scatters by one op of another dialect: a function of the builder and the arguments of `scatter`."""

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

    def each(
        self,
        operands: Sequence[tuple[Tensor, Sequence[int]]],
        sizes: Sequence[Size],
        body: Body,
        types: Sequence[DType],
    ) -> list[Tensor]:
        maps = [
            tuple(None if n == 1 and sizes[d] != 1 else d for d, n in zip(dims, t.shape, strict=True))
            for t, dims in operands
        ]
        outs, count, rank = [self.empty(sizes, d) for d in types], len(operands), len(sizes)
        out_maps = [tuple(range(rank))] * len(outs)
        return self.generic([t for t, _ in operands], maps, outs, out_maps, rank, lambda *e: body(*e[:count]))

    def region(
        self,
        argument_dtypes: Sequence[DType],
        body: Body,
        result_dtypes: Sequence[DType],
        terminator: type[Operation] = YieldOp,
    ) -> Region:
        """Build a region whose block computes `body` on scalars and yields the results, converted to their dtypes."""
        block = Block(arg_types=[d.builtin for d in argument_dtypes])
        with inside(self, block):
            elements = [Element(self, a, d) for a, d in zip(block.args, argument_dtypes, strict=True)]
            results = body(*elements)
            results = results if isinstance(results, tuple) else (results,)
            self.emit(terminator, [self.element(r, d).value for r, d in zip(results, result_dtypes, strict=True)])
        return Region(block)

    def loop_index(self, dim: int) -> SSAValue:
        return self.value(IndexOp, (), INDEX, {"dim": IntegerAttr(dim, i64)})

    def load(self, x: Tensor, indices: Sequence[Size]) -> Element:
        value = self.value(tensor.ExtractOp, (x.value, *(self.index(i) for i in indices)), x.dtype.builtin)
        return Element(self, value, x.dtype)

    def store(self, x: Tensor, indices: Sequence[Size], value: Element) -> Tensor:
        operands = (value.to(x.dtype).value, x.value, *(self.index(i) for i in indices))
        return Tensor(self.value(tensor.InsertOp, operands, x.value.type), x.dtype, x._sizes)

    # --- Filling ---

    def full(self, sizes: Sequence[Size], value: Any, dtype: DType) -> Tensor:
        """Make a tensor with one value everywhere; the value is a number, an Element or a scalar SSA value.

        `tensor.splat` where sizes are static and elements are no complex numbers, which it does not take.
        """
        if dtype.is_complex or not all(isinstance(s, int) for s in sizes):
            return self.initial(sizes, value, dtype)
        type_ = tensor_type(tuple(map(static, sizes)), dtype.builtin)
        return Tensor(self.value(tensor.SplatOp, (self.element(value, dtype).value,), type_), dtype, sizes)

    def initial(self, sizes: Sequence[Size], value: Any, dtype: DType) -> Tensor:
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

    # --- Moving ---

    def reshape(self, x: Tensor, sizes: Sequence[Size]) -> Tensor:
        old = self.sizes(x)
        new = list(sizes)
        if len(old) == len(new) and all(is_same(a, b) for a, b in zip(old, new, strict=True)):
            return x
        if any(isinstance(s, int) and s == 0 for s in (*old, *new)):
            return self.empty(new, x.dtype)
        if not old or not new:
            return self.expand(x, [], new) if not old else self.collapse(x, [])
        groups = tensor_dialect.match_groups(self, old, new)
        collapsed = self.collapse(x, [g[0] for g in groups])
        return self.expand(collapsed, [g[1] for g in groups], new)

    collapse = tensor_dialect.collapse
    expand = tensor_dialect.expand
    slice = tensor_dialect.extract_slice
    insert_slice = tensor_dialect.insert_slice
    pad = tensor_dialect.pad

    def scatter(
        self,
        x: Tensor,
        dim: int,
        rows: Tensor,
        values: Callable[[list[Size], list[Size]], Element],
        combine: Callable[[Element, Element], Element],
        kind: str | None,
    ) -> Tensor:
        if self.scatter_op is not None:
            return self.scatter_op(self, x, dim, rows, values, combine)
        stored = self.to(x, dtypes.uint8) if x.dtype.is_bool else x
        sizes = self.sizes(x)
        last = self.sub(sizes[dim], 1)
        # The guard that makes the program fail may come later: nothing is written outside of the tensor, and nothing
        # at all where it may be empty and is. That loop has one turn or none.
        turns: list[Size] = [] if isinstance(sizes[dim], int) else [self.minimum(sizes[dim], 1)]

        def update(at: list[Size], into: Tensor) -> list[Tensor]:
            at = at[len(turns) :]
            row = self.minimum(self.maximum(self.as_index(self.load(rows, at)), 0), last)

            def write(other: list[Size], into: Tensor) -> list[Tensor]:
                position = [*other[:dim], row, *other[dim:]]
                old = self.load(into, position).to(x.dtype)
                return [self.store(into, position, combine(old, values(at, other)).to(x.dtype))]

            return self.nest([*sizes[:dim], *sizes[dim + 1 :]], [into], write)

        return self.to(self.nest([*turns, *self.sizes(rows)], [stored], update)[0], x.dtype)

    def transpose(self, x: Tensor, permutation: Sequence[int]) -> Tensor:
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
        if x.rank == len(sizes) and all(is_same(a, b) for a, b in zip(self.sizes(x), sizes, strict=True)):
            return x
        return self.elementwise([x], lambda e: e, x.dtype, sizes)

    # --- Windows and named ops ---

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
        rank, n = len(sizes), len(kernel)
        outs = [self.initial(sizes, value, dtype) for value, dtype in inits]
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

    def named(
        self,
        name: str,
        ins: Sequence[Tensor],
        out: Tensor,
        body: Body,
        properties: dict[str, Attribute] | None = None,
    ) -> Tensor:
        """Emit a named linalg op that accumulates into `out`."""
        region = self.region([*(t.dtype for t in ins), out.dtype], body, [out.dtype])
        op = self.emit(
            named_op(name),
            [*(t.value for t in ins), out.value],
            (out.value.type,),
            {"operandSegmentSizes": segments(len(ins), 1), **implied_properties(name), **(properties or {})},
            regions=(region,),
        )
        return Tensor(op.results[0], out.dtype, out._sizes)

    def pool(self, name: str, x: Tensor, at: Windows, init: tuple[Any, DType], body: Body) -> Tensor:
        start, dtype = init
        out = self.initial([*self.sizes(x)[:2], *at.out], start, dtype)
        window, layout = self.empty(at.kernel, x.dtype), {3: "ncw", 4: "nchw"}[x.rank]
        properties = window_properties(at.strides, at.dilations)
        return self.named(f"pooling_{layout}_{name}", [x, window], out, lambda e, _, acc: body(e, acc), properties)

    def contract(
        self, name: str, ins: Sequence[Tensor], sizes: Sequence[Size], properties: dict[str, Attribute] | None = None
    ) -> Tensor:
        dtype = ins[0].dtype.compute
        out = self.initial(sizes, 0, dtype)
        return self.named(name, ins, out, lambda a, b, c: c + a.to(dtype) * b.to(dtype), properties)
