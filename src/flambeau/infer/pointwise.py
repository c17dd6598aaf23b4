"""Shapes and dtypes of elementwise ops: broadcast, and one of four ways to choose the dtype."""

from __future__ import annotations

from typing import Any

from flambeau.infer.promotion import COMPLEX_OF
from flambeau.infer.rules import (
    Meta,
    arithmetic,
    broadcast_metas,
    float_binary,
    float_unary,
    floating,
    infer_rule,
    promoted,
    promoted_float,
    same,
)
from flambeau.ir import dtypes

infer_rule(
    "aten.neg", "aten.negative", "aten.positive", "aten.sign", "aten.sgn", "aten.floor", "aten.ceil", "aten.trunc",
    "aten.round", "aten.round.decimals", "aten.frac", "aten.conj", "aten._conj", "aten._conj_physical",
    "aten.conj_physical", "prims.sqrt",
)(same)  # fmt: skip

infer_rule(
    "aten.exp", "aten.exp2", "aten.expm1", "aten.log", "aten.log2", "aten.log10", "aten.log1p", "aten.sin", "aten.cos",
    "aten.tan", "aten.asin", "aten.acos", "aten.atan", "aten.sinh", "aten.cosh", "aten.tanh", "aten.asinh",
    "aten.acosh", "aten.atanh", "aten.erf", "aten.sqrt", "aten.rsqrt", "aten.sigmoid", "aten.reciprocal",
    "aten.logit", "aten.sinc", "aten.deg2rad", "aten.rad2deg", "aten.special_expit", "aten.special_entr",
)(float_unary)  # fmt: skip

infer_rule(
    "aten.mul.Tensor", "aten.mul.Scalar", "aten.floor_divide", "aten.floor_divide.Scalar", "aten.remainder.Tensor",
    "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor", "aten.fmod.Tensor", "aten.fmod.Scalar", "aten.maximum",
    "aten.minimum", "aten.fmax", "aten.fmin", "aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar",
    "aten.hypot", "aten.gcd", "aten.lcm", "aten.heaviside", "aten.max.other", "aten.min.other",
)(arithmetic)  # fmt: skip

infer_rule(
    "aten.div.Tensor", "aten.div.Scalar", "aten.atan2", "aten.copysign.Tensor", "aten.copysign.Scalar",
    "aten.xlogy.Tensor", "aten.xlogy.Scalar_Other", "aten.xlogy.Scalar_Self", "aten.logaddexp", "aten.logaddexp2",
    "aten.special_xlog1py", "aten.ldexp.Tensor",
)(float_binary)  # fmt: skip


@infer_rule("aten.square")
def square(x: Meta) -> Meta:
    return Meta(x.shape, dtypes.int64 if x.dtype.is_bool else x.dtype)


@infer_rule("aten.abs", "aten.real", "aten.imag")
def absolute(x: Meta) -> Meta:
    return Meta(x.shape, x.dtype.real)


@infer_rule("aten.angle")
def angle(x: Meta) -> Meta:
    return Meta(x.shape, floating(x.dtype).real)


@infer_rule(
    "aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar", "aten.rsub.Tensor", "aten.rsub.Scalar",
)  # fmt: skip
def add(x: Meta, y: Any, alpha: Any) -> Meta:
    return Meta(broadcast_metas(x, y), promoted(x, y))


@infer_rule("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(x: Meta, y: Any, mode: str | None) -> Meta:
    return Meta(broadcast_metas(x, y), promoted_float(x, y) if mode is None else promoted(x, y))


@infer_rule("aten.addcmul", "aten.addcdiv", "aten.lerp.Tensor", "aten.lerp.Scalar")
def fused(x: Meta, a: Meta, b: Any, *_: Any) -> Meta:
    tensors = [v for v in (x, a, b) if isinstance(v, Meta)]
    return Meta(broadcast_metas(*tensors), promoted(*tensors))


@infer_rule("aten.float_power.Tensor_Tensor", "aten.float_power.Tensor_Scalar", "aten.float_power.Scalar")
def float_power(x: Any, exponent: Any) -> Meta:
    is_complex = promoted(x, exponent).is_complex
    return Meta(broadcast_metas(x, exponent), dtypes.complex128 if is_complex else dtypes.float64)


@infer_rule("aten.complex", "aten.polar")
def complex_(real: Meta, imaginary: Meta) -> Meta:
    return Meta(broadcast_metas(real, imaginary), COMPLEX_OF[real.dtype])


infer_rule("prims.cbrt")(same)
infer_rule("prims.div", "prims.pow")(arithmetic)
