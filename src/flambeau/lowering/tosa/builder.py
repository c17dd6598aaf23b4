"""The verbs of the rules as TOSA.

TOSA's ops broadcast dims of size 1 themselves, so values of a body keep such dims until a result needs its full size.
Where only the run time knows a size and TOSA has no op that takes it, the `tensor` dialect says it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import ComplexType, DenseIntOrFPElementsAttr, TensorType, f32, f64, i1, i8, i32, i64
from xdsl.ir import Attribute, Operation, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects import tosa
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import INDEX, LoweringBuilder, Size, Tensor, static, tensor_type
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.generic import Body, MapResult
from flambeau.lowering.linalg.shapes import ShapeBuilder
from flambeau.lowering.tosa.constants import (
    NUMPY,
    Array,
    computed,
    constant_op,
    is_small,
    pending,
    pending_of,
)
from flambeau.lowering.tosa.vocabulary import element_of, translate
from flambeau.lowering.whole.builder import WholeBuilder, shape_of

_REDUCE = {"add": "reduce_sum", "mul": "reduce_product", "max": "reduce_max", "min": "reduce_min"}
_REDUCE_BOOL = {
    "add": "reduce_any", "or": "reduce_any", "max": "reduce_any", "maxu": "reduce_any", "mul": "reduce_all",
    "and": "reduce_all", "min": "reduce_all", "minu": "reduce_all",
}  # fmt: skip
_COMBINE: dict[str, Any] = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "max": lambda a, b: a.maximum(b),
    "min": lambda a, b: a.minimum(b), "maxu": lambda a, b: a.maximum(b), "minu": lambda a, b: a.minimum(b),
    "and": lambda a, b: a & b, "or": lambda a, b: a | b,
}  # fmt: skip

_NOTHING: Mapping[str, Attribute] = {}


class TosaBuilder(WholeBuilder):
    """Builds TOSA. 64-bit integers are held in 32 bits."""

    target = "tosa"
    narrow = True

    def __init__(self, block: Any) -> None:
        super().__init__(block)
        self.arrays: dict[SSAValue, Array] = {}
        """Values that are known while compiling."""
        self.made: dict[SSAValue, SSAValue] = {}
        """The ops that some of them have become."""
        self.counters: set[SSAValue] = set()
        """Positions that are not known."""
        self.turned: dict[SSAValue, tuple[SSAValue, tuple[int, ...]]] = {}
        """Transposed values with their source."""
        self.inverses: dict[SSAValue, SSAValue] = {}
        """Reciprocals with what they are of."""
        self.lengths: dict[SSAValue, list[Size]] = {}
        """The sizes of values whose type does not tell them."""

    # --- Types ---

    def held(self, element: Attribute) -> Attribute:
        """The type that elements have in TOSA."""
        if element == f64:
            raise Unsupported("TOSA has no 64-bit floats", "Convert the model and its inputs to float32.")
        if isinstance(element, ComplexType):
            raise Unsupported("TOSA has no complex numbers")
        return i32 if element == i64 and self.narrow else element

    def holds(self, x: Tensor) -> Tensor:
        """A tensor from outside: a function's argument, what a branch gives."""
        if element_of(x.value) != i64 or not self.narrow:
            return x
        return Tensor(self.converted(x.value, i32), x.dtype, x._sizes)

    def released(self, x: Tensor) -> Tensor:
        """A tensor as the outside knows it."""
        if x.dtype.builtin != i64 or element_of(x.value) == i64:
            return x
        return Tensor(self.converted(x.value, i64), x.dtype, x._sizes)

    @property
    def counting(self) -> DType:
        return dtypes.int64

    # --- Plumbing ---

    def insert(self, op: Operation) -> None:
        for i, operand in enumerate(op.operands):
            if operand in self.arrays:
                op.operands[i] = self.real(operand)
            elif operand in self.counters:
                raise Unsupported("TOSA has no op that counts up to a size that only the run time knows")
        super().insert(op)

    def real(self, value: SSAValue) -> SSAValue:
        """A known value as the result of an op."""
        found = self.made.get(value)
        if found is None:
            array = self.arrays[value]
            type_ = value.type
            assert isinstance(type_, TensorType)
            if 0 in array.shape:
                found = LoweringBuilder.value(self, tensor.EmptyOp, (), type_)
                if self.block is not self.entry:
                    return found
            else:
                found = self._constant_op(("known", value), lambda: constant_op(array, type_))
            self.made[value] = found
        return found

    def known(self, array: Array, element: Attribute) -> SSAValue:
        """A value of a tensor that is known; `element` is its type as PyTorch means it."""
        held = i32 if element == i64 and self.narrow else element
        value = pending(array, held)
        self.arrays[value] = array
        return value

    def logical(self, value: SSAValue) -> Attribute:
        """The type of a known value's elements as PyTorch means it."""
        return i64 if self.arrays[value].dtype == np.int64 else element_of(value)

    def make(
        self,
        name: str,
        operands: Sequence[SSAValue],
        type_: Attribute,
        properties: Mapping[str, Attribute] = _NOTHING,
    ) -> SSAValue:
        """An op with one result."""
        assert isinstance(type_, TensorType)
        if 0 in type_.get_shape():
            return self.known(np.zeros(type_.get_shape(), np.float32), type_.element_type)
        return self.emit(tosa.op(name), operands, (type_,), properties).results[0]

    def on(
        self,
        name: str,
        operands: Sequence[SSAValue],
        element: Attribute,
        properties: Mapping[str, Attribute] = _NOTHING,
        like: int = 0,
    ) -> SSAValue:
        """An elementwise op; its result has the shape that its operands (the first `like` of them) broadcast to."""
        shape = _joint([shape_of(o) for o in operands[: like or None]])
        if name in ("maximum", "minimum"):
            properties = {"nan_mode": tosa.nan_mode()}
        return self.make(name, operands, tensor_type(shape, element), properties)

    def number(self, like: SSAValue, value: Any) -> SSAValue:
        """A constant that broadcasts to a value's shape, of its type."""
        element = element_of(like)
        return self._single(value, element, [1] * len(shape_of(like)))

    def _single(self, value: Any, element: Attribute, shape: Sequence[int]) -> SSAValue:
        key = ("single", repr(value), element, tuple(shape))
        found = self._memo.get(key)
        if found is None:
            array = np.full(shape, value, NUMPY.get(element, np.float32))
            found = self._memo[key] = self.known(array, element)
        return found

    def zero_point(self, element: Attribute) -> SSAValue:
        return self._single(0, element, [1])

    def zeros_like(self, value: SSAValue) -> SSAValue:
        array = self.arrays[value]
        return self.known(np.broadcast_to(np.zeros((), array.dtype), array.shape), self.logical(value))

    def shape_value(self, sizes: Sequence[int]) -> SSAValue:
        """`tosa.const_shape`; -1 stands for a size that the op finds out itself."""
        key = ("shape", tuple(sizes))
        return self._constant_op(
            key,
            lambda: tosa.op("const_shape").create(
                result_types=(tosa.shape_type(len(sizes)),), properties={"values": tosa.shape_values(sizes)}
            ),
        )

    # --- Elements ---

    def wide(self, name: str, operands: Sequence[SSAValue], element: Attribute, properties: Any = _NOTHING) -> SSAValue:
        rank = len(self.frames[-1])
        wides = [o if isinstance(o.type, TensorType) else self.widened(o, rank) for o in operands]
        return self.apply(name, wides, element, properties)

    def apply(self, name: str, operands: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
        found = [self.arrays.get(o) for o in operands]
        arrays = [a for a in found if a is not None]
        if len(arrays) == len(found):
            result = computed(name, arrays, element, properties)
            if result is not None:
                return self.known(result, element)
        if name == "arith.select" and found[0] is not None and found[0].size == 1:
            chosen = operands[1] if found[0].item() else operands[2]
            if shape_of(chosen) == _joint([shape_of(o) for o in operands]):
                return chosen
        return translate(self, name, operands, element, properties)

    def product_of(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.on("mul", (x, y, self._single(0, i8, [1])), element_of(x), like=2)

    def reciprocal(self, x: SSAValue) -> SSAValue:
        if x in self.inverses:
            return self.inverses[x]
        array = self.arrays.get(x)
        if array is not None and element_of(x) == f32:
            with np.errstate(all="ignore"):
                return self.known(np.asarray(np.float32(1) / array), f32)
        found = self.on("reciprocal", (x,), element_of(x))
        self.inverses[found] = x
        return found

    def converted(self, x: SSAValue, element: Attribute) -> SSAValue:
        """`tosa.cast`, through 32 bits where TOSA has no direct one."""
        own = element_of(x)
        if own == element:
            return x
        small = {own, element}
        if i1 in small and small & {dtypes.float16.builtin, dtypes.bfloat16.builtin}:
            x = self.on("cast", (x,), f32)
        elif i64 in small and small & {i8, dtypes.int16.builtin}:
            x = self.on("cast", (x,), i32)
        return self.on("cast", (x,), element)

    def joint_sizes(self, values: Sequence[SSAValue]) -> list[Size]:
        """The sizes that values broadcast to."""
        sizes = self.frames[-1] if self.frames else None
        shape = _joint([shape_of(v) for v in values])
        if sizes is not None and len(sizes) == len(shape):
            return [w if s is None else s for s, w in zip(shape, sizes, strict=True)]
        return [self._dim_of(values, i) if s is None else s for i, s in enumerate(shape)]

    def _dim_of(self, values: Sequence[SSAValue], dim: int) -> SSAValue:
        value = next(v for v in values if shape_of(v)[dim] is None)
        return LoweringBuilder.value(self, tensor.DimOp, (value, self.index(dim)), INDEX)

    def spread_lazily(self, value: SSAValue) -> SSAValue:
        """A value of a body that may be a scalar, as a tensor."""
        return value if isinstance(value.type, TensorType) else self.widened(value, len(self.frames[-1]))

    def splat(self, value: Any, dtype: DType, shape: Sequence[int]) -> SSAValue:
        if dtype.is_complex:
            raise Unsupported("TOSA has no complex numbers")
        number = value.real if isinstance(value, complex) else value
        if dtype.is_int:
            bits = dtype.bits
            number = int(number) & ((1 << bits) - 1)
            number = number - (1 << bits) if number >> (bits - 1) else number
        elif dtype.is_bool:
            number = bool(number)
        key = ("splat", repr(number), dtype, tuple(shape))
        found = self._memo.get(key)
        if found is None:
            with np.errstate(over="ignore"):
                single = np.array(number, NUMPY.get(dtype.builtin, np.float32))
            found = self._memo[key] = self.known(np.broadcast_to(single, tuple(shape)), dtype.builtin)
        return found

    def dense(self, attr: Attribute, type_: Attribute) -> SSAValue:
        assert isinstance(type_, TensorType)
        element = type_.element_type
        if isinstance(attr, DenseIntOrFPElementsAttr) and element in NUMPY:
            shape = type_.get_shape()
            if math.prod(shape) <= 1 << 16 or attr.is_splat():
                data = np.array([attr.get_values()[0]] if attr.is_splat() else list(attr.get_values()), NUMPY[element])
                array = np.broadcast_to(data[0], shape) if attr.is_splat() else data.reshape(shape)
                return self.known(array, element)
        value = self.make("const", (), type_, {"values": attr})
        return self.converted(value, i32) if element == i64 and self.narrow else value

    def from_scalar(self, value: SSAValue, dtype: DType) -> SSAValue:
        element = self.held(dtype.builtin)
        if value.type == INDEX:
            value = self.emit(arith.IndexCastOp, (value,), (element,)).results[0]
        elif value.type != element:
            value = self.emit(arith.TruncIOp, (value,), (element,)).results[0]
        return self.emit(tensor.FromElementsOp, (value,), (tensor_type((), element),)).results[0]

    # --- Shapes ---

    def recast(self, value: SSAValue, type_: Attribute) -> SSAValue:
        assert isinstance(type_, TensorType)
        wanted = TensorType(element_of(value), type_.get_shape())
        return value if value.type == wanted else super().recast(value, wanted)

    def broadcast(self, value: SSAValue, sizes: Sequence[Size]) -> SSAValue:
        have, wanted = shape_of(value), tuple(map(static, sizes))
        if all(h == w and (h != 1 or w == 1) for h, w in zip(have, wanted, strict=True)):
            return value
        array = self.arrays.get(value)
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
        owner = size.owner
        if not isinstance(owner, tensor.DimOp):
            raise Unsupported("TOSA repeats elements only as often as it knows, or as often as another tensor has some")
        source, at = owner.operands[0], owner.operands[1].owner
        assert isinstance(at, arith.ConstantOp)
        axis = at.properties["value"].value.data  # type: ignore[attr-defined]
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

    def reshaped(self, value: SSAValue, sizes: Sequence[Size]) -> SSAValue:
        have, wanted = shape_of(value), tuple(map(static, sizes))
        if have == wanted and have.count(None) <= 1:
            return value
        type_ = tensor_type(wanted, element_of(value))
        if value in self.counters:
            return self._counter(type_)
        array = self.arrays.get(value)
        if array is not None and None not in wanted:
            flat = array.flat[0] if array.size and not any(array.strides) else None
            shape = [w for w in wanted if w is not None]
            return self.known(
                array.reshape(shape) if flat is None else np.broadcast_to(flat, shape), self.logical(value)
            )
        if wanted.count(None) <= 1:
            return self.make("reshape", (value, self.shape_value([-1 if w is None else w for w in wanted])), type_)
        old = self.lengths.get(value)
        own = Tensor(value, _as_dtype(element_of(value)), old)
        groups = self._match_groups(self.sizes(own), list(sizes))
        merged = ShapeBuilder.collapse(self, own, [g[0] for g in groups])
        return ShapeBuilder.expand(self, merged, [g[1] for g in groups], sizes).value

    def reshape(self, x: Tensor, sizes: Sequence[Size]) -> Tensor:
        if None in x.shape:
            self.lengths[x.value] = self.sizes(x)
        return super().reshape(x, sizes)

    def _aligned(self, x: Tensor, map_: Sequence[MapResult], loops: int) -> SSAValue:
        if None in x.shape:
            self.lengths[x.value] = self.sizes(x)
        return super()._aligned(x, map_, loops)

    def transposed(self, value: SSAValue, order: Sequence[int]) -> SSAValue:
        order = tuple(order)
        if order == tuple(range(len(order))):
            return value
        array = self.arrays.get(value)
        if array is not None:
            return self.known(array.transpose(order), self.logical(value))
        if value in self.turned:
            # Two in a row are one; a transpose that meets its inverse is none.
            source, first = self.turned[value]
            return self.transposed(source, [first[i] for i in order])
        shape = shape_of(value)
        type_ = tensor_type(tuple(shape[i] for i in order), element_of(value))
        result = self.make("transpose", (value,), type_, {"perms": tosa.perms(order)})
        self.turned[result] = (value, order)
        if value in self.lengths:
            self.lengths[result] = [self.lengths[value][i] for i in order]
        return result

    def sliced(self, x: Tensor, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size]) -> SSAValue:
        wanted = tuple(map(static, sizes))
        array = self.arrays.get(x.value)
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
            own = Tensor(x.value, _as_dtype(element_of(x.value)), x._sizes)
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
        array = self.arrays.get(x.value)
        known = all(isinstance(p, int) for p in (*low, *high))
        number = not isinstance(value, SSAValue | Element)
        if array is not None and known and number:
            edges: Any = list(zip(low, high, strict=True))
            return self.known(np.pad(array, edges, constant_values=value), self.logical(x.value))
        if not known:
            held = Tensor(x.value, _as_dtype(element_of(x.value)), x._sizes)
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
        arrays = [self.arrays[v] for v in full if v in self.arrays]
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
        return self._counter(tensor_type((None,), self.held(i64)))

    def _counter(self, type_: Attribute) -> SSAValue:
        """Positions along a size that only the run time knows: they say where to load from, but are no tensor."""
        value = pending_of(type_)
        self.counters.add(value)
        return value

    def full(self, sizes: Sequence[Size], value: Any, dtype: DType) -> Tensor:
        if 0 in sizes:
            shape = tuple(map(static, sizes))
            if None in shape:
                return LoweringBuilder.empty(self, sizes, dtype)
            return Tensor(self.splat(0, dtype, [s for s in shape if s is not None]), dtype, sizes)
        return super().full(sizes, value, dtype)

    def empty(self, sizes: Sequence[Size], dtype: DType) -> Tensor:
        if all(isinstance(s, int) for s in sizes) and not dtype.is_complex:
            return super().empty(sizes, dtype)
        # Only its sizes are read.
        held = i32 if dtype.builtin == i64 and self.narrow else dtype.builtin
        dynamic = [s for s in sizes if isinstance(s, SSAValue)]
        value = LoweringBuilder.value(self, tensor.EmptyOp, dynamic, tensor_type(tuple(map(static, sizes)), held))
        return Tensor(value, dtype, sizes)

    def filled(self, sizes: Sequence[Size], value: Any, dtype: DType) -> Tensor:
        """Where a reduction starts: its value is all that is read."""
        out = self.empty(sizes, dtype)
        if not isinstance(value, Element | SSAValue):
            out = Tensor(self._mark(out.value), dtype, sizes)
            self.fills[out.value] = value
            return out
        return super().filled(sizes, value, dtype)

    def _mark(self, value: SSAValue) -> SSAValue:
        """A value of its own, so that two accumulators of one shape may start with different numbers."""
        array = self.arrays.get(value)
        return value if array is None else self.known(array, self.logical(value))

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
        if None in result.shape:
            self.lengths[result.value] = self.sizes(result)
        return result

    # --- Reductions ---

    def reduced(self, kind: str, value: SSAValue, dims: Sequence[int], init: Any, dtype: DType) -> SSAValue:
        shape = shape_of(value)
        element = element_of(value)
        names = _REDUCE_BOOL if element == i1 else _REDUCE
        narrow = element in (i8, dtypes.int16.builtin)
        if kind in names and not (kind == "mul" and dtype.is_int):
            work = self.converted(value, i32) if narrow else value
            for dim in dims:
                work = self._reduced_along(names[kind], work, dim)
            value = self.converted(work, element)
        else:
            for dim in dims:
                value = self._halved(kind, value, dim, dtype)
        sizes = [1 if i in dims else s for i, s in enumerate(shape)]
        neutral = {"add": 0, "or": 0, "mul": 1, "and": dtype.max if dtype.is_bool else -1}
        neutral |= {"max": dtype.min, "min": dtype.max, "maxu": dtype.min, "minu": dtype.max}
        if init != neutral[kind]:
            with self.frame([1] * len(sizes)):
                both = _COMBINE[kind](Element(self, value, dtype), init)
            value = both.value
        kept = [self._length(value, i) for i in range(len(shape)) if i not in dims]
        return self.reshaped(value, kept)

    def _length(self, value: SSAValue, dim: int) -> Size:
        size = shape_of(value)[dim]
        return size if size is not None else self._dim_of([value], dim)

    def _reduced_along(self, name: str, value: SSAValue, dim: int) -> SSAValue:
        shape = shape_of(value)
        properties: dict[str, Attribute] = {"axis": tosa.axis(dim)}
        if name in ("reduce_max", "reduce_min"):
            properties["nan_mode"] = tosa.nan_mode()
        type_ = tensor_type(tuple(1 if i == dim else s for i, s in enumerate(shape)), element_of(value))
        return self.make(name, (value,), type_, properties)

    def _halved(self, kind: str, value: SSAValue, dim: int, dtype: DType) -> SSAValue:
        """Combine both halves of a dim until one element is left: for what TOSA has no reduction."""
        sizes = [self._length(value, i) for i in range(len(shape_of(value)))]
        count = sizes[dim]
        if not isinstance(count, int):
            raise Unsupported(f"TOSA has no reduction ({kind}) of {dtype} along a size that only the run time knows")
        x = Tensor(value, dtype, sizes)
        steps = [1] * x.rank
        while count > 1:
            half, odd = divmod(count, 2)
            lengths = self.sizes(x)
            lengths[dim] = half
            first, second = (
                self.slice(x, [s if i == dim else 0 for i in range(x.rank)], lengths, steps) for s in (0, half)
            )
            both = self.elementwise([first, second], _COMBINE[kind], dtype, lengths)
            if odd:
                lengths = [*lengths[:dim], 1, *lengths[dim + 1 :]]
                last = self.slice(x, [count - 1 if i == dim else 0 for i in range(x.rank)], lengths, steps)
                shape = tuple(half + 1 if i == dim else static(s) for i, s in enumerate(lengths))
                type_ = tensor_type(shape, element_of(both.value))
                both = Tensor(self.concatenated([both.value, last.value], dim, type_), dtype)
            x, count = both, half + odd
        return x.value

    # --- Reading at computed positions ---

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
        array = self.arrays.get(index)
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
        array, at = self.arrays.get(values), self.arrays.get(places)
        if array is not None and at is not None:
            inside = np.clip(at.reshape(-1), 0, array.shape[1] - 1)
            return self.known(np.take(array, inside, axis=1), self.logical(values))
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
        function = _COMBINE[combine]
        total = self.reduce([wide], [1], [(neutral, x.dtype)], lambda e, acc: function(acc, e))[0]
        return self.elementwise([x, total], function, x.dtype, [height, width])

    # --- Contractions and windows ---

    def contract(self, name: str, ins: Sequence[Tensor], sizes: Sequence[Size], properties: Any = None) -> Tensor:
        """`matmul` and `batch_matmul`, accumulated as PyTorch accumulates."""
        dtype = ins[0].dtype.compute
        if any(0 in t.shape for t in ins):
            return self.full(sizes, 0, dtype)
        if name not in ("matmul", "batch_matmul"):
            raise Unsupported(f"linalg.{name} in TOSA")
        if dtype.is_bool:
            raise Unsupported("a product of boolean matrices")
        batched = [t if name == "batch_matmul" else self.unsqueeze(t, 0) for t in ins]
        if dtype.is_int:
            batched = [self.to(t, t.dtype if element_of(t.value) == i64 else dtypes.int32) for t in batched]
        zeros = [self.zero_point(element_of(t.value)) for t in batched]
        shape = tuple(map(static, sizes if name == "batch_matmul" else [1, *sizes]))
        element = i32 if dtype.is_int and element_of(batched[0].value) != i64 else self.held(dtype.builtin)
        value = self.make("matmul", (*(t.value for t in batched), *zeros), tensor_type(shape, element))
        whole = sizes if name == "batch_matmul" else [1, *sizes]
        result = Tensor(value, dtypes.int32 if element == i32 and dtype.bits < 32 else dtype, whole)
        result = result if name == "batch_matmul" else self.reshape(result, sizes)
        return self.to(result, dtype)

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
        windows = [k for k in kernel if isinstance(k, int)]
        pooled = None
        if len(inits) == 1 and not indexed and len(windows) == len(kernel) <= 2 and all(d == 1 for d in dilations):
            pooled = self._pooled(x, windows, out, strides, inits[0], body)
        if pooled is not None:
            return [pooled]
        return super().window_reduce(x, kernel, out, strides, dilations, inits, body, indexed)

    def _pooled(
        self,
        x: Tensor,
        kernel: Sequence[int],
        out: Sequence[Size],
        strides: Sequence[int],
        start: tuple[Any, DType],
        body: Body,
    ) -> Tensor | None:
        """The maximum or the sum of windows as TOSA's poolings; None where they mean something else."""
        init, dtype = start
        lead = x.rank - len(kernel)
        sizes = self.sizes(x)
        if not dtype.is_float or 0 in x.shape or (None in x.shape[lead:] and any(s > 1 for s in strides)):
            return None
        with self.frame(sizes):
            result = body(Element(self, x.value, x.dtype), self._accumulator(dtype))
            reduction = self.accumulators.get(result.value)
            neutral = {"max": dtype.min, "add": 0}
            if reduction is None or neutral.get(reduction.kind) != init:
                return None
            x = Tensor(self.spread(reduction.term, sizes), dtype, sizes)
        # Windows end with the input.
        reach = [
            b if not isinstance(o, int) else (o - 1) * s + k
            for b, o, s, k in zip(sizes[lead:], out, strides, kernel, strict=True)
        ]
        x = self.slice(x, [0] * x.rank, [*sizes[:lead], *reach], [1] * x.rank)
        plane, places, window, steps = list(reach), list(out), list(kernel), list(strides)
        if len(kernel) == 1:
            plane, places, window, steps = [1, *plane], [1, *places], [1, *window], [1, *steps]
        # Batch and channels keep their places, other dims before the windows are one batch.
        channels = sizes[1] if lead == 2 else 1
        batch = sizes[0] if lead == 2 else self.product(sizes[:lead])
        last = self.transpose(self.reshape(x, [batch, channels, *plane]), [0, 2, 3, 1])
        wanted = [batch, *places, channels]
        type_ = tensor_type(tuple(map(static, wanted)), element_of(x.value))
        properties: dict[str, Attribute] = {
            "kernel": tosa.ints(window), "stride": tosa.ints(steps), "pad": tosa.ints([0] * 4),
        }  # fmt: skip
        if reduction.kind == "max":
            properties["nan_mode"] = tosa.nan_mode()
            value = self.make("max_pool2d", (last.value,), type_, properties)
        else:
            zero = self.zero_point(element_of(x.value))
            properties["acc_type"] = f32
            mean = self.make("avg_pool2d", (last.value, zero, zero), type_, properties)
            value = self.product_of(mean, self.number(mean, float(math.prod(kernel))))
        back = self.transpose(Tensor(value, dtype, wanted), [0, 3, 1, 2])
        return self.reshape(back, [*sizes[:lead], *out])

    def named(self, name: str, ins: Sequence[Tensor], out: Tensor, body: Any, properties: Any = None) -> Tensor:
        """linalg's poolings as windows."""
        if not name.startswith("pooling_"):
            raise Unsupported(f"linalg.{name} in TOSA")
        x, window = ins
        strides, dilations = ([int(v) for v in properties[key].get_values()] for key in ("strides", "dilations"))
        inits = [(self.fills[out.value], out.dtype)]
        last = self.sizes(out)[-window.rank :]
        return self.window_reduce(
            x, self.sizes(window), last, strides, dilations, inits, lambda e, acc: body(e, e, acc)
        )[0]


def _joint(shapes: Sequence[tuple[int | None, ...]]) -> tuple[int | None, ...]:
    """The shape that shapes of one rank broadcast to."""
    return tuple(
        next((d for d in dims if d not in (1, None)), None if None in dims else 1) for dims in zip(*shapes, strict=True)
    )


def _as_dtype(element: Attribute) -> DType:
    """A dtype whose builtin type is that of some elements: for verbs of the `tensor` dialect."""
    for dtype in dtypes.DTYPES:
        if dtype.builtin == element:
            return dtype
    raise Unsupported(f"elements of type {element}")


def _same(a: Size, b: Size) -> bool:
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)
