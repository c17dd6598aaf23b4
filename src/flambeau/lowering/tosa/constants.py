"""Tensors that are known while compiling: positions, masks, what is computed from them.

They are computed with numpy and become a `tosa.const` where an op needs them. So TOSA, which has no op that counts,
sees only the result, and numbers in between may have types that TOSA lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    BytesAttr,
    ComplexType,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    TensorType,
    bf16,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects import tosa
from flambeau.ir.comparisons import CMPI, OF_CMPF, OF_CMPI, OPERATORS
from flambeau.lowering.whole.values import Placeholder

Array = np.ndarray[Any, Any]

NUMPY: dict[Attribute, Any] = {
    i1: np.bool_, i8: np.int8, i16: np.int16, i32: np.int32, i64: np.int64, f16: np.float16, f32: np.float32,
    bf16: np.float32, f64: np.float64,
}  # fmt: skip
"""Elements that are computed with while compiling; numpy has no bf16."""

MOST_ELEMENTS = 1 << 16
"""Larger tensors are left to the engine, unless they have one value everywhere."""

_INT64 = np.iinfo(np.int64)
_INT32 = np.iinfo(np.int32)


class Known(Placeholder):
    """A tensor that is known while compiling; `made` is what an op in the program gives for it, once one is needed."""

    def __init__(self, type_: Attribute, array: Array) -> None:
        super().__init__(type_)
        self.array = array
        self.made: SSAValue | None = None


class Counter(Placeholder):
    """Positions along a size that only the run time knows; most only say where to load from and are never made."""

    def __init__(self, type_: Attribute, size: SSAValue) -> None:
        super().__init__(type_)
        self.size = size


def array_of(value: SSAValue) -> Array | None:
    """Return the array that a value is known to be; None if it is not known."""
    return value.owner.array if isinstance(value.owner, Known) else None


def as_array(attr: DenseIntOrFPElementsAttr[Any], shape: Sequence[int], dtype: Any) -> Array:
    """Convert a literal to an array; a splat is a broadcast view."""
    values = np.array(attr.get_values(), dtype)
    return np.broadcast_to(values[0], shape) if values.size == 1 else values.reshape(shape)


def scalar_array(value: SSAValue) -> Array | None:
    """Return the number of an `arith.constant` as a 0-d array; None for other values."""
    owner = value.owner
    attr = owner.properties["value"] if isinstance(owner, arith.ConstantOp) else None
    if not isinstance(attr, IntegerAttr | FloatAttr):
        return None
    dtype = np.int64 if isinstance(attr.type, IndexType) else NUMPY.get(attr.type)
    return None if dtype is None else np.array(attr.value.data, dtype)


def rounded(array: Any, element: Attribute) -> Array:
    """Round numbers to an element type; bf16 is held as f32 with its low bits zero."""
    with np.errstate(all="ignore"):
        array = np.asarray(array).astype(NUMPY.get(element, np.float32), copy=False)
    if element != bf16:
        return array
    bits = array.view(np.uint32)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(array), array, nearest.view(np.float32))


def is_splat(array: Array) -> bool:
    return array.size == 1 or not any(array.strides)


def is_small(array: Array) -> bool:
    return array.size <= MOST_ELEMENTS or is_splat(array)


def constant_op(array: Array, type_: TensorType[Any]) -> Operation:
    """Make `tosa.const` of an array."""
    return tosa.op("const").create(result_types=(type_,), properties={"values": dense(array, type_)})


def dense(array: Array, type_: TensorType[Any]) -> Attribute:
    element = type_.element_type
    if element == f64:
        raise Unsupported("TOSA has no 64-bit floats")
    if isinstance(element, ComplexType):
        raise Unsupported("TOSA has no complex numbers")
    if isinstance(element, IntegerType):
        array = fitting(array, element)
    if is_splat(array):
        number = array.flat[0].item() if array.size else 0
        return DenseIntOrFPElementsAttr.from_list(type_, [int(number) if isinstance(number, bool) else number])
    if element in NUMPY and element not in (i1, bf16):
        return DenseIntOrFPElementsAttr(type_, BytesAttr(np.ascontiguousarray(array, NUMPY[element]).tobytes()))
    return DenseIntOrFPElementsAttr.from_list(type_, [v.item() if element != i1 else int(v) for v in array.flat])


def fitting(array: Array, element: IntegerType) -> Array:
    """Narrow integers to the range of their element type: the ends of 64 bits become those of 32, others must fit."""
    if element == i32 and array.dtype == np.int64:
        array = np.where(array == _INT64.max, _INT32.max, np.where(array == _INT64.min, _INT32.min, array))
        if array.size and (array.max() > _INT32.max or array.min() < _INT32.min):
            worst = max(array.max(), array.min(), key=abs)
            raise Unsupported(
                f"the constant {worst} does not fit 32 bits, which is what TOSA computes integers in",
                'Lower with int64="keep" for a backend that takes 64-bit integers.',
            )
        kept = array.astype(np.int32)
        return np.broadcast_to(kept.flat[0], kept.shape) if kept.size and (kept == kept.flat[0]).all() else kept
    return array


# --- Computing ---


def _int_div(x: Array, y: Array) -> Array:
    quotient = np.abs(x) // np.maximum(np.abs(y), 1)
    return quotient * np.sign(x) * np.sign(y)


_COMPARISONS: dict[str, Callable[..., Array]] = {**OPERATORS, "uno": lambda x, y: np.isnan(x) | np.isnan(y)}

_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "arith.addf": np.add, "arith.addi": np.add, "arith.subf": np.subtract, "arith.subi": np.subtract,
    "arith.mulf": np.multiply, "arith.muli": np.multiply, "arith.divf": np.divide, "arith.divsi": _int_div,
    "arith.floordivsi": lambda x, y: np.floor_divide(x, np.where(y == 0, 1, y)),
    "arith.remf": np.fmod, "arith.remsi": lambda x, y: np.fmod(x, np.where(y == 0, 1, y)),
    "arith.maximumf": np.maximum, "arith.maxsi": np.maximum, "arith.minimumf": np.minimum, "arith.minsi": np.minimum,
    "arith.negf": np.negative, "arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or, "arith.xori": np.bitwise_xor,
    "arith.select": np.where, "math.absf": np.abs, "math.absi": np.abs, "math.floor": np.floor, "math.ceil": np.ceil,
    "math.trunc": np.trunc, "math.roundeven": np.rint, "math.sqrt": np.sqrt, "math.exp": np.exp, "math.log": np.log,
    "math.sin": np.sin, "math.cos": np.cos, "math.tanh": np.tanh, "math.powf": np.power, "math.exp2": np.exp2,
    "math.expm1": np.expm1, "math.log1p": np.log1p, "math.log2": np.log2, "math.copysign": np.copysign,
    "arith.extsi": np.asarray, "arith.trunci": np.asarray, "arith.sitofp": np.asarray, "arith.extf": np.asarray,
    "arith.truncf": np.asarray, "arith.index_cast": np.asarray, "arith.fptosi": np.trunc,
    "arith.extui": lambda x: _unsigned(x), "arith.uitofp": lambda x: _unsigned(x),
}  # fmt: skip


def _unsigned(x: Array) -> Array:
    return x if x.dtype == np.bool_ else x.view(np.dtype(f"u{x.dtype.itemsize}"))


def computed(name: str, arrays: Sequence[Array], element: Attribute, properties: Any) -> Array | None:
    """Compute an op of `arith` or `math` on arrays; None where it is left to the engine."""
    function = _FUNCTIONS.get(name)
    if name in ("arith.cmpf", "arith.cmpi"):
        predicate = properties["predicate"].value.data
        function = _COMPARISONS[(OF_CMPF if name == "arith.cmpf" else OF_CMPI)[predicate]]
        if name == "arith.cmpi" and predicate >= CMPI["ult"]:
            arrays = [a.astype(np.uint64) for a in arrays]
    if function is None or element not in NUMPY:
        return None
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    one = all(map(is_splat, arrays)) and all(a.size for a in arrays)
    if not one and int(np.prod(shape)) > MOST_ELEMENTS:
        return None
    with np.errstate(all="ignore"):
        if one:
            single = function(*(np.array(a.flat[0]) for a in arrays))
            return np.broadcast_to(rounded(single, element), shape)
        return rounded(function(*arrays), element)
