"""The verbs of rules for targets whose ops take whole tensors: StableHLO, TOSA.

Note [Bodies on whole tensors]. A rule says what happens to one element, or at one position. Here the same body
runs once on whole tensors: an Element is a tensor with an element at each position of the loop nest (or with 1 for a
dim along which it does not change), a loop variable is an iota, a load is a gather. So a rule that is written once
serves all targets, and a target adds rules of its own only where it has a better op. Reductions are recognised by what
their body does with the accumulator (see `reduction_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import IndexType, TensorType, i1
from xdsl.ir import Attribute, Block, Operation, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import CMP_PROPERTIES, Size, Tensor, is_same, tensor_type
from flambeau.lowering.element import Element
from flambeau.lowering.loops import Carried
from flambeau.lowering.slices import insert_by_select
from flambeau.lowering.verbs import Body, RuleBuilder, Windows
from flambeau.lowering.whole import nests
from flambeau.lowering.whole.target import TargetOps
from flambeau.lowering.whole.values import (
    KINDS,
    POSITION,
    Accumulator,
    Reduction,
    by_identity,
    element_of,
    is_wide,
    reduction_of,
    shape_of,
)

_NOTHING: Mapping[str, Attribute] = {}


TargetT = TypeVar("TargetT", bound=TargetOps)


class WholeBuilder(RuleBuilder, Generic[TargetT]):
    """Runs the bodies of rules on whole tensors, with the ops of a target."""

    loads_are_cheap = False

    def __init__(self, block: Block, target: Callable[[WholeBuilder[TargetT]], TargetT]) -> None:
        super().__init__(block)
        self.target = target(self)
        self.narrowed = self.target.narrowed
        self.frames: list[list[Size]] = []
        """The sizes of the loop nests around."""
        self.fills: dict[SSAValue, Any] = {}
        """Tensors with one value everywhere: accumulators start with it."""
        self.positions: dict[SSAValue, int] = {}
        """Loop variables with their dims."""

    # --- Scalars of a body that are tensors ---

    @contextmanager
    def frame(self, sizes: Sequence[Size]) -> Iterator[None]:
        self.frames.append(list(sizes))
        try:
            yield
        finally:
            self.frames.pop()

    def insert(self, op: Operation) -> None:
        self.target.prepare(op)
        super().insert(op)

    def value(
        self,
        op_class: type[Operation],
        operands: Sequence[SSAValue],
        result_type: Attribute,
        properties: Mapping[str, Attribute] = _NOTHING,
    ) -> SSAValue:
        if op_class is tensor.ConcatOp:
            dim = properties["dim"].value.data  # type: ignore[attr-defined]
            return self.target.concatenate(operands, dim, result_type)
        if op_class is tensor.CastOp:
            return self.target.cast(operands[0], result_type)
        if op_class in (tensor.DimOp, tensor.ExtractOp):
            # Numbers about a tensor, also inside a body.
            return super().value(op_class, operands, result_type, properties)
        if operands and not any(map(is_wide, operands)):
            folded = self.target.fold(op_class, operands, result_type, properties)
            if folded is not None:
                return folded
        if self.frames and not isinstance(result_type, TensorType):
            if any(isinstance(o.owner, Accumulator) for o in operands):
                return self._combine(op_class, operands)
            if any(map(is_wide, operands)):
                if op_class is arith.IndexCastOp:
                    return operands[0]
                return self.wide(op_class.name, operands, result_type, properties)
        return super().value(op_class, operands, result_type, properties)

    def dense(self, attr: Attribute, type_: Attribute) -> SSAValue:
        return self.target.dense(attr, type_)

    def wide(self, name: str, operands: Sequence[SSAValue], element: Attribute, properties: Any = _NOTHING) -> SSAValue:
        """Emit a scalar op on whole tensors, which are broadcast to one shape where the target wants that."""
        rank = len(self.frames[-1])
        wides = [o if is_wide(o) else self.widen(o, rank) for o in operands]
        if not self.target.repeats_ones:
            sizes = self.common(wides)
            wides = [self.target.broadcast(w, sizes) for w in wides]
        return self.target.apply(name, wides, element, properties)

    def common(self, values: Sequence[SSAValue]) -> list[Size]:
        """Return the sizes that some values of a body broadcast to: 1, or that of the loop."""
        shapes = [shape_of(v) for v in values]
        first = shapes[0]
        if None not in first and all(s is first or s == first for s in shapes):
            return list(first)  # type: ignore[arg-type]
        sizes: list[Size] = []
        for i, whole in enumerate(self.frames[-1]):
            dims = [s[i] for s in shapes]
            sizes.append(1 if all(d == 1 for d in dims) else next((d for d in dims if d not in (1, None)), whole))
        return sizes

    def widen(self, value: SSAValue, rank: int) -> SSAValue:
        """Reshape a scalar to a tensor whose dims are all 1."""
        owner = value.owner
        if isinstance(owner, arith.ConstantOp):
            found = owner.properties["value"]
            number = getattr(found, "value", None)
            if number is not None:
                return self.target.splat(number.data, self.dtype_of(value.type), [1] * rank)
        dtype = self.dtype_of(value.type)
        return self.target.reshape(self.target.from_scalar(value, dtype), [1] * rank)

    def dtype_of(self, type_: Attribute) -> DType:
        if isinstance(type_, IndexType):
            return POSITION
        return _dtype_of(type_)

    def spread(self, value: SSAValue, sizes: Sequence[Size]) -> SSAValue:
        """Broadcast a value of a body to every position."""
        if not is_wide(value):
            value = self.widen(value, len(sizes))
        return self.target.broadcast(value, sizes)

    # --- Positions ---

    def loop_index(self, dim: int) -> SSAValue:
        sizes = self.frames[-1]
        along = [s if i == dim else 1 for i, s in enumerate(sizes)]
        position = self.target.reshape(self.target.iota(sizes[dim]), along)
        self.positions[position] = dim
        return position

    def _arith(self, op: type[Operation], a: Size, b: Size, properties: Any = None) -> SSAValue:
        if is_wide(a) or is_wide(b):
            return self.wide(op.name, [self._position(a), self._position(b)], POSITION.builtin, properties or {})
        return super()._arith(op, a, b, properties)

    def _position(self, size: Size) -> SSAValue:
        if isinstance(size, int):
            return self.target.splat(size, POSITION, [1] * len(self.frames[-1]))
        return size

    def compare(self, predicate: str, a: Size, b: Size) -> bool | SSAValue:
        if not is_wide(a) and not is_wide(b):
            return super().compare(predicate, a, b)
        return self.wide("arith.cmpi", [self._position(a), self._position(b)], i1, CMP_PROPERTIES[predicate])

    def select(self, condition: bool | SSAValue, a: Size, b: Size) -> Size:
        if isinstance(condition, SSAValue) and (is_wide(condition) or is_wide(a) or is_wide(b)):
            operands = [condition, self._position(a), self._position(b)]
            return self.wide("arith.select", operands, POSITION.builtin)
        return super().select(condition, a, b)

    def scalar(self, value: Size) -> Element:
        if isinstance(value, int):
            return Element(self, self.constant(value, POSITION), POSITION)
        if not is_wide(value):
            return super().scalar(value)
        return Element(self, value, dtypes.bool_ if element_of(value) == i1 else POSITION)

    def as_index(self, element: Element) -> SSAValue:
        if self.frames:
            wide = element.to(POSITION).value
            return wide if is_wide(wide) else self.widen(wide, len(self.frames[-1]))
        return super().as_index(element)

    def load(self, x: Tensor, indices: Sequence[Size]) -> Element:
        sizes = self.frames[-1]
        if not indices:
            return Element(self, self.target.reshape(x.value, [1] * len(sizes)), x.dtype)
        wides = [self._position(i) for i in indices]
        wides = [w if is_wide(w) else self.widen(w, len(sizes)) for w in wides]
        common = self.common(wides)
        if 0 in x.shape:
            # Nothing can be read: the result is empty too.
            return Element(self, self.target.splat(0, x.dtype, [1] * len(sizes)), x.dtype)
        value = self.target.load(x, wides, common)
        if value is None:
            value = self._straight(x, wides, common)
        if value is None:
            value = self.target.gather(x, [self.target.broadcast(w, common) for w in wides], common)
        return Element(self, value, x.dtype)

    def _straight(self, x: Tensor, indices: Sequence[SSAValue], common: Sequence[Size]) -> SSAValue | None:
        """Return the tensor itself for a load whose indices are loop variables in order; None for all others."""
        found = [self.positions.get(i) for i in indices]
        dims = [d for d in found if d is not None]
        if len(dims) < len(found) or sorted(dims) != dims or len(set(dims)) != len(dims):
            return None
        if any(not is_same(s, self.frames[-1][d]) for d, s in zip(dims, self.sizes(x), strict=True)):
            return None
        return self.target.reshape(x.value, [s if i in dims else 1 for i, s in enumerate(common)])

    # --- Loop nests ---

    generic = nests.generic
    each = nests.each
    windows = nests.windows

    # --- Reductions ---

    def accumulator(self, dtype: DType) -> Element:
        """Make the accumulator that a reduction's body combines its term with; `reduction_of` tells what it did."""
        return Element(self, Accumulator(dtype.builtin).value, dtype)

    def _combine(self, op_class: type[Operation], operands: Sequence[SSAValue]) -> SSAValue:
        """Remember an op on an accumulator, which is emitted for all elements at once later."""
        kind = KINDS.get(op_class.name)
        terms = [o for o in operands if not isinstance(o.owner, Accumulator)]
        if kind is None or len(terms) != 1 or any(map(reduction_of, operands)):
            raise Unsupported(f"a reduction by {op_class.name}")
        return Accumulator(operands[0].type, Reduction(kind, terms[0])).value

    # --- Filling and moving ---

    def empty(self, sizes: Sequence[Size], dtype: DType) -> Tensor:
        made = self.target.empty(sizes, dtype)
        return self.full(sizes, 0, dtype) if made is None else Tensor(made, dtype, sizes)

    def full(self, sizes: Sequence[Size], value: Any, dtype: DType) -> Tensor:
        known = value if not isinstance(value, Element | SSAValue) else None
        if 0 in sizes and not self.target.has_empty:
            made = self.empty(sizes, dtype).value
        elif known is not None and all(isinstance(s, int) for s in sizes):
            made = self.target.splat(known, dtype, [s for s in sizes if isinstance(s, int)])
        else:
            with self.frame(sizes):
                made = self.spread(self.element(value, dtype).value, sizes)
        if known is not None:
            self.fills[made] = known
        return Tensor(made, dtype, sizes)

    def initial(self, sizes: Sequence[Size], value: Any, dtype: DType) -> Tensor:
        if not all(isinstance(s, int) for s in sizes) and not isinstance(value, Element | SSAValue):
            # A reduction reads nothing of it but the number.
            made = self.target.empty(sizes, dtype)
            if made is not None:
                self.fills[made] = value
                return Tensor(made, dtype, sizes)
        return self.full(sizes, value, dtype)

    def reshape(self, x: Tensor, sizes: Sequence[Size]) -> Tensor:
        self.target.measure(x)
        if len(x._sizes) == len(sizes) and all(s is not None and is_same(s, n) for s, n in zip(x._sizes, sizes)):
            return x
        return Tensor(self.target.reshape(x.value, sizes), x.dtype, sizes)

    def collapse(self, x: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
        old = self.sizes(x)
        return self.reshape(x, [self.product([old[i] for i in g]) for g in groups])

    def expand(self, x: Tensor, groups: Sequence[Sequence[int]], sizes: Sequence[Size]) -> Tensor:
        return self.reshape(x, sizes)

    def transpose(self, x: Tensor, permutation: Sequence[int]) -> Tensor:
        if list(permutation) == list(range(x.rank)):
            return x
        sizes = self.sizes(x)
        return Tensor(self.target.transpose(x.value, permutation), x.dtype, [sizes[p] for p in permutation])

    def broadcast_to(self, x: Tensor, sizes: Sequence[Size]) -> Tensor:
        own, sizes = self.sizes(x), self.loop_sizes([x], sizes)
        value = self.target.reshape(x.value, [*[1] * (len(sizes) - x.rank), *own])
        return Tensor(self.target.broadcast(value, sizes), x.dtype, sizes)

    def slice(self, x: Tensor, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size]) -> Tensor:
        whole = all(isinstance(s, int) and s == 0 for s in starts)
        if whole and all(is_same(a, b) for a, b in zip(self.sizes(x), sizes, strict=True)):
            return x
        if any(isinstance(s, int) and s == 0 for s in sizes):
            return self.empty(sizes, x.dtype)
        return Tensor(self.target.slice(x, starts, sizes, steps), x.dtype, sizes)

    def insert_slice(self, source: Tensor, into: Tensor, starts: Sequence[Size], steps: Sequence[Size]) -> Tensor:
        if any(isinstance(s, int) and s == 0 for s in self.sizes(source)):
            return into
        value = self.target.insert_slice(source, into, starts, steps)
        if value is None:
            return insert_by_select(self, source, into, starts, steps)
        return Tensor(value, into.dtype, into._sizes)

    def reverse(self, x: Tensor, dims: Sequence[int]) -> Tensor:
        return Tensor(self.target.reverse(x.value, dims), x.dtype, x._sizes) if dims else x

    def pad(self, x: Tensor, low: Sequence[Size], high: Sequence[Size], value: Any) -> Tensor:
        if all(isinstance(p, int) and p == 0 for p in (*low, *high)):
            return x
        sizes = [self.add(self.add(s, lo), hi) for s, lo, hi in zip(self.sizes(x), low, high, strict=True)]
        return Tensor(self.target.pad(x, low, high, value, sizes), x.dtype, sizes)

    def cast(self, x: Tensor, shape: Sequence[int | None]) -> Tensor:
        if tuple(shape) == x.shape:
            return x
        type_ = tensor_type(tuple(shape), element_of(x.value))
        sizes = [s if n is None else n for s, n in zip(x._sizes, shape, strict=True)]
        return Tensor(self.target.cast(x.value, type_), x.dtype, sizes)

    # --- Reading and writing at computed positions ---

    def count_below(self, ascending: Tensor, target: Element) -> Element:
        """Compare with all elements and count: without a loop for each element, there is no search."""
        sizes = self.frames[-1]
        rank = len(sizes)
        goal = self.spread(target.value, sizes)
        with self.frame([*sizes, self.size(ascending, 0)]):
            mine = Element(self, self.target.reshape(goal, [*sizes, 1]), target.dtype)
            row = self.target.reshape(ascending.value, [*[1] * rank, self.size(ascending, 0)])
            below = (Element(self, row, ascending.dtype) < mine).to(POSITION)
            total = self.target.reduce("add", self.spread(below.value, self.frames[-1]), [rank], 0, POSITION)
        return Element(self, total, POSITION)

    def scatter(
        self,
        x: Tensor,
        dim: int,
        rows: Tensor,
        values: Callable[[list[Size], list[Size]], Element],
        combine: Callable[[Element, Element], Element],
        kind: str | None,
    ) -> Tensor:
        """Scatter rows of a matrix, [updates, width] into [rows, width]."""
        order = [dim, *(d for d in range(x.rank) if d != dim)]
        x = self.transpose(x, order)
        sizes, update_sizes = self.sizes(x), self.sizes(rows)
        width, count, n = self.product(sizes[1:]), self.product(update_sizes), len(update_sizes)
        with self.frame([*update_sizes, *sizes[1:]]):
            at: list[Size] = [self.loop_index(i) for i in range(n + x.rank - 1)]
            update = values(at[:n], at[n:]).to(x.dtype)
            updates = Tensor(self.spread(update.value, self.frames[-1]), x.dtype, self.frames[-1])
        matrix, flat = self.reshape(x, [sizes[0], width]), self.reshape(updates, [count, width])
        result = self.reshape(self.target.scatter(matrix, self.reshape(rows, [count]), flat, kind), sizes)
        return self.transpose(result, [order.index(d) for d in range(x.rank)])

    # --- Products and windows ---

    def contract(self, name: str, ins: Sequence[Tensor], sizes: Sequence[Size], properties: Any = None) -> Tensor:
        return self.target.contract(name, ins, sizes, properties)

    def batched_product(self, x: Tensor, y: Tensor) -> Tensor | None:
        return self.target.batched_product(x, y)

    def pool(self, name: str, x: Tensor, at: Windows, init: tuple[Any, DType], body: Body) -> Tensor:
        return self.window_reduce(x, at, [init], body)[0]

    def window_reduce(
        self, x: Tensor, at: Windows, inits: Sequence[tuple[Any, DType]], body: Body, indexed: bool = False
    ) -> list[Tensor]:
        if len(inits) == 1 and not indexed:
            found = self.target.window_reduce(x, at, inits[0], body)
            if found is not None:
                return [found]
        return super().window_reduce(x, at, inits, body, indexed)

    # --- Contents as numbers ---

    def item(self, x: Tensor) -> SSAValue:
        return self.target.item(x)

    def number_of(self, x: Tensor, dtype: DType) -> SSAValue:
        return self.target.number_of(x, dtype)

    def known_integers(self, x: Tensor) -> list[int] | None:
        known = self.target.known_integers(x)
        return super().known_integers(x) if known is None else known

    # --- Loops ---

    def loop(
        self, lower: Size, upper: Size, carried: Sequence[Carried], body: Callable[..., Sequence[Carried]]
    ) -> list[Any]:
        if not isinstance(lower, int) or not isinstance(upper, int):
            return super().loop(lower, upper, carried, body)
        values = list(carried)
        for i in range(lower, upper):
            values = list(body(i, *values))
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
