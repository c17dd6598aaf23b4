"""Losses."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from flambeau.infer.builder import TorchBuilder
from flambeau.passes.decompose.rules import decomposition, require_size

NONE, MEAN, SUM = 0, 1, 2


def reduced(t: TorchBuilder, loss: SSAValue, reduction: int) -> SSAValue:
    """The `reduction` argument of every loss."""
    return loss if reduction == NONE else t.mean(loss) if reduction == MEAN else t.sum(loss)


@decomposition("aten.mse_loss")
def mse_loss(t: TorchBuilder, x: SSAValue, target: SSAValue, reduction: int) -> SSAValue:
    return reduced(t, t.square(t.sub(x, target)), reduction)


@decomposition("aten.l1_loss")
def l1_loss(t: TorchBuilder, x: SSAValue, target: SSAValue, reduction: int) -> SSAValue:
    return reduced(t, t.abs(t.sub(x, target)), reduction)


@decomposition("aten.smooth_l1_loss")
def smooth_l1_loss(t: TorchBuilder, x: SSAValue, target: SSAValue, reduction: int, beta: float) -> SSAValue:
    error = t.abs(t.sub(x, target))
    if beta == 0:
        return reduced(t, error, reduction)
    small = t.mul(t.square(error), 0.5 / beta)
    return reduced(t, t.where(t.lt(error, beta), small, t.sub(error, 0.5 * beta)), reduction)


@decomposition("aten.huber_loss")
def huber_loss(t: TorchBuilder, x: SSAValue, target: SSAValue, reduction: int, delta: float) -> SSAValue:
    error = t.abs(t.sub(x, target))
    large = t.mul(t.sub(error, 0.5 * delta), delta)
    return reduced(t, t.where(t.le(error, delta), t.mul(t.square(error), 0.5), large), reduction)


@decomposition("aten.soft_margin_loss")
def soft_margin_loss(t: TorchBuilder, x: SSAValue, target: SSAValue, reduction: int) -> SSAValue:
    return reduced(t, t.log1p(t.exp(t.mul(t.neg(x), target))), reduction)


@decomposition("aten.binary_cross_entropy")
def binary_cross_entropy(t: TorchBuilder, x: SSAValue, target: SSAValue, weight: Any, reduction: int) -> SSAValue:
    for one, other in zip(t.shape(x), t.shape(target), strict=True):
        require_size(t, one, "eq", other, "input and target must have the same shape")
    # PyTorch keeps logarithms above -100, so that a wrong certain answer has a finite loss.
    positive = t.clamp(t.log(x), -100.0)
    negative = t.clamp(t.log1p(t.neg(x)), -100.0)
    loss = t.sub(t.mul(t.sub(target, 1.0), negative), t.mul(target, positive))
    return reduced(t, loss if weight is None else t.mul(loss, weight), reduction)
