"""Elementwise ops in terms of simpler ones."""

from __future__ import annotations

import math
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.infer.builder import TorchBuilder, meta_of
from flambeau.infer.rules import promoted
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition


def _promoted(t: TorchBuilder, x: SSAValue, y: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Both in the dtype that they have together."""
    dtype = promoted(meta_of(x), meta_of(y))
    if dtype.is_complex:
        raise Unsupported("the logarithm of a sum of exponentials of complex numbers")
    return t.to(x, dtype), t.to(y, dtype)


@decomposition("aten.logaddexp")
def logaddexp(t: TorchBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    x, y = _promoted(t, x, y)
    most = t.maximum(x, y)
    # Equal infinities would give inf - inf; their difference counts as zero.
    spread = t.where(t.eq(x, y), 0.0, t.neg(t.abs(t.sub(x, y))))
    return t.add(most, t.log1p(t.exp(spread)))


@decomposition("aten.logaddexp2")
def logaddexp2(t: TorchBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    x, y = _promoted(t, x, y)
    most = t.maximum(x, y)
    spread = t.where(t.eq(x, y), 0.0, t.neg(t.abs(t.sub(x, y))))
    return t.add(most, t.mul(t.log1p(t.exp2(spread)), 1 / math.log(2)))


@decomposition("aten.glu")
def glu(t: TorchBuilder, x: SSAValue, dim: int) -> SSAValue:
    half = t.shape(x)[dim]
    middle = half // 2 if isinstance(half, int) else t.op("aten.floordiv.int", (half, t.constant(2)), (half.type,))[0]
    return t.mul(t.slice(x, dim, 0, middle), t.sigmoid(t.slice(x, dim, middle)))


@decomposition("aten.special_expit")
def expit(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return t.sigmoid(x)


@decomposition("aten.special_xlog1py")
def xlog1py(t: TorchBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    return t.where(t.logical_and(t.eq(x, 0), t.logical_not(t.isnan(y))), 0.0, t.mul(x, t.log1p(y)))


@decomposition("aten.rrelu")
def rrelu(t: TorchBuilder, x: SSAValue, lower: float, upper: float, training: bool, generator: Any) -> SSAValue:
    if training:
        raise Unsupported("rrelu in training mode draws random numbers", "Call model.eval() before compiling.")
    # Outside training the slope is fixed at the middle.
    return t.where(t.ge(x, 0), x, t.mul(x, (lower + upper) / 2))


@decomposition("aten.isclose")
def isclose(t: TorchBuilder, x: SSAValue, y: SSAValue, rtol: float, atol: float, equal_nan: bool) -> SSAValue:
    if rtol < 0 or atol < 0:
        raise Unsupported("a tolerance below zero")
    if t.dtype(x) is not t.dtype(y):
        raise Unsupported(f"isclose of {t.dtype(x)} and {t.dtype(y)}", "Convert one of them: PyTorch does not.")
    close = t.eq(x, y)
    if equal_nan:
        close = t.logical_or(close, t.logical_and(t.isnan(x), t.isnan(y)))
    if not t.dtype(y).is_float and not t.dtype(y).is_complex:
        y = t.to(y, dtypes.float32)  # the difference of integers could overflow
    allowed = t.add(t.abs(t.mul(y, rtol)), atol)
    error = t.abs(t.sub(t.to(x, t.dtype(y)) if t.dtype(x).is_bool else x, y))
    return t.logical_or(close, t.logical_and(t.isfinite(error), t.le(error, allowed)))


@decomposition("aten.angle")
def angle(t: TorchBuilder, x: SSAValue) -> SSAValue:
    if t.dtype(x).is_complex:
        return t.atan2(t.imag(x), t.real(x))
    turned = t.where(t.lt(x, 0), math.pi, 0.0)
    if not t.dtype(x).is_float:
        return turned
    return t.where(t.isnan(x), x, t.to(turned, t.dtype(x)))
