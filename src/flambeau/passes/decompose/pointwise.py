"""Elementwise ops in terms of simpler ones."""

from __future__ import annotations

import math
from typing import Any

from xdsl.ir import SSAValue

from flambeau.infer.builder import TorchBuilder, meta_of
from flambeau.infer.rules import floating, promoted
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition


def _promoted(t: TorchBuilder, x: SSAValue, y: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Convert both to the dtype that they promote to."""
    dtype = promoted(meta_of(x), meta_of(y))
    return t.to(x, dtype), t.to(y, dtype)


@decomposition("aten.logaddexp")
def logaddexp(t: TorchBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    x, y = _promoted(t, x, y)
    if t.dtype(x).is_complex:
        x_is_more = t.ge(t.real(x), t.real(y))
        more, less = t.where(x_is_more, x, y), t.where(x_is_more, y, x)
        return t.add(more, t.log1p(t.exp(t.sub(less, more))))
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


decomposition("aten.special_expit")(lambda t, x: t.sigmoid(x))


@decomposition("aten.special_xlog1py")
def xlog1py(t: TorchBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    return t.where(t.logical_and(t.eq(x, 0), t.logical_not(t.isnan(y))), 0.0, t.mul(x, t.log1p(y)))


@decomposition("aten.angle")
def angle(t: TorchBuilder, x: SSAValue) -> SSAValue:
    if t.dtype(x).is_complex:
        return t.atan2(t.imag(x), t.real(x))
    if not t.dtype(x).is_float:
        return t.where(t.lt(x, 0), math.pi, 0.0)
    return t.where(t.isnan(x), x, t.where(t.lt(x, 0), t.full_like(x, math.pi), t.zeros_like(x)))


decomposition("aten.max.other")(lambda t, x, y: t.maximum(x, y))
decomposition("aten.min.other")(lambda t, x, y: t.minimum(x, y))


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


@decomposition("prims.cbrt")
def cbrt(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return t.mul(t.sign(x), t.pow(t.abs(x), 1 / 3))


@decomposition("prims.div")
def prims_div(t: TorchBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    """Divide; integers round towards zero."""
    dtype = t.dtype(x)
    return t.div(x, y) if dtype.is_float or dtype.is_complex else t.div(x, y, rounding_mode="trunc")


decomposition("prims.pow")(lambda t, x, y: t.pow(x, y))
