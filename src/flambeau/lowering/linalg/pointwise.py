"""Elementwise ops: each is what it does to one element."""

from __future__ import annotations

import math
from typing import Any

from flambeau.diagnostics import Unsupported
from flambeau.infer.promotion import promote_operands
from flambeau.ir import dtypes
from flambeau.lowering import complex_functions
from flambeau.lowering.builder import Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.rules import pointwise
from flambeau.lowering.verbs import RuleBuilder

# --- Arithmetic ---


@pointwise("aten.add.Tensor", "aten.add.Scalar")
def add(x: Element, y: Any, alpha: Any) -> Element:
    return x + (y if alpha == 1 else x.like(y) * alpha)


@pointwise("aten.sub.Tensor", "aten.sub.Scalar")
def sub(x: Element, y: Any, alpha: Any) -> Element:
    return x - (y if alpha == 1 else x.like(y) * alpha)


@pointwise("aten.rsub.Scalar", "aten.rsub.Tensor")
def rsub(x: Element, y: Any, alpha: Any) -> Element:
    return y - (x if alpha == 1 else x * alpha)


@pointwise("aten.mul.Tensor", "aten.mul.Scalar")
def mul(x: Element, y: Any) -> Element:
    return x * x.like(y)


@pointwise("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor")
def div(x: Element, y: Any) -> Element:
    return x / y


def guard_divisor(b: RuleBuilder, x: Any, y: Any, mode: str | None = "floor") -> None:
    """Integers that are divided by zero make PyTorch raise; floats give infinity or NaN."""
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


# --- Comparisons, logic, bits ---


@pointwise("aten.eq.Tensor", "aten.eq.Scalar", inputs="common")
def eq(x: Element, y: Any) -> Element:
    return x == y


@pointwise("aten.ne.Tensor", "aten.ne.Scalar", inputs="common")
def ne(x: Element, y: Any) -> Element:
    return x != y


@pointwise("aten.lt.Tensor", "aten.lt.Scalar", inputs="common")
def lt(x: Element, y: Any) -> Element:
    return x < y


@pointwise("aten.le.Tensor", "aten.le.Scalar", inputs="common")
def le(x: Element, y: Any) -> Element:
    return x <= y


@pointwise("aten.gt.Tensor", "aten.gt.Scalar", inputs="common")
def gt(x: Element, y: Any) -> Element:
    return x > y


@pointwise("aten.ge.Tensor", "aten.ge.Scalar", inputs="common")
def ge(x: Element, y: Any) -> Element:
    return x >= y


@pointwise("aten.logical_and", inputs="own")
def logical_and(x: Element, y: Element) -> Element:
    return x.to(dtypes.bool_) & y.to(dtypes.bool_)


@pointwise("aten.logical_or", inputs="own")
def logical_or(x: Element, y: Element) -> Element:
    return x.to(dtypes.bool_) | y.to(dtypes.bool_)


@pointwise("aten.logical_xor", inputs="own")
def logical_xor(x: Element, y: Element) -> Element:
    return x.to(dtypes.bool_) ^ y.to(dtypes.bool_)


@pointwise("aten.logical_not", inputs="own")
def logical_not(x: Element) -> Element:
    return ~x.to(dtypes.bool_)


@pointwise("aten.bitwise_and.Tensor", "aten.bitwise_and.Scalar", "aten.__and__.Tensor", "aten.__and__.Scalar")
def bitwise_and(x: Element, y: Any) -> Element:
    return x & y


@pointwise("aten.bitwise_or.Tensor", "aten.bitwise_or.Scalar", "aten.__or__.Tensor", "aten.__or__.Scalar")
def bitwise_or(x: Element, y: Any) -> Element:
    return x | y


@pointwise("aten.bitwise_xor.Tensor", "aten.bitwise_xor.Scalar", "aten.__xor__.Tensor", "aten.__xor__.Scalar")
def bitwise_xor(x: Element, y: Any) -> Element:
    return x ^ y


@pointwise("aten.bitwise_not")
def bitwise_not(x: Element) -> Element:
    return ~x


@pointwise(
    "aten.bitwise_left_shift.Tensor", "aten.bitwise_left_shift.Tensor_Scalar",
    "aten.__lshift__.Tensor", "aten.__lshift__.Scalar",
)  # fmt: skip
def left_shift(x: Element, y: Any) -> Element:
    return x << y


@pointwise(
    "aten.bitwise_right_shift.Tensor", "aten.bitwise_right_shift.Tensor_Scalar",
    "aten.__rshift__.Tensor", "aten.__rshift__.Scalar",
)  # fmt: skip
def right_shift(x: Element, y: Any) -> Element:
    return x >> y


@pointwise("aten.isnan", inputs="own")
def isnan(x: Element) -> Element:
    return x.isnan()


@pointwise("aten.isinf", inputs="own")
def isinf(x: Element) -> Element:
    return x.real.isinf() | x.imag.isinf() if x.dtype.is_complex else x.isinf()


@pointwise("aten.isfinite", inputs="own")
def isfinite(x: Element) -> Element:
    return ~(isinf(x) | x.isnan())


@pointwise("aten.isposinf", inputs="own")
def isposinf(x: Element) -> Element:
    return x == float("inf") if x.dtype.is_float else x.isnan()


@pointwise("aten.isneginf", inputs="own")
def isneginf(x: Element) -> Element:
    return x == float("-inf") if x.dtype.is_float else x.isnan()


@pointwise("aten.signbit", inputs="own")
def signbit(x: Element) -> Element:
    return x.like(1).copysign(x) < 0 if x.dtype.is_float else x < 0


# --- Choice ---


def _in(dtype: dtypes.DType, condition: Element, value: Any) -> Any:
    """A branch of a choice in the result's dtype; numbers take it by themselves."""
    if isinstance(value, Element):
        return value.to(dtype)
    return Element(condition.b, condition.b.constant(value, dtype), dtype)


@pointwise("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar", inputs="own")
def where(condition: Element, x: Any, y: Any) -> Element:
    dtype = condition.b.out_dtype
    return condition.to(dtypes.bool_).select(_in(dtype, condition, x), _in(dtype, condition, y))


@pointwise("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", inputs="own")
def masked_fill(x: Element, mask: Element, value: Any) -> Element:
    return mask.to(dtypes.bool_).select(_in(x.dtype, mask, value), x)


@pointwise("aten.clamp", "aten.clamp.Tensor", "aten.clip", "aten.clip.Tensor")
def clamp(x: Element, low: Any, high: Any) -> Element:
    x = x if low is None else x.maximum(low)
    return x if high is None else x.minimum(high)


@pointwise("aten.clamp_min", "aten.clamp_min.Tensor")
def clamp_min(x: Element, low: Any) -> Element:
    return x.maximum(low)


@pointwise("aten.clamp_max", "aten.clamp_max.Tensor")
def clamp_max(x: Element, high: Any) -> Element:
    return x.minimum(high)


@pointwise("aten.nan_to_num")
def nan_to_num(x: Element, nan: Any, posinf: Any, neginf: Any) -> Element:
    if not x.dtype.is_float:
        return x
    limit = {dtypes.float16: 65504.0, dtypes.bfloat16: 3.3895313892515355e38, dtypes.float64: 1.7976931348623157e308}
    largest = limit.get(x.b.out_dtype, 3.4028234663852886e38)
    x = (x == float("inf")).select(largest if posinf is None else posinf, x)
    x = (x == float("-inf")).select(-largest if neginf is None else neginf, x)
    return x.isnan().select(nan or 0.0, x)


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


# --- Activations ---


@pointwise("aten.relu")
def relu(x: Element) -> Element:
    return x.maximum(0)


@pointwise("aten.relu6")
def relu6(x: Element) -> Element:
    return x.maximum(0).minimum(6)


@pointwise("aten.hardtanh")
def hardtanh(x: Element, low: Any, high: Any) -> Element:
    if x.dtype is dtypes.uint8 and any(isinstance(v, (int, float)) and v < 0 for v in (low, high)):
        raise Unsupported("hardtanh of uint8 with limits below zero")
    return x.maximum(low).minimum(high)


@pointwise("aten.leaky_relu")
def leaky_relu(x: Element, slope: Any) -> Element:
    return (x > 0).select(x, x * slope)


@pointwise("aten.elu")
def elu(x: Element, alpha: Any, scale: Any, input_scale: Any) -> Element:
    return (x > 0).select(x * scale, (x * input_scale).expm1() * (alpha * scale))


@pointwise("aten.celu")
def celu(x: Element, alpha: Any) -> Element:
    if isinstance(alpha, (int, float)) and alpha == 0:
        raise Unsupported("celu with alpha 0, which divides by it")
    return (x > 0).select(x, (x / alpha).expm1() * alpha)


@pointwise("aten.selu")
def selu(x: Element) -> Element:
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    return (x > 0).select(x * scale, x.expm1() * (alpha * scale))


@pointwise("aten.gelu")
def gelu(x: Element, approximate: str) -> Element:
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (inner.tanh() + 1)
    return x * 0.5 * ((x * math.sqrt(0.5)).erf() + 1)


@pointwise("aten.silu")
def silu(x: Element) -> Element:
    return x / (1 + (-x).exp())


@pointwise("aten.mish")
def mish(x: Element) -> Element:
    return x * softplus(x, 1.0, 20.0).tanh()


@pointwise("aten.softplus")
def softplus(x: Element, beta: float, threshold: float) -> Element:
    scaled = x * float(beta)
    return (scaled > float(threshold)).select(x, scaled.exp().log1p() / float(beta))


@pointwise("aten.log_sigmoid")
def log_sigmoid(x: Element) -> Element:
    # Below 103 the exponential is no zero, though engines take it for one where it is less than the least normal float.
    small = (-abs(x)).exp().log1p()
    return x.minimum(0) - (abs(x) < 103).select(small.maximum(2.0**-126), small)


@pointwise("aten.hardsigmoid")
def hardsigmoid(x: Element) -> Element:
    return (x + 3).maximum(0).minimum(6) / 6


@pointwise("aten.hardswish")
def hardswish(x: Element) -> Element:
    return x * (x + 3).maximum(0).minimum(6) / 6


@pointwise("aten.hardshrink")
def hardshrink(x: Element, limit: Any) -> Element:
    return ((x >= -limit) & (x <= limit)).select(x.like(0), x)


@pointwise("aten.softshrink")
def softshrink(x: Element, limit: Any) -> Element:
    return (x > limit).select(x - limit, (x < -limit).select(x + limit, x * 0))


@pointwise("aten.threshold")
def threshold(x: Element, limit: Any, value: Any) -> Element:
    return (x <= limit).select(x.like(value), x)


def guard_mixed(b: RuleBuilder, gradient: Tensor, x: Tensor, *_: Any) -> None:
    """When PyTorch traces, it gives the dtype of the gradient; when it computes, that of both."""
    if b.out_dtype is not promote_operands([(t.dtype, t.rank) for t in (gradient, x)]):
        raise Unsupported(
            f"operands of {gradient.dtype} and {x.dtype}, for which PyTorch traces another dtype than it computes",
            "Convert both to one dtype first.",
        )


@pointwise("aten.threshold_backward", guard=guard_mixed)
def threshold_backward(gradient: Element, x: Element, limit: Any) -> Element:
    return (x <= limit).select(x.like(0), gradient)


@pointwise("aten.hardshrink_backward", "aten.softshrink_backward")
def shrink_backward(gradient: Element, x: Element, limit: Any) -> Element:
    return ((x >= -limit) & (x <= limit)).select(x.like(0), gradient)


@pointwise("aten._prelu_kernel")
def prelu(x: Element, weight: Element) -> Element:
    return (x > 0).select(x, x * weight)


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
