"""Scalar ops as TOSA has them: what each op of `arith` and `math` is on whole tensors.

Three tables: ops that have a twin, ops that need an attribute or another type on the way, and ops that TOSA lacks,
which are written as formulas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects.builtin import IntegerType, i1, i32
from xdsl.ir import Attribute, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects import tosa
from flambeau.ir.comparisons import CMPI, OF_CMPF, OF_CMPI
from flambeau.ir.conversion import RuleTable
from flambeau.lowering.element import Element
from flambeau.lowering.tosa.constants import array_of
from flambeau.lowering.tosa.magnitude import magnitude
from flambeau.lowering.whole.values import element_of

if TYPE_CHECKING:
    from flambeau.lowering.tosa.ops import TosaOps

SAME: dict[str, str] = {
    "arith.subf": "sub", "arith.maximumf": "maximum", "arith.minimumf": "minimum",
    "math.absf": "abs", "math.floor": "floor", "math.ceil": "ceil", "math.exp": "exp", "math.log": "log",
    "math.sin": "sin", "math.cos": "cos", "math.tanh": "tanh", "math.erf": "erf", "math.powf": "pow",
    "arith.select": "select",
}  # fmt: skip
"""Ops that have a twin."""

INTEGER: dict[str, str] = {
    "arith.addi": "add", "arith.subi": "sub", "arith.muli": "mul", "arith.divsi": "intdiv", "arith.maxsi": "maximum",
    "arith.minsi": "minimum", "arith.andi": "bitwise_and", "arith.ori": "bitwise_or", "arith.xori": "bitwise_xor",
    "arith.shli": "logical_left_shift", "math.absi": "abs", "math.ctlz": "clz",
}  # fmt: skip
"""Ops on integers; narrow ones are computed in 32 bits, which TOSA has all of them for."""

UNSIGNED: dict[str, str] = {
    "arith.divui": "intdiv", "arith.maxui": "maximum", "arith.minui": "minimum", "arith.shrui": "logical_right_shift",
}  # fmt: skip
"""Ops on integers without a sign, which are computed in 32 bits with zeros in front."""

BOOLEAN: dict[str, str] = {
    "arith.andi": "logical_and", "arith.ori": "logical_or", "arith.xori": "logical_xor", "arith.muli": "logical_and",
    "arith.maxui": "logical_or", "arith.minui": "logical_and", "arith.addi": "logical_xor", "arith.subi": "logical_xor",
}  # fmt: skip
"""Ops on booleans."""

CONVERSIONS = frozenset({"arith.extsi", "arith.sitofp", "arith.extf", "arith.truncf", "arith.index_cast"})

rule = RULES = RuleTable("scalars in TOSA")
formula = FORMULAS = RuleTable("formulas for TOSA")
"""Ops that TOSA lacks, by what they are in terms of others."""


def width_of(element: Attribute) -> int:
    return element.width.data if isinstance(element, IntegerType) else 0


def translate(t: TosaOps, name: str, operands: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    """Translate an op of `arith` or `math` to TOSA; `element` is the type of its result as PyTorch means it."""
    held = t.held(element)
    own = element_of(operands[-1])
    if own == i1 and name in BOOLEAN:
        return t.on(BOOLEAN[name], operands, i1)
    if name in SAME:
        return t.on(SAME[name], operands, held)
    if name in CONVERSIONS:
        return t.convert(operands[0], held)
    if found := RULES.get(name):
        return found(t, operands, element, properties)
    if name in INTEGER:
        return integer(t, INTEGER[name], [wide(t, o) for o in operands], held)
    if name in UNSIGNED:
        return integer(t, UNSIGNED[name], [wide_unsigned(t, o) for o in operands], held)
    if by_others := FORMULAS.get(name):
        dtype = t.b.dtype_of(element)
        with t.b.frame(t.joint_sizes(operands)):
            return t.spread_lazily(by_others(*(Element(t.b, o, dtype) for o in operands)).value)
    if name.startswith("complex."):
        raise Unsupported("TOSA has no complex numbers")
    raise Unsupported(f"TOSA has no twin of {name}")


# --- Numbers of other widths ---


def wide(t: TosaOps, x: SSAValue) -> SSAValue:
    """Sign-extend an integer to at least 32 bits."""
    return t.convert(x, i32) if width_of(element_of(x)) < 32 else x


def wide_unsigned(t: TosaOps, x: SSAValue) -> SSAValue:
    """Zero-extend an unsigned integer to at least 32 bits."""
    width = width_of(element_of(x))
    if width >= 32:
        return x
    extended = t.convert(x, i32)
    return extended if width == 1 else t.on("bitwise_and", (extended, t.number(extended, (1 << width) - 1)), i32)


def integer(t: TosaOps, name: str, operands: Sequence[SSAValue], held: Attribute) -> SSAValue:
    if name == "mul":
        return t.convert(t.product_of(*operands), held)
    return t.convert(t.on(name, operands, element_of(operands[0])), held)


@rule("arith.extui")
def extui(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    return t.convert(wide_unsigned(t, v[0]), t.held(element))


@rule("arith.uitofp")
def uitofp(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    return t.convert(wide_unsigned(t, v[0]), t.held(element))


@rule("arith.fptosi")
def fptosi(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    # A cast rounds to the nearest integer.
    whole = t.apply("math.trunc", v, element_of(v[0]), {})
    result = whole_to_integer(t, whole, width_of(element), t.held(element))
    if element != t.held(element):
        t.truncated[result] = whole
    return result


def whole_to_integer(t: TosaOps, x: SSAValue, width: int, held: Attribute) -> SSAValue:
    """Convert a whole number to an integer of a width: NaN and what is too large become the least, as on processors.

    A cast gives the nearest integer for numbers that are out of range, and for NaN any.
    """
    inside = t.on("greater", (t.number(x, 2.0 ** (width - 1)), x), i1)
    result = t.convert(x, held)
    least = t.number(result, -(1 << (width_of(held) - 1)))
    return t.on("select", (inside, result, least), held)


@rule("arith.trunci")
def trunci(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    source, held = t.truncated.get(v[0]), t.held(element)
    if source is not None and width_of(held) < 32:
        # The low bits of a float from 2^31 on are zeros; those of the nearest integer of 32 bits are not.
        return t.convert(whole_to_integer(t, source, 32, i32), held)
    return t.convert(v[0], held)


@rule("arith.remui")
def remui(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    x, y = (wide_unsigned(t, o) for o in v)
    return t.convert(remainder(t, x, y), t.held(element))


@rule("arith.remsi")
def remsi(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    x, y = (wide(t, o) for o in v)
    return t.convert(remainder(t, x, y), t.held(element))


def remainder(t: TosaOps, x: SSAValue, y: SSAValue) -> SSAValue:
    element = element_of(x)
    whole = t.product_of(t.on("intdiv", (x, y), element), y)
    return t.on("sub", (x, whole), element)


@rule("arith.floordivsi")
def floordiv(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    x, y = (wide(t, o) for o in v)
    own = element_of(x)
    quotient = t.on("intdiv", (x, y), own)
    rest = t.on("sub", (x, t.product_of(quotient, y)), own)
    zero = t.number(x, 0)
    signs = t.on("logical_xor", (t.on("greater", (zero, rest), i1), t.on("greater", (zero, y), i1)), i1)
    exact = t.on("equal", (rest, zero), i1)
    lower = t.on("logical_and", (signs, t.on("logical_not", (exact,), i1)), i1)
    smaller = t.on("sub", (quotient, t.number(x, 1)), own)
    return t.convert(t.on("select", (lower, smaller, quotient), own), t.held(element))


@rule("arith.ceildivsi")
def ceildiv(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    x = wide(t, v[0])
    negative = t.on("sub", (t.number(x, 0), x), element_of(x))
    down = floordiv(t, (negative, v[1]), element, properties)
    return t.on("sub", (t.number(down, 0), down), element_of(down))


@rule("arith.shrsi")
def shrsi(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    x, by = (wide(t, o) for o in v)
    own = element_of(x)
    # An integer that is narrower than PyTorch's is shifted no further than its own width.
    by = t.on("minimum", (by, t.number(by, width_of(own) - 1)), own)
    shifted = t.on("arithmetic_right_shift", (x, by), own, {"round": tosa.flag(False)})
    return t.convert(shifted, t.held(element))


@rule("arith.bitcast")
def bitcast(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    if element_of(v[0]) != t.held(element):
        raise Unsupported("TOSA has no op that reads the bits of a number as another type")
    return v[0]


# --- Comparisons ---


def compare(t: TosaOps, kind: str, x: SSAValue, y: SSAValue) -> SSAValue:
    if kind in ("lt", "le"):
        kind, x, y = {"lt": "gt", "le": "ge"}[kind], y, x
    if kind == "ne":
        return t.on("logical_not", (t.on("equal", (x, y), i1),), i1)
    return t.on({"eq": "equal", "gt": "greater", "ge": "greater_equal"}[kind], (x, y), i1)


@rule("arith.cmpf")
def cmpf(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    kind = OF_CMPF[properties["predicate"].value.data]
    if kind != "uno":
        return compare(t, kind, *v)
    unordered = [compare(t, "ne", o, o) for o in v]
    return unordered[0] if v[0] is v[1] else t.on("logical_or", unordered, i1)


@rule("arith.cmpi")
def cmpi(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    predicate = properties["predicate"].value.data
    kind = OF_CMPI[predicate]
    x, y = v
    if element_of(x) == i1 and kind in ("eq", "ne"):
        differs = t.on("logical_xor", v, i1)
        return differs if kind == "ne" else t.on("logical_not", (differs,), i1)
    if predicate < CMPI["ult"]:
        return compare(t, kind, wide(t, x), wide(t, y))
    if width_of(element_of(x)) < 32:
        return compare(t, kind, wide_unsigned(t, x), wide_unsigned(t, y))
    own = element_of(x)
    lowest = t.number(x, -(1 << (width_of(own) - 1)))
    return compare(t, kind, t.on("bitwise_xor", (x, lowest), own), t.on("bitwise_xor", (y, lowest), own))


# --- Floats ---

LARGEST_DIVISOR = 2.0**126
"""TOSA divides by reciprocals, and those of larger numbers are so small that engines take them for zero."""


def is_zero(x: SSAValue, most: float = math.inf) -> bool:
    """Tell whether a value is known to be 0.0 everywhere and has at most `most` elements."""
    known = array_of(x)
    return known is not None and 0 < known.size <= most and not known.any() and not np.signbit(known).any()


@rule("arith.addf")
def addf(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    for x, y in (v, v[::-1]):
        if is_zero(y, 1):
            # Compilers take a sum with zero for the other number, also for -0.0.
            return t.on("select", (t.on("equal", (x, y), i1), y, x), t.held(element))
    return t.on("add", v, t.held(element))


@rule("arith.mulf")
def mulf(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    for x, y in (v, v[::-1]):
        if is_zero(y):
            return nothing_of(t, x if is_zero(y, 1) else t.product_of(x, t.ones_like(y)))
    return t.product_of(*v)


def nothing_of(t: TosaOps, x: SSAValue) -> SSAValue:
    """Compute 0 * x with x's sign, and NaN for infinities and NaN: compilers fold the product itself to zero."""
    own = element_of(x)
    signed = t.on("ceil", (t.on("maximum", (x, t.number(x, -0.5)), own),), own)
    return t.on("minimum", (t.on("sub", (x, x), own), signed), own)


@rule("arith.negf")
def negf(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    zero = t.zero_point(element_of(v[0]))
    return t.on("negate", (v[0], zero, zero), t.held(element), like=1)


@rule("arith.divf")
def divf(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    x, y = v
    known = array_of(x)
    small = known is not None and (not known.size or np.abs(known).max() <= 1)
    if not small and not magnitude(y) <= LARGEST_DIVISOR:
        # A quarter of both is the same quotient.
        large = t.on("greater", (t.on("abs", (y,), element_of(y)), t.number(y, LARGEST_DIVISOR)), i1)
        scale = t.on("select", (large, t.number(y, 0.25), t.number(y, 1.0)), element_of(y))
        x, y = t.product_of(x, scale), t.product_of(y, scale)
    inverse = t.reciprocal(y)
    if known is not None and known.size == 1 and known.item() == 1:
        return inverse
    return mulf(t, (x, inverse), element, properties)


@rule("math.sqrt")
def sqrt(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    return t.reciprocal(t.on("rsqrt", v, t.held(element)))


@rule("math.roundeven")
def roundeven(t: TosaOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    # A cast to integers rounds half to even. What it gives for large numbers, and the sign of a zero, is put right by
    # the whole numbers around.
    x, held = v[0], t.held(element)
    rounded = t.convert(t.convert(x, i32), held)
    rounded = t.on("maximum", (rounded, t.on("floor", (x,), held)), held)
    return t.on("minimum", (rounded, t.on("ceil", (x,), held)), held)


@formula("math.trunc")
def trunc(x: Element) -> Element:
    return (x < 0).select(x.ceil(), x.floor())


@formula("math.tan")
def tan(x: Element) -> Element:
    return x.sin() / x.cos()


@formula("math.exp2")
def exp2(x: Element) -> Element:
    return x.like(2).pow(x)


@formula("math.log2")
def log2(x: Element) -> Element:
    return x.log() * (1 / math.log(2))


@formula("math.expm1")
def expm1(x: Element) -> Element:
    # (e^x - 1) = tanh(x/2) (e^x + 1) subtracts nothing.
    return (x * 0.5).tanh() * (x.exp() + 1)


@formula("math.log1p")
def log1p(x: Element) -> Element:
    # What is lost in 1 + x is lost in the logarithm and in the difference alike.
    whole = x + 1
    lost = whole - 1
    nothing = lost == 0
    ratio = (nothing | (x > 2.0**25)).select(1, x * (1 / lost))
    return nothing.select(x, whole.log() * ratio)


@formula("math.copysign")
def copysign(x: Element, y: Element) -> Element:
    # The inverse of a negative zero is below zero.
    negative = (y < 0) | (1 / y < 0)
    size = abs(x)
    return negative.select(-size, size)


@formula("math.atan")
def atan(x: Element) -> Element:
    """Compute atan by folding to [-tan(pi/8), tan(pi/8)], then a polynomial."""
    size = abs(x)
    large, middle = size > 2.414213562373095, size > 0.4142135623730950
    folded = large.select(-1 / size, middle.select((size - 1) * (1 / (size + 1)), size))
    start = large.select(size.like(math.pi / 2), middle.select(size.like(math.pi / 4), size.like(0)))
    square = folded * folded
    series = size.like(8.05374449538e-2)
    for factor in (-1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1):
        series = series * square + factor
    angle = start + (series * square * folded + folded)
    return (x == 0).select(x, (x < 0).select(-angle, angle))  # which keeps the sign of a zero


@formula("math.atan2")
def atan2(y: Element, x: Element) -> Element:
    angle = atan(y / x)
    other = (y < 0).select(angle - math.pi, angle + math.pi)
    return (x < 0).select(other, angle)


@formula("arith.remf")
def remf(x: Element, y: Element) -> Element:
    """Compute x - trunc(x / y) * y; a quotient off by one is corrected so that the rest is in [0, |y|)."""
    size, by = abs(x), abs(y)
    rest = size - (size / by).floor() * by
    rest = (rest < 0).select(rest + by, rest)
    rest = (rest >= by).select(rest - by, rest)
    return (size < by).select(x, (x < 0).select(-rest, rest))


@formula("math.ctpop")
def ctpop(x: Element) -> Element:
    """Count the ones among 32 bits, by adding up pairs, then fours, then bytes."""
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) >> 24) & 0xFF
