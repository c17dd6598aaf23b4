"""TOSA's ops on whole tensors: types, constants, elementwise ops. The other files of this folder add the rest.

TOSA's ops broadcast dims of size 1 themselves, so values of a body keep such dims until a result needs its full size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import (
    AnyFloat,
    ComplexType,
    DenseIntOrFPElementsAttr,
    TensorType,
    f32,
    f64,
    i1,
    i8,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects import tosa
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import INDEX, Size, Tensor, static, tensor_type
from flambeau.lowering.element import Element
from flambeau.lowering.tosa import access, moves, reductions, wide
from flambeau.lowering.tosa.constants import (
    NUMPY,
    Array,
    Counter,
    Known,
    array_of,
    as_array,
    computed,
    constant_op,
    is_small,
    rounded,
    scalar_array,
)
from flambeau.lowering.tosa.vocabulary import translate
from flambeau.lowering.whole.builder import WholeBuilder
from flambeau.lowering.whole.target import TargetOps
from flambeau.lowering.whole.values import Placeholder, by_identity, element_of, shape_in, shape_of, sizes_meet

_NOTHING: Mapping[str, Attribute] = {}


class TosaOps(TargetOps):
    """The ops of TOSA. With `narrow`, 64-bit integers are held in 32 bits, which is what TOSA has."""

    name = "TOSA"
    repeats_ones = True
    has_empty = False
    narrowed = MappingProxyType({dtypes.float64: dtypes.float32})

    def __init__(self, b: WholeBuilder[Any], narrow: bool = True) -> None:
        super().__init__(b)
        self.narrow = narrow
        self.memo: dict[Any, SSAValue] = {}
        """Constants and positions by what tells them apart."""
        self.turned: dict[SSAValue, tuple[SSAValue, tuple[int, ...]]] = {}
        """Transposed values with their source."""
        self.flat: dict[SSAValue, SSAValue] = {}
        """Reshaped values with their source."""
        self.inverses: dict[SSAValue, SSAValue] = {}
        """Reciprocals with what they are of, and known values with their reciprocals."""
        self.truncated: dict[SSAValue, SSAValue] = {}
        """64-bit integers in 32 bits with the floats that they were, without their fractions."""
        self.lengths: dict[SSAValue, list[Size]] = {}
        """The sizes of values whose type does not tell them."""
        self.forms: dict[SSAValue, Any] = {}
        """Floats that are known to be integers times a scale; `lowering/tosa/quantized.py` has more."""
        self.strict = False
        """Whether sizes that are not known met each other, and were taken for the same."""

    # --- Types ---

    def held(self, element: Attribute) -> Attribute:
        """Return the type that elements have in TOSA: i32 for i64 if integers are narrowed."""
        is_wide_integer = _check_element(element)
        return i32 if is_wide_integer and self.narrow else element

    def holds(self, x: Tensor) -> Tensor:
        """Convert a tensor from outside (an argument, a branch's result) to the element type that TOSA holds."""
        if element_of(x.value) != i64 or not self.narrow:
            return x
        return Tensor(self.convert(x.value, i32), x.dtype, x._sizes)

    def released(self, x: Tensor) -> Tensor:
        """Convert a tensor back to the element type that the outside knows."""
        if x.dtype.builtin != i64 or element_of(x.value) == i64:
            return x
        return Tensor(self.convert(x.value, i64), x.dtype, x._sizes)

    # --- Plumbing ---

    def prepare(self, op: Operation) -> None:
        for i, operand in enumerate(op.operands):
            if isinstance(operand.owner, Placeholder):
                op.operands[i] = self.real(operand)

    def fold(
        self, op_class: type[Operation], operands: Sequence[SSAValue], type_: Attribute, properties: Any
    ) -> SSAValue | None:
        numbers = [scalar_array(o) for o in operands]
        known = [n for n in numbers if n is not None]
        result = computed(op_class.name, known, type_, properties) if len(known) == len(numbers) else None
        return None if result is None else self.b.constant(result.item(), self.b.dtype_of(type_))

    def item(self, x: Tensor) -> SSAValue:
        held = element_of(x.value)
        places = [self.b.index(0)] * x.rank
        number = self.b.emit(tensor.ExtractOp, (x.value, *places), (held,)).results[0]
        if held == x.dtype.builtin:
            return number
        return self.b.emit(arith.ExtSIOp, (number,), (x.dtype.builtin,)).results[0]

    def known_integers(self, x: Tensor) -> list[int] | None:
        array = array_of(x.value)
        return None if array is None or not x.dtype.is_int else [int(v) for v in array.flat]

    def number_of(self, x: Tensor, dtype: DType) -> SSAValue:
        if x.dtype is dtype:
            return self.item(x)
        if not (dtype is dtypes.float64 and x.dtype.is_int):
            held = dtypes.float32 if dtype is dtypes.float64 else dtype
            number = self.item(self.b.to(x, held))
            return number if held is dtype else self.b.emit(arith.ExtFOp, (number,), (f64,)).results[0]
        # TOSA's floats have 24 bits: both halves of an integer fit, and are put together outside.
        high = self.b.elementwise([x], lambda e: (e.to(dtypes.int64) >> 16).to(dtypes.float32), dtypes.float32)
        low = self.b.elementwise([x], lambda e: (e.to(dtypes.int64) & 0xFFFF).to(dtypes.float32), dtypes.float32)
        upper, lower = (Element(self.b, self.number_of(t, dtype), dtype) for t in (high, low))
        return (upper * 65536.0 + lower).value

    def real(self, value: SSAValue) -> SSAValue:
        """Materialise a value that is only known at compile time as the result of an op."""
        known = value.owner
        if isinstance(known, Counter):
            return moves.count(self, known)
        if not isinstance(known, Known):
            return value
        found = known.made
        if found is None:
            type_ = value.type
            assert isinstance(type_, TensorType)
            if 0 in known.array.shape:
                found = self.b.emit(tensor.EmptyOp, (), (type_,)).results[0]
                if self.b.block is not self.b.entry:
                    return found
            else:
                found = self.b.constant_op(("known", value), lambda: constant_op(known.array, type_))
            known.made = found
        return found

    def known(self, array: Array, element: Attribute) -> SSAValue:
        """Make a value of a known tensor; `element` is its type as PyTorch means it."""
        held = i32 if element == i64 and self.narrow else element
        return Known(tensor_type(array.shape, held), array).value

    def logical(self, value: SSAValue) -> Attribute:
        """Return the element type of a known value as PyTorch means it."""
        array = array_of(value)
        return i64 if array is not None and array.dtype == np.int64 else element_of(value)

    def make(
        self,
        name: str,
        operands: Sequence[SSAValue],
        type_: Attribute,
        properties: Mapping[str, Attribute] = _NOTHING,
    ) -> SSAValue:
        """Emit an op with one result; a result without elements becomes a `tensor.empty`."""
        assert isinstance(type_, TensorType)
        _check_element(type_.element_type)
        if operands and isinstance(operands[0].type, TensorType):
            _check_element(operands[0].type.element_type)  # Comparisons give truth values of anything.
        if 0 in shape_in(type_):
            return self._nothing(operands, type_)
        return self.b.emit(tosa.op(name), operands, (type_,), properties).results[0]

    def _nothing(self, operands: Sequence[SSAValue], type_: TensorType[Any]) -> SSAValue:
        """Make a tensor without elements, which TOSA's ops do not take, with the sizes of the operands."""
        shape = type_.get_shape()
        if all(s >= 0 for s in shape):
            return self.known(np.zeros(shape, NUMPY.get(type_.element_type, np.float32)), type_.element_type)
        tensors = [o for o in operands if isinstance(o.type, TensorType) and len(shape_of(o)) == len(shape)]
        open_dims = [i for i, s in enumerate(shape) if s < 0]
        if any(all(shape_of(o)[i] is not None for o in tensors) for i in open_dims):
            raise Unsupported("TOSA has no tensors without elements")
        return self.nothing([self.dim_of(tensors, i) for i in open_dims], type_)

    def nothing(self, sizes: Sequence[SSAValue], type_: TensorType[Any]) -> SSAValue:
        """Emit a tensor without elements; `sizes` are those that its type does not tell."""
        return self.b.emit(tensor.EmptyOp, sizes, (type_,)).results[0]

    def on(
        self,
        name: str,
        operands: Sequence[SSAValue],
        element: Attribute,
        properties: Mapping[str, Attribute] = _NOTHING,
        like: int = 0,
    ) -> SSAValue:
        """Emit an elementwise op; its result has the shape that its operands, or the first `like`, broadcast to."""
        shapes = [shape_of(o) for o in operands[: like or None]]
        shape = joint(*shapes)
        if None in shape and len(shapes) > 1 and not self.strict:
            self.strict = sizes_meet(shapes)
        if name in ("maximum", "minimum"):
            properties = {"nan_mode": tosa.nan_mode()}
        return self.make(name, operands, tensor_type(shape, element), properties)

    def number(self, like: SSAValue, value: Any) -> SSAValue:
        """Make a constant that broadcasts to a value's shape, of its type."""
        element = element_of(like)
        return self.single(value, element, [1] * len(shape_of(like)))

    def single(self, value: Any, element: Attribute, shape: Sequence[int]) -> SSAValue:
        key = ("single", repr(value), element, tuple(shape))
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = self.known(np.full(shape, rounded(value, element)), element)
        return found

    def zero_points(self, element: Attribute) -> list[SSAValue]:
        """Make the zero points of both sides of a product as operands."""
        return [self.single(p, element, [1]) for p in self.b.context.zero_points or (0, 0)]

    def zero_point(self, element: Attribute) -> SSAValue:
        return self.single(0, element, [1])

    def ones_like(self, value: SSAValue) -> SSAValue:
        array = array_of(value)
        assert array is not None
        return self.known(np.broadcast_to(np.ones((), array.dtype), array.shape), self.logical(value))

    def shape_value(self, sizes: Sequence[int]) -> SSAValue:
        """Make `tosa.const_shape`; -1 stands for a size that the op infers itself."""
        key = ("shape", tuple(sizes))
        return self.b.constant_op(
            key,
            lambda: tosa.op("const_shape").create(
                result_types=(tosa.shape_type(len(sizes)),), properties={"values": tosa.shape_values(sizes)}
            ),
        )

    # --- Elements ---

    def apply(self, name: str, operands: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
        found = [array_of(o) for o in operands]
        arrays = [a for a in found if a is not None]
        if len(arrays) == len(found):
            result = computed(name, arrays, element, properties)
            if result is not None:
                return self.known(result, element)
        if name == "arith.select" and found[0] is not None and found[0].size == 1:
            chosen = operands[1] if found[0].item() else operands[2]
            if shape_of(chosen) == joint(*map(shape_of, operands)):
                return chosen
        return translate(self, name, operands, element, properties)

    def product_of(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.on("mul", (x, y, self.single(0, i8, [1])), element_of(x), like=2)

    def reciprocal(self, x: SSAValue) -> SSAValue:
        if x in self.inverses:
            return self.inverses[x]
        array = array_of(x)
        if array is not None and element_of(x) == f32:
            with np.errstate(all="ignore"):
                found = self.inverses[x] = self.known(np.asarray(np.float32(1) / array), f32)
        else:
            found = self.on("reciprocal", (x,), element_of(x))
            self.inverses[found] = x
        return found

    def convert(self, x: SSAValue, element: Attribute) -> SSAValue:
        """Cast by `tosa.cast`, through 32 bits where TOSA has no direct one."""
        own = element_of(x)
        if own == element:
            return x
        _check_element(own)
        small = {own, element}
        if own == i64 and isinstance(element, AnyFloat):
            return self.convert(wide.to_float(self, x), element)
        if element == i64 and isinstance(own, AnyFloat):
            return wide.from_float(self, self.convert(x, f32))
        if i1 in small and small & {dtypes.float16.builtin, dtypes.bfloat16.builtin}:
            x = self.on("cast", (x,), f32)
        elif i64 in small and small & {i8, dtypes.int16.builtin}:
            x = self.on("cast", (x,), i32)
        return self.on("cast", (x,), element)

    def joint_sizes(self, values: Sequence[SSAValue]) -> list[Size]:
        """Return the sizes that values broadcast to."""
        sizes = self.b.frames[-1] if self.b.frames else None
        shape = joint(*map(shape_of, values))
        if sizes is not None and len(sizes) == len(shape):
            return [w if s is None else s for s, w in zip(shape, sizes, strict=True)]
        return [self.dim_of(values, i) if s is None else s for i, s in enumerate(shape)]

    def dim_of(self, values: Sequence[SSAValue], dim: int) -> SSAValue:
        value = next(v for v in values if shape_of(v)[dim] is None)
        return self.b.emit(tensor.DimOp, (value, self.b.index(dim)), (INDEX,)).results[0]

    def spread_lazily(self, value: SSAValue) -> SSAValue:
        """Convert a value of a body that may be a scalar to a tensor."""
        return value if isinstance(value.type, TensorType) else self.b.widen(value, len(self.b.frames[-1]))

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
        found = self.memo.get(key)
        if found is None:
            single = rounded(number, dtype.builtin)
            found = self.memo[key] = self.known(np.broadcast_to(single, tuple(shape)), dtype.builtin)
        return found

    def dense(self, attr: Attribute, type_: Attribute) -> SSAValue:
        assert isinstance(type_, TensorType)
        element = type_.element_type
        if isinstance(attr, DenseIntOrFPElementsAttr) and element in NUMPY:
            array = as_array(attr, type_.get_shape(), NUMPY[element])
            if is_small(array):
                return self.known(array, element)
        value = self.make("const", (), type_, {"values": attr})
        return self.convert(value, i32) if element == i64 and self.narrow else value

    def from_scalar(self, value: SSAValue, dtype: DType) -> SSAValue:
        element = self.held(dtype.builtin)
        if value.type == INDEX:
            value = self.b.emit(arith.IndexCastOp, (value,), (element,)).results[0]
        elif value.type != element:
            value = self.b.emit(arith.TruncIOp, (value,), (element,)).results[0]
        return self.b.emit(tensor.FromElementsOp, (value,), (tensor_type((), element),)).results[0]

    # --- Shapes ---

    broadcast = moves.broadcast
    reshape = moves.reshape
    transpose = moves.transpose
    slice = moves.slice_
    pad = moves.pad
    concatenate = moves.concatenate

    def reverse(self, value: SSAValue, dims: Sequence[int]) -> SSAValue:
        for dim in dims:
            if shape_of(value)[dim] != 1:
                value = self.make("reverse", (value,), value.type, {"axis": tosa.axis(dim)})
        return value

    def iota(self, size: Size) -> SSAValue:
        if isinstance(size, int):
            return self.known(np.arange(size), i64)
        return Counter(tensor_type((None,), self.held(i64)), size).value

    def empty(self, sizes: Sequence[Size], dtype: DType) -> SSAValue:
        shape = [s for s in sizes if isinstance(s, int)]
        if len(shape) == len(sizes) and not dtype.is_complex:
            return self.splat(0, dtype, shape)
        held = i32 if dtype.builtin == i64 and self.narrow else dtype.builtin
        return self.nothing([s for s in sizes if isinstance(s, SSAValue)], tensor_type(tuple(map(static, sizes)), held))

    def measure(self, x: Tensor) -> None:
        if None not in shape_of(x.value):
            return
        owner = x.value.owner
        # In a branch or a loop, the sizes of a tensor outside are made here and not known outside.
        if (owner if isinstance(owner, Block) else owner.parent) is self.b.block:
            self.lengths[x.value] = self.b.sizes(x)

    # --- Reductions, products, computed positions ---

    reduce = reductions.reduce
    contract = reductions.contract
    window_reduce = reductions.window_reduce
    load = access.load
    gather = access.gather
    scatter = access.scatter
    insert_slice = access.insert_slice


TosaBuilder = WholeBuilder[TosaOps]
"""Runs the bodies of rules as TOSA."""


@by_identity
def _check_element(element: Any) -> bool:
    """Refuse elements that TOSA lacks; gives whether they are integers of 64 bits."""
    if element == f64:
        raise Unsupported("TOSA has no 64-bit floats", "Convert the model and its inputs to float32.")
    if isinstance(element, ComplexType):
        raise Unsupported("TOSA has no complex numbers")
    return bool(element == i64)


@cache
def joint(*shapes: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Return the shape that shapes of one rank broadcast to."""
    return tuple(
        next((d for d in dims if d not in (1, None)), None if None in dims else 1) for dims in zip(*shapes, strict=True)
    )
