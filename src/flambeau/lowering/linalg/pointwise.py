"""Elementwise ops: each is what it does to one element. Here are arithmetic and functions of one number."""

from __future__ import annotations

import math
from typing import Any

from flambeau.diagnostics import Unsupported
from flambeau.lowering import complex_functions
from flambeau.lowering.element import Element, is_number
from flambeau.lowering.linalg.rules import pointwise
from flambeau.lowering.verbs import RuleBuilder

# --- Arithmetic ---


@pointwise("aten.add.Tensor", "aten.add.Scalar")
def add(x: Element, y: Any, alpha: Any) -> Element:
    return x + (y if is_number(alpha, 1) else x.like(y) * alpha)


@pointwise("aten.sub.Tensor", "aten.sub.Scalar")
def sub(x: Element, y: Any, alpha: Any) -> Element:
    return x - (y if is_number(alpha, 1) else x.like(y) * alpha)


@pointwise("aten.rsub.Scalar", "aten.rsub.Tensor")
def rsub(x: Element, y: Any, alpha: Any) -> Element:
    return y - (x if is_number(alpha, 1) else x * alpha)


@pointwise("aten.mul.Tensor", "aten.mul.Scalar")
def mul(x: Element, y: Any) -> Element:
    return x * x.like(y)


@pointwise("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor")
def div(x: Element, y: Any) -> Element:
    return x / y


def guard_divisor(b: RuleBuilder, x: Any, y: Any, mode: str | None = "floor") -> None:
    """Guard that integers are not divided by zero, where PyTorch raises; floats give infinity or NaN."""
    if mode is not None:
        b.check_divisor(x, y, b.out_dtype)


@pointwise("aten.div.Tensor_mode", "aten.div.Scalar_mode", guard=guard_divisor)
def div_mode(x: Element, y: Any, mode: str | None) -> Element:
    return {None: x.__truediv__, "floor": x.floor_divide, "trunc": x.trunc_divide}[mode](y)


@pointwise("aten.floor_divide", "aten.floor_divide.Scalar", guard=guard_divisor)
def floor_divide(x: Element, y: Any) -> Element:
    return x.floor_divide(y)


@pointwise("aten.remainder.Tensor", "aten.remainder.Scalar", guard=guard_divisor)
def remainder(x: Element, y: Any) -> Element:
    return x.remainder(y)


@pointwise("aten.fmod.Tensor", "aten.fmod.Scalar", guard=guard_divisor)
def fmod(x: Element, y: Any) -> Element:
    return x.fmod(y)


@pointwise("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor")
def pow_(x: Element, y: Any) -> Element:
    if x.dtype.is_integral and isinstance(y, int) and y < 0:
        raise Unsupported("integers to a negative power", "Convert them to floats first.")
    return x.pow(y)


@pointwise("aten.pow.Scalar")
def pow_scalar(x: Any, y: Element) -> Element:
    return y.like(x).pow(y)


@pointwise("aten.maximum")
def maximum(x: Element, y: Element) -> Element:
    return x.maximum(y)


@pointwise("aten.minimum")
def minimum(x: Element, y: Element) -> Element:
    return x.minimum(y)


@pointwise("aten.fmax")
def fmax(x: Element, y: Element) -> Element:
    return x.isnan().select(y, y.isnan().select(x, x.maximum(y)))


@pointwise("aten.fmin")
def fmin(x: Element, y: Element) -> Element:
    return x.isnan().select(y, y.isnan().select(x, x.minimum(y)))


@pointwise("aten.addcmul")
def addcmul(x: Element, a: Element, b: Element, value: Any) -> Element:
    return x + a * b * value


@pointwise("aten.addcdiv")
def addcdiv(x: Element, a: Element, b: Element, value: Any) -> Element:
    return x + a / b * value


@pointwise("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(x: Element, end: Element, weight: Any) -> Element:
    w = x.like(weight)
    return (abs(w) < 0.5).select(x + w * (end - x), end - (end - x) * (1 - w))


@pointwise("aten.atan2")
def atan2(x: Element, y: Element) -> Element:
    return x.atan2(y)


@pointwise("aten.hypot")
def hypot(x: Element, y: Element) -> Element:
    high, low = abs(x).maximum(abs(y)), abs(x).minimum(abs(y))
    ratio = (high == 0).select(low, low / high)
    scaled = high * (ratio * ratio + 1).sqrt()
    return (x.isinf() | y.isinf()).select(float("inf") + 0 * scaled.like(0), scaled)


@pointwise("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(x: Element, y: Any) -> Element:
    return abs(x).copysign(y)


@pointwise("aten.xlogy.Tensor", "aten.xlogy.Scalar_Other")
def xlogy(x: Element, y: Any) -> Element:
    y = x.like(y)
    return y.isnan().select(y, (x == 0).select(x.like(0), x * y.log()))


@pointwise("aten.heaviside")
def heaviside(x: Element, values: Element) -> Element:
    return (x == 0).select(values, (x > 0).to(x.dtype))


@pointwise("aten.gcd")
def gcd(x: Element, y: Element) -> Element:
    # Euclid's steps, unrolled: a 64-bit pair needs at most 92, each step a select once the remainder is zero.
    a, b = abs(x), abs(y)
    for _ in range({8: 12, 16: 24, 32: 47, 64: 92}[x.dtype.bits]):
        done = b == 0
        a, b = done.select(a, b), done.select(b, a.fmod(b))
    return a


# --- Functions of one number ---


def _function(x: Element, name: str) -> Element:
    if x.dtype.is_complex and name in complex_functions.FUNCTIONS:
        return complex_functions.FUNCTIONS[name](x)
    result: Element = getattr(x, name)()
    return result


for _name in (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "tanh", "asinh", "acosh", "atanh", "sqrt", "rsqrt", "floor", "ceil", "trunc", "round", "sigmoid",
    "sign",
):  # fmt: skip
    pointwise(f"aten.{_name}")(lambda x, _name=_name: _function(x, _name))


@pointwise("aten.neg", "aten.negative")
def neg(x: Element) -> Element:
    return -x


@pointwise("aten.abs", "aten.absolute", inputs="own")
def abs_(x: Element) -> Element:
    return abs(x.to(x.dtype.compute))


@pointwise("aten.erf")
def erf(x: Element) -> Element:
    return (x == 0).select(x, x.erf())  # which keeps the sign of a zero


@pointwise("aten.reciprocal")
def reciprocal(x: Element) -> Element:
    return 1 / x


@pointwise("aten.square")
def square(x: Element) -> Element:
    return x * x


@pointwise("aten.round.decimals")
def round_decimals(x: Element, decimals: int) -> Element:
    scale = 10.0 ** abs(decimals)
    return (x / scale).round() * scale if decimals < 0 else (x * scale).round() / scale if decimals else x.round()


@pointwise("aten.frac")
def frac(x: Element) -> Element:
    return x - x.trunc()


@pointwise("aten.sgn")
def sgn(x: Element) -> Element:
    if not x.dtype.is_complex:
        return x.sign()
    size = abs(x)
    scale = (size == 0).select(size, 1 / size)
    return (x.real * scale).with_imag(x.imag * scale, x.dtype)


@pointwise("aten.logit")
def logit(x: Element, eps: float | None) -> Element:
    if eps is not None:
        x = (x < eps).select(eps, (x > 1 - eps).select(1 - eps, x))
    return (x / (1 - x)).log()


@pointwise("aten.sinc")
def sinc(x: Element) -> Element:
    scaled = x * math.pi
    return (x == 0).select(1, scaled.sin() / scaled)


@pointwise("aten.deg2rad")
def deg2rad(x: Element) -> Element:
    return x * (math.pi / 180)


@pointwise("aten.rad2deg")
def rad2deg(x: Element) -> Element:
    return x * (180 / math.pi)


@pointwise("aten.real", inputs="own")
def real(x: Element) -> Element:
    return x.real


@pointwise("aten.imag", inputs="own")
def imag(x: Element) -> Element:
    return x.imag


@pointwise("aten.conj", "aten._conj", "aten.conj_physical", "aten._conj_physical", inputs="own")
def conj(x: Element) -> Element:
    return x.real.with_imag(-x.imag, x.dtype) if x.dtype.is_complex else x


@pointwise("aten.complex", inputs="own")
def complex_(real: Element, imag: Element) -> Element:
    return real.with_imag(imag, real.b.out_dtype)
