"""Shapes of losses."""

from __future__ import annotations

from typing import Any

from flambeau.dialects.torch.enums import NONE
from flambeau.infer.rules import (
    Dim,
    InferenceError,
    Meta,
    broadcast,
    broadcast_metas,
    infer_rule,
    promoted,
    promoted_float,
)
from flambeau.ir.dtypes import DType


def _loss(shape: tuple[Dim, ...], reduction: Any, dtype: DType) -> Meta:
    if not isinstance(reduction, int):
        raise InferenceError("the reduction of a loss is not a constant")
    return Meta(shape if reduction == NONE else (), dtype)


@infer_rule("aten.mse_loss", "aten.smooth_l1_loss")
def elementwise(x: Meta, target: Meta, reduction: int, *_: Any) -> Meta:
    return _loss(broadcast_metas(x, target), reduction, promoted(x, target))


@infer_rule("aten.huber_loss", "aten.soft_margin_loss")
def of_input(x: Meta, target: Meta, reduction: int, *_: Any) -> Meta:
    return _loss(broadcast_metas(x, target), reduction, x.dtype)


@infer_rule("aten.l1_loss")
def l1_loss(x: Meta, target: Meta, reduction: int) -> Meta:
    return _loss(broadcast_metas(x, target), reduction, promoted(x, target).real)


infer_rule("aten.kl_div")(lambda x, target, reduction, log_target: elementwise(x, target, reduction))
infer_rule("aten.binary_cross_entropy")(lambda x, target, weight, reduction: _loss(x.shape, reduction, x.dtype))


@infer_rule("aten.binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(x: Meta, target: Meta, weight: Any, pos_weight: Any, reduction: int) -> Meta:
    return _loss(target.shape, reduction, target.dtype)


@infer_rule("aten.poisson_nll_loss")
def poisson_nll_loss(x: Meta, target: Meta, log_input: bool, full: bool, eps: Any, reduction: int) -> Meta:
    return _loss(broadcast_metas(x, target), reduction, promoted_float(x, target))


def _without_classes(x: Meta) -> tuple[Dim, ...]:
    return (*x.shape[:1], *x.shape[2:]) if x.rank > 1 else ()


@infer_rule("aten.cross_entropy_loss", "aten.nll_loss_nd", "aten.nll_loss", "aten.nll_loss2d")
def cross_entropy_loss(x: Meta, target: Meta, weight: Any, reduction: int, *_: Any) -> Meta:
    return _loss(_without_classes(x), reduction, promoted(x, target))


@infer_rule("aten.nll_loss_forward", "aten.nll_loss2d_forward")
def nll_loss_forward(x: Meta, target: Meta, weight: Any, reduction: int, ignored: Any) -> tuple[Meta, Meta]:
    return _loss(_without_classes(x), reduction, x.dtype), Meta((), x.dtype)


@infer_rule("aten.nll_loss_backward", "aten.nll_loss2d_backward", "aten.mse_loss_backward")
def backward(gradient: Meta, x: Meta, *_: Any) -> Meta:
    return x


@infer_rule("aten.cosine_embedding_loss")
def cosine_embedding_loss(x: Meta, y: Meta, target: Meta, margin: Any, reduction: int) -> Meta:
    return _loss(broadcast(target.shape, broadcast_metas(x, y)[:-1]), reduction, promoted_float(x, y))
