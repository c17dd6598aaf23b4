"""Scalar arithmetic with PyTorch's meaning: what the body of an elementwise op is written with.

An `Element` is one number in the IR together with its PyTorch dtype. Python's operators and the methods below emit
`arith`, `math` and `complex` ops; Python numbers take the dtype of the element that they meet.
"""

from __future__ import annotations

import math as pymath
from typing import Any

from xdsl.dialects import arith, complex, math
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Operation, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import LoweringBuilder

_FAST = {"fastmath": arith.FastMathFlagsAttr("none")}
_FLAGS = {"overflowFlags": arith.IntegerOverflowAttr("none")}
_NONE: dict[str, Any] = {}

Operand = Any
"""An Element or a Python number."""

_CMPI = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5}
_CMPF = {"eq": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5, "ne": 13, "uno": 14}
_PREDICATE = {i: {"predicate": IntegerAttr(i, i64)} for i in range(16)}
_PREDICATE_F = {i: {"predicate": IntegerAttr(i, i64), **_FAST} for i in range(16)}

_SIMPLE: dict[str, tuple[type[Operation], dict[str, Any], type[Operation] | None]] = {
    "add": (arith.AddfOp, _FAST, complex.AddOp),
    "sub": (arith.SubfOp, _FAST, complex.SubOp),
    "mul": (arith.MulfOp, _FAST, complex.MulOp),
    "div": (arith.DivfOp, _FAST, complex.DivOp),
}
_SIMPLE_INT: dict[str, tuple[type[Operation], dict[str, Any]]] = {
    "add": (arith.AddiOp, _FLAGS),
    "sub": (arith.SubiOp, _FLAGS),
    "mul": (arith.MuliOp, _FLAGS),
}
_BOOL_OPS: dict[str, type[Operation]] = {"add": arith.OrIOp, "mul": arith.AndIOp, "sub": arith.XOrIOp}


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
        """Another operand in this element's dtype."""
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

    def _unary(self, op: type[Operation], complex_op: type[Operation] | None = None) -> Element:
        if self.dtype.is_complex:
            if complex_op is None:
                raise Unsupported(f"{op.name} of {self.dtype}")
            return self.emit(complex_op, (self,), properties=_FAST)
        if not self.dtype.is_float:
            raise Unsupported(f"{op.name} of {self.dtype}")
        return self.emit(op, (self,), properties=_FAST)

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
        """The same bits, read as a dtype of the same width."""
        return self.emit(arith.BitcastOp, (self,), dtype)

    # --- Complex numbers ---

    @property
    def real(self) -> Element:
        return self.emit(complex.ReOp, (self,), self.dtype.real, _FAST) if self.dtype.is_complex else self

    @property
    def imag(self) -> Element:
        return self.emit(complex.ImOp, (self,), self.dtype.real, _FAST) if self.dtype.is_complex else self.like(0)

    def with_imag(self, imag: Element, dtype: DType) -> Element:
        """The complex number with this real part."""
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
        """Division; floats only (PyTorch has promoted integers by then)."""
        return self._binary("div", other)

    def __rtruediv__(self, other: Operand) -> Element:
        return self.like(other)._binary("div", self)

    def __neg__(self) -> Element:
        if self.dtype.is_complex:
            return self.emit(complex.NegOp, (self,), properties=_FAST)
        if self.dtype.is_float:
            return self.emit(arith.NegfOp, (self,), properties=_FAST)
        return self.like(0) - self

    def trunc_divide(self, other: Operand) -> Element:
        """Division rounded towards zero."""
        other = self.like(other)
        if self.dtype.is_float:
            return (self / other).trunc()
        return self._integer_quotient(other, arith.DivSIOp)

    def floor_divide(self, other: Operand) -> Element:
        """Division rounded down; for floats exactly as PyTorch computes it, through the remainder."""
        other = self.like(other)
        if not self.dtype.is_float:
            return self._integer_quotient(other, arith.FloorDivSIOp)
        rest = self.fmod(other)
        quotient = (self - rest) / other
        quotient = ((rest != 0) & ((other < 0) ^ (rest < 0))).select(quotient - 1, quotient)
        rounded = quotient.floor()
        rounded = (quotient - rounded > 0.5).select(rounded + 1, rounded)
        exact = (quotient != 0).select(rounded, (self / other).like(0).copysign(self / other))
        return (other == 0).select(self / other, exact)

    def fmod(self, other: Operand) -> Element:
        """The remainder with the sign of the dividend."""
        from flambeau.dialects.builtin_ext import RemFOp

        other = self.like(other)
        if self.dtype.is_float:
            return self.emit(RemFOp, (self, other), properties=_FAST)
        # A divisor of 1 leaves the rest that -1 leaves.
        return self.emit(arith.RemSIOp if self.dtype.signed else arith.RemUIOp, (self, other._safe_divisor()))

    def _integer_quotient(self, other: Element, signed_op: type[Operation]) -> Element:
        """A quotient of integers that traps for no operands; -1 wraps the least integer around, as in PyTorch."""
        safe = other._safe_divisor()
        if not self.dtype.signed:
            return self.emit(arith.DivUIOp, (self, safe))
        quotient = self.emit(signed_op, (self, safe))
        return quotient if safe is other else (other == -1).select(-self, quotient)

    def _safe_divisor(self) -> Element:
        """This integer, or 1 in the place of 0 and -1, by which processors cannot divide every number.

        That a divisor is not zero is for the rule to guard; the guard may run after this loop.
        """
        number = self._constant()
        if number is not None and number not in (0, -1):
            return self
        unsafe = self == 0
        if self.dtype.signed:
            unsafe = unsafe | (self == -1)
        return unsafe.select(self.like(1), self)

    def _constant(self) -> int | None:
        """The integer that this is known to be."""
        owner = self.value.owner
        attr = owner.properties["value"] if isinstance(owner, arith.ConstantOp) else None
        return attr.value.data if isinstance(attr, IntegerAttr) else None

    def remainder(self, other: Operand) -> Element:
        """The remainder with the sign of the divisor, Python's `%`."""
        other = self.like(other)
        rest = self.fmod(other)
        if not self.dtype.is_float and not self.dtype.signed:
            return rest
        wrong_sign = (rest != 0) & ((other < 0) ^ (rest < 0))
        return wrong_sign.select(rest + other, rest)

    def maximum(self, other: Operand) -> Element:
        """The greater one; NaN if either is NaN."""
        return self._extreme(other, arith.MaximumfOp, arith.MaxSIOp, arith.MaxUIOp)

    def minimum(self, other: Operand) -> Element:
        """The lesser one; NaN if either is NaN."""
        return self._extreme(other, arith.MinimumfOp, arith.MinSIOp, arith.MinUIOp)

    def _extreme(
        self, other: Operand, of_floats: type[Operation], of_signed: type[Operation], of_unsigned: type[Operation]
    ) -> Element:
        if self.dtype.is_complex:
            raise Unsupported("complex numbers have no order")
        other = self.like(other)
        if self.dtype.is_float:
            return self.emit(of_floats, (self, other), properties=_FAST)
        return self.emit(of_signed if self.dtype.signed else of_unsigned, (self, other))

    def pow(self, other: Operand) -> Element:
        """Power; small constant exponents become products, as in PyTorch."""
        if isinstance(other, (int, float)) and not isinstance(other, bool):
            if other == 0.5 and self.dtype.is_float:
                return self.sqrt()
            if other == -0.5 and self.dtype.is_float:
                return 1 / self.sqrt()
            if float(other).is_integer() and 0 <= other <= (3 if not self.dtype.is_integral else pymath.inf):
                return self._power(int(other))
            if other in (-1, -2) and self.dtype.is_float:
                return 1 / self._power(int(-other))
        other = self.like(other)
        if self.dtype.is_complex:
            return self._complex_pow(other)
        if self.dtype.is_float:
            return self._float_pow(other)
        return self._integer_pow(other)

    def _complex_pow(self, exponent: Element) -> Element:
        """A power of zero is zero, or infinite, or nothing at all, by the sign of the exponent's real part."""
        power = self.emit(complex.PowOp, (self, exponent), properties=_FAST)
        real, nan = exponent.real, exponent.real.like(pymath.nan)
        infinite = real.like(pymath.inf).with_imag(nan, self.dtype)
        of_zero = (real > 0).select(self.like(0), (real < 0).select(infinite, nan.with_imag(nan, self.dtype)))
        return (self == 0).select(of_zero, power)

    def _float_pow(self, exponent: Element) -> Element:
        """Engines compute powers through logarithms, so the sign of a negative base is put back here."""
        base = abs(self)
        size = base.emit(math.PowFOp, (base, exponent), properties=_FAST)
        size = ((exponent == 0) | (base == 1)).select(1, (exponent == 1).select(base, size))
        is_whole = exponent.trunc() == exponent
        signed = (is_whole & exponent.is_odd()).select(size.copysign(self), size)
        return ((self < 0) & ~self.isinf() & ~is_whole).select(float("nan"), signed)

    def _power(self, exponent: int) -> Element:
        result: Element | None = None
        base = self
        while exponent:
            if exponent & 1:
                result = base if result is None else result * base
            exponent >>= 1
            if exponent:
                base = base * base
        return result if result is not None else self.like(1)

    def _integer_pow(self, exponent: Element) -> Element:
        """Square and multiply over the exponent's bits; a negative exponent gives 0 but for bases 1 and -1."""
        result, base = self.like(1), self
        for bit in range(self.dtype.bits - self.dtype.signed):
            is_set = (exponent >> bit) & 1
            result = (is_set != 0).select(result * base, result)
            base = base * base
        if not self.dtype.signed:
            return result
        odd = (exponent & 1) != 0
        of_negative = (self == 1).select(self.like(1), (self == -1).select(odd.select(self.like(-1), self.like(1)), 0))
        return (exponent < 0).select(of_negative, result)

    # --- Comparisons ---

    def _compare(self, name: str, other: Operand) -> Element:
        other = self.like(other)
        if self.dtype.is_complex:
            op = {"eq": complex.EqualOp, "ne": complex.NotEqualOp}.get(name)
            if op is None:
                raise Unsupported(f"complex numbers have no order ({name})")
            return self.emit(op, (self, other), dtypes.bool_)
        if self.dtype.is_float:
            properties = _PREDICATE_F[_CMPF[name]]
            return self.emit(arith.CmpfOp, (self, other), dtypes.bool_, properties)
        predicate = _CMPI[name]
        if not self.dtype.signed and predicate >= 2:
            predicate += 4
        return self.emit(arith.CmpiOp, (self, other), dtypes.bool_, _PREDICATE[predicate])

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
        return self.emit(arith.CmpfOp, (self, self), dtypes.bool_, _PREDICATE_F[_CMPF["uno"]])

    def isinf(self) -> Element:
        if not self.dtype.is_float:
            return Element(self.b, self.b.constant(False, dtypes.bool_), dtypes.bool_)
        return abs(self) == float("inf")

    def select(self, a: Operand, b: Operand) -> Element:
        """`a` where this (a bool) is true, else `b`."""
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
            return self.emit(math.AbsFOp, (self,), properties=_FAST)
        return self if not self.dtype.signed else self.emit(math.AbsIOp, (self,))

    def sign(self) -> Element:
        if self.dtype.is_bool:
            return self
        if not self.dtype.signed:
            return (self != 0).to(self.dtype)
        result = (self > 0).to(self.dtype) - (self < 0).to(self.dtype)
        return result

    def copysign(self, other: Operand) -> Element:
        return self.emit(math.CopySignOp, (self, self.like(other)), properties=_FAST)

    def floor(self) -> Element:
        return self if self.dtype.is_integral else self._unary(math.FloorOp)

    def ceil(self) -> Element:
        return self if self.dtype.is_integral else self._unary(math.CeilOp)

    def trunc(self) -> Element:
        return self if self.dtype.is_integral else self._unary(math.TruncOp)

    def round(self) -> Element:
        """Round half to even."""
        return self if self.dtype.is_integral else self._unary(math.RoundEvenOp)

    def sqrt(self) -> Element:
        return self._unary(math.SqrtOp, complex.SqrtOp)

    def rsqrt(self) -> Element:
        return 1 / self.sqrt()

    def exp(self) -> Element:
        return self._unary(math.ExpOp, complex.ExpOp)

    def exp2(self) -> Element:
        return self._unary(math.Exp2Op)

    def expm1(self) -> Element:
        return self._unary(math.ExpM1Op, complex.Expm1Op)

    def log(self) -> Element:
        return self._unary(math.LogOp, complex.LogOp)

    def log2(self) -> Element:
        return self._unary(math.Log2Op)

    def log10(self) -> Element:
        # math.log10 does not reach a symbol that links everywhere.
        return self.log() * (1 / pymath.log(10))

    def log1p(self) -> Element:
        return self._unary(math.Log1pOp, complex.Log1pOp)

    def sin(self) -> Element:
        return self._unary(math.SinOp, complex.SinOp)

    def cos(self) -> Element:
        return self._unary(math.CosOp, complex.CosOp)

    def tan(self) -> Element:
        return self._unary(math.TanOp, complex.TanOp)

    def is_odd(self) -> Element:
        """Whether a whole number is odd."""
        half = self * 0.5
        return half.floor() != half

    def tanh(self) -> Element:
        return self._unary(math.TanhOp, complex.TanhOp)

    def atan(self) -> Element:
        return self._unary(math.AtanOp)

    def atan2(self, other: Operand) -> Element:
        """The angle of a point; engines divide, so that two zeros and two infinities are put right here."""
        y, x = self, self.like(other)
        infinite = y.isinf() & x.isinf()
        y, x = infinite.select(y.like(1).copysign(y), y), infinite.select(x.like(1).copysign(x), x)
        angle = y.emit(math.Atan2Op, (y, x), properties=_FAST)
        at_origin = (x.like(1).copysign(x) < 0).select(pymath.pi, x.like(0))
        return abs(((y == 0) & (x == 0)).select(at_origin, angle)).copysign(y)

    def asin(self) -> Element:
        return self.atan2(((1 - self) * (1 + self)).sqrt())

    def acos(self) -> Element:
        return ((1 - self) * (1 + self)).sqrt().atan2(self)

    def erf(self) -> Element:
        return self._unary(math.ErfOp)

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
