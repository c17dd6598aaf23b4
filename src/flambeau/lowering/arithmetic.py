"""Quotients, remainders and powers of elements, with PyTorch's meaning: rounding, signs, zeros, overflow."""

from __future__ import annotations

import math as pymath
from typing import TYPE_CHECKING, Any

from xdsl.dialects import arith, complex, math
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation

from flambeau.dialects.builtin_ext import RemFOp

if TYPE_CHECKING:
    from flambeau.lowering.element import Element

FAST = {"fastmath": arith.FastMathFlagsAttr("none")}
"""The property of ops on floats which says that they mean what they say."""

Operand = Any
"""An Element or a Python number."""


def trunc_divide(x: Element, other: Operand) -> Element:
    """Divide, rounding towards zero: trunc(x / other)."""
    other = x.like(other)
    if x.dtype.is_float:
        return (x / other).trunc()
    return _integer_quotient(x, other, arith.DivSIOp)


def floor_divide(x: Element, other: Operand) -> Element:
    """Divide, rounding down: floor(x / other); for floats exactly as PyTorch computes it, through the remainder."""
    other = x.like(other)
    if not x.dtype.is_float:
        return _integer_quotient(x, other, arith.FloorDivSIOp)
    rest = x.fmod(other)
    quotient = (x - rest) / other
    quotient = ((rest != 0) & ((other < 0) ^ (rest < 0))).select(quotient - 1, quotient)
    rounded = quotient.floor()
    rounded = (quotient - rounded > 0.5).select(rounded + 1, rounded)
    exact = (quotient != 0).select(rounded, (x / other).like(0).copysign(x / other))
    return (other == 0).select(x / other, exact)


def fmod(x: Element, other: Operand) -> Element:
    """Compute x - trunc(x / other) * other, the remainder with the sign of the dividend."""
    other = x.like(other)
    if x.dtype.is_float:
        return x.emit(RemFOp, (x, other), properties=FAST)
    # A divisor of 1 leaves the rest that -1 leaves.
    return x.emit(arith.RemSIOp if x.dtype.signed else arith.RemUIOp, (x, _safe_divisor(other)))


def remainder(x: Element, other: Operand) -> Element:
    """Compute x - floor(x / other) * other, the remainder with the sign of the divisor: Python's `%`."""
    other = x.like(other)
    rest = x.fmod(other)
    if not x.dtype.is_float and not x.dtype.signed:
        return rest
    wrong_sign = (rest != 0) & ((other < 0) ^ (rest < 0))
    return wrong_sign.select(rest + other, rest)


def _integer_quotient(x: Element, other: Element, signed_op: type[Operation]) -> Element:
    """Divide integers without a trap for any operands; x / -1 is -x, which wraps the least integer as in PyTorch."""
    safe = _safe_divisor(other)
    if not x.dtype.signed:
        return x.emit(arith.DivUIOp, (x, safe))
    quotient = x.emit(signed_op, (x, safe))
    return quotient if safe is other else (other == -1).select(-x, quotient)


def _safe_divisor(x: Element) -> Element:
    """Replace the divisors 0 and -1 by 1: processors trap on x / 0 and on the least integer over -1.

    That a divisor is not zero is for the rule to guard; the guard may run after this loop.
    """
    number = _known_integer(x)
    if number is not None and number not in (0, -1):
        return x
    unsafe = x == 0
    if x.dtype.signed:
        unsafe = unsafe | (x == -1)
    return unsafe.select(x.like(1), x)


def _known_integer(x: Element) -> int | None:
    """Return the integer of a constant; None for other values."""
    owner = x.value.owner
    attr = owner.properties["value"] if isinstance(owner, arith.ConstantOp) else None
    return attr.value.data if isinstance(attr, IntegerAttr) else None


def power(x: Element, other: Operand) -> Element:
    """Raise to a power; small constant exponents become products, as in PyTorch."""
    if isinstance(other, (int, float)) and not isinstance(other, bool):
        if other == 0.5 and x.dtype.is_float:
            return x.sqrt()
        if other == -0.5 and x.dtype.is_float:
            return 1 / x.sqrt()
        if float(other).is_integer() and 0 <= other <= (3 if not x.dtype.is_integral else pymath.inf):
            return _whole_power(x, int(other))
        if other in (-1, -2) and x.dtype.is_float:
            return 1 / _whole_power(x, int(-other))
    other = x.like(other)
    if x.dtype.is_complex:
        return _complex_pow(x, other)
    if x.dtype.is_float:
        return _float_pow(x, other)
    return _integer_pow(x, other)


def _complex_pow(x: Element, exponent: Element) -> Element:
    """Raise complex numbers to a power; 0^z is 0, infinite or NaN where re(z) is positive, negative or 0."""
    power = x.emit(complex.PowOp, (x, exponent), properties=FAST)
    real, nan = exponent.real, exponent.real.like(pymath.nan)
    infinite = real.like(pymath.inf).with_imag(nan, x.dtype)
    of_zero = (real > 0).select(x.like(0), (real < 0).select(infinite, nan.with_imag(nan, x.dtype)))
    return (x == 0).select(of_zero, power)


def _float_pow(x: Element, exponent: Element) -> Element:
    """Raise |x| to a power and restore the sign: engines take logarithms. NaN for x < 0 and fractional exponents."""
    base = abs(x)
    size = base.emit(math.PowFOp, (base, exponent), properties=FAST)
    size = ((exponent == 0) | (base == 1)).select(1, (exponent == 1).select(base, size))
    is_whole = exponent.trunc() == exponent
    signed = (is_whole & exponent.is_odd()).select(size.copysign(x), size)
    return ((x < 0) & ~x.isinf() & ~is_whole).select(float("nan"), signed)


def _whole_power(x: Element, exponent: int) -> Element:
    result: Element | None = None
    base = x
    while exponent:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if exponent:
            base = base * base
    return result if result is not None else x.like(1)


def _integer_pow(x: Element, exponent: Element) -> Element:
    """Square and multiply over the exponent's bits; a negative exponent gives 0 but for bases 1 and -1."""
    result, base = x.like(1), x
    for bit in range(x.dtype.bits - x.dtype.signed):
        is_set = (exponent >> bit) & 1
        result = (is_set != 0).select(result * base, result)
        base = base * base
    if not x.dtype.signed:
        return result
    odd = (exponent & 1) != 0
    of_negative = (x == 1).select(x.like(1), (x == -1).select(odd.select(x.like(-1), x.like(1)), 0))
    return (exponent < 0).select(of_negative, result)
