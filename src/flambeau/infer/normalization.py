"""Shapes of normalisations and of their statistics."""

from __future__ import annotations

from typing import Any

from flambeau.infer.rules import Dim, InferenceError, Meta, dtype_or, infer_rule, same, size
from flambeau.ir import dtypes

infer_rule(
    "aten.layer_norm", "aten.group_norm", "aten.batch_norm", "aten.rms_norm", "aten.instance_norm", "aten.renorm",
)(same)  # fmt: skip


def _kept(x: Meta, normalized: list[Any]) -> tuple[Dim, ...]:
    """Give the shape of statistics over the last dims, those of `normalized`: each has size 1."""
    outer = x.rank - len(normalized)
    return (*x.shape[:outer], *(1,) * len(normalized))


@infer_rule("aten.native_layer_norm")
def native_layer_norm(x: Meta, normalized: list[Any], *_: Any) -> tuple[Meta, Meta, Meta]:
    statistics = Meta(_kept(x, normalized), x.dtype)
    return x, statistics, statistics


@infer_rule("aten._fused_rms_norm")
def fused_rms_norm(x: Meta, normalized: list[Any], *_: Any) -> tuple[Meta, Meta]:
    return x, Meta(_kept(x, normalized), x.dtype.compute)


@infer_rule("aten.native_group_norm")
def native_group_norm(
    x: Meta, weight: Any, bias: Any, n: Any, c: Any, area: Any, groups: Any, eps: Any
) -> tuple[Meta, Meta, Meta]:
    statistics = Meta((size(n), size(groups)), x.dtype)
    return x, statistics, statistics


def _batch_norm(x: Meta, is_training: bool) -> tuple[Meta, Meta, Meta]:
    """Give the types of the result and of the mean and deviation that are saved for gradients: none in inference."""
    saved = Meta((x.shape[1],) if is_training else (0,), x.dtype)
    return x, saved, saved


@infer_rule("aten.native_batch_norm", "aten._native_batch_norm_legit")
def native_batch_norm(
    x: Meta, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: Any, eps: Any
) -> tuple[Meta, Meta, Meta]:
    return _batch_norm(x, training)


@infer_rule("aten._native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    x: Meta, weight: Any, bias: Any, training: bool, momentum: Any, eps: Any
) -> tuple[Meta, Meta, Meta]:
    return _batch_norm(x, training)


@infer_rule("aten._native_batch_norm_legit_no_training")
def batch_norm_no_training(
    x: Meta, weight: Any, bias: Any, mean: Meta | None, variance: Meta | None, *_: Any
) -> tuple[Meta, Meta, Meta]:
    if mean is None or variance is None:
        raise InferenceError("a batch norm that is not trained needs a mean and a variance")
    return _batch_norm(x, False)


@infer_rule("aten._native_batch_norm_legit_functional")
def batch_norm_functional(
    x: Meta, weight: Any, bias: Any, mean: Meta, variance: Meta, training: bool, momentum: Any, eps: Any
) -> tuple[Meta, Meta, Meta, Meta, Meta]:
    return *_batch_norm(x, training), mean, variance


@infer_rule("aten.softmax.int", "aten.log_softmax.int", "aten._safe_softmax")
def softmax(x: Meta, dim: int, dtype: int | None) -> Meta:
    return Meta(x.shape, dtype_or(dtype, x.dtype))


@infer_rule("aten._softmax", "aten._log_softmax")
def softmax_half(x: Meta, dim: int, half_to_float: bool) -> Meta:
    return Meta(x.shape, dtypes.float32 if half_to_float else x.dtype)


@infer_rule("aten._softmax_backward_data", "aten._log_softmax_backward_data")
def softmax_backward(gradient: Meta, output: Meta, dim: int, dtype: int) -> Meta:
    return Meta(gradient.shape, dtype_or(dtype, gradient.dtype))
