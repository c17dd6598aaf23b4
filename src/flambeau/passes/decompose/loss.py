"""Losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.enums import MEAN, NONE, SUM
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition, over, require_size, times


def reduced(t: TorchBuilder, loss: SSAValue, reduction: int) -> SSAValue:
    """Reduce the losses of elements as the argument `reduction` says, which is PyTorch's number."""
    return loss if reduction == NONE else t.mean(loss) if reduction == MEAN else t.sum(loss)


decomposition("aten.mse_loss")(lambda t, x, target, reduction: reduced(t, t.square(t.sub(x, target)), reduction))
decomposition("aten.l1_loss")(lambda t, x, target, reduction: reduced(t, t.abs(t.sub(x, target)), reduction))


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


@decomposition("aten.binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    t: TorchBuilder, x: SSAValue, target: SSAValue, weight: Any, positive_weight: Any, reduction: int
) -> SSAValue:
    """Compute (1 - target) * x - log_sigmoid(x), weighted; the loss has the dtype and shape of the target."""
    dtype = t.dtype(target)
    if not dtype.is_float:
        raise Unsupported(f"binary cross entropy with targets of {dtype}")
    logs: Any = t.log_sigmoid(x)
    if positive_weight is not None:
        logs = t.to(t.mul(logs, t.add(t.mul(t.sub(positive_weight, 1), target), 1)), t.dtype(x))
    loss = t.to(t.sub(t.to(t.mul(t.rsub(target, 1), x), dtype), logs), dtype)
    return reduced(t, loss if weight is None else t.to(t.mul(loss, weight), dtype), reduction)


@decomposition("aten.kl_div")
def kl_div(t: TorchBuilder, x: SSAValue, target: SSAValue, reduction: int, log_target: bool) -> SSAValue:
    if log_target:
        loss = t.mul(t.exp(target), t.sub(target, x))
    else:
        loss = t.sub(t.xlogy(target, target), t.mul(target, x))
    return reduced(t, loss, reduction)


@decomposition("aten.poisson_nll_loss")
def poisson_nll_loss(
    t: TorchBuilder, x: SSAValue, target: SSAValue, log_input: bool, full: bool, eps: float, reduction: int
) -> SSAValue:
    if log_input:
        loss = t.sub(t.exp(x), t.mul(target, x))
    else:
        loss = t.sub(x, t.mul(target, t.log(t.add(x, eps))))
    if full:
        # Stirling's approximation of the logarithm of the target's factorial.
        factorial = t.add(t.sub(t.mul(target, t.log(target)), target), t.mul(t.log(t.mul(target, 2 * math.pi)), 0.5))
        loss = t.to(t.add(loss, t.masked_fill(factorial, t.le(target, 1), 0)), t.dtype(loss))
    return reduced(t, loss, reduction)


@decomposition("aten.cosine_embedding_loss")
def cosine_embedding_loss(
    t: TorchBuilder, x: SSAValue, y: SSAValue, target: SSAValue, margin: float, reduction: int
) -> SSAValue:
    rank = len(t.shape(target))
    dims = [rank]
    if rank > 1 or not len(t.shape(x)) == len(t.shape(y)) == rank + 1:
        raise Unsupported("a cosine embedding loss other than of matrices, or of vectors with one target")

    def square(v: SSAValue) -> SSAValue:
        return t.add(t.sum(t.mul(v, v), dims), 1e-12)

    cosine = t.div(t.sum(t.mul(x, y), dims), t.sqrt(t.mul(square(x), square(y))))
    zeros = t.zeros_like(cosine)
    near = t.where(t.eq(target, 1), t.rsub(cosine, 1), zeros)
    far = t.where(t.eq(target, -1), t.clamp_min(t.sub(cosine, margin), 0), zeros)
    return reduced(t, t.add(near, far), reduction)


# --- Losses of classes, which are dim 1, or the only dim ---

Pair = tuple[SSAValue, SSAValue]


def _class_dim(t: TorchBuilder, x: SSAValue) -> int:
    return min(len(t.shape(x)) - 1, 1)


def _chosen(t: TorchBuilder, target: SSAValue, weight: Any, ignored: Any) -> tuple[SSAValue, SSAValue, Any]:
    """Find which targets count; the targets, 0 for those that do not; the weight of each, None where all are 1."""
    counts = t.ne(target, ignored)
    classes = t.where(counts, t.to(target, dtypes.int64), 0)
    if weight is None:
        return counts, classes, None
    return counts, classes, t.where(counts, t.index(weight, [classes]), 0.0)


def _total(t: TorchBuilder, counts: SSAValue, weights: Any, like: SSAValue) -> SSAValue:
    """Add up the weights of the targets that count, by which a mean is divided."""
    return t.to(t.sum(counts), t.dtype(like)) if weights is None else t.sum(weights)


def _check_classes(t: TorchBuilder, x: SSAValue, target: SSAValue, weight: Any, ranks: Sequence[int] | None) -> None:
    """Refuse targets and weights that PyTorch does not take."""
    sizes, wanted, dim = t.shape(x), t.shape(target), _class_dim(t, x)
    if not sizes or (ranks is not None and len(sizes) not in ranks) or len(wanted) != len(sizes) - 1:
        raise Unsupported(f"a loss of classes of a tensor of rank {len(sizes)} with targets of rank {len(wanted)}")
    if t.dtype(target) not in (dtypes.int64, dtypes.uint8):
        raise Unsupported(f"classes as {t.dtype(target)}", "They are 64-bit integers, or uint8.")
    for one, other in zip([*sizes[:dim], *sizes[dim + 1 :]], wanted, strict=True):
        require_size(t, one, "eq", other, "input and target must have the same sizes but for the classes")
    if weight is not None:
        _check_weight(t, x, weight)


def _check_weight(t: TorchBuilder, x: SSAValue, weight: SSAValue) -> None:
    if t.dtype(weight) is not t.dtype(x) or len(t.shape(weight)) != 1:
        raise Unsupported(f"weights of classes as a tensor of rank {len(t.shape(weight))} of {t.dtype(weight)}")
    classes = t.shape(x)[_class_dim(t, x)]
    require_size(t, t.shape(weight)[0], "eq", classes, "there must be one weight for each class")


def _nll_loss(
    t: TorchBuilder, x: SSAValue, target: SSAValue, weight: Any, reduction: int, ignored: Any, ranks: Any
) -> Pair:
    """Compute the loss and the sum of the weights of the targets that count, which is 0 where nothing is reduced."""
    _check_classes(t, x, target, weight, ranks)
    dim = _class_dim(t, x)
    counts, classes, weights = _chosen(t, target, weight, ignored)
    picked = t.neg(t.squeeze(t.gather(x, dim, t.unsqueeze(classes, dim)), dim))
    loss = t.where(counts, picked if weights is None else t.mul(picked, weights), 0.0)
    if reduction == NONE:
        return loss, t.zeros([], dtype=t.dtype(x))
    total = _total(t, counts, weights, x)
    return (t.div(t.sum(loss), total) if reduction == MEAN else t.sum(loss)), total


def _class_loss(name: str, ranks: tuple[int, ...] | None) -> None:
    """Add the rules of a loss of classes for tensors of these ranks, and of its form that gives the weights' sum."""

    def forward(t: TorchBuilder, x: SSAValue, target: SSAValue, weight: Any, reduction: int, ignored: Any) -> Pair:
        return _nll_loss(t, x, target, weight, reduction, ignored, ranks)

    decomposition(f"aten.{name}")(lambda *args: forward(*args)[0])
    if ranks is not None:
        decomposition(f"aten.{name}_forward")(forward)


_class_loss("nll_loss", (1, 2))
_class_loss("nll_loss2d", (4,))
_class_loss("nll_loss_nd", None)


@decomposition("aten.cross_entropy_loss")
def cross_entropy_loss(
    t: TorchBuilder, x: SSAValue, target: SSAValue, weight: Any, reduction: int, ignored: Any, smoothing: float
) -> SSAValue:
    """Compute the cross entropy; targets are classes, or of the input's shape: a probability for each class."""
    if not 0 <= smoothing <= 1:
        raise Unsupported(f"a label smoothing of {smoothing}")
    if not t.dtype(x).is_float:
        raise Unsupported(f"cross entropy of {t.dtype(x)}")
    dim = _class_dim(t, x)
    logs = t.log_softmax(x, dim)
    if t.dtype(target).is_float:
        return _soft_cross_entropy(t, logs, target, weight, reduction, ignored, smoothing)
    hard = _nll_loss(t, logs, target, weight, reduction, ignored, None)[0]
    if smoothing == 0:
        return hard
    counts, _, weights = _chosen(t, target, weight, ignored)
    smooth = t.where(counts, t.neg(t.sum(_by_class(t, logs, weight, dim), [dim])), 0.0)
    if reduction == MEAN:
        smooth = t.div(t.sum(smooth), _total(t, counts, weights, x))
    else:
        smooth = reduced(t, smooth, reduction)
    return t.add(t.mul(hard, 1 - smoothing), t.div(t.mul(smooth, smoothing), t.shape(x)[dim]))


def _soft_cross_entropy(
    t: TorchBuilder, logs: SSAValue, target: SSAValue, weight: Any, reduction: int, ignored: Any, smoothing: float
) -> SSAValue:
    sizes, dim = t.shape(logs), _class_dim(t, logs)
    if len(t.shape(target)) != len(sizes):
        raise Unsupported("probabilities of classes that do not have the shape of the input")
    if not isinstance(ignored, int) or ignored >= 0:
        raise Unsupported(f"ignore_index is {ignored}, and targets are probabilities")
    for one, other in zip(sizes, t.shape(target), strict=True):
        require_size(t, one, "eq", other, "probabilities must have the shape of the input")
    if weight is not None:
        _check_weight(t, logs, weight)
    if smoothing:
        share = t.full([], smoothing, dtype=t.dtype(target))
        target = t.add(t.mul(target, 1 - smoothing), t.div(share, sizes[dim]))
    loss = _by_class(t, t.mul(logs, target), weight, dim)
    if reduction == NONE:
        return t.neg(t.sum(loss, [dim]))
    total = t.neg(t.sum(loss))
    return total if reduction == SUM else t.div(total, over(t, times(t, *sizes), sizes[dim]))


def _by_class(t: TorchBuilder, x: SSAValue, weight: Any, dim: int) -> SSAValue:
    """Multiply by the weight of each class."""
    if weight is None:
        return x
    return t.mul(x, t.view(weight, [-1 if i == dim else 1 for i in range(len(t.shape(x)))]))
