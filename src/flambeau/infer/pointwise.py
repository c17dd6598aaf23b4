"""Shapes and dtypes of elementwise ops: broadcast, and one of four ways to choose the dtype."""

from __future__ import annotations

from typing import Any

from flambeau.infer.rules import Meta, broadcast_metas, infer_rule, promoted, promoted_float
from flambeau.ir import dtypes
from flambeau.ir.dtypes import BY_CODE


def _numbers(args: tuple[Any, ...]) -> list[Any]:
    return [a for a in args if not isinstance(a, str) and a is not None]


@infer_rule(
    "aten.neg", "aten.relu", "aten.relu6", "aten.sign", "aten.sgn", "aten.floor", "aten.ceil", "aten.trunc",
    "aten.round", "aten.frac", "aten.bitwise_not", "aten.clone", "aten.contiguous", "aten.detach",
    "aten.alias", "aten.positive", "aten.leaky_relu", "aten.elu", "aten.celu", "aten.selu", "aten.gelu", "aten.silu",
    "aten.mish", "aten.softplus", "aten.log_sigmoid", "aten.hardtanh", "aten.hardsigmoid", "aten.hardswish",
    "aten.hardshrink", "aten.softshrink", "aten.threshold", "aten.dropout", "aten.tril", "aten.triu",
    "aten.nan_to_num", "aten.round.decimals", "aten.flip", "aten.roll",
    "aten.masked_fill.Scalar", "aten.masked_fill.Tensor", "aten.conj", "aten.fill.Scalar", "aten.fill.Tensor",
)  # fmt: skip
def same(x: Meta, *_: Any) -> Meta:
    return x


@infer_rule("aten.square")
def square(x: Meta) -> Meta:
    return Meta(x.shape, dtypes.int64 if x.dtype.is_bool else x.dtype)


@infer_rule("aten.abs")
def absolute(x: Meta) -> Meta:
    return Meta(x.shape, x.dtype.real)


@infer_rule(
    "aten.exp", "aten.exp2", "aten.expm1", "aten.log", "aten.log2", "aten.log10", "aten.log1p", "aten.sin", "aten.cos",
    "aten.tan", "aten.asin", "aten.acos", "aten.atan", "aten.sinh", "aten.cosh", "aten.tanh", "aten.asinh",
    "aten.acosh", "aten.atanh", "aten.erf", "aten.erfc", "aten.sqrt", "aten.rsqrt", "aten.sigmoid", "aten.reciprocal",
    "aten.logit", "aten.sinc", "aten.deg2rad", "aten.rad2deg",
)  # fmt: skip
def float_unary(x: Meta, *_: Any) -> Meta:
    return Meta(x.shape, promoted_float(x))


@infer_rule(
    "aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar", "aten.rsub.Tensor", "aten.rsub.Scalar",
)  # fmt: skip
def add(x: Meta, y: Any, alpha: Any) -> Meta:
    return Meta(broadcast_metas(x, y), promoted(x, y))


@infer_rule(
    "aten.mul.Tensor", "aten.mul.Scalar", "aten.floor_divide", "aten.floor_divide.Scalar", "aten.remainder.Tensor",
    "aten.remainder.Scalar", "aten.fmod.Tensor", "aten.fmod.Scalar", "aten.maximum", "aten.minimum", "aten.fmax",
    "aten.fmin", "aten.pow.Tensor_Tensor", "aten.pow.Scalar", "aten.bitwise_and.Tensor",
    "aten.bitwise_and.Scalar", "aten.bitwise_or.Tensor", "aten.bitwise_or.Scalar", "aten.bitwise_xor.Tensor",
    "aten.bitwise_xor.Scalar", "aten.hypot", "aten.gcd", "aten.heaviside",
)  # fmt: skip
def arithmetic(x: Any, y: Any) -> Meta:
    return Meta(broadcast_metas(x, y), promoted(x, y))


@infer_rule("aten.pow.Tensor_Scalar")
def pow_scalar(x: Meta, exponent: Any) -> Meta:
    dtype = promoted(x, exponent)
    return Meta(x.shape, dtypes.int64 if dtype.is_bool else dtype)


@infer_rule(
    "aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", "aten.atan2", "aten.copysign.Tensor",
    "aten.copysign.Scalar", "aten.xlogy.Tensor", "aten.xlogy.Scalar_Other",
)  # fmt: skip
def float_binary(x: Meta, y: Any) -> Meta:
    return Meta(broadcast_metas(x, y), promoted_float(x, y))


@infer_rule("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(x: Meta, y: Any, mode: str | None) -> Meta:
    return Meta(broadcast_metas(x, y), promoted_float(x, y) if mode is None else promoted(x, y))


@infer_rule(
    *(f"aten.{op}.{kind}" for op in ("eq", "ne", "lt", "le", "gt", "ge") for kind in ("Tensor", "Scalar")),
    "aten.logical_and", "aten.logical_or", "aten.logical_xor", "aten.logical_not", "aten.isnan", "aten.isinf",
    "aten.isfinite", "aten.isposinf", "aten.isneginf", "aten.signbit",
)  # fmt: skip
def predicate(*args: Any) -> Meta:
    return Meta(broadcast_metas(*args), dtypes.bool_)


@infer_rule("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf")
def where(condition: Meta, x: Any, y: Any) -> Meta:
    return Meta(broadcast_metas(condition, x, y), promoted(x, y))


@infer_rule(
    "aten.clamp", "aten.clamp.Tensor", "aten.clamp_min", "aten.clamp_max", "aten.clamp_min.Tensor",
    "aten.clamp_max.Tensor",
)  # fmt: skip
def clamp(*args: Any) -> Meta:
    numbers = _numbers(args)
    return Meta(broadcast_metas(*numbers), promoted(*numbers))


@infer_rule("aten.addcmul", "aten.addcdiv", "aten.lerp.Tensor", "aten.lerp.Scalar")
def fused(x: Meta, a: Meta, b: Any, *_: Any) -> Meta:
    tensors = [v for v in (x, a, b) if isinstance(v, Meta)]
    return Meta(broadcast_metas(*tensors), promoted(*tensors))


@infer_rule("aten.to.dtype", "prims.convert_element_type")
def to_dtype(x: Meta, dtype: int, *_: Any) -> Meta:
    return Meta(x.shape, BY_CODE[dtype])
