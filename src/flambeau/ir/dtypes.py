"""The one table of element types: PyTorch name, scalar-type code, MLIR types, numpy type, size, category."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects.builtin import (
    BFloat16Type,
    ComplexType,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    Signedness,
)
from xdsl.ir import Attribute

if TYPE_CHECKING:
    import torch


class Category(enum.IntEnum):
    """PyTorch's promotion categories, in promotion order."""

    BOOL = 0
    INT = 1
    FLOAT = 2
    COMPLEX = 3


@dataclass(frozen=True, eq=False)
class DType:
    """One element type. Instances are unique, so they compare by identity."""

    name: str
    """PyTorch's name, `float32`."""
    code: int
    """PyTorch's `ScalarType` number, which is how a dtype is spelt as an op argument."""
    torch_type: Attribute
    """The element type in the torch dialect; integers carry their sign (`si64`, `ui8`)."""
    builtin: Attribute
    """The element type in builtin tensors; integers are signless."""
    size: int
    """Bytes of one element."""
    category: Category
    numpy: np.dtype[Any] | None
    """The numpy type of the same values, or None where numpy has none (bfloat16, float8)."""
    signed: bool = True

    def __repr__(self) -> str:
        return self.name

    @property
    def is_bool(self) -> bool:
        return self.category is Category.BOOL

    @property
    def is_int(self) -> bool:
        """True for integers proper; bool is not one."""
        return self.category is Category.INT

    @property
    def is_integral(self) -> bool:
        return self.category <= Category.INT

    @property
    def is_float(self) -> bool:
        return self.category is Category.FLOAT

    @property
    def is_complex(self) -> bool:
        return self.category is Category.COMPLEX

    @property
    def bits(self) -> int:
        return 1 if self.is_bool else self.size * 8

    @property
    def storage(self) -> np.dtype[Any]:
        """A numpy type of the same width to hold the bit pattern of any dtype."""
        return self.numpy if self.numpy is not None else np.dtype(f"u{self.size}")

    @property
    def real(self) -> DType:
        """The dtype of a complex dtype's parts; the dtype itself otherwise."""
        return {complex32: float16, complex64: float32, complex128: float64}.get(self, self)

    @property
    def compute(self) -> DType:
        """The dtype in which PyTorch computes: 16-bit and narrower floats widen to float32."""
        return float32 if self.is_float and self.size < 4 else complex64 if self is complex32 else self

    @property
    def accumulator(self) -> DType:
        """The dtype in which PyTorch accumulates on a CPU, one element after the other."""
        return {float32: float64, complex64: complex128}.get(self, self.compute)

    @property
    def min(self) -> int | float:
        """The least value; -inf for floats."""
        if self.is_bool:
            return 0
        if self.is_int:
            return -(1 << (self.bits - 1)) if self.signed else 0
        return float("-inf")

    @property
    def max(self) -> int | float:
        """The greatest value; inf for floats."""
        if self.is_bool:
            return 1
        if self.is_int:
            return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1
        return float("inf")

    @property
    def fraction_bits(self) -> int:
        """How many bits of a float are behind its binary point; for dtypes of 16 bits and more."""
        return {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[self.name]

    @property
    def largest(self) -> float:
        """The greatest finite number of a float dtype; those of 8 bits are not laid out as IEEE 754 has it."""
        if self.size == 1:
            return {"float8_e4m3fn": 448.0, "float8_e4m3fnuz": 240.0}.get(self.name, 57344.0)
        return (2 - 2.0**-self.fraction_bits) * 2.0 ** (2 ** (self.bits - self.fraction_bits - 2) - 1)

    @property
    def smallest(self) -> float:
        """The least positive number of a float dtype, which is subnormal."""
        return 2.0 ** (2 - 2 ** (self.bits - self.fraction_bits - 2) - self.fraction_bits)

    @property
    def saturates_at(self) -> float | None:
        """What PyTorch makes of all larger numbers, infinity too; None for floats where they become inf or NaN."""
        return self.largest if self.name == "float8_e4m3fn" else None

    @property
    def torch(self) -> torch.dtype:
        """The `torch.dtype`; the only member that needs PyTorch."""
        import torch

        found: torch.dtype = getattr(torch, self.name)
        return found


def _int(name: str, code: int, bits: int, signed: bool) -> DType:
    sign = Signedness.SIGNED if signed else Signedness.UNSIGNED
    numpy = np.dtype(name)
    return DType(name, code, IntegerType(bits, sign), IntegerType(bits), bits // 8, Category.INT, numpy, signed)


def _float(name: str, code: int, mlir: Attribute, size: int, numpy: str | None) -> DType:
    return DType(name, code, mlir, mlir, size, Category.FLOAT, np.dtype(numpy) if numpy else None)


def _complex(name: str, code: int, part: Any, size: int, numpy: str | None) -> DType:
    mlir = ComplexType(part)
    return DType(name, code, mlir, mlir, size, Category.COMPLEX, np.dtype(numpy) if numpy else None)


bool_ = DType("bool", 11, IntegerType(1), IntegerType(1), 1, Category.BOOL, np.dtype("bool"), False)
uint8 = _int("uint8", 0, 8, False)
int8 = _int("int8", 1, 8, True)
int16 = _int("int16", 2, 16, True)
int32 = _int("int32", 3, 32, True)
int64 = _int("int64", 4, 64, True)
uint16 = _int("uint16", 27, 16, False)
uint32 = _int("uint32", 28, 32, False)
uint64 = _int("uint64", 29, 64, False)
float16 = _float("float16", 5, Float16Type(), 2, "float16")
float32 = _float("float32", 6, Float32Type(), 4, "float32")
float64 = _float("float64", 7, Float64Type(), 8, "float64")
bfloat16 = _float("bfloat16", 15, BFloat16Type(), 2, None)
complex32 = _complex("complex32", 8, Float16Type(), 4, None)
complex64 = _complex("complex64", 9, Float32Type(), 8, "complex64")
complex128 = _complex("complex128", 10, Float64Type(), 16, "complex128")


def _float8() -> tuple[DType, ...]:
    from xdsl.dialects import builtin

    table = (
        ("float8_e5m2", 23, "Float8E5M2Type"),
        ("float8_e4m3fn", 24, "Float8E4M3FNType"),
        ("float8_e5m2fnuz", 25, "Float8E5M2FNUZType"),
        ("float8_e4m3fnuz", 26, "Float8E4M3FNUZType"),
    )
    return tuple(
        _float(name, code, getattr(builtin, cls)(), 1, None) for name, code, cls in table if hasattr(builtin, cls)
    )


INT64_MAX = (1 << 63) - 1
"""The greatest int of a program, and so the largest size; as the end of a slice it means that of the tensor."""

DTYPES: tuple[DType, ...] = (
    bool_, uint8, int8, int16, int32, int64, uint16, uint32, uint64,
    float16, float32, float64, bfloat16, complex32, complex64, complex128,
    *_float8(),
)  # fmt: skip

BY_NAME = {d.name: d for d in DTYPES}
BY_CODE = {d.code: d for d in DTYPES}
BY_TORCH_TYPE = {d.torch_type: d for d in DTYPES}
BY_BUILTIN = {d.builtin: d for d in sorted(DTYPES, key=lambda d: d.signed)}
"""By the type of elements in other dialects, which does not tell signed integers from others: the signed ones."""

_ALIASES = {
    "f16": float16, "f32": float32, "f64": float64, "bf16": bfloat16, "i1": bool_, "half": float16,
    "i8": int8, "i16": int16, "i32": int32, "i64": int64, "si8": int8, "si16": int16, "si32": int32, "si64": int64,
    "u8": uint8, "ui8": uint8, "u16": uint16, "u32": uint32, "u64": uint64, "ui16": uint16, "ui32": uint32,
    "ui64": uint64, "float": float32, "double": float64, "int": int32, "long": int64, "c64": complex64,
    "c128": complex128, "complex<f32>": complex64, "complex<f64>": complex128,
}  # fmt: skip


def from_name(name: str) -> DType | None:
    """Return the dtype with PyTorch's name (`float32`) or MLIR's (`f32`, `si64`, `ui8`); None if there is none."""
    return BY_NAME.get(name) or _ALIASES.get(name)


@cache
def from_torch(dtype: torch.dtype) -> DType | None:
    """Return the entry for a `torch.dtype`; None for those that have no MLIR spelling."""
    return BY_NAME.get(str(dtype).removeprefix("torch."))


@cache
def from_numpy(dtype: np.dtype[Any]) -> DType | None:
    """Return the entry for a numpy dtype; None if there is none."""
    return next((d for d in DTYPES if d.numpy == dtype), None)


@cache
def promote(a: DType, b: DType) -> DType:
    """Promote two dtypes of equal standing (both tensors with dims, or both scalars) as PyTorch does."""
    if a is b:
        return a
    if a.category > b.category:
        a, b = b, a
    if a.category is not b.category:
        if b.is_complex and a.is_float:
            return {float64: complex128, float16: b, bfloat16: promote(complex64, b)}.get(a, promote(complex64, b))
        return b
    if a.is_int:
        if not a.signed and not b.signed:
            return a if a.size > b.size else b
        if a.signed != b.signed:
            wide, narrow = (a, b) if a.size > b.size else (b, a)
            if wide.signed and wide.size > narrow.size:
                return wide
            unsigned = a if not a.signed else b
            return {1: int16, 2: int32, 4: int64, 8: int64}[unsigned.size]
        return a if a.size > b.size else b
    if a.size == b.size:
        return float32 if a.is_float else a
    return a if a.size > b.size else b
