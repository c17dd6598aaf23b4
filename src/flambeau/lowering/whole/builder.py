"""The verbs of the linalg rules for targets whose ops take whole tensors: StableHLO, TOSA.

Note [Bodies on whole tensors]. A linalg rule says what happens to one element, or at one position. Here the same body
runs once on whole tensors: an Element is a tensor with an element at each position of the loop nest (or with 1 for a
dim along which it does not change), a loop variable is an iota, a load is a gather. So a rule that is written once
serves all targets, and a target adds rules of its own only where it has a better op. Reductions are recognised by what
their body does with the accumulator (see `reduction`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import IndexType, TensorType, i1
from xdsl.ir import Attribute, Operation, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import CMP_PROPERTIES, Size, Tensor, tensor_type
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.linalg.generic import Body, MapResult
from flambeau.lowering.slices import insert_by_select
from flambeau.lowering.whole.values import (
    Accumulator,
    Reduction,
    by_identity,
    is_wide,
    reduction_of,
    shape_of,
)

_NOTHING: Mapping[str, Attribute] = {}


KINDS = {
    "arith.addf": "add", "arith.addi": "add", "complex.add": "add", "arith.mulf": "mul", "arith.muli": "mul",
    "complex.mul": "mul", "arith.maximumf": "max", "arith.maxsi": "max", "arith.maxui": "maxu",
    "arith.minimumf": "min", "arith.minsi": "min", "arith.minui": "minu", "arith.andi": "and", "arith.ori": "or",
    "arith.xori": "xor",
}  # fmt: skip
"""Ops that combine an accumulator with a term."""


class WholeBuilder(LinalgBuilder):
    """Runs the bodies of rules on whole tensors. Targets implement the methods under "What a target gives"."""

    loads_are_cheap = False
    has_scatter = True

    def __init__(self, block: Any) -> None:
        super().__init__(block)
        self.frames: list[list[Size]] = []
        """The sizes of the loop nests around."""
        self.fills: dict[SSAValue, Any] = {}
        """Tensors with one value everywhere: accumulators start with it."""
        self.positions: dict[SSAValue, int] = {}
        """Loop variables with their dims."""

    # --- What a target gives ---

    def apply(self, name: str, operands: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
        """An op of `arith`, `math` or `complex` on tensors of one shape."""
        raise NotImplementedError

    def splat(self, value: Any, dtype: DType, shape: Sequence[int]) -> SSAValue:
        """A constant tensor with one value everywhere."""
        raise NotImplementedError

    def broadcast(self, value: SSAValue, sizes: Sequence[Size]) -> SSAValue:
        """Repeat dims of size 1."""
        raise NotImplementedError

    def reshaped(self, value: SSAValue, sizes: Sequence[Size]) -> SSAValue:
        raise NotImplementedError

    def transposed(self, value: SSAValue, order: Sequence[int]) -> SSAValue:
        raise NotImplementedError

    def sliced(self, x: Tensor, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size]) -> SSAValue:
        raise NotImplementedError

    def padded(
        self, x: Tensor, low: Sequence[Size], high: Sequence[Size], value: Any, sizes: Sequence[Size]
    ) -> SSAValue:
        raise NotImplementedError

    def concatenated(self, values: Sequence[SSAValue], dim: int, type_: Attribute) -> SSAValue:
        raise NotImplementedError

    def iota(self, size: Size) -> SSAValue:
        """0, 1, 2, ... in the integers that count positions."""
        raise NotImplementedError

    def reduced(self, kind: str, value: SSAValue, dims: Sequence[int], init: Any, dtype: DType) -> SSAValue:
        """Combine the elements along dims, which are dropped."""
        raise NotImplementedError

    def gathered(self, x: Tensor, indices: Sequence[SSAValue], sizes: Sequence[Size]) -> SSAValue:
        """x[indices[0], indices[1], ...] for tensors of indices, one for each dim of x, in range."""
        raise NotImplementedError

    def from_scalar(self, value: SSAValue, dtype: DType) -> SSAValue:
        """A number that the run time computes as a tensor without dims."""
        raise NotImplementedError

    # --- Scalars of a body that are tensors ---

    @property
    def counting(self) -> DType:
        """The dtype of positions."""
        return dtypes.int64

    @contextmanager
    def frame(self, sizes: Sequence[Size]) -> Iterator[None]:
        self.frames.append(list(sizes))
        try:
            yield
        finally:
            self.frames.pop()

    def value(
        self,
        op_class: type[Operation],
        operands: Sequence[SSAValue],
        result_type: Attribute,
        properties: Mapping[str, Attribute] = _NOTHING,
    ) -> SSAValue:
        if op_class is tensor.ConcatOp:
            dim = properties["dim"].value.data  # type: ignore[attr-defined]
            return self.concatenated(operands, dim, result_type)
        if op_class is tensor.CastOp:
            return self.recast(operands[0], result_type)
        if self.frames and not isinstance(result_type, TensorType):
            if Accumulator in map(type, operands):
                return self.combined(op_class, operands)
            if any(map(is_wide, operands)):
                if op_class is arith.IndexCastOp:
                    return operands[0]
                return self.wide(op_class.name, operands, result_type, properties)
        return super().value(op_class, operands, result_type, properties)

    def recast(self, value: SSAValue, type_: Attribute) -> SSAValue:
        return value if value.type == type_ else super().value(tensor.CastOp, (value,), type_)

    def wide(self, name: str, operands: Sequence[SSAValue], element: Attribute, properties: Any = _NOTHING) -> SSAValue:
        """An op on elements, on whole tensors: operands are given one shape first."""
        rank = len(self.frames[-1])
        wides = [o if is_wide(o) else self.widened(o, rank) for o in operands]
        sizes = self.common(wides)
        return self.apply(name, [self.broadcast(w, sizes) for w in wides], element, properties)

    def common(self, values: Sequence[SSAValue]) -> list[Size]:
        """The sizes that some values of a body broadcast to: 1, or that of the loop."""
        shapes = [shape_of(v) for v in values]
        first = shapes[0]
        if None not in first and all(s is first or s == first for s in shapes):
            return list(first)  # type: ignore[arg-type]
        sizes: list[Size] = []
        for i, whole in enumerate(self.frames[-1]):
            dims = [s[i] for s in shapes]
            sizes.append(1 if all(d == 1 for d in dims) else next((d for d in dims if d not in (1, None)), whole))
        return sizes

    def widened(self, value: SSAValue, rank: int) -> SSAValue:
        """A scalar as a tensor of ones in all dims."""
        owner = value.owner
        if isinstance(owner, arith.ConstantOp):
            found = owner.properties["value"]
            number = getattr(found, "value", None)
            if number is not None:
                return self.splat(number.data, self.dtype_of(value.type), [1] * rank)
        dtype = self.dtype_of(value.type)
        return self.reshaped(self.from_scalar(value, dtype), [1] * rank)

    def dtype_of(self, type_: Attribute) -> DType:
        if isinstance(type_, IndexType):
            return self.counting
        return _dtype_of(type_)

    def spread(self, value: SSAValue, sizes: Sequence[Size]) -> SSAValue:
        """A value of a body at every position."""
        if not is_wide(value):
            value = self.widened(value, len(sizes))
        return self.broadcast(value, sizes)

    # --- Positions ---

    def loop_index(self, dim: int) -> SSAValue:
        sizes = self.frames[-1]
        position = self.reshaped(self.iota(sizes[dim]), [s if i == dim else 1 for i, s in enumerate(sizes)])
        self.positions[position] = dim
        return position

    def index(self, size: Size) -> SSAValue:
        if isinstance(size, SSAValue):
            return size
        return super().index(size)

    def _arith(self, op: type[Operation], a: Size, b: Size, properties: Any = None) -> SSAValue:
        if is_wide(a) or is_wide(b):
            return self.wide(op.name, [self._position(a), self._position(b)], self.counting.builtin, properties or {})
        return super()._arith(op, a, b, properties)

    def _position(self, size: Size) -> SSAValue:
        if isinstance(size, int):
            return self.splat(size, self.counting, [1] * len(self.frames[-1]))
        return size

    def compare(self, predicate: str, a: Size, b: Size) -> bool | SSAValue:
        if not is_wide(a) and not is_wide(b):
            return super().compare(predicate, a, b)
        return self.wide("arith.cmpi", [self._position(a), self._position(b)], i1, CMP_PROPERTIES[predicate])

    def select(self, condition: bool | SSAValue, a: Size, b: Size) -> Size:
        if isinstance(condition, SSAValue) and (is_wide(condition) or is_wide(a) or is_wide(b)):
            operands = [condition, self._position(a), self._position(b)]
            return self.wide("arith.select", operands, self.counting.builtin)
        return super().select(condition, a, b)

    def scalar(self, value: Size) -> Element:
        if isinstance(value, int):
            return Element(self, self.constant(value, self.counting), self.counting)
        if not is_wide(value):
            return super().scalar(value)
        element = value.type.element_type  # type: ignore[attr-defined]
        return Element(self, value, dtypes.bool_ if element == i1 else self.counting)

    def as_index(self, element: Element) -> SSAValue:
        if self.frames:
            wide = element.to(self.counting).value
            return wide if is_wide(wide) else self.widened(wide, len(self.frames[-1]))
        return super().as_index(element)

    def load(self, x: Tensor, indices: Sequence[Size]) -> Element:
        sizes = self.frames[-1]
        if not indices:
            return Element(self, self.reshaped(x.value, [1] * len(sizes)), x.dtype)
        wides = [self._position(i) for i in indices]
        wides = [w if is_wide(w) else self.widened(w, len(sizes)) for w in wides]
        common = self.common(wides)
        if 0 in x.shape:
            # Nothing can be read: the result is empty too.
            return Element(self, self.splat(0, x.dtype, [1] * len(sizes)), x.dtype)
        straight = self._straight(x, wides, common)
        if straight is not None:
            return Element(self, straight, x.dtype)
        return Element(self, self.gathered(x, [self.broadcast(w, common) for w in wides], common), x.dtype)

    def _straight(self, x: Tensor, indices: Sequence[SSAValue], common: Sequence[Size]) -> SSAValue | None:
        """A load whose indices are loop variables in order is the tensor itself; None for all others."""
        found = [self.positions.get(i) for i in indices]
        dims = [d for d in found if d is not None]
        if len(dims) < len(found) or sorted(dims) != dims or len(set(dims)) != len(dims):
            return None
        if any(not _same(s, self.frames[-1][d]) for d, s in zip(dims, self.sizes(x), strict=True)):
            return None
        return self.reshaped(x.value, [s if i in dims else 1 for i, s in enumerate(common)])

    # --- Loop nests ---

    def elementwise(
        self, tensors: Sequence[Tensor], body: Body, dtype: DType | Sequence[DType], sizes: Sequence[Size] | None = None
    ) -> Any:
        sizes = self.loop_sizes(tensors, sizes)
        rank = len(sizes)
        elements = [Element(self, self._lead(t, rank), t.dtype) for t in tensors]
        results = self._everywhere(sizes, lambda: body(*elements), [dtype] if isinstance(dtype, DType) else dtype)
        return results[0] if isinstance(dtype, DType) else tuple(results)

    def elementwise_over(
        self, operands: Sequence[tuple[Tensor, Sequence[int]]], sizes: Sequence[Size], body: Body, dtype: DType
    ) -> Tensor:
        for t, dims in operands:
            for d, size in zip(dims, self.sizes(t), strict=True):
                self.same_size(sizes[d], size, f"an operand does not have the size of dimension {d}")
        elements = [Element(self, self._aligned(t, tuple(dims), len(sizes)), t.dtype) for t, dims in operands]
        return self._everywhere(sizes, lambda: body(*elements), [dtype])[0]

    def generate(self, sizes: Sequence[Size], dtype: DType, body: Callable[..., Any]) -> Tensor:
        return self._everywhere(sizes, lambda: body(*(self.loop_index(i) for i in range(len(sizes)))), [dtype])[0]

    def _everywhere(self, sizes: Sequence[Size], body: Callable[[], Any], types: Sequence[DType]) -> list[Tensor]:
        """What a body gives at all positions."""
        with self.frame(sizes):
            results = body()
            results = results if isinstance(results, tuple) else (results,)
            values = [self.spread(self.element(r, d).value, sizes) for r, d in zip(results, types, strict=True)]
        return [Tensor(v, d, sizes) for v, d in zip(values, types, strict=True)]

    def _lead(self, x: Tensor, rank: int) -> SSAValue:
        """A tensor with as many dims, ones in front."""
        return x.value if x.rank == rank else self.reshaped(x.value, [*[1] * (rank - x.rank), *self.sizes(x)])

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
        sizes = self._loop_sizes([*ins, *outs], [*in_maps, *out_maps], loops)
        aligned = [Element(self, self._aligned(t, m, loops), t.dtype) for t, m in zip(ins, in_maps, strict=True)]
        starts: list[Element] = []
        with self.frame(sizes):
            for out, out_map in zip(outs, out_maps, strict=True):
                if reduced:
                    starts.append(self._accumulator(out.dtype))
                else:
                    starts.append(Element(self, self._aligned(out, out_map, loops), out.dtype))
            results = body(*aligned, *starts)
            results = results if isinstance(results, tuple) else (results,)
            if reduced:
                return [self._reduce(r, o, sizes, sorted(reduced)) for r, o in zip(results, outs, strict=True)]
            finished = [self.spread(self.element(r, o.dtype).value, sizes) for r, o in zip(results, outs, strict=True)]
        return [self._into(v, o, m, sizes) for v, o, m in zip(finished, outs, out_maps, strict=True)]

    def _loop_sizes(self, tensors: Sequence[Tensor], maps: Sequence[Any], loops: int) -> list[Size]:
        sizes: list[Size | None] = [None] * loops
        for x, map_ in zip(tensors, maps, strict=True):
            for i, d in enumerate(map_):
                if isinstance(d, int) and sizes[d] is None:
                    sizes[d] = self.size(x, i)
        if any(s is None for s in sizes):
            raise Unsupported("a loop whose size no operand tells")
        return [s for s in sizes if s is not None]

    def _aligned(self, x: Tensor, map_: Sequence[MapResult], loops: int) -> SSAValue:
        """A tensor with a dim for each loop: its own, or 1."""
        if len(map_) == loops and all(d == i for i, d in enumerate(map_)):
            return x.value
        if any(isinstance(d, tuple) for d in map_):
            raise Unsupported("a window over a tensor")
        kept = [(d, i) for i, d in enumerate(map_) if isinstance(d, int)]
        order = [i for _, i in sorted(kept)]
        ones = [i for i, d in enumerate(map_) if d is None]
        value = self.transposed(x.value, [*order, *ones]) if [*order, *ones] != list(range(x.rank)) else x.value
        sizes = self.sizes(x)
        along = {d: sizes[i] for d, i in kept}
        return self.reshaped(value, [along.get(d, 1) for d in range(loops)])

    def _into(self, value: SSAValue, out: Tensor, map_: Sequence[MapResult], sizes: Sequence[Size]) -> Tensor:
        order = [d for d in map_ if isinstance(d, int)]
        if order != list(range(len(sizes))):
            value = self.transposed(value, order)
        return Tensor(value, out.dtype, [sizes[d] for d in order])

    # --- Reductions ---

    def _accumulator(self, dtype: DType) -> Element:
        return Element(self, Accumulator(dtype.builtin), dtype)

    def combined(self, op_class: type[Operation], operands: Sequence[SSAValue]) -> SSAValue:
        """An op on an accumulator: remembered, and emitted for all elements at once later."""
        kind = KINDS.get(op_class.name)
        terms = [o for o in operands if type(o) is not Accumulator]
        if kind is None or len(terms) != 1 or any(map(reduction_of, operands)):
            raise Unsupported(f"a reduction by {op_class.name}")
        return Accumulator(operands[0].type, Reduction(kind, terms[0]))

    def _reduce(self, result: Any, out: Tensor, sizes: Sequence[Size], dims: Sequence[int]) -> Tensor:
        reduction = reduction_of(result.value) if isinstance(result, Element) else None
        if reduction is None:
            raise Unsupported("a reduction that is none of sum, product, extreme, all and any")
        term = self.spread(reduction.term, sizes)
        init = self.fills.get(out.value, 0)
        value = self.reduced(reduction.kind, term, dims, init, out.dtype)
        return Tensor(value, out.dtype, [s for i, s in enumerate(sizes) if i not in dims])

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
        """Each step of the window in turn, on all windows at once."""
        if not all(isinstance(k, int) for k in kernel):
            raise Unsupported("a window whose size is not a constant")
        rank = len(sizes)
        with self.frame(sizes):
            acc = [Element(self, self.splat(v, d, [1] * rank), d) for v, d in inits]
            for place in _places([k for k in kernel if isinstance(k, int)]):
                elements = [
                    Element(self, self._window_step(x, m, sizes, place), x.dtype)
                    for x, m in zip(ins, in_maps, strict=True)
                ]
                steps = [self.splat(p, self.counting, [1] * rank) for p in place]
                indices = [[*(self.loop_index(i) for i in range(rank)), *steps]] if indexed else []
                results = body(*indices, *elements, *acc)
                results = results if isinstance(results, tuple) else (results,)
                acc = [self.element(r, d) for r, (_, d) in zip(results, inits, strict=True)]
            finished = [self.spread(a.value, sizes) for a in acc]
        return [Tensor(v, d, sizes) for v, (_, d) in zip(finished, inits, strict=True)]

    def _window_step(
        self, x: Tensor, map_: Sequence[MapResult], sizes: Sequence[Size], place: Sequence[int]
    ) -> SSAValue:
        starts: list[Size] = []
        lengths: list[Size] = []
        steps: list[Size] = []
        order: list[int] = []
        rank = len(sizes)
        for d in map_:
            if isinstance(d, int):
                starts.append(0)
                lengths.append(sizes[d])
                steps.append(1)
                order.append(d)
            elif isinstance(d, tuple) and len(d) == 2:
                (loop, stride), (window, dilation) = d
                starts.append(place[window - rank] * dilation)
                lengths.append(sizes[loop])
                steps.append(stride)
                order.append(loop)
            else:
                raise Unsupported("a window of this form")
        if order != sorted(order):
            raise Unsupported("a window with its dims in another order")
        part = self.slice(x, starts, lengths, steps)
        along = dict(zip(order, self.sizes(part), strict=True))
        return self.reshaped(part.value, [along.get(i, 1) for i in range(rank)])

    # --- Filling and moving ---

    def empty(self, sizes: Sequence[Size], dtype: DType) -> Tensor:
        return self.full(sizes, 0, dtype)

    def full(self, sizes: Sequence[Size], value: Any, dtype: DType) -> Tensor:
        known = value if not isinstance(value, Element | SSAValue) else None
        if known is not None and all(isinstance(s, int) for s in sizes):
            made = self.splat(known, dtype, [s for s in sizes if isinstance(s, int)])
        else:
            with self.frame(sizes):
                made = self.spread(self.element(value, dtype).value, sizes)
        if known is not None:
            self.fills[made] = known
        return Tensor(made, dtype, sizes)

    def filled(self, sizes: Sequence[Size], value: Any, dtype: DType) -> Tensor:
        return self.full(sizes, value, dtype)

    def reshape(self, x: Tensor, sizes: Sequence[Size]) -> Tensor:
        if len(x._sizes) == len(sizes) and all(s is not None and _same(s, n) for s, n in zip(x._sizes, sizes)):
            return x
        return Tensor(self.reshaped(x.value, sizes), x.dtype, sizes)

    def collapse(self, x: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
        old = self.sizes(x)
        return self.reshape(x, [self.product([old[i] for i in g]) for g in groups])

    def expand(self, x: Tensor, groups: Sequence[Sequence[int]], sizes: Sequence[Size]) -> Tensor:
        return self.reshape(x, sizes)

    def transpose(self, x: Tensor, permutation: Sequence[int]) -> Tensor:
        if list(permutation) == list(range(x.rank)):
            return x
        sizes = self.sizes(x)
        return Tensor(self.transposed(x.value, permutation), x.dtype, [sizes[p] for p in permutation])

    def broadcast_to(self, x: Tensor, sizes: Sequence[Size]) -> Tensor:
        own, sizes = self.sizes(x), self.loop_sizes([x], sizes)
        value = self.reshaped(x.value, [*[1] * (len(sizes) - x.rank), *own])
        return Tensor(self.broadcast(value, sizes), x.dtype, sizes)

    def slice(self, x: Tensor, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size]) -> Tensor:
        whole = all(isinstance(s, int) and s == 0 for s in starts)
        if whole and all(_same(a, b) for a, b in zip(self.sizes(x), sizes, strict=True)):
            return x
        if any(isinstance(s, int) and s == 0 for s in sizes):
            return self.empty(sizes, x.dtype)
        return Tensor(self.sliced(x, starts, sizes, steps), x.dtype, sizes)

    def insert_slice(self, source: Tensor, into: Tensor, starts: Sequence[Size], steps: Sequence[Size]) -> Tensor:
        """The source padded to the whole, chosen where it is."""
        if any(isinstance(s, int) and s == 0 for s in self.sizes(source)):
            return into
        return insert_by_select(self, source, into, starts, steps)

    def pad(self, x: Tensor, low: Sequence[Size], high: Sequence[Size], value: Any) -> Tensor:
        if all(isinstance(p, int) and p == 0 for p in (*low, *high)):
            return x
        sizes = [self.add(self.add(s, lo), hi) for s, lo, hi in zip(self.sizes(x), low, high, strict=True)]
        return Tensor(self.padded(x, low, high, value, sizes), x.dtype, sizes)

    def to(self, x: Tensor, dtype: DType) -> Tensor:
        if x.dtype is dtype:
            return x
        return self.elementwise([x], lambda e: e.to(dtype), dtype, self.sizes(x))

    def cast(self, x: Tensor, shape: Sequence[int | None]) -> Tensor:
        if tuple(shape) == x.shape:
            return x
        type_ = tensor_type(tuple(shape), x.value.type.element_type)  # type: ignore[attr-defined]
        sizes = [s if n is None else n for s, n in zip(x._sizes, shape, strict=True)]
        return Tensor(self.recast(x.value, type_), x.dtype, sizes)

    # --- Reading and writing at computed positions ---

    def count_below(self, ascending: Tensor, target: Element) -> Element:
        """Compared with all: without a loop for each element, there is no search."""
        sizes = self.frames[-1]
        rank = len(sizes)
        goal = self.spread(target.value, sizes)
        with self.frame([*sizes, self.size(ascending, 0)]):
            mine = Element(self, self.reshaped(goal, [*sizes, 1]), target.dtype)
            row = self.reshaped(ascending.value, [*[1] * rank, self.size(ascending, 0)])
            below = (Element(self, row, ascending.dtype) < mine).to(self.counting)
            total = self.reduced("add", self.spread(below.value, self.frames[-1]), [rank], 0, self.counting)
        return Element(self, total, self.counting)

    def scatter(
        self,
        x: Tensor,
        dims: Sequence[int],
        rows: Tensor,
        update_sizes: Sequence[Size],
        values: Callable[[list[Size], list[Size]], Element],
        reduce: str | None,
        include_self: bool,
    ) -> Tensor:
        """Scatter into x with its rows in front: [rows, rest], from updates [updates, rest]."""
        sizes = self.sizes(x)
        rest = [d for d in range(x.rank) if d not in dims]
        order = [*dims, *rest]
        row_count = self.product([sizes[d] for d in dims])
        rest_sizes = [sizes[d] for d in rest]
        width = self.product(rest_sizes)
        count = self.size(rows, 0)
        flat = self.reshape(self.transpose(x, order), [row_count, width])
        dtype = x.dtype.compute
        with self.frame([*update_sizes, *rest_sizes]):
            at: list[Size] = [self.loop_index(i) for i in range(len(update_sizes) + len(rest_sizes))]
            position: list[Size] = [0] * x.rank
            for i, d in enumerate(rest):
                position[d] = at[len(update_sizes) + i]
            update = values(at[: len(update_sizes)], position).to(dtype)
            updates = Tensor(self.spread(update.value, self.frames[-1]), dtype, self.frames[-1])
        updates = self.reshape(updates, [count, width])
        result = self.combined_rows(self.to(flat, dtype), rows, updates, reduce, include_self, dtype)
        inverse = [order.index(d) for d in range(x.rank)]
        return self.transpose(self.reshape(self.to(result, x.dtype), [sizes[d] for d in order]), inverse)

    def combined_rows(
        self, x: Tensor, rows: Tensor, updates: Tensor, reduce: str | None, include_self: bool, dtype: DType
    ) -> Tensor:
        """[rows, width] with [updates, width] combined into the rows that they name."""
        kind = {
            "sum": "add",
            "add": "add",
            "mean": "add",
            "prod": "mul",
            "multiply": "mul",
            "amax": "max",
            "amin": "min",
        }
        combine = kind[reduce] if reduce else None
        start = x
        if reduce and not include_self:
            initial = {"add": 0, "mul": 1, "max": dtype.min, "min": dtype.max}[_COMBINE[reduce]]
            start = self.full(self.sizes(x), initial, dtype)
        result = self.scattered(start, rows, updates, combine)
        if reduce is None or (include_self and reduce != "mean"):
            return result
        ones = self.full(self.sizes(updates), 1, dtypes.int64)
        seen = self.scattered(self.full(self.sizes(x), 0, dtypes.int64), rows, ones, "add")

        def finish(old: Element, new: Element, count: Element) -> Element:
            if reduce == "mean":
                total = (count + 1 if include_self else (count == 0).select(1, count)).to(dtype)
                new = new.floor_divide(total) if dtype.is_integral else new / total
            return new if include_self else (count == 0).select(old, new)

        return self.elementwise([x, result, seen], finish, dtype, self.sizes(x))

    def scattered(self, x: Tensor, rows: Tensor, updates: Tensor, combine: str | None) -> Tensor:
        """Write [updates, width] into the rows of [rows, width]; later ones win where nothing combines them.

        Every row is compared with every update: targets have better ways, but not for all cases.
        """
        (count, width), total = self.sizes(x), self.size(rows, 0)
        if combine is None:
            with self.frame([count, total]):
                hit = self._hits(rows, [1, total])
                number = hit.select(Element(self, self.loop_index(1), self.counting), -1)
                found = self.reduced("max", self.spread(number.value, [count, total]), [1], -1, self.counting)
            last = Tensor(found, self.counting, [count])

            def latest(at: list[SSAValue], row: Element, old: Element) -> Element:
                return (row >= 0).select(self.load(updates, [self.as_index(row.maximum(0)), at[1]]), old)

            return self.map_indexed([self.reshape(last, [count, 1]), x], [count, width], x.dtype, latest)
        neutral = {"add": 0, "mul": 1, "max": x.dtype.min, "min": x.dtype.max}[combine]
        sizes = [count, total, width]
        with self.frame(sizes):
            update = Element(self, self.reshaped(updates.value, [1, total, width]), x.dtype)
            term = self._hits(rows, [1, total, 1]).select(update, neutral)
            value = self.reduced(combine, self.spread(term.value, sizes), [1], neutral, x.dtype)
        return self.elementwise([x, Tensor(value, x.dtype, [count, width])], JOINS[combine], x.dtype, [count, width])

    def _hits(self, rows: Tensor, sizes: Sequence[Size]) -> Element:
        """Inside a body: whether the update along dim 1 goes to the row along dim 0."""
        targets = Element(self, self.reshaped(rows.value, sizes), rows.dtype)
        return targets.to(self.counting) == Element(self, self.loop_index(0), self.counting)

    # --- Loops ---

    def loop(
        self, lower: Size, upper: Size, carried: Sequence[Tensor], body: Callable[[Any, list[Tensor]], Sequence[Tensor]]
    ) -> list[Tensor]:
        if not isinstance(lower, int) or not isinstance(upper, int):
            return super().loop(lower, upper, carried, body)
        values = list(carried)
        for i in range(lower, upper):
            values = list(body(i, values))
        return values

    def while_loop(self, carried: Any, condition: Any, body: Any) -> Any:
        if self.frames:
            raise Unsupported("a loop for each element")
        return super().while_loop(carried, condition, body)


@by_identity
def _dtype_of(type_: Any) -> DType:
    if (found := dtypes.BY_BUILTIN.get(type_)) is not None:
        return found
    raise Unsupported(f"a scalar of type {type_}")


JOINS: dict[str, Callable[[Element, Element], Element]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": lambda a, b: a.maximum(b),
    "min": lambda a, b: a.minimum(b),
}
"""What two elements give together."""

_COMBINE = {
    "sum": "add", "add": "add", "mean": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min",
}  # fmt: skip
"""What PyTorch's names of reductions do."""


def _places(kernel: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(k) for k in kernel))


def _same(a: Size, b: Size) -> bool:
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)
