"""The incomplete gamma functions.

Let D be x^a e^-x / Γ(a+1). Left of the middle P is D times a few terms of Kummer's series, the rest of which is a
continued fraction; right of it Q is D times Legendre's continued fraction. Both fractions are written with the same
steps, so that one chain computes either. Where x is near a great a both are slow; there Temme's expansion holds, whose
coefficients are computed here from their recurrence. The other function is one minus what was computed, but for the
least a, where Q has a series of its own: the lesser of P and Q keeps its digits everywhere. f64 takes more terms of
all, for some twelve digits (nine of Q for the least a, if the engine's expm1 has no more); PyTorch has nine in places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from flambeau.ir import dtypes
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.rules import pointwise
from flambeau.lowering.linalg.special import BERNOULLI, EULER, INF, NAN, Reals, Series, as_result, fitted, horner


@dataclass(frozen=True)
class _Effort:
    """What a precision takes."""

    great: int
    """From here on a + 1 is great enough for Temme's expansion."""
    steps: int
    """Of a continued fraction."""
    rows: int
    """Of Temme's expansion."""
    powers: int
    """Of x, in the series for the least a."""


_EFFORT = {False: _Effort(11, 16, 3, 8), True: _Effort(30, 60, 7, 18)}
"""By whether the numbers have 64 bits."""
_MIDDLE = 2.25
"""The exponent up to which Temme's expansion is used: up to here nothing is lost in one minus a result."""
_SHIFT = 4
"""How many terms of Kummer's series come before its fraction."""
_NEAR = 1 / 3
"""Up to which y, see below, a logarithm is computed as a series in it."""
_LEAST = 1 / 8
"""The a up to which one minus P would lose digits of Q."""


@cache
def _temme(great: int, depth: int = 12, degree: int = 40) -> tuple[tuple[float, ...], ...]:
    """Compute the power series in η of great^-k c(k, η) for each k: Temme's correction to the error function.

    With μ - log(1 + μ) = η²/2, c(0) is 1/μ - 1/η, and c(k) is (c(k-1)' + g/(μ/η)) / η where g makes it finite at 0.
    """
    count = degree + 2 * depth + 2
    # μ/η, then its inverse.
    ratio = [Fraction(0), Fraction(1)]
    for n in range(2, count + 1):
        products = sum((k * ratio[k] * ratio[n + 1 - k] for k in range(2, n)), Fraction(0))
        ratio.append((ratio[n - 1] - products) / (n + 1))
    ratio = ratio[1:]
    inverse = [Fraction(1)]
    for n in range(1, count):
        inverse.append(-sum((ratio[k] * inverse[n - k] for k in range(1, n + 1)), Fraction(0)))
    current, rows = inverse[1:], []
    for k in range(depth):
        rows.append(tuple(float(c / great**k) for c in current[:degree]))
        slope = [i * c for i, c in enumerate(current)][1:]
        current = [d - slope[0] * w for d, w in zip(slope, inverse, strict=False)][1:]
    return tuple(rows)


@cache
def _stirling() -> Series:
    """Fit √(2π/s) (s/e)^s / Γ(s), which is at most 1, as a function of 1/s."""

    def of(u: float) -> float:
        if u > 0.03:
            return math.sqrt(2 * math.pi * u) * (math.exp(-1) / u) ** (1 / u) / math.gamma(1 / u)
        return math.exp(-math.fsum(b * u ** (2 * k + 1) / ((2 * k + 2) * (2 * k + 1)) for k, b in enumerate(BERNOULLI)))

    def of_array(us: Reals) -> Reals:
        return np.array([of(u) for u in us])

    return fitted(of_array, 0, 1)


def _fraction(a: Element, x: Element, is_right: Element, steps: int) -> Element:
    """Evaluate continued fractions: Q/D where `is_right` (Legendre's), P/D elsewhere (Kummer's)."""
    shifted = a + _SHIFT
    first = is_right.select(x - a + 1, (a - x + _SHIFT) * 2)
    factor, slope = is_right.select(a, x * 4), is_right.select(x.like(-1), 0)
    bottom = first + 2 * steps
    for n in range(steps, 0, -1):
        bottom = first + 2 * (n - 1) + (factor + slope * n) * n / bottom
    left = shifted * 2 / bottom
    for n in range(_SHIFT, 0, -1):
        left = left * (x / (a + n)) + 1
    return is_right.select(a / bottom, left)


@cache
def _log_gamma() -> tuple[float, ...]:
    """List the coefficients of the power series of log Γ(1+a) / a."""
    n = 100

    def zeta(k: int) -> float:
        # Euler and Maclaurin's sum.
        tail = 1 / (k - 1) - 0.5 / n + k / 12 / n**2 - k * (k + 1) * (k + 2) / 720 / n**4
        return math.fsum(i**-k for i in range(1, n + 1)) + tail * n ** (1.0 - k)

    return (-EULER, *((-1) ** k * zeta(k) / k for k in range(2, 30)))


def _of_the_least(a: Element, x: Element) -> Element:
    """Compute Q for the least a and x up to about 1 by the power series of x^-a P; P is e^log (1 - a rest)."""
    log = a * (x.log() - horner(a, _log_gamma(), _LEAST))
    rest = x.like(0)
    for n in range(_EFFORT[x.dtype is dtypes.float64].powers, 0, -1):
        rest = (rest - (-1) ** n / math.factorial(n) / (a + n)) * x
    less = log.expm1()
    return (less + 1) * a * rest - less


def _lesser(a: Element, x: Element) -> tuple[Element, Element]:
    """Compute P(a, x) or Q(a, x), whichever is not nearly 1; return whether it is Q, and the value."""
    effort = _EFFORT[x.dtype is dtypes.float64]
    s = a + 1
    root = s.sqrt()
    above = x - a - 1  # s may be rounded
    mu = above / s
    # η²/2 is μ - log(1 + μ); near zero both are computed from y, the tangent of half the logarithm.
    y = mu / (mu + 2)
    square = y * y
    beyond = square * horner(square, [2 / (2 * k + 3) for k in range(24)], _NEAR**2)
    exponent = y * (mu - beyond) * s
    # Far from there the logarithm is that of x/s. The least numbers are scaled: engines take what is less for zero.
    is_tiny = x < 1e-18
    log = (is_tiny.select(x * 2.0**64, x) / s).log() - is_tiny.select(x.like(64 * math.log(2)), 0)
    is_near = abs(y) <= _NEAR
    size = is_near.select(-exponent - y * (beyond + 2), a * log - above).exp() / (root * math.sqrt(2 * math.pi))
    stirling = _stirling()(1 / s)
    d = size * stirling
    is_right = x >= s
    value = as_result(d == 0, 0.0, d * _fraction(a, x, is_right, effort.steps))

    # In the middle, P(a, x) is P(s, x) + D, and the former is an error function less what decreases as D does.
    z = exponent.sqrt().copysign(mu)
    erf = z * horner(exponent, [(-1) ** k / math.factorial(k) / (2 * k + 1) for k in range(40)], _MIDDLE)
    eta, rest = z * math.sqrt(2) / root, x.like(0)
    for row in reversed(_temme(effort.great)[: effort.rows]):
        rest = rest * (effort.great / s) + horner(eta, row, math.sqrt(2 * _MIDDLE / effort.great))
    middle = erf * (1 / math.sqrt(math.pi)) + 0.5 + size * (stirling - (mu + 1) * rest)
    is_middle = (s >= effort.great) & (exponent < _MIDDLE)
    return is_right & ~is_middle, is_middle.select(middle, value)


def _at_the_ends(a: Element, x: Element, at_zero: float, value: Element) -> Element:
    """Set the values where a or x is 0 or infinite, or the result NaN, as PyTorch does whatever the other one is."""
    # There PyTorch takes one infinity from another.
    is_beyond = ((a * x.log()) == INF) & (abs(x - a) > a * 0.4)
    value = as_result(x.isinf(), 1 - at_zero, as_result(is_beyond, NAN, value))
    value = as_result(a.isinf(), at_zero, value)
    value = as_result(x == 0, at_zero, value)
    value = as_result((a == 0) & (x > 0), 1 - at_zero, value)
    return as_result((a < 0) | (x < 0) | ((a == 0) & ~(x > 0)) | (a.isinf() & x.isinf()), NAN, value)


@pointwise("prims.igamma", "aten.igamma", "aten.special_gammainc")
def igamma(a: Element, x: Element) -> Element:
    is_q, value = _lesser(a, x)
    return _at_the_ends(a, x, 0.0, is_q.select(1 - value, value))


@pointwise("prims.igammac", "aten.igammac", "aten.special_gammaincc")
def igammac(a: Element, x: Element) -> Element:
    is_q, value = _lesser(a, x)
    value = is_q.select(value, 1 - value)
    is_least = (a <= _LEAST) & ~is_q
    return _at_the_ends(a, x, 1.0, is_least.select(_of_the_least(a, x), value))
