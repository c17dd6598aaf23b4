"""64-bit integers where TOSA has no op for them: casts to and from floats, and gathers. It casts them to 32 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdsl.dialects.builtin import f32, i1, i32, i64
from xdsl.ir import SSAValue

if TYPE_CHECKING:
    from flambeau.lowering.tosa.elements import ElementBuilder


def from_float(b: ElementBuilder, x: SSAValue) -> SSAValue:
    """A whole number below 2^63 as an integer: what is above 32 bits, the next 31 and the last one. All are exact."""
    x = b.on("maximum", (x, b.number(x, -(2.0**63))), f32)
    upper = _whole(b, b.product_of(x, b.number(x, 2.0**-32)))
    rest = b.on("sub", (x, b.product_of(upper, b.number(x, 2.0**32))), f32)
    middle = _whole(b, b.product_of(rest, b.number(x, 0.5)))
    last = b.on("sub", (rest, b.product_of(middle, b.number(x, 2.0))), f32)
    result = b.converted(b.converted(upper, i32), i64)
    for part, factor in ((middle, 1 << 31), (last, 2)):
        integer = b.converted(b.converted(part, i32), i64)
        result = b.on("add", (b.product_of(result, b.number(result, factor)), integer), i64)
    return result


def _whole(b: ElementBuilder, x: SSAValue) -> SSAValue:
    return b.apply("math.trunc", [x], f32, {})


def to_float(b: ElementBuilder, x: SSAValue) -> SSAValue:
    """The nearest float: the first 30 bits, of which the last is set if any after it is, times a power of two."""
    zero = b.number(x, 0)
    size = b.on("abs", (x,), i64)
    is_long = b.on("logical_not", (b.on("equal", (_right(b, size, b.number(x, 30)), zero), i1),), i1)
    upper = b.converted(_right(b, size, b.number(x, 32)), i32)
    zeros = b.on("clz", (upper,), i32)
    by = b.on("select", (is_long, b.on("sub", (b.number(zeros, 34), zeros), i32), b.number(zeros, 0)), i32)
    shift = b.converted(by, i64)
    first = _right(b, size, shift)
    is_exact = b.on("equal", (b.on("logical_left_shift", (first, shift), i64), size), i1)
    odd = b.on("bitwise_or", (first, b.number(first, 1)), i64)
    number = b.converted(b.converted(b.on("select", (is_exact, first, odd), i64), i32), f32)
    half = _right(b, by, b.number(by, 1))
    for part in (half, b.on("sub", (by, half), i32)):
        power = b.on("logical_left_shift", (b.number(part, 1), part), i32)
        number = b.product_of(number, b.converted(power, f32))
    negative = b.on("greater", (zero, x), i1)
    return b.on("select", (negative, b.on("sub", (b.number(number, 0.0), number), f32), number), f32)


def halves(b: ElementBuilder, x: SSAValue) -> list[SSAValue]:
    """The upper and the lower 32 bits."""
    return [b.converted(_right(b, x, b.number(x, 32)), i32), b.converted(x, i32)]


def joined(b: ElementBuilder, upper: SSAValue, lower: SSAValue) -> SSAValue:
    """An integer of these halves."""
    high, low = b.converted(upper, i64), b.converted(lower, i64)
    high = b.on("logical_left_shift", (high, b.number(high, 32)), i64)
    return b.on("bitwise_or", (high, b.on("bitwise_and", (low, b.number(low, (1 << 32) - 1)), i64)), i64)


def _right(b: ElementBuilder, x: SSAValue, by: SSAValue) -> SSAValue:
    return b.on("logical_right_shift", (x, by), x.type.element_type)  # type: ignore[attr-defined]
