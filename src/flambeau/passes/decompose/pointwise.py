"""Elementwise ops in terms of simpler ones."""

from __future__ import annotations

import math
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.aliases import alias_overloads
from flambeau.infer.builder import TorchBuilder, meta_of
from flambeau.infer.rules import floating, promoted
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition, over, require_size, times


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
    middle = over(t, t.shape(x)[dim], 2)
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


# --- By another name ---

LOWERED = frozenset({"aten.absolute", "aten.moveaxis.int", "aten.true_divide.Tensor", "aten.det", "aten.inverse"})
"""Aliases that have rules of their own in the lowerings, or that are names of ops which nothing takes."""


def _renamed(name: str, real: str) -> None:
    """The same op by its other name, with the types that are known of its results."""

    def rename(t: TorchBuilder, *_: Any) -> tuple[SSAValue, ...]:
        op = t.before
        assert op is not None
        return tuple(t.op(real, op.operands, [r.type for r in op.results]))

    decomposition(name)(rename)


for _name, _real in alias_overloads().items():
    if _name not in LOWERED:
        _renamed(_name, _real)


@decomposition("aten.max.other")
def max_other(t: TorchBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    return t.maximum(x, y)


@decomposition("aten.min.other")
def min_other(t: TorchBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    return t.minimum(x, y)


@decomposition("aten.positive")
def positive(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return x


# --- Powers and remainders ---


@decomposition("aten.float_power.Tensor_Scalar", "aten.float_power.Tensor_Tensor", "aten.float_power.Scalar")
def float_power(t: TorchBuilder, x: Any, exponent: Any) -> SSAValue:
    """Raise to a power in 64-bit floats, or in complex numbers of such where one operand is complex."""
    operands = (x, exponent)
    is_complex = any(t.dtype(v).is_complex if isinstance(v, SSAValue) else isinstance(v, complex) for v in operands)
    wide = dtypes.complex128 if is_complex else dtypes.float64
    return t.pow(*(t.to(v, wide) if isinstance(v, SSAValue) else float(v) for v in operands))


@decomposition("aten.ldexp.Tensor")
def ldexp(t: TorchBuilder, x: SSAValue, exponent: SSAValue) -> SSAValue:
    dtype = floating(promoted(meta_of(x), meta_of(exponent)))
    exponent = t.to(exponent, dtype if t.dtype(exponent).is_complex else dtype.real)
    return t.mul(t.to(x, dtype), t.pow(2.0, exponent))


@decomposition("aten.remainder.Scalar_Tensor")
def remainder_of_number(t: TorchBuilder, number: Any, x: SSAValue) -> SSAValue:
    dtype = promoted(meta_of(number), meta_of(x))
    return t.remainder(t.full([], number, dtype=dtype), x)


# --- Activations ---


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
