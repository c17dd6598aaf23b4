"""Activations in terms of simpler ops."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.infer.builder import TorchBuilder
from flambeau.passes.decompose.rules import decomposition, over, require_size, times


@decomposition("aten.glu")
def glu(t: TorchBuilder, x: SSAValue, dim: int) -> SSAValue:
    middle = over(t, t.shape(x)[dim], 2)
    return t.mul(t.slice(x, dim, 0, middle), t.sigmoid(t.slice(x, dim, middle)))


@decomposition("aten.rrelu")
def rrelu(t: TorchBuilder, x: SSAValue, lower: float, upper: float, training: bool, generator: Any) -> SSAValue:
    # Outside training the slope is fixed at the middle.
    return t.where(t.ge(x, 0), x, t.mul(x, (lower + upper) / 2))


@decomposition("aten.prelu")
def prelu(t: TorchBuilder, x: SSAValue, weight: SSAValue) -> SSAValue:
    """Scale what is negative by one weight, or by one for each channel, which are dim 1."""
    sizes, count = t.shape(x), times(t, *t.shape(weight))
    if t.dtype(x) is not t.dtype(weight):
        raise Unsupported(f"prelu of {t.dtype(x)} with weights of {t.dtype(weight)}")
    if not (isinstance(count, int) and count == 1):
        channels = sizes[1] if len(sizes) > 1 else 1
        require_size(t, channels, "eq", count, "prelu needs one weight, or one for each channel")
    if len(sizes) != len(t.shape(weight)):
        weight = t.view(weight, [count if i == 1 else 1 for i in range(len(sizes))])
    return t._prelu_kernel(x, weight)
