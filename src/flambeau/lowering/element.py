"""Scalar arithmetic with PyTorch's meaning: what the body of an elementwise op is written with.

An `Element` is one number in the IR together with its PyTorch dtype. Python's operators and the methods below emit
`arith`, `math` and `complex` ops; Python numbers take the dtype of the element that they meet.
"""

from __future__ import annotations

import math as pymath
from collections.abc import Callable
from typing import Any

from xdsl.dialects import arith, complex, math
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Operation, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.ir.comparisons import CMPF, SIGNED, UNSIGNED
from flambeau.ir.dtypes import DType
from flambeau.lowering import arithmetic
from flambeau.lowering.arithmetic import FAST, Operand
from flambeau.lowering.builder import CMP_PROPERTIES, LoweringBuilder

_FLAGS = {"overflowFlags": arith.IntegerOverflowAttr("none")}
_NONE: dict[str, Any] = {}

_CMPF_PROPERTIES = {name: {"predicate": IntegerAttr(code, i64), **FAST} for name, code in CMPF.items()}

_SIMPLE: dict[str, tuple[type[Operation], dict[str, Any], type[Operation] | None]] = {
    "add": (arith.AddfOp, FAST, complex.AddOp),
    "sub": (arith.SubfOp, FAST, complex.SubOp),
    "mul": (arith.MulfOp, FAST, complex.MulOp),
    "div": (arith.DivfOp, FAST, complex.DivOp),
}
_SIMPLE_INT: dict[str, tuple[type[Operation], dict[str, Any]]] = {
    "add": (arith.AddiOp, _FLAGS),
    "sub": (arith.SubiOp, _FLAGS),
    "mul": (arith.MuliOp, _FLAGS),
}
_BOOL_OPS: dict[str, type[Operation]] = {"add": arith.OrIOp, "mul": arith.AndIOp, "sub": arith.XOrIOp}


def _function(op: type[Operation], complex_op: type[Operation] | None = None) -> Callable[[Element], Element]:
    """Make a method that applies an op of `math`, or of `complex` where there is one for complex numbers."""

    def apply(x: Element) -> Element:
        found = complex_op if x.dtype.is_complex else op if x.dtype.is_float else None
        if found is None:
            raise Unsupported(f"{op.name} of {x.dtype}")
        return x.emit(found, (x,), properties=FAST)

    return apply


def _rounding(op: type[Operation]) -> Callable[[Element], Element]:
    """Make a method that rounds floats, and leaves integers as they are."""
    function = _function(op)
    return lambda x: x if x.dtype.is_integral else function(x)


def is_number(operand: Any, number: float) -> bool:
    """Tell whether an operand is this number for certain; False for one that is known only at run time."""
    return not isinstance(operand, (Element, SSAValue)) and bool(operand == number)


class Element:
    """A scalar value of the IR."""

    __slots__ = ("b", "dtype", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, b: LoweringBuilder, value: SSAValue, dtype: DType) -> None:
        self.b = b
        self.value = value
        self.dtype = dtype

    # --- Plumbing ---

    def like(self, other: Operand) -> Element:
        """Convert another operand to this element's dtype."""
        if isinstance(other, Element):
            return other.to(self.dtype)
        return Element(self.b, self.b.constant(other, self.dtype), self.dtype)

    def emit(
        self,
        op: type[Operation],
        operands: tuple[Element, ...],
        dtype: DType | None = None,
        properties: dict[str, Any] = _NONE,
    ) -> Element:
        """Append an op on elements; the result has `dtype`, by default this element's."""
        dtype = dtype or self.dtype
        value = self.b.value(op, [o.value for o in operands], dtype.builtin, properties)
        return Element(self.b, value, dtype)

    def _binary(self, name: str, other: Operand, swap: bool = False) -> Element:
        a, b = self, self.like(other)
        if swap:
            a, b = b, a
        d = self.dtype
        if d.is_bool:
            return self.emit(_BOOL_OPS[name], (a, b))
        if d.is_int:
            op, properties = _SIMPLE_INT[name]
            return self.emit(op, (a, b), properties=properties)
        float_op, properties, complex_op = _SIMPLE[name]
        return self.emit(complex_op if d.is_complex and complex_op else float_op, (a, b), properties=properties)

    # --- Conversions ---

    def to(self, dtype: DType) -> Element:
        """Convert as PyTorch does."""
        source = self.dtype
        if source is dtype:
            return self
        if source.is_complex:
            if dtype.is_complex:
                return self.real.to(dtype.real).with_imag(self.imag.to(dtype.real), dtype)
            if dtype.is_bool:
                return (self.real != 0) | (self.imag != 0)
            return self.real.to(dtype)
        if dtype.is_complex:
            part = self.to(dtype.real)
            return part.with_imag(part.like(0), dtype)
        if dtype.is_bool:
            return self != 0
        if dtype.is_int:
            return self._float_to_int(dtype) if source.is_float else self._int_to_int(dtype)
        if dtypes.float32 not in (source, dtype) and (dtype.size < 4 or (source.is_float and source.size < 4)):
            # PyTorch's narrow floats are made of and read as f32, so that f64 and integers are rounded twice.
            return self.to(dtypes.float32).to(dtype)
        if source.is_float:
            limit = dtype.saturates_at
            within = self if limit is None else self.maximum(-limit).minimum(limit)
            return self.emit(arith.ExtFOp if dtype.size > source.size else arith.TruncFOp, (within,), dtype)
        return self.emit(arith.SIToFPOp if source.signed else arith.UIToFPOp, (self,), dtype)

    def _int_to_int(self, dtype: DType) -> Element:
        if dtype.bits == self.dtype.bits:
            return Element(self.b, self.value, dtype)
        if dtype.bits < self.dtype.bits:
            return self.emit(arith.TruncIOp, (self,), dtype)
        return self.emit(arith.ExtSIOp if self.dtype.signed else arith.ExtUIOp, (self,), dtype)

    def _float_to_int(self, dtype: DType) -> Element:
        # PyTorch goes through int64 for unsigned and a wider int for narrow types, so that values wrap around.
        wide = dtype if dtype in (dtypes.int32, dtypes.int64) else dtypes.int64 if not dtype.signed else dtypes.int32
        source = self.to(self.dtype.compute)
        result = source.emit(arith.FPToSIOp, (source,), wide)
        if wide is dtypes.int32:
            # NaN and what does not fit are the least integer, as on most processors; compilers that fold may say 0.
            result = (abs(source) < 2.0**31).select(result, -(1 << 31))
        return result._int_to_int(dtype)

    def bits(self, dtype: DType) -> Element:
        """Reinterpret the bits as a dtype of the same width."""
        return self.emit(arith.BitcastOp, (self,), dtype)

    # --- Complex numbers ---

    @property
    def real(self) -> Element:
        return self.emit(complex.ReOp, (self,), self.dtype.real, FAST) if self.dtype.is_complex else self

    @property
    def imag(self) -> Element:
        return self.emit(complex.ImOp, (self,), self.dtype.real, FAST) if self.dtype.is_complex else self.like(0)

    def with_imag(self, imag: Element, dtype: DType) -> Element:
        """Make the complex number with this real part."""
        return self.emit(complex.CreateOp, (self, imag), dtype)

    # --- Arithmetic ---

    def __add__(self, other: Operand) -> Element:
        return self._binary("add", other)

    def __radd__(self, other: Operand) -> Element:
        return self._binary("add", other, swap=True)

    def __sub__(self, other: Operand) -> Element:
        return self._binary("sub", other)

    def __rsub__(self, other: Operand) -> Element:
        return self._binary("sub", other, swap=True)

    def __mul__(self, other: Operand) -> Element:
        if isinstance(other, (int, float)) and other == 1:
            return self
        return self._binary("mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Element:
        """Divide floats or complex numbers (PyTorch has promoted integers by then)."""
        return self._binary("div", other)

    def __rtruediv__(self, other: Operand) -> Element:
        return self.like(other)._binary("div", self)

    def __neg__(self) -> Element:
        if self.dtype.is_complex:
            return self.emit(complex.NegOp, (self,), properties=FAST)
        if self.dtype.is_float:
            return self.emit(arith.NegfOp, (self,), properties=FAST)
        return self.like(0) - self

    trunc_divide = arithmetic.trunc_divide
    floor_divide = arithmetic.floor_divide
    fmod = arithmetic.fmod
    remainder = arithmetic.remainder
    pow = arithmetic.power

    def maximum(self, other: Operand) -> Element:
        """Return the greater one; NaN if either is NaN."""
        return self._extreme(other, arith.MaximumfOp, arith.MaxSIOp, arith.MaxUIOp)

    def minimum(self, other: Operand) -> Element:
        """Return the lesser one; NaN if either is NaN."""
        return self._extreme(other, arith.MinimumfOp, arith.MinSIOp, arith.MinUIOp)

    def _extreme(
        self, other: Operand, of_floats: type[Operation], of_signed: type[Operation], of_unsigned: type[Operation]
    ) -> Element:
        if self.dtype.is_complex:
            raise Unsupported("complex numbers have no order")
        other = self.like(other)
        if self.dtype.is_float:
            return self.emit(of_floats, (self, other), properties=FAST)
        return self.emit(of_signed if self.dtype.signed else of_unsigned, (self, other))

    # --- Comparisons ---

    def _compare(self, name: str, other: Operand) -> Element:
        other = self.like(other)
        if self.dtype.is_complex:
            op = {"eq": complex.EqualOp, "ne": complex.NotEqualOp}.get(name)
            if op is None:
                raise Unsupported(f"complex numbers have no order ({name})")
            return self.emit(op, (self, other), dtypes.bool_)
        if self.dtype.is_float:
            return self.emit(arith.CmpfOp, (self, other), dtypes.bool_, _CMPF_PROPERTIES[name])
        predicate = (SIGNED if self.dtype.signed else UNSIGNED)[name]
        return self.emit(arith.CmpiOp, (self, other), dtypes.bool_, CMP_PROPERTIES[predicate])

    def __bool__(self) -> bool:
        """Refuse: what a comparison gives is known at run time, and a rule cannot choose by it."""
        raise Unsupported("it is called with a number that is known only at run time, which decides how it is computed")

    def __eq__(self, other: Operand) -> Element:  # type: ignore[override]
        return self._compare("eq", other)

    def __ne__(self, other: Operand) -> Element:  # type: ignore[override]
        return self._compare("ne", other)

    def __lt__(self, other: Operand) -> Element:
        return self._compare("lt", other)

    def __le__(self, other: Operand) -> Element:
        return self._compare("le", other)

    def __gt__(self, other: Operand) -> Element:
        return self._compare("gt", other)

    def __ge__(self, other: Operand) -> Element:
        return self._compare("ge", other)

    def isnan(self) -> Element:
        if self.dtype.is_complex:
            return self.real.isnan() | self.imag.isnan()
        if not self.dtype.is_float:
            return Element(self.b, self.b.constant(False, dtypes.bool_), dtypes.bool_)
        return self.emit(arith.CmpfOp, (self, self), dtypes.bool_, _CMPF_PROPERTIES["uno"])

    def isinf(self) -> Element:
        if not self.dtype.is_float:
            return Element(self.b, self.b.constant(False, dtypes.bool_), dtypes.bool_)
        return abs(self) == float("inf")

    def select(self, a: Operand, b: Operand) -> Element:
        """Choose `a` where this (a bool) is true, else `b`."""
        if isinstance(a, Element):
            b = a.like(b)
        else:
            a = b.like(a)
        return a.emit(arith.SelectOp, (self, a, b))

    # --- Bits ---

    def _require_integer(self, op: str) -> None:
        if not self.dtype.is_integral:
            raise Unsupported(f"{op} of {self.dtype}")

    def _bitwise(self, op: type[Operation], other: Operand) -> Element:
        self._require_integer("a bitwise op")
        return self.emit(op, (self, self.like(other)))

    def __and__(self, other: Operand) -> Element:
        return self._bitwise(arith.AndIOp, other)

    def __or__(self, other: Operand) -> Element:
        return self._bitwise(arith.OrIOp, other)

    def __xor__(self, other: Operand) -> Element:
        return self._bitwise(arith.XOrIOp, other)

    def __invert__(self) -> Element:
        return self ^ (True if self.dtype.is_bool else -1)

    def __lshift__(self, other: Operand) -> Element:
        self._require_integer("a shift")
        other = self.like(other)
        shifted = self.emit(arith.ShLIOp, (self, other), properties=_FLAGS)
        return self._in_range(other).select(shifted, 0)

    def __rshift__(self, other: Operand) -> Element:
        self._require_integer("a shift")
        other = self.like(other)
        if not self.dtype.signed:
            return self._in_range(other).select(self.emit(arith.ShRUIOp, (self, other)), 0)
        # An arithmetic shift by too much leaves only the sign.
        most = self.like(self.dtype.bits - 1)
        return self.emit(arith.ShRSIOp, (self, self._in_range(other).select(other, most)))

    def _in_range(self, shift: Element) -> Element:
        ok = shift < self.dtype.bits
        return ok & (shift >= 0) if self.dtype.signed else ok

    # --- Functions ---

    def __abs__(self) -> Element:
        if self.dtype.is_complex:
            # The squares of large numbers overflow, those of small ones vanish; their ratio does neither.
            a, b = abs(self.real), abs(self.imag)
            larger = a.maximum(b)
            ratio = (a == b).select(1, a.minimum(b) / larger)
            return larger * (1 + ratio * ratio).sqrt()
        if self.dtype.is_float:
            return self.emit(math.AbsFOp, (self,), properties=FAST)
        return self if not self.dtype.signed else self.emit(math.AbsIOp, (self,))

    def sign(self) -> Element:
        if self.dtype.is_bool:
            return self
        if not self.dtype.signed:
            return (self != 0).to(self.dtype)
        result = (self > 0).to(self.dtype) - (self < 0).to(self.dtype)
        return result

    def copysign(self, other: Operand) -> Element:
        return self.emit(math.CopySignOp, (self, self.like(other)), properties=FAST)

    floor = _rounding(math.FloorOp)
    ceil = _rounding(math.CeilOp)
    trunc = _rounding(math.TruncOp)
    round = _rounding(math.RoundEvenOp)
    """Round half to even."""

    sqrt = _function(math.SqrtOp, complex.SqrtOp)
    exp = _function(math.ExpOp, complex.ExpOp)
    exp2 = _function(math.Exp2Op)
    expm1 = _function(math.ExpM1Op, complex.Expm1Op)
    log = _function(math.LogOp, complex.LogOp)
    log2 = _function(math.Log2Op)
    log1p = _function(math.Log1pOp, complex.Log1pOp)
    sin = _function(math.SinOp, complex.SinOp)
    cos = _function(math.CosOp, complex.CosOp)
    tan = _function(math.TanOp, complex.TanOp)
    tanh = _function(math.TanhOp, complex.TanhOp)
    atan = _function(math.AtanOp)
    erf = _function(math.ErfOp)

    def rsqrt(self) -> Element:
        return 1 / self.sqrt()

    def log10(self) -> Element:
        # math.log10 does not reach a symbol that links everywhere.
        return self.log() * (1 / pymath.log(10))

    def is_odd(self) -> Element:
        """Tell whether a whole number, held as a float, is odd."""
        half = self * 0.5
        return half.floor() != half

    def atan2(self, other: Operand) -> Element:
        """Compute the angle of a point; engines divide, so that two zeros and two infinities are mended here."""
        y, x = self, self.like(other)
        infinite = y.isinf() & x.isinf()
        y, x = infinite.select(y.like(1).copysign(y), y), infinite.select(x.like(1).copysign(x), x)
        angle = y.emit(math.Atan2Op, (y, x), properties=FAST)
        at_origin = (x.like(1).copysign(x) < 0).select(pymath.pi, x.like(0))
        return abs(((y == 0) & (x == 0)).select(at_origin, angle)).copysign(y)

    def asin(self) -> Element:
        return self.atan2(((1 - self) * (1 + self)).sqrt())

    def acos(self) -> Element:
        return ((1 - self) * (1 + self)).sqrt().atan2(self)

    def sinh(self) -> Element:
        # Through expm1: the plain formula loses all digits near zero.
        e = abs(self).expm1()
        halves = (abs(self) - pymath.log(2)).exp()
        small = (e + e / (e + 1)) * 0.5
        return (abs(self) > 20).select(halves, small).copysign(self)

    def cosh(self) -> Element:
        half = (abs(self) - pymath.log(2)).exp()
        return half + 0.25 / half

    def asinh(self) -> Element:
        # log1p keeps the digits near zero; beyond 1e10 the square would overflow, and log(2x) is exact.
        a = abs(self)
        small = (a + a * a / (1 + (a * a + 1).sqrt())).log1p()
        return (a > 1e10).select(a.log() + pymath.log(2), small).copysign(self)

    def acosh(self) -> Element:
        t = self - 1
        small = (t + (t * (self + 1)).sqrt()).log1p()
        inside = (self > 1e10).select(self.log() + pymath.log(2), small)
        return (self < 1).select(pymath.nan, inside)  # there the square may overflow to infinity

    def atanh(self) -> Element:
        a = abs(self)
        return ((2 * a / (1 - a)).log1p() * 0.5).copysign(self)

    def sigmoid(self) -> Element:
        return 1 / (1 + (-self).exp())
