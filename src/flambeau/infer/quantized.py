"""Shapes and dtypes of PyTorch's `quantized_decomposed` library."""

from __future__ import annotations

from typing import Any

from flambeau.infer.rules import Meta, dtype_or, infer_rule, same, with_mask
from flambeau.ir import dtypes

LIBRARY = "quantized_decomposed"

infer_rule(
    "aten.fake_quantize_per_tensor_affine", "aten.fake_quantize_per_tensor_affine.tensor_qparams",
    "aten.fake_quantize_per_channel_affine", "aten._fake_quantize_learnable_per_tensor_affine",
    "aten._fake_quantize_learnable_per_channel_affine",
)(same)  # fmt: skip
infer_rule(
    "aten.fake_quantize_per_tensor_affine_cachemask", "aten.fake_quantize_per_channel_affine_cachemask",
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
)(with_mask)  # fmt: skip


@infer_rule(
    f"{LIBRARY}.quantize_per_tensor", f"{LIBRARY}.quantize_per_tensor.tensor", f"{LIBRARY}.quantize_per_channel",
)  # fmt: skip
def quantize(x: Meta, scale: Any, zero_point: Any, *rest: Any) -> Meta:
    return Meta(x.shape, dtype_or(rest[-1], x.dtype))


@infer_rule(f"{LIBRARY}.quantize_per_channel_group")
def quantize_group(x: Meta, scales: Any, zero_points: Any, low: int, high: int, dtype: int, group: int) -> Meta:
    return Meta(x.shape, dtype_or(dtype, x.dtype))


@infer_rule(
    f"{LIBRARY}.dequantize_per_tensor", f"{LIBRARY}.dequantize_per_tensor.tensor", f"{LIBRARY}.dequantize_per_channel",
    f"{LIBRARY}.dequantize_per_channel_group",
)  # fmt: skip
def dequantize(x: Meta, scale: Any, zero_point: Any, *rest: Any) -> Meta:
    return Meta(x.shape, dtype_or(rest[-1], dtypes.float32))


@infer_rule(f"{LIBRARY}.choose_qparams.tensor", f"{LIBRARY}.choose_qparams_symmetric.tensor")
def choose_qparams(x: Meta, low: int, high: int, eps: float, dtype: int) -> tuple[Meta, Meta]:
    return Meta((1,), dtypes.float64), Meta((1,), dtypes.int64)
