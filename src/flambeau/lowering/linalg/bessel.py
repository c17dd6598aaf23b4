"""Bessel's and Airy's functions: series near zero, and waves or exponentials times series far away."""

from __future__ import annotations

import math
from functools import cache, partial

import numpy as np

from flambeau.lowering.element import Element
from flambeau.lowering.linalg.rules import pointwise
from flambeau.lowering.linalg.special import (
    EULER,
    INF,
    NAN,
    Reals,
    Series,
    as_result,
    far,
    fitted,
    harmonic,
    horner,
    log_of_half,
    powers,
)

# --- Modified Bessel functions ---


def _circle(order: int, x: Reals) -> Reals:
    """Compute e^-x I_n(x) / x^n, n = order, 0 or 1: the mean of e^(x (cos t - 1)) sin^2n(t) over a circle."""
    angle = np.arange(8192)[:, None] * (2 * math.pi / 8192)
    weight = np.sin(angle) ** 2 if order else 1.0
    return (np.exp(x[None, :] * (np.cos(angle) - 1)) * weight).mean(0)


@cache
def _i_near(order: int) -> Series:
    return fitted(partial(_circle, order), 0, 8)


@cache
def _i_far(order: int) -> Series:
    return fitted(lambda u: _circle(order, 8 / u) * (8 / u) ** (order + 0.5), 0, 1)


def scaled_i(order: int, x: Element) -> Element:
    """Compute e^-|x| I_n(x) for n = order, 0 or 1."""
    a = abs(x)
    near = _i_near(order)(a)
    value = (a <= 8).select(near * a if order else near, _i_far(order)(8 / a) / a.sqrt())
    return value * x.sign() if order else value


def _i(order: int, x: Element) -> Element:
    return scaled_i(order, x) * abs(x).exp()


@cache
def _k_near(order: int) -> Series:
    """Fit K without its logarithm: K0 + log(x/2) I0, or x (K1 - log(x/2) I1), as a function of x²."""
    if order == 0:
        return fitted(lambda z: powers(0, z, 1, lambda k: harmonic(k) - EULER), 0, 4)
    both = lambda k: harmonic(k) + harmonic(k + 1) - 2 * EULER  # noqa: E731
    return fitted(lambda z: 1 - z / 4 * powers(1, z, 1, both), 0, 4)


@cache
def _k_far(order: int) -> Series:
    return fitted(lambda u: far(order, 2 / u), 0, 1)


def _k(order: int, x: Element, scaled: bool) -> Element:
    log = log_of_half(x)
    if order == 0:
        near = _k_near(0)(x * x) - log * _i(0, x)
    else:
        near = _k_near(1)(x * x) / x + log * _i(1, x)
    distant = _k_far(order)(2 / x) * (math.pi / 2 / x).sqrt()
    value = (x <= 2).select(near * x.exp(), distant) if scaled else (x <= 2).select(near, distant * (-x).exp())
    return as_result(x < 0, NAN, as_result(x == 0, INF, value))


for _order in (0, 1):
    pointwise(f"prims.bessel_i{_order}", f"aten.special_modified_bessel_i{_order}")(partial(_i, _order))
    pointwise(f"prims.bessel_i{_order}e")(partial(scaled_i, _order))
    pointwise(f"aten.special_modified_bessel_k{_order}")(partial(_k, _order, scaled=False))
    pointwise(f"aten.special_scaled_modified_bessel_k{_order}")(partial(_k, _order, scaled=True))


# --- Bessel functions ---

ZEROS = (2.404825557695773, 3.8317059702075125)
"""The first zeros of J0 and J1."""


@cache
def _j_near(order: int) -> Series:
    return fitted(lambda z: powers(order, z, -1) / 2**order / (z - ZEROS[order] ** 2), 0, 25)


@cache
def _waves(order: float, least: float) -> tuple[Series, Series]:
    """Fit Hankel's asymptotic factors of cosine and sine for x >= `least`, as functions of (least/x)²."""

    def part(square: Reals) -> Reals:
        return far(order, -1j * least / np.sqrt(square))

    return fitted(lambda s: part(s).real, 0, 1), fitted(lambda s: part(s).imag / np.sqrt(s), 0, 1)


def _hankel(order: float, x: Element, least: float) -> tuple[Element, Element]:
    u = least / x
    p, q = _waves(order, least)
    return p(u * u), q(u * u) * u


def _wave(order: int, x: Element) -> tuple[Element, Element, Element]:
    """Compute sine and cosine of x - (order/2 + 1/4) π, and their divisor √(πx/2).

    The difference is rounded, as PyTorch does it: of great numbers it leaves only x, and other waves than it should.
    """
    angle = x - (order / 2 + 0.25) * math.pi
    return angle.sin(), angle.cos(), x.sqrt() * math.sqrt(math.pi / 2)


def _j_of_positive(order: int, x: Element) -> Element:
    zero = ZEROS[order]
    high = float(np.float32(zero))
    near = _j_near(order)(x * x) * (x - high - (zero - high)) * (x + zero)
    p, q = _hankel(order, x, 5.0)
    sin, cos, size = _wave(order, x)
    distant = (p * cos - q * sin) / size
    return (x <= 5).select(near * x if order else near, distant)


def _j(order: int, x: Element) -> Element:
    value = _j_of_positive(order, abs(x))
    return value * x.like(1).copysign(x) if order else value


@cache
def _y_near(order: int) -> Series:
    """Fit Y without its logarithm: Y0 - 2/π log(x/2) J0, or x (Y1 - 2/π log(x/2) J1), as a function of x²."""
    if order == 0:
        return fitted(lambda z: 2 / math.pi * powers(0, z, -1, lambda k: EULER - harmonic(k)), 0, 25)
    both = lambda k: harmonic(k) + harmonic(k + 1) - 2 * EULER  # noqa: E731
    return fitted(lambda z: -(2 + z / 2 * powers(1, z, -1, both)) / math.pi, 0, 25)


def _y(order: int, x: Element) -> Element:
    regular = _y_near(order)(x * x)
    near = (regular / x if order else regular) + log_of_half(x) * _j_of_positive(order, x) * (2 / math.pi)
    p, q = _hankel(order, x, 5.0)
    sin, cos, size = _wave(order, x)
    value = (x <= 5).select(near, (p * sin + q * cos) / size)
    return as_result(x < 0, NAN, as_result(x == 0, -INF, value))


for _order in (0, 1):
    pointwise(f"prims.bessel_j{_order}")(partial(_j, _order))
    pointwise(f"aten.special_bessel_y{_order}")(partial(_y, _order))


@pointwise("prims.spherical_bessel_j0", "aten.special_spherical_bessel_j0")
def spherical_bessel_j0(x: Element) -> Element:
    near = horner(x * x, [(-1) ** k / math.factorial(2 * k + 1) for k in range(12)])
    return as_result(x.isinf(), 0.0, (abs(x) < 1).select(near, x.sin() / x))


# --- Airy's function ---


@cache
def _airy_near() -> Series:
    def maclaurin(x: Reals) -> Reals:
        f = g = 0.0 * x
        a, b = 3 ** (-2 / 3) / math.gamma(2 / 3) + f, 3 ** (-1 / 3) / math.gamma(1 / 3) * x
        for k in range(40):
            f, g = f + a, g + b
            a, b = a * x**3 / ((3 * k + 2) * (3 * k + 3)), b * x**3 / ((3 * k + 3) * (3 * k + 4))
        return f - g

    return fitted(maclaurin, -2, 1.5)


@cache
def _airy_far() -> Series:
    return fitted(lambda u: far(1 / 3, 1.2 / u), 0, 1)


@pointwise("aten.special_airy_ai")
def airy_ai(x: Element) -> Element:
    a = abs(x)
    root = a.sqrt()
    phase = a * 2 * root / 3  # Rounded as PyTorch rounds it: far left the last digit decides all.
    size = (root * math.pi).sqrt()
    right = _airy_far()(1.2 / phase) * (-phase).exp() / (size * 2)
    p, q = _hankel(1 / 3, phase, 1.8)
    angle = phase + math.pi / 4
    left = (p * angle.sin() + q * angle.cos()) / size
    value = (x < -2).select(left, (x <= 1.5).select(_airy_near()(x), right))
    return as_result(x.isinf(), NAN, value)
