"""64-bit integers where TOSA has no op for them: casts to and from floats, and gathers. It casts them to 32 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdsl.dialects.builtin import f32, i1, i32, i64
from xdsl.ir import SSAValue

if TYPE_CHECKING:
    from flambeau.lowering.tosa.ops import TosaOps


def from_float(t: TosaOps, x: SSAValue) -> SSAValue:
    """Convert a whole f32 below 2^63 to i64: the upper 32 bits, the next 31 and the last one. All are exact."""
    x = t.on("maximum", (x, t.number(x, -(2.0**63))), f32)
    upper = _whole(t, t.product_of(x, t.number(x, 2.0**-32)))
    rest = t.on("sub", (x, t.product_of(upper, t.number(x, 2.0**32))), f32)
    middle = _whole(t, t.product_of(rest, t.number(x, 0.5)))
    last = t.on("sub", (rest, t.product_of(middle, t.number(x, 2.0))), f32)
    result = t.convert(t.convert(upper, i32), i64)
    for part, factor in ((middle, 1 << 31), (last, 2)):
        integer = t.convert(t.convert(part, i32), i64)
        result = t.on("add", (t.product_of(result, t.number(result, factor)), integer), i64)
    return result


def _whole(t: TosaOps, x: SSAValue) -> SSAValue:
    return t.apply("math.trunc", [x], f32, {})


def to_float(t: TosaOps, x: SSAValue) -> SSAValue:
    """Round i64 to the nearest f32: 30 leading bits, the last set if any after it is, times a power of two."""
    zero = t.number(x, 0)
    size = t.on("abs", (x,), i64)
    is_long = t.on("logical_not", (t.on("equal", (_right(t, size, t.number(x, 30)), zero), i1),), i1)
    upper = t.convert(_right(t, size, t.number(x, 32)), i32)
    zeros = t.on("clz", (upper,), i32)
    by = t.on("select", (is_long, t.on("sub", (t.number(zeros, 34), zeros), i32), t.number(zeros, 0)), i32)
    shift = t.convert(by, i64)
    first = _right(t, size, shift)
    is_exact = t.on("equal", (t.on("logical_left_shift", (first, shift), i64), size), i1)
    odd = t.on("bitwise_or", (first, t.number(first, 1)), i64)
    number = t.convert(t.convert(t.on("select", (is_exact, first, odd), i64), i32), f32)
    half = _right(t, by, t.number(by, 1))
    for part in (half, t.on("sub", (by, half), i32)):
        power = t.on("logical_left_shift", (t.number(part, 1), part), i32)
        number = t.product_of(number, t.convert(power, f32))
    negative = t.on("greater", (zero, x), i1)
    return t.on("select", (negative, t.on("sub", (t.number(number, 0.0), number), f32), number), f32)


def halves(t: TosaOps, x: SSAValue) -> list[SSAValue]:
    """Split i64 into the upper and the lower 32 bits."""
    return [t.convert(_right(t, x, t.number(x, 32)), i32), t.convert(x, i32)]


def joined(t: TosaOps, upper: SSAValue, lower: SSAValue) -> SSAValue:
    """Join two halves of 32 bits to i64."""
    high, low = t.convert(upper, i64), t.convert(lower, i64)
    high = t.on("logical_left_shift", (high, t.number(high, 32)), i64)
    return t.on("bitwise_or", (high, t.on("bitwise_and", (low, t.number(low, (1 << 32) - 1)), i64)), i64)


def _right(t: TosaOps, x: SSAValue, by: SSAValue) -> SSAValue:
    return t.on("logical_right_shift", (x, by), x.type.element_type)  # type: ignore[attr-defined]
