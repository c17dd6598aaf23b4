"""Shapes and dtypes of elementwise ops: broadcast, and one of four ways to choose the dtype."""

from __future__ import annotations

from typing import Any

from flambeau.infer.promotion import COMPLEX_OF
from flambeau.infer.rules import (
    InferenceError,
    Meta,
    broadcast_metas,
    dtype_or,
    floating,
    infer_rule,
    promoted,
    promoted_float,
)
from flambeau.ir import dtypes


def _numbers(args: tuple[Any, ...]) -> list[Any]:
    return [a for a in args if not isinstance(a, str) and a is not None]


@infer_rule(
    "aten.neg", "aten.relu", "aten.relu6", "aten.sign", "aten.sgn", "aten.floor", "aten.ceil", "aten.trunc",
    "aten.round", "aten.frac", "aten.bitwise_not", "aten.clone", "aten.contiguous", "aten.detach",
    "aten.alias", "aten.positive", "aten.leaky_relu", "aten.elu", "aten.celu", "aten.selu", "aten.gelu", "aten.silu",
    "aten.mish", "aten.softplus", "aten.log_sigmoid", "aten.hardtanh", "aten.hardsigmoid", "aten.hardswish",
    "aten.hardshrink", "aten.softshrink", "aten.threshold", "aten.dropout", "aten.tril", "aten.triu",
    "aten.nan_to_num", "aten.round.decimals", "aten.flip", "aten.roll", "aten.conj", "aten.fill.Scalar",
    "aten.fill.Tensor", "aten.negative", "aten.lift", "aten.lift_fresh", "aten.lift_fresh_copy", "aten.alias_copy",
    "aten.detach_copy", "aten._conj", "aten._conj_physical", "aten.conj_physical", "aten.resolve_conj",
    "aten.resolve_neg", "aten.alpha_dropout", "aten.feature_dropout", "aten.feature_alpha_dropout", "aten.rrelu",
    "aten.rrelu_with_noise", "aten.prelu", "aten.copy", "aten.zero", "aten.fliplr",
    "aten.flipud", "aten.renorm", "aten.cpu", "aten.cuda", "aten.bernoulli", "aten.bernoulli.Tensor",
    "aten.bernoulli.p", "aten.exponential", "aten.uniform", "aten.normal_functional", "aten.random",
    "aten.random.from", "valsem.aten.bernoulli.float", "prims.view_of", "prims.sqrt",
    "aten.fake_quantize_per_tensor_affine", "aten.fake_quantize_per_tensor_affine.tensor_qparams",
    "aten.fake_quantize_per_channel_affine", "aten.data",
    "aten._autocast_to_full_precision",
)  # fmt: skip
def same(x: Meta, *_: Any) -> Meta:
    return x


@infer_rule("aten.square")
def square(x: Meta) -> Meta:
    return Meta(x.shape, dtypes.int64 if x.dtype.is_bool else x.dtype)


@infer_rule("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", "aten.masked_scatter")
def masked(x: Meta, mask: Meta, *_: Any) -> Meta:
    return Meta(broadcast_metas(x, mask), x.dtype)


@infer_rule("aten.abs", "aten.real", "aten.imag")
def absolute(x: Meta) -> Meta:
    return Meta(x.shape, x.dtype.real)


@infer_rule(
    "aten.exp", "aten.exp2", "aten.expm1", "aten.log", "aten.log2", "aten.log10", "aten.log1p", "aten.sin", "aten.cos",
    "aten.tan", "aten.asin", "aten.acos", "aten.atan", "aten.sinh", "aten.cosh", "aten.tanh", "aten.asinh",
    "aten.acosh", "aten.atanh", "aten.erf", "aten.erfc", "aten.sqrt", "aten.rsqrt", "aten.sigmoid", "aten.reciprocal",
    "aten.logit", "aten.sinc", "aten.deg2rad", "aten.rad2deg", "aten.erfinv", "aten.lgamma", "aten.digamma", "aten.i0",
    "aten.special_expit", "aten.special_entr", "aten.special_ndtri", "aten.special_erfcx",
    "aten.special_log_ndtr", "aten.special_i0e", "aten.special_i1", "aten.special_i1e", "aten.mvlgamma",
    "aten.special_airy_ai", "aten.special_spherical_bessel_j0",
    *(f"aten.special_{kind}{order}" for order in (0, 1) for kind in (
        "bessel_j", "bessel_y", "modified_bessel_i", "modified_bessel_k", "scaled_modified_bessel_k",
    )),
)  # fmt: skip
def float_unary(x: Meta, *_: Any) -> Meta:
    return Meta(x.shape, promoted_float(x))


@infer_rule("aten.angle")
def angle(x: Meta) -> Meta:
    return Meta(x.shape, floating(x.dtype).real)


@infer_rule("aten.frexp.Tensor")
def frexp(x: Meta) -> tuple[Meta, Meta]:
    return x, Meta(x.shape, dtypes.int32)


@infer_rule("aten.polygamma", "aten.special_polygamma")
def polygamma(n: Any, x: Meta) -> Meta:
    return float_unary(x)


@infer_rule(
    "aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar", "aten.rsub.Tensor", "aten.rsub.Scalar",
)  # fmt: skip
def add(x: Meta, y: Any, alpha: Any) -> Meta:
    return Meta(broadcast_metas(x, y), promoted(x, y))


@infer_rule(
    "aten.mul.Tensor", "aten.mul.Scalar", "aten.floor_divide", "aten.floor_divide.Scalar", "aten.remainder.Tensor",
    "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor", "aten.fmod.Tensor", "aten.fmod.Scalar", "aten.maximum",
    "aten.minimum", "aten.fmax", "aten.fmin", "aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar",
    "aten.bitwise_and.Tensor", "aten.bitwise_and.Scalar", "aten.bitwise_or.Tensor", "aten.bitwise_or.Scalar",
    "aten.bitwise_xor.Tensor", "aten.bitwise_xor.Scalar", "aten.hypot", "aten.gcd", "aten.lcm", "aten.heaviside",
    "aten.nextafter", "aten.max.other", "aten.min.other",
    *(f"aten.__{op}__.{kind}" for op in ("and", "or", "xor", "lshift", "rshift") for kind in ("Tensor", "Scalar")),
    *(f"aten.bitwise_{d}_shift.{kind}" for d in ("left", "right") for kind in ("Tensor", "Tensor_Scalar")),
)  # fmt: skip
def arithmetic(x: Any, y: Any) -> Meta:
    return Meta(broadcast_metas(x, y), promoted(x, y))


@infer_rule(
    "aten.div.Tensor", "aten.div.Scalar", "aten.atan2", "aten.copysign.Tensor",
    "aten.copysign.Scalar", "aten.xlogy.Tensor", "aten.xlogy.Scalar_Other", "aten.xlogy.Scalar_Self",
    "aten.logaddexp", "aten.logaddexp2",
    "aten.special_xlog1py", "aten.special_zeta", "aten.igamma", "aten.igammac", "aten.ldexp.Tensor",
    "aten.special_gammainc", "aten.special_gammaincc",
    *(f"aten.special_{polynomial}{overload}" for overload in ("", ".n_scalar", ".x_scalar") for polynomial in (
        *(f"{shift}chebyshev_polynomial_{kind}" for shift in ("", "shifted_") for kind in "tuvw"),
        "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
    )),
)  # fmt: skip
def float_binary(x: Any, y: Any) -> Meta:
    return Meta(broadcast_metas(x, y), promoted_float(x, y))


@infer_rule("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(x: Meta, y: Any, mode: str | None) -> Meta:
    return Meta(broadcast_metas(x, y), promoted_float(x, y) if mode is None else promoted(x, y))


@infer_rule(
    *(f"aten.{op}.{kind}" for op in ("eq", "ne", "lt", "le", "gt", "ge") for kind in ("Tensor", "Scalar")),
    "aten.logical_and", "aten.logical_or", "aten.logical_xor", "aten.logical_not", "aten.isnan", "aten.isinf",
    "aten.isfinite", "aten.isposinf", "aten.isneginf", "aten.signbit", "aten.isclose", "aten.isreal",
)  # fmt: skip
def predicate(*args: Any) -> Meta:
    return Meta(broadcast_metas(*args), dtypes.bool_)


@infer_rule("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(condition: Meta, x: Any, y: Any) -> Meta:
    return Meta(broadcast_metas(condition, x, y), promoted(x, y))


@infer_rule(
    "aten.clamp", "aten.clamp.Tensor", "aten.clamp_min", "aten.clamp_max", "aten.clamp_min.Tensor",
    "aten.clamp_max.Tensor", "aten.clip", "aten.clip.Tensor",
)  # fmt: skip
def clamp(*args: Any) -> Meta:
    numbers = _numbers(args)
    if len(numbers) < 2:
        raise InferenceError("clamp with neither a least nor a greatest value")
    return Meta(broadcast_metas(*numbers), promoted(*numbers))


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


@infer_rule(
    "aten.sigmoid_backward", "aten.tanh_backward", "aten.gelu_backward", "aten.threshold_backward",
    "aten.leaky_relu_backward", "aten.elu_backward", "aten.hardtanh_backward", "aten.softplus_backward",
    "aten._prelu_kernel", "aten.hardshrink_backward", "aten.softshrink_backward",
)  # fmt: skip
def of_tensors(*args: Any) -> Meta:
    """The tensors decide, whatever numbers are among them."""
    tensors = [a for a in args if isinstance(a, Meta)]
    return Meta(broadcast_metas(*tensors), promoted(*tensors))


@infer_rule("aten.log_sigmoid_backward")
def log_sigmoid_backward(gradient: Meta, x: Meta, buffer: Meta) -> Meta:
    return of_tensors(gradient, x)


@infer_rule("aten.native_dropout_backward")
def dropout_backward(gradient: Meta, mask: Meta, scale: Any) -> Meta:
    return Meta(broadcast_metas(gradient, mask), floating(gradient.dtype))


@infer_rule(
    "aten.native_dropout", "aten.fake_quantize_per_tensor_affine_cachemask",
    "aten.fake_quantize_per_channel_affine_cachemask", "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
)  # fmt: skip
def with_mask(x: Meta, *_: Any) -> tuple[Meta, Meta]:
    return x, Meta(x.shape, dtypes.bool_)


@infer_rule("aten.log_sigmoid_forward")
def log_sigmoid_forward(x: Meta) -> tuple[Meta, Meta]:
    return x, x


# --- Conversions ---


@infer_rule("aten.to.dtype", "prims.convert_element_type")
def to_dtype(x: Meta, dtype: int, *_: Any) -> Meta:
    return Meta(x.shape, dtype_or(dtype, x.dtype))


@infer_rule("aten.to.dtype_layout", "aten.to.prim_dtype", "aten._to_copy")
def to_optional_dtype(x: Meta, dtype: int | None, *_: Any) -> Meta:
    return Meta(x.shape, dtype_or(dtype, x.dtype))


@infer_rule("aten.to.device", "aten.to.prim_Device")
def to_device(x: Meta, device: Any, dtype: int | None, *_: Any) -> Meta:
    return Meta(x.shape, dtype_or(dtype, x.dtype))


@infer_rule("aten.to.other", "aten.type_as")
def to_other(x: Meta, other: Meta, *_: Any) -> Meta:
    return Meta(x.shape, other.dtype)


@infer_rule("aten._cast_Float")
def cast_float(x: Meta, non_blocking: bool) -> Meta:
    return Meta(x.shape, dtypes.float32)


@infer_rule("aten._cast_Long")
def cast_long(x: Meta, non_blocking: bool) -> Meta:
    return Meta(x.shape, dtypes.int64)


@infer_rule("aten._autocast_to_reduced_precision")
def autocast(x: Meta, cuda_enabled: bool, cpu_enabled: bool, cuda_dtype: int, cpu_dtype: int) -> Meta:
    return Meta(x.shape, dtype_or(cpu_dtype, x.dtype) if cpu_enabled and x.dtype is dtypes.float32 else x.dtype)
