"""Special functions: Chebyshev series that are computed from what the functions are by definition.

A `Series` is made when it is first used, in double precision, from an integral that the trapezoidal rule computes to
the last digit, from a power series, or from Python's own `math`. A f32 program gets as many of its terms as f32 can
tell from zero, a f64 program gets all of them. What a function does far away is divided out first, so that a few dozen
terms reach to infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from flambeau.ir import dtypes
from flambeau.lowering.builder import Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.rules import linalg_rule, pointwise
from flambeau.lowering.verbs import RuleBuilder

INF, NAN = float("inf"), float("nan")
EULER = 0.57721566490153286
Reals = Any
"""An array of 64-bit floats."""

# --- Series ---


def _negligible(x: Element) -> float:
    """Return what is lost in rounding beside 1."""
    return 2e-16 if x.dtype is dtypes.float64 else 6e-9


@dataclass(frozen=True)
class Series:
    """A Chebyshev series over an interval."""

    low: float
    high: float
    terms: tuple[float, ...]

    def __call__(self, x: Element) -> Element:
        least = _negligible(x) * max(map(abs, self.terms))
        count = max(i for i, c in enumerate(self.terms) if abs(c) > least) + 1
        half = (self.high - self.low) / 2
        t = (x - self.low) / half - 1
        # Clenshaw's sum.
        last, before = x.like(self.terms[count - 1]), x.like(0)
        for c in reversed(self.terms[1 : count - 1]):
            last, before = t * 2 * last - before + c, last
        return t * last - before + self.terms[0]


def fitted(f: Callable[[Reals], Reals], low: float, high: float, degree: int = 40) -> Series:
    """Fit a Chebyshev series to a function of arrays on [low, high]."""
    half = (high - low) / 2
    terms = np.polynomial.chebyshev.chebinterpolate(lambda t: f(low + half * (t + 1)), degree)
    return Series(low, high, tuple(map(float, terms)))


def horner(x: Element, terms: Sequence[float], most: float = 1.0) -> Element:
    """Evaluate a power series at |x| <= `most`, without terms that are lost in rounding."""
    count = max(i for i, c in enumerate(terms) if abs(c) * most**i > _negligible(x) / 4) + 1
    result = x.like(terms[count - 1])
    for c in reversed(terms[: count - 1]):
        result = result * x + c
    return result


def far(order: float, z: Reals) -> Reals:
    """Compute √(2z/π) e^z K_n(z): what is left of Bessel functions without their growth and waves.

    It is the integral over u of e^-u u^(n-1/2) (1 + u/2z)^(n-1/2) / Γ(n+1/2), n = order, where u is e^v.
    """
    v = np.arange(-60, 5, 0.05)[:, None]
    u = np.exp(v)
    weight = np.exp(-u + v * (order + 0.5)) * 0.05 / math.gamma(order + 0.5)
    return (weight * (1 + u / (2 * np.asarray(z)[None, :])) ** (order - 0.5)).sum(0)


def powers(order: int, z: Reals, sign: int, weights: Callable[[int], float] = lambda k: 1.0) -> Reals:
    """Sum weights(k) (sign z/4)^k / (k! (k+order)!): J(x) and I(x) are (x/2)^order times it at z = x²."""
    terms = (weights(k) * (sign * z / 4) ** k / (math.factorial(k) * math.factorial(k + order)) for k in range(60))
    return sum(terms)


def harmonic(k: int) -> float:
    return math.fsum(1 / i for i in range(1, k + 1))


def as_result(condition: Element, value: float, otherwise: Element) -> Element:
    return condition.select(otherwise.like(value), otherwise)


def sine(x: Element) -> Element:
    """Compute sin with all digits on both sides of zero: engines add a whole turn to what is negative."""
    return abs(x).sin().copysign(x)


def log_of_half(x: Element) -> Element:
    """Compute log(x/2) as log x - log 2: engines may flush half of the least number to zero."""
    return x.log() - math.log(2)


# --- The parts of a float ---


def binary_parts(x: Element) -> tuple[Element, Element, Element]:
    """Split a finite number into mantissa in [0.5, 1), exponent, and two to its power; zero has exponent 0."""
    size, scale, exponent = abs(x), x.like(1), x.like(0)
    for k in (512, 256, 128, 64, 32, 16, 8, 4, 2, 1) if x.dtype is dtypes.float64 else (64, 64, 32, 16, 8, 4, 2, 1):
        power = 2.0**k
        is_large, is_small = size >= power, (size != 0) & (size < 1 / power)
        size = is_large.select(size / power, is_small.select(size * power, size))
        scale = is_large.select(scale * power, is_small.select(scale / power, scale))
        exponent = is_large.select(exponent + k, is_small.select(exponent - k, exponent))
    # Now between 1/2 and 2.
    is_large = size >= 1
    return (
        is_large.select(size * 0.5, size).copysign(x),
        is_large.select(exponent + 1, exponent),
        is_large.select(scale * 2, scale),
    )


@linalg_rule("prims.frexp", "aten.frexp.Tensor")
def frexp(b: RuleBuilder, x: Tensor) -> tuple[Tensor, Tensor]:
    def body(e: Element) -> tuple[Element, Element]:
        e = e.to(x.dtype.compute)
        is_finite = ~(e.isinf() | e.isnan())
        mantissa, exponent, _ = binary_parts(is_finite.select(e, e.like(0)))
        return is_finite.select(mantissa, e).to(x.dtype), exponent.to(dtypes.int32)

    mantissa, exponent = b.elementwise([x], body, [x.dtype, dtypes.int32])
    return mantissa, exponent


@pointwise("prims.nextafter", "aten.nextafter")
def nextafter(x: Element, y: Element) -> Element:
    dtype = x.b.out_dtype
    unit = 2.0 ** -(dtype.fraction_bits + 1)  # from 1 to the number below it
    is_large = abs(x) > 1
    mantissa, _, scale = binary_parts(is_large.select(x * 0.25, x))  # so that no scale overflows
    spacing = scale * is_large.select(x.like(unit * 4), unit)
    is_away = (y > x) == (x > 0)
    # Towards zero, the numbers below a power of two lie half as far apart.
    step = ((~is_away) & (abs(mantissa) == 0.5)).select(spacing * 0.5, spacing).maximum(dtype.smallest)
    value = (y > x).select(x + step, x - step)
    value = (x == 0).select(x.like(dtype.smallest).copysign(y), value)
    value = x.isinf().select(x.like(dtype.largest).copysign(x), value)
    value = (x == y).select(y, value)
    return (x.isnan() | y.isnan()).select(x + y, value)


# --- Gamma and its kin ---

BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330,
)  # fmt: skip
"""The Bernoulli numbers with even indices, from the second on."""


@cache
def _lgamma_near() -> Series:
    def without_zeros(x: Reals) -> Reals:
        return np.array([math.lgamma(v) / ((v - 1) * (v - 2)) for v in x])

    return fitted(without_zeros, 1, 3, 35)  # An odd number of terms would have one at 2.


def _lgamma_of_positive(x: Element) -> Element:
    # Down to between 1 and 3, or up to it.
    small, product = x, x.like(1)
    for _ in range(6):
        is_above = small >= 3
        small = is_above.select(small - 1, small)
        product = is_above.select(product * small, product)
    is_below = x < 1
    small = is_below.select(x + 1, small)
    log = is_below.select(x, product).log()
    near = _lgamma_near()(small) * (small - 1) * (small - 2) + is_below.select(-log, log)
    inverse = 1 / x
    rest = [b / ((2 * k + 2) * (2 * k + 1)) for k, b in enumerate(BERNOULLI)]
    stirling = (x - 0.5) * (x.log() - 1) + (0.5 * math.log(2 * math.pi) - 0.5)
    return (x < 8).select(near, stirling + horner(inverse * inverse, rest, 1 / 64) * inverse)


@pointwise("prims.lgamma", "aten.lgamma")
def lgamma(x: Element) -> Element:
    value = _lgamma_of_positive(abs(x))
    wave = abs((x - x.round()) * math.pi).sin()
    reflected = math.log(math.pi) - (wave * abs(x)).log() - value
    is_pole = (x <= 0) & (x == x.floor())
    return as_result(is_pole | x.isinf(), INF, (x < 0).select(reflected, value))


def _digamma_of_positive(x: Element) -> Element:
    below = x.like(0)
    for _ in range(8):
        is_below = x < 8
        below = is_below.select(below + 1 / x, below)
        x = is_below.select(x + 1, x)
    inverse = 1 / x
    rest = [b / (2 * k + 2) for k, b in enumerate(BERNOULLI)]
    return x.log() - inverse * 0.5 - horner(inverse * inverse, rest, 1 / 64) * inverse * inverse - below


def _cotangent(x: Element) -> Element:
    """Compute the cotangent of πx."""
    angle = (x - x.round()) * math.pi
    return angle.cos() / sine(angle)


@pointwise("prims.digamma", "aten.digamma")
def digamma(x: Element) -> Element:
    is_left = x < 0
    value = _digamma_of_positive(is_left.select(1 - x, x))
    value = is_left.select(value - _cotangent(x) * math.pi, value)
    value = as_result(is_left & (x == x.floor()), NAN, value)
    return (x == 0).select(x.like(INF).copysign(-x), value)


def _zeta_of_positive(s: Element, q: Element) -> Element:
    """Sum (q + k)^-s over k: nine terms, then Euler and Maclaurin's formula, unless the rest is lost in rounding."""
    first = q.like(0)
    for k in range(9):
        first = first + (q + k).pow(-s)
    a = q + 9
    integral = a.pow(1 - s)
    term = integral / a
    others = integral / (s - 1) + term * 0.5
    term = term * (s / a)
    for k, bernoulli in enumerate(BERNOULLI):
        others = others + term * (bernoulli / math.factorial(2 * k + 2))
        term = term * ((s + (2 * k + 1)) / a) * ((s + (2 * k + 2)) / a)
    return (integral <= first * 1e-17).select(first, first + others)


@pointwise("prims.zeta", "aten.special_zeta")
def zeta(s: Element, q: Element) -> Element:
    # Left of zero the terms are those of two other sums, with the sign of s.
    part = q - q.floor()
    between = _zeta_of_positive(s, q.ceil() - q) - _zeta_of_positive(s, 1 - q)
    left = _zeta_of_positive(s, part) + s.is_odd().select(-between, between)
    value = (q > 0).select(_zeta_of_positive(s, q), as_result(s != s.floor(), NAN, left))
    value = as_result((q <= 0) & (q == q.floor()), INF, value)
    # PyTorch multiplies the powers of s, which overflow there, by zero.
    value = as_result((q > 1) & ((s * s).isinf() | q.isinf()), NAN, value)
    return as_result(s == 1, INF, as_result(s < 1, NAN, value))


@pointwise("aten.polygamma", "aten.special_polygamma")
def polygamma(n: int, x: Element) -> Element:
    """Compute the n-th derivative of digamma; left of zero by reflection, through polynomials in the cotangent."""
    if n == 0:
        return digamma(x)
    sign = 1.0 if n % 2 else -1.0
    is_left = x < 0
    value = _zeta_of_positive(x.like(n + 1.0), is_left.select(1 - x, x)) * (sign * math.gamma(n + 1.0))
    polynomial = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(n):
        polynomial = polynomial.deriv() * np.polynomial.Polynomial([-1.0, 0.0, -1.0])
    cotangent, derivative = _cotangent(x), x.like(float(polynomial.coef[-1]))
    for c in reversed(polynomial.coef[:-1]):
        derivative = derivative * cotangent + float(c)
    left = value * -sign - derivative * math.pi ** (n + 1)
    pole = sign * INF
    return as_result((x <= 0) & (x == x.floor()), pole, is_left.select(left, value))


# --- The normal distribution ---


@cache
def _erf_inv(near: bool, low: float, high: float) -> Series:
    """Fit erfinv(x)/x as a function of -log(1 - x²), or of its root."""

    def ratio(v: float) -> float:
        square = v if near else v * v
        x = math.sqrt(-math.expm1(-square))
        tail = math.exp(-square) / (1 + x) / 2
        return -NormalDist().inv_cdf(tail) / math.sqrt(2) / x

    return fitted(lambda vs: np.array([ratio(v) for v in vs]), low, high)


def _erf_inv_of(x: Element, log: Element) -> Element:
    """Compute the inverse of erf at x, where log is -log(1 - x²)."""
    root = log.sqrt()
    tail = (root < 6.5).select(_erf_inv(False, 2.5, 6.5)(root), _erf_inv(False, 6.5, 26.0)(root))
    return x * (log < 6.25).select(_erf_inv(True, 0.0, 6.25)(log), tail)


@pointwise("prims.erf_inv", "aten.erfinv")
def erf_inv(x: Element) -> Element:
    value = _erf_inv_of(x, -((1 - x) * (1 + x)).log())
    return (abs(x) == 1).select(x * INF, value)


@pointwise("prims.ndtri", "aten.special_ndtri")
def ndtri(p: Element) -> Element:
    value = _erf_inv_of(p * 2 - 1, -(p * 4 * (1 - p)).log()) * math.sqrt(2)
    return as_result(p == 0, -INF, as_result(p == 1, INF, value))


@cache
def _erfcx_series() -> Series:
    def of(t: Reals) -> Reals:
        x = 3.75 * (1 + t) / (1 - t)
        s = np.arange(-8, 8, 0.125)[:, None]
        integral = (np.exp(-s * s) / (x * x + s * s)).sum(0) * 0.125 * x / math.pi
        exact = np.array([math.exp(v * v) * math.erfc(v) if v < 3 else 0.0 for v in x])
        return np.where(x < 3, exact, integral) * (1 + 2 * x)

    return fitted(of, -1, 1)


def _erfcx_of_positive(x: Element) -> Element:
    return _erfcx_series()(1 - 7.5 / (x + 3.75)) / (1 + 2 * x)


@pointwise("prims.erfcx", "aten.special_erfcx")
def erfcx(x: Element) -> Element:
    value = _erfcx_of_positive(abs(x))
    return (x < 0).select((x * x).exp() * 2 - value, value)


@pointwise("aten.erfc")
def erfc(x: Element) -> Element:
    value = _erfcx_of_positive(abs(x)) * (-x * x).exp()
    return (x < 0).select(2 - value, value)
