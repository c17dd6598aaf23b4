"""Scalar ops as StableHLO has them: what each op of `arith`, `math` and `complex` is on whole tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import IntegerType, f32, f64, i1, i64
from xdsl.ir import Attribute, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects import stablehlo
from flambeau.ir import dtypes
from flambeau.ir.comparisons import CMPI, DIRECTIONS, OF_CMPF, OF_CMPI
from flambeau.ir.conversion import RuleTable
from flambeau.lowering.whole.values import element_of

if TYPE_CHECKING:
    from flambeau.lowering.stablehlo.ops import StablehloOps

SAME: dict[str, str] = {
    "arith.addf": "add", "arith.addi": "add", "arith.subf": "subtract", "arith.subi": "subtract",
    "arith.mulf": "multiply", "arith.muli": "multiply", "arith.divf": "divide", "arith.divsi": "divide",
    "arith.remf": "remainder", "arith.remsi": "remainder", "arith.maximumf": "maximum", "arith.maxsi": "maximum",
    "arith.minimumf": "minimum", "arith.minsi": "minimum", "arith.negf": "negate", "arith.andi": "and",
    "arith.ori": "or", "arith.xori": "xor", "arith.shli": "shift_left", "arith.shrsi": "shift_right_arithmetic",
    "arith.shrui": "shift_right_logical", "arith.select": "select", "math.absf": "abs", "math.absi": "abs",
    "math.floor": "floor", "math.ceil": "ceil", "math.roundeven": "round_nearest_even", "math.sqrt": "sqrt",
    "math.exp": "exponential", "math.expm1": "exponential_minus_one", "math.log": "log", "math.log1p": "log_plus_one",
    "math.sin": "sine", "math.cos": "cosine", "math.tan": "tan", "math.tanh": "tanh", "math.atan2": "atan2",
    "math.powf": "power", "math.ctlz": "count_leading_zeros", "math.ctpop": "popcnt", "math.erf": "chlo.erf",
    "complex.add": "add", "complex.sub": "subtract", "complex.mul": "multiply", "complex.div": "divide",
    "complex.neg": "negate", "complex.exp": "exponential", "complex.expm1": "exponential_minus_one",
    "complex.log": "log", "complex.log1p": "log_plus_one", "complex.sqrt": "sqrt", "complex.sin": "sine",
    "complex.cos": "cosine", "complex.tan": "tan", "complex.tanh": "tanh", "complex.pow": "power",
    "complex.abs": "abs", "complex.re": "real", "complex.im": "imag",
}  # fmt: skip
"""Ops that have a twin."""

CONVERSIONS = frozenset(
    {"arith.extsi", "arith.trunci", "arith.sitofp", "arith.fptosi", "arith.extf", "arith.truncf", "arith.index_cast"}
)

rule = RULES = RuleTable("scalars in StableHLO")


def compare(t: StablehloOps, direction: str, x: SSAValue, y: SSAValue) -> SSAValue:
    element = element_of(x)
    kind = "SIGNED" if isinstance(element, IntegerType) and element != i1 else "FLOAT"
    kind = "UNSIGNED" if element == i1 else kind
    return t.on("compare", (x, y), i1, stablehlo.comparison(direction, kind))


@rule("arith.cmpf")
def cmpf(t: StablehloOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    name = OF_CMPF[properties["predicate"].value.data]
    if name == "uno":
        return t.on("or", (compare(t, "NE", v[0], v[0]), compare(t, "NE", v[1], v[1])), i1)
    return compare(t, DIRECTIONS[name], *v)


@rule("arith.cmpi")
def cmpi(t: StablehloOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    predicate = properties["predicate"].value.data
    x, y = (flipped(t, o) for o in v) if predicate >= CMPI["ult"] and element_of(v[0]) != i1 else v
    return compare(t, DIRECTIONS[OF_CMPI[predicate]], x, y)


@rule("complex.create")
def complex_create(t: StablehloOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    if element_of(v[0]) not in (f32, f64):
        raise Unsupported("StableHLO's complex numbers are pairs of 32- or 64-bit floats")
    return t.on("complex", v, element)


@rule("complex.eq")
def complex_eq(t: StablehloOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    return compare(t, "EQ", *v)


@rule("complex.neq")
def complex_neq(t: StablehloOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    return compare(t, "NE", *v)


# --- Unsigned integers: StableHLO's have types of their own, ours are signless ---


def flipped(t: StablehloOps, x: SSAValue) -> SSAValue:
    """Flip the sign bit, which maps the order of unsigned numbers to that of signed ones."""
    element = element_of(x)
    return t.on("xor", (x, t.like(x, -(1 << (element.width.data - 1)))), element)


def wide_unsigned(t: StablehloOps, x: SSAValue, element: Attribute) -> SSAValue:
    """Zero-extend an unsigned number to a wider integer type."""
    width = element_of(x).width.data
    if width == 1:
        return t.on("convert", (x,), element)
    wide = t.on("convert", (x,), element)
    return t.on("and", (wide, t.like(wide, (1 << width) - 1)), element)


@rule("arith.extui")
def extui(t: StablehloOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    return wide_unsigned(t, v[0], element)


@rule("arith.uitofp")
def uitofp(t: StablehloOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    if element_of(v[0]).width.data in (1, 64):
        return t.on("convert", v, element)
    return t.on("convert", (wide_unsigned(t, v[0], i64),), element)


def _unsigned(name: str, twin: str) -> None:
    @rule(name)
    def apply(t: StablehloOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
        own = element_of(v[0])
        if own == i1:
            return t.on({"maximum": "or", "minimum": "and"}.get(twin, twin), v, element)
        if own.width.data == 64:
            raise Unsupported(f"{name} on 64-bit unsigned integers")
        wide = [wide_unsigned(t, o, i64) for o in v]
        return t.on("convert", (t.on(twin, wide, i64),), element)


for _name, _twin in (
    ("arith.divui", "divide"), ("arith.remui", "remainder"), ("arith.maxui", "maximum"), ("arith.minui", "minimum"),
):  # fmt: skip
    _unsigned(_name, _twin)


# --- Ops that take two or three ---


@rule("arith.floordivsi")
def floordiv(t: StablehloOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    x, y = v
    quotient, rest = t.on("divide", v, element), t.on("remainder", v, element)
    zero = t.like(x, 0)
    signs = t.on("xor", (compare(t, "LT", rest, zero), compare(t, "LT", y, zero)), i1)
    lower = t.on("and", (signs, compare(t, "NE", rest, zero)), i1)
    return t.on("select", (lower, t.on("subtract", (quotient, t.like(x, 1)), element), quotient), element)


@rule("arith.ceildivsi")
def ceildiv(t: StablehloOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    negative = t.on("negate", (v[0],), element)
    return t.on("negate", (floordiv(t, (negative, v[1]), element, properties),), element)


@rule("math.trunc")
def trunc(t: StablehloOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    negative = compare(t, "LT", v[0], t.like(v[0], 0.0))
    return t.on("select", (negative, t.on("ceil", v, element), t.on("floor", v, element)), element)


@rule("math.atan")
def atan(t: StablehloOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    return t.on("atan2", (v[0], t.like(v[0], 1.0)), element)


@rule("math.exp2")
def exp2(t: StablehloOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    return t.on("power", (t.like(v[0], 2.0), v[0]), element)


@rule("math.log2")
def log2(t: StablehloOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    return t.on("multiply", (t.on("log", v, element), t.like(v[0], 1 / math.log(2))), element)


@rule("math.copysign")
def copysign(t: StablehloOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    integer = IntegerType(dtypes.BY_BUILTIN[element].bits)
    bits = t.on("bitcast_convert", (v[1],), integer)
    negative = compare(t, "LT", bits, t.like(bits, 0))
    size = t.on("abs", (v[0],), element)
    return t.on("select", (negative, t.on("negate", (size,), element), size), element)


@rule("arith.bitcast")
def bitcast(t: StablehloOps, v: Sequence[SSAValue], element: Attribute, properties: Any) -> SSAValue:
    return t.on("bitcast_convert", v, element)
