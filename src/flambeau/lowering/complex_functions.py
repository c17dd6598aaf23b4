"""Functions of complex numbers, as formulas on their parts that lose no digits.

The ops of MLIR's `complex` dialect are the textbook's, and cancel: near the unit circle their logarithm has five digits
left. The inverse functions here are Kahan's ("Branch cuts for complex elementary functions", 1987).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from flambeau.lowering.element import Element

Parts = tuple[Element, Element]

FUNCTIONS: dict[str, Callable[[Element], Element]] = {}
"""By the name of the op; other functions are ops of the `complex` dialect."""


def function(formula: Callable[[Element, Element], Parts]) -> Callable[[Element, Element], Parts]:
    """Declare a function by what it does to the parts of a number."""

    def on_numbers(z: Element) -> Element:
        real, imag = formula(z.real, z.imag)
        return real.with_imag(imag, z.dtype)

    FUNCTIONS[formula.__name__] = on_numbers
    return formula


@function
def sinh(a: Element, b: Element) -> Parts:
    return a.sinh() * b.cos(), a.cosh() * b.sin()


@function
def cosh(a: Element, b: Element) -> Parts:
    return a.cosh() * b.cos(), a.sinh() * b.sin()


@function
def tanh(a: Element, b: Element) -> Parts:
    size, slope = a.tanh(), b.tan()
    slopes = slope * slope
    scale = 1 / (1 + slopes * size * size)
    return size * (1 + slopes) * scale, slope * (1 - size) * (1 + size) * scale


@function
def sin(a: Element, b: Element) -> Parts:
    return _back(sinh(-b, a))


@function
def cos(a: Element, b: Element) -> Parts:
    return cosh(-b, a)


@function
def tan(a: Element, b: Element) -> Parts:
    return _back(tanh(-b, a))


@function
def expm1(a: Element, b: Element) -> Parts:
    half = (b * 0.5).sin()
    return a.expm1() * b.cos() - 2 * half * half, a.exp() * b.sin()


@function
def exp2(a: Element, b: Element) -> Parts:
    size, angle = a.exp2(), b * math.log(2)
    return size * angle.cos(), size * angle.sin()


@function
def log(a: Element, b: Element) -> Parts:
    larger, smaller = _ordered(a, b)
    # Near the unit circle the size is 1 and a bit, and its logarithm is about that bit.
    bit = (larger - 1) * (larger + 1) + smaller * smaller
    ratio = _ratio(smaller, larger)
    far = larger.log() + (ratio * ratio).log1p() * 0.5
    is_near = (larger > 0.5) & (larger < 2)
    return is_near.select(bit.maximum(-0.75).log1p() * 0.5, far), b.atan2(a)


@function
def log1p(a: Element, b: Element) -> Parts:
    bit = a * (a + 2) + b * b
    far, angle = log(a + 1, b)
    return (abs(bit) < 0.5).select(bit.log1p() * 0.5, far), angle


@function
def log2(a: Element, b: Element) -> Parts:
    return _scaled(log(a, b), 1 / math.log(2))


@function
def log10(a: Element, b: Element) -> Parts:
    return _scaled(log(a, b), 1 / math.log(10))


@function
def sqrt(a: Element, b: Element) -> Parts:
    larger, smaller = _ordered(a, b)
    ratio = _ratio(smaller, larger)
    size = larger * (1 + ratio * ratio).sqrt()
    root = ((size + abs(a)) * 0.5).sqrt()
    other = abs(b) / (root * 2)
    is_zero = larger == 0
    first, second = (a < 0).select(other, root), (a < 0).select(root, other)
    return is_zero.select(0, first), is_zero.select(0, second).copysign(b)


@function
def rsqrt(a: Element, b: Element) -> Parts:
    first, second = sqrt(a, b)
    larger, smaller = _ordered(first, second)
    ratio = _ratio(smaller, larger)
    inverse = 1 / (larger * (1 + ratio * ratio))
    swapped = abs(first) < abs(second)
    small = ratio * inverse
    return swapped.select(small, inverse), (-swapped.select(inverse, small)).copysign(-second)


@function
def asin(a: Element, b: Element) -> Parts:
    (p, p_), (q, q_) = sqrt(1 - a, -b), sqrt(1 + a, b)
    return a.atan2(p * q - p_ * q_), (p * q_ - p_ * q).asinh()


@function
def acos(a: Element, b: Element) -> Parts:
    (p, p_), (q, q_) = sqrt(1 - a, -b), sqrt(1 + a, b)
    return p.atan2(q) * 2, (q * p_ - q_ * p).asinh()


@function
def acosh(a: Element, b: Element) -> Parts:
    (p, p_), (q, q_) = sqrt(a - 1, b), sqrt(a + 1, b)
    return (p * q + p_ * q_).asinh(), p_.atan2(q) * 2


@function
def atanh(a: Element, b: Element) -> Parts:
    size, far = abs(a), 1 - abs(a)
    growth = (4 * size / (far * far + b * b)).log1p() * 0.25
    return growth.copysign(a), (b * 2).atan2(far * (1 + size) - b * b) * 0.5


@function
def asinh(a: Element, b: Element) -> Parts:
    return _back(asin(-b, a))


@function
def atan(a: Element, b: Element) -> Parts:
    return _back(atanh(-b, a))


def _back(parts: Parts) -> Parts:
    """Multiply by -i, as in sin(z) = -i sinh(iz), tan(z) = -i tanh(iz) and asinh(z) = -i asin(iz)."""
    return parts[1], -parts[0]


def _scaled(parts: Parts, factor: float) -> Parts:
    return parts[0] * factor, parts[1] * factor


def _ratio(smaller: Element, larger: Element) -> Element:
    """Divide; 0/0 and inf/inf are 1."""
    return (smaller == larger).select(1, smaller / larger)


def _ordered(a: Element, b: Element) -> Parts:
    """Return the larger and the smaller absolute value of two numbers."""
    a, b = abs(a), abs(b)
    return a.maximum(b), a.minimum(b)
