"""Losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flambeau.frontends.nn import functional as F
from flambeau.frontends.nn.core import ops
from flambeau.frontends.nn.core.module import Module, ModuleList, Sequential
from flambeau.frontends.nn.layers.linear import Linear
from flambeau.frontends.nn.layers.table import Layer, layer

__all__ = [
    "AdaptiveLogSoftmaxWithLoss", "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss",
    "CrossEntropyLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss",
    "LinearCrossEntropyLoss", "MSELoss", "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss",
    "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]  # fmt: skip


class _Loss(Layer):
    """`size_average` and `reduce` are an older way to name the reduction."""

    reduction: str
    size_average: bool | None
    reduce: bool | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        from flambeau.frontends.nn.functional.loss import reduction_of

        if hasattr(self, "size_average"):
            self.reduction = reduction_of(self.reduction, self.size_average, self.reduce)
            self.size_average = self.reduce = None


def _loss(name: str, compute: Callable[..., Any], tensors: str = "") -> type[Layer]:
    return layer(name, compute, "", tensors, _Loss)


def _plain(name: str, function: str) -> type[Layer]:
    """A loss with nothing but a reduction."""
    return _loss(
        name,
        lambda x, y, /, size_average=None, reduce=None, reduction="mean": getattr(F, function)(
            x, y, size_average, reduce, reduction
        ),
    )


def _with_margin(name: str, function: str, default: float, inputs: int) -> type[Layer]:
    if inputs == 2:
        return _loss(
            name,
            lambda x, y, /, margin=default, size_average=None, reduce=None, reduction="mean": getattr(F, function)(
                x, y, margin, size_average, reduce, reduction
            ),
        )
    return _loss(
        name,
        lambda x, y, z, /, margin=default, size_average=None, reduce=None, reduction="mean": getattr(F, function)(
            x, y, z, margin, size_average, reduce, reduction
        ),
    )


L1Loss = _plain("L1Loss", "l1_loss")
MSELoss = _plain("MSELoss", "mse_loss")
MultiLabelMarginLoss = _plain("MultiLabelMarginLoss", "multilabel_margin_loss")
SoftMarginLoss = _plain("SoftMarginLoss", "soft_margin_loss")
CosineEmbeddingLoss = _with_margin("CosineEmbeddingLoss", "cosine_embedding_loss", 0.0, 3)
HingeEmbeddingLoss = _with_margin("HingeEmbeddingLoss", "hinge_embedding_loss", 1.0, 2)
MarginRankingLoss = _with_margin("MarginRankingLoss", "margin_ranking_loss", 0.0, 3)
BCELoss = _loss(
    "BCELoss",
    lambda x, y, /, weight=None, size_average=None, reduce=None, reduction="mean": F.binary_cross_entropy(
        x, y, weight, size_average, reduce, reduction
    ),
    "weight",
)
BCEWithLogitsLoss = _loss(
    "BCEWithLogitsLoss",
    lambda x, y, /, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None: (
        F.binary_cross_entropy_with_logits(x, y, weight, size_average, reduce, reduction, pos_weight)
    ),
    "weight pos_weight",
)
CrossEntropyLoss = _loss(
    "CrossEntropyLoss",
    lambda x, y, /, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
    label_smoothing=0.0: (
        F.cross_entropy(x, y, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
    ),
    "weight",
)  # fmt: skip
CTCLoss = _loss(
    "CTCLoss",
    lambda log_probs, targets, input_lengths, target_lengths, /, blank=0, reduction="mean", zero_infinity=False: (
        F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
    ),
)
GaussianNLLLoss = _loss(
    "GaussianNLLLoss",
    lambda x, y, var, /, *, full=False, eps=1e-6, reduction="mean": F.gaussian_nll_loss(
        x, y, var, full, eps, reduction
    ),
)
HuberLoss = _loss("HuberLoss", lambda x, y, /, reduction="mean", delta=1.0: F.huber_loss(x, y, reduction, delta))
KLDivLoss = _loss(
    "KLDivLoss",
    lambda x, y, /, size_average=None, reduce=None, reduction="mean", log_target=False: F.kl_div(
        x, y, size_average, reduce, reduction, log_target
    ),
)
MultiLabelSoftMarginLoss = _loss(
    "MultiLabelSoftMarginLoss",
    lambda x, y, /, weight=None, size_average=None, reduce=None, reduction="mean": F.multilabel_soft_margin_loss(
        x, y, weight, size_average, reduce, reduction
    ),
    "weight",
)
MultiMarginLoss = _loss(
    "MultiMarginLoss",
    lambda x, y, /, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean": F.multi_margin_loss(
        x, y, p, margin, weight, size_average, reduce, reduction
    ),
    "weight",
)
NLLLoss = _loss(
    "NLLLoss",
    lambda x, y, /, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean": F.nll_loss(
        x, y, weight, size_average, ignore_index, reduce, reduction
    ),
    "weight",
)
PoissonNLLLoss = _loss(
    "PoissonNLLLoss",
    lambda x, y, /, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean": (
        F.poisson_nll_loss(x, y, log_input, full, size_average, eps, reduce, reduction)
    ),
)
SmoothL1Loss = _loss(
    "SmoothL1Loss",
    lambda x, y, /, size_average=None, reduce=None, reduction="mean", beta=1.0: F.smooth_l1_loss(
        x, y, size_average, reduce, reduction, beta
    ),
)
TripletMarginLoss = _loss(
    "TripletMarginLoss",
    lambda a, p_, n, /, margin=1.0, p=2.0, eps=1e-6, swap=False, size_average=None, reduce=None, reduction="mean": (
        F.triplet_margin_loss(a, p_, n, margin, p, eps, swap, size_average, reduce, reduction)
    ),
)
TripletMarginWithDistanceLoss = _loss(
    "TripletMarginWithDistanceLoss",
    lambda a, p, n, /, *, distance_function=None, margin=1.0, swap=False, reduction="mean": (
        F.triplet_margin_with_distance_loss(
            a, p, n, distance_function=distance_function, margin=margin, swap=swap, reduction=reduction
        )
    ),
)


class LinearCrossEntropyLoss(Module):
    """The cross entropy of a linear layer's results."""

    def __init__(
        self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (), bias: bool = False,
        device: Any = None, dtype: Any = None, reduction: str = "mean", weight: Any = None,
        ignore_index: int | None = None, label_smoothing: float = 0.0, options: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.register_buffer("weight", weight)
        self.num_classes, self.out_features, self.reduction = num_classes, out_features, reduction
        self.ignore_index, self.label_smoothing, self.options = ignore_index, label_smoothing, options
        self.linear = Linear(in_features, math.prod(out_features, start=num_classes), bias, device, dtype)

    def forward(self, input: Any, target: Any) -> Any:
        sizes, bias = [self.num_classes, *self.out_features], self.linear.bias
        return F.linear_cross_entropy(
            input, self.linear.weight.reshape([*sizes, self.linear.in_features]), target,
            reduction=self.reduction, weight=self.weight,
            linear_bias=None if bias is None else bias.reshape(sizes), ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )  # fmt: skip

    def extra_repr(self) -> str:
        sizes = f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
        how = f"reduction={self.reduction}, ignore_index={self.ignore_index}, label_smoothing={self.label_smoothing}"
        layer = f"out_features={self.out_features}, bias={self.linear.bias is not None}"
        return f"{sizes}{layer}, {how}, options={self.options}"


class AdaptiveLoss(NamedTuple):
    """What `AdaptiveLogSoftmaxWithLoss` gives: the log probability of each target, and the mean loss."""

    output: Any
    loss: Any


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over many classes: frequent ones in the head, the others in clusters of falling size.

    PyTorch computes a cluster only where a target lies in it; a program computes all of them, with the same results.
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
        head_bias: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if list(cutoffs) != sorted(set(cutoffs)) or not cutoffs or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1:
            raise ValueError("cutoffs should be a sequence of unique, positive, rising integers below n_classes")
        self.in_features, self.n_classes, self.div_value, self.head_bias = in_features, n_classes, div_value, head_bias
        self.cutoffs = [*cutoffs, n_classes]
        self.shortlist_size, self.n_clusters = self.cutoffs[0], len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            inner, size = int(in_features // div_value ** (i + 1)), self.cutoffs[i + 1] - self.cutoffs[i]
            pair = (Linear(in_features, inner, False, device, dtype), Linear(inner, size, False, device, dtype))
            self.tail.append(Sequential(*pair))

    def log_prob(self, input: Any) -> Any:
        """The log probabilities of all classes."""
        head = ops.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            parts.append(ops.log_softmax(cluster(input), 1) + head[:, self.shortlist_size + i].unsqueeze(1))
        return ops.cat(parts, 1)

    def predict(self, input: Any) -> Any:
        """The most probable class."""
        return self.log_prob(input).argmax(1)

    def forward(self, input_: Any, target_: Any) -> AdaptiveLoss:
        if input_.ndim == 1:
            found = self.forward(input_.unsqueeze(0), target_.unsqueeze(0))
            return AdaptiveLoss(found.output.squeeze(0), found.loss)
        output = self.log_prob(input_).gather(1, target_.unsqueeze(1)).squeeze(1)
        return AdaptiveLoss(output, (-output).mean())
