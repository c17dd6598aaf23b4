"""Activation functions, elementwise."""

from __future__ import annotations

import math
from typing import Any

from flambeau.diagnostics import Unsupported
from flambeau.infer.promotion import promote_operands
from flambeau.ir import dtypes
from flambeau.lowering.builder import Tensor
from flambeau.lowering.element import Element, is_number
from flambeau.lowering.linalg.rules import pointwise
from flambeau.lowering.verbs import RuleBuilder


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
    if is_number(alpha, 0):
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
    """Refuse operands of two dtypes: PyTorch traces the dtype of the gradient, but computes in that of both."""
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
