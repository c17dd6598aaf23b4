"""The losses of `nn.functional`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flambeau.dialects.torch.enums import REDUCTIONS
from flambeau.frontends.nn.core import context, ops
from flambeau.frontends.nn.core.values import Tensor

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy", "ctc_loss",
    "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "linear_cross_entropy",
    "margin_ranking_loss", "mse_loss", "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss",
    "nll_loss", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]  # fmt: skip


def reduction_of(reduction: str, size_average: bool | None = None, reduce: bool | None = None) -> str:
    """Return the name of a reduction; PyTorch's older pair of flags has precedence."""
    if size_average is None and reduce is None:
        if reduction not in (*REDUCTIONS, "batchmean"):
            raise ValueError(f"{reduction} is not a valid value for reduction")
        return reduction
    return "none" if reduce is False else "sum" if size_average is False else "mean"


def _number(reduction: str, size_average: bool | None = None, reduce: bool | None = None) -> int:
    """Return the number that operators take for a reduction."""
    return REDUCTIONS[reduction_of(reduction, size_average, reduce)]


def _reduced(loss: Any, reduction: str, size_average: bool | None = None, reduce: bool | None = None) -> Any:
    how = reduction_of(reduction, size_average, reduce)
    return loss if how == "none" else loss.mean() if how == "mean" else loss.sum()


def _alike(input: Any, target: Any) -> tuple[Any, Any]:
    """Expand both to the shape that they broadcast to."""
    found: tuple[Any, Any] = context.current().invoke("aten.broadcast_tensors", None, ([input, target],), {})
    return found


def _weighted(loss: Any, weight: Any, reduction: str) -> Any:
    loss = loss * weight
    return loss.sum() / weight.sum() if reduction == "mean" else _reduced(loss, reduction)


# --- Regression ---


def mse_loss(
    input: Any, target: Any, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    weight: Any = None,
) -> Any:  # fmt: skip
    input, target = _alike(input, target)
    if weight is None:
        return ops.mse_loss(input, target, _number(reduction, size_average, reduce))
    return _weighted((input - target) ** 2, weight, reduction_of(reduction, size_average, reduce))


def l1_loss(
    input: Any, target: Any, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    weight: Any = None,
) -> Any:  # fmt: skip
    input, target = _alike(input, target)
    if weight is None:
        return ops.l1_loss(input, target, _number(reduction, size_average, reduce))
    return _weighted((input - target).abs(), weight, reduction_of(reduction, size_average, reduce))


def smooth_l1_loss(
    input: Any, target: Any, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    beta: float = 1.0,
) -> Any:  # fmt: skip
    input, target = _alike(input, target)
    number = _number(reduction, size_average, reduce)
    return ops.l1_loss(input, target, number) if beta == 0 else ops.smooth_l1_loss(input, target, number, beta)


def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0, weight: Any = None) -> Any:
    input, target = _alike(input, target)
    if weight is None:
        return ops.huber_loss(input, target, _number(reduction), delta)
    return _reduced(ops.huber_loss(input, target, REDUCTIONS["none"], delta) * weight, reduction)


def poisson_nll_loss(
    input: Any, target: Any, log_input: bool = True, full: bool = False, size_average: bool | None = None,
    eps: float = 1e-8, reduce: bool | None = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    number = _number(reduction, size_average, reduce)
    return ops.poisson_nll_loss(input, target, log_input, full, eps, number)


def gaussian_nll_loss(
    input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    """Compute (log var + (input - target)^2 / var) / 2; `var` is a number, or a tensor that may lack the last dim."""
    if isinstance(var, (int, float)):
        var = ops.full_like(input, float(var))
    if var.ndim == input.ndim - 1:
        var = var.unsqueeze(-1)
    var = var.clamp(min=eps)
    loss = (var.log() + (input - target) ** 2 / var) * 0.5
    return _reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


# --- Classification ---


def nll_loss(
    input: Any, target: Any, weight: Any = None, size_average: bool | None = None, ignore_index: int = -100,
    reduce: bool | None = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    return ops.nll_loss_nd(input, target, weight, _number(reduction, size_average, reduce), ignore_index)


def cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: bool | None = None, ignore_index: int = -100,
    reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    number = _number(reduction, size_average, reduce)
    return ops.cross_entropy_loss(input, target, weight, number, ignore_index, label_smoothing)


def linear_cross_entropy(
    input: Any, linear_weight: Any, target: Any, *, linear_bias: Any = None, weight: Any = None,
    reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0, options: Any = None,
) -> Any:  # fmt: skip
    """Compute the cross entropy of a linear layer's results. `options`, how PyTorch splits the work, is ignored."""
    sizes = list(linear_weight.shape)
    if len(sizes) > 2:
        linear_weight = linear_weight.reshape([-1, sizes[-1]])
        linear_bias = None if linear_bias is None else linear_bias.reshape([-1])
    logits = ops.linear(input, linear_weight, linear_bias)
    logits = logits.reshape([*input.shape[:-1], *sizes[:-1]])
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(logits, target, weight, None, ignored, None, reduction, label_smoothing)


def kl_div(
    input: Any, target: Any, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    log_target: bool = False,
) -> Any:  # fmt: skip
    how = reduction_of(reduction, size_average, reduce)
    found = ops.kl_div(input, target, REDUCTIONS["sum" if how == "batchmean" else how], log_target=log_target)
    return found / input.shape[0] if how == "batchmean" and input.ndim else found


def binary_cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    if weight is not None:
        weight = weight.expand(list(target.shape))
    return ops.binary_cross_entropy(input, target, weight, _number(reduction, size_average, reduce))


def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", pos_weight: Any = None,
) -> Any:  # fmt: skip
    number = _number(reduction, size_average, reduce)
    return ops.binary_cross_entropy_with_logits(input, target, weight, pos_weight, number)


# --- Margins ---


def soft_margin_loss(
    input: Any, target: Any, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Any:
    return ops.soft_margin_loss(input, target, _number(reduction, size_average, reduce))


def hinge_embedding_loss(
    input: Any, target: Any, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    """Compute x where the target is 1, max(0, margin - x) where it is -1."""
    lacking = ops.where(target != 1, (margin - input).clamp_min(0), 0.0)
    return _reduced(lacking + ops.where(target != -1, input, 0.0), reduction, size_average, reduce)


def margin_ranking_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    difference = input1 - input2
    loss = (-target * difference + margin).clamp_min(0)
    return _reduced(loss, reduction, size_average, reduce)


def cosine_embedding_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    return ops.cosine_embedding_loss(input1, input2, target, margin, _number(reduction, size_average, reduce))


def multi_margin_loss(
    input: Any, target: Any, p: int = 1, margin: float = 1.0, weight: Any = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    """Compute the mean over classes i != y of max(0, margin - x[y] + x[i])^p."""
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    chosen = target.unsqueeze(-1)
    lacking = (margin - input.gather(-1, chosen) + input).clamp_min(0)
    lacking = lacking * lacking if p == 2 else lacking
    if weight is not None:
        lacking = lacking * weight[target].unsqueeze(-1)
    other = ops.arange(input.shape[-1]) != chosen
    return _reduced(ops.where(other, lacking, 0.0).mean(-1), reduction, size_average, reduce)


def multilabel_margin_loss(
    input: Any, target: Any, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
) -> Any:
    """Sum max(0, 1 - x[y] + x[i]) over targets y and other classes i, over C; the first -1 ends the list of targets."""
    listed = (target >= 0).long().cumprod(-1) > 0
    target = target.clamp(min=0)
    is_target = ((target.unsqueeze(-1) == ops.arange(input.shape[-1])) & listed.unsqueeze(-1)).any(-2)
    lacking = (1 - input.gather(-1, target).unsqueeze(-1) + input.unsqueeze(-2)).clamp_min(0)
    counted = listed.unsqueeze(-1) & ~is_target.unsqueeze(-2)
    loss = ops.where(counted, lacking, 0.0).sum((-2, -1)) / input.shape[-1]
    return _reduced(loss, reduction, size_average, reduce)


def multilabel_soft_margin_loss(
    input: Any, target: Any, weight: Any = None, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    loss = -(target * ops.log_sigmoid(input) + (1 - target) * ops.log_sigmoid(-input))
    loss = (loss if weight is None else loss * weight).sum(input.ndim - 1) / input.shape[-1]
    return _reduced(loss, reduction, size_average, reduce)


def triplet_margin_loss(
    anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
    swap: bool = False, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    return triplet_margin_with_distance_loss(
        anchor, positive, negative, margin=margin, swap=swap,
        distance_function=lambda a, b: ops.pairwise_distance(a, b, p, eps),
        reduction=reduction_of(reduction, size_average, reduce),
    )  # fmt: skip


def triplet_margin_with_distance_loss(
    anchor: Any, positive: Any, negative: Any, *, distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0, swap: bool = False, reduction: str = "mean",
) -> Any:  # fmt: skip
    """Compute max(0, margin + d(anchor, positive) - d(anchor, negative))."""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = distance_function or ops.pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = ops.minimum(far, distance(positive, negative))
    return _reduced((margin + near - far).clamp_min(0), reduction)


# --- Sequences ---

NEVER = -1e30
"""The log of a probability of zero, which stays finite in sums."""


def ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:  # fmt: skip
    """Compute the connectionist temporal classification loss, unrolled over the sequence: its length must be static."""
    if log_probs.meta.shape[0] is None:
        raise ValueError("ctc_loss is unrolled over its sequence: give the length in nn.TensorSpec")
    lengths, counts = (x if isinstance(x, Tensor) else ops.tensor(x) for x in (input_lengths, target_lengths))
    single = log_probs.ndim == 2
    if single:
        log_probs, targets = log_probs.unsqueeze(1), targets.unsqueeze(0)
    lengths, counts = lengths.reshape([-1]).long(), counts.reshape([-1]).long()
    if targets.ndim == 1:  # all targets in one row: each begins where the one before it ends
        size = targets.shape[0]
        places = (counts.cumsum(0) - counts).unsqueeze(1) + ops.arange(size)
        targets = targets[places.clamp(max=size - 1)]
    ways = _alignments(log_probs, targets.long(), blank)
    index = (lengths - 1).reshape([1, -1, 1]).expand([1, ways.shape[1], ways.shape[2]])
    last = ways.gather(0, index).squeeze(0)
    on_blank = last.gather(1, (2 * counts).unsqueeze(1)).squeeze(1)
    on_label = last.gather(1, (2 * counts - 1).clamp_min(0).unsqueeze(1)).squeeze(1)
    loss = -_log_sum(on_blank, ops.where(counts > 0, on_label, NEVER))
    loss = ops.where(loss > -NEVER / 10, 0.0 if zero_infinity else float("inf"), loss)
    if reduction == "mean":
        loss = loss / counts.clamp_min(1)
    return loss.squeeze(0) if single and reduction == "none" else _reduced(loss, reduction)


def _alignments(log_probs: Any, targets: Any, blank: int) -> Any:
    """Compute CTC's forward variables: at each step, the log probability of each position in blanks and targets."""
    batch = targets.shape[0]
    blanks = ops.full_like(targets, blank)
    labels = ops.cat([ops.stack([blanks, targets], -1).reshape([batch, -1]), blanks[:, :1]], 1)
    size = labels.shape[1]
    other = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    may_skip = ops.cat([ops.zeros([batch, 2], dtype="bool"), other], 1)
    scores = [step.gather(1, labels) for step in log_probs.unbind(0)]
    ways = [ops.where(ops.arange(size) < 2, scores[0], NEVER)]
    for score in scores[1:]:
        before = ways[-1]
        one, two = (ops.pad(before[:, :-n], [n, 0], value=NEVER) for n in (1, 2))
        ways.append(_log_sum(before, one, ops.where(may_skip, two, NEVER)) + score)
    return ops.stack(ways, 0)


def _log_sum(first: Any, *others: Any) -> Any:
    greatest = first
    for other in others:
        greatest = ops.maximum(greatest, other)
    total = (first - greatest).exp()
    for other in others:
        total = total + (other - greatest).exp()
    return total.log() + greatest
