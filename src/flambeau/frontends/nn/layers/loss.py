"""Losses."""

from __future__ import annotations

import inspect
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


def _loss(
    name: str, function: Callable[..., Any], tensors: str = "", without: str = "", **defaults: Any
) -> type[Layer]:
    """Make the class of a loss from its function: arguments without a default are inputs, the class takes the others.

    `tensors` names those that are buffers, `without` those that the class lacks, and `defaults` has its own defaults.
    """

    def compute(*inputs: Any, **held: Any) -> Any:
        return function(*inputs, **held)

    parameters = []
    for p in inspect.signature(function).parameters.values():
        kind = p.POSITIONAL_ONLY if p.default is p.empty else p.kind
        if p.name not in without.split():
            parameters.append(p.replace(kind=kind, default=defaults.get(p.name, p.default), annotation=p.empty))
    compute.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return layer(name, compute, "", tensors, _Loss)


BCELoss = _loss("BCELoss", F.binary_cross_entropy, "weight")
BCEWithLogitsLoss = _loss("BCEWithLogitsLoss", F.binary_cross_entropy_with_logits, "weight pos_weight")
CTCLoss = _loss("CTCLoss", F.ctc_loss)
CosineEmbeddingLoss = _loss("CosineEmbeddingLoss", F.cosine_embedding_loss, margin=0.0)
CrossEntropyLoss = _loss("CrossEntropyLoss", F.cross_entropy, "weight")
GaussianNLLLoss = layer(
    "GaussianNLLLoss",
    lambda x, y, var, /, *, full=False, eps=1e-6, reduction="mean": F.gaussian_nll_loss(
        x, y, var, full, eps, reduction
    ),
    "",
    base=_Loss,
)
HingeEmbeddingLoss = _loss("HingeEmbeddingLoss", F.hinge_embedding_loss)
HuberLoss = _loss("HuberLoss", F.huber_loss, without="weight")
KLDivLoss = _loss("KLDivLoss", F.kl_div)
L1Loss = _loss("L1Loss", F.l1_loss, without="weight")
MSELoss = _loss("MSELoss", F.mse_loss, without="weight")
MarginRankingLoss = _loss("MarginRankingLoss", F.margin_ranking_loss, margin=0.0)
MultiLabelMarginLoss = _loss("MultiLabelMarginLoss", F.multilabel_margin_loss)
MultiLabelSoftMarginLoss = _loss("MultiLabelSoftMarginLoss", F.multilabel_soft_margin_loss, "weight")
MultiMarginLoss = _loss("MultiMarginLoss", F.multi_margin_loss, "weight")
NLLLoss = _loss("NLLLoss", F.nll_loss, "weight")
PoissonNLLLoss = _loss("PoissonNLLLoss", F.poisson_nll_loss)
SmoothL1Loss = _loss("SmoothL1Loss", F.smooth_l1_loss)
SoftMarginLoss = _loss("SoftMarginLoss", F.soft_margin_loss)
TripletMarginLoss = _loss("TripletMarginLoss", F.triplet_margin_loss, p=2.0)
TripletMarginWithDistanceLoss = _loss("TripletMarginWithDistanceLoss", F.triplet_margin_with_distance_loss)


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
        """Compute the log probabilities of all classes."""
        head = ops.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            parts.append(ops.log_softmax(cluster(input), 1) + head[:, self.shortlist_size + i].unsqueeze(1))
        return ops.cat(parts, 1)

    def predict(self, input: Any) -> Any:
        """Return the most probable class."""
        return self.log_prob(input).argmax(1)

    def forward(self, input_: Any, target_: Any) -> AdaptiveLoss:
        if input_.ndim == 1:
            found = self.forward(input_.unsqueeze(0), target_.unsqueeze(0))
            return AdaptiveLoss(found.output.squeeze(0), found.loss)
        output = self.log_prob(input_).gather(1, target_.unsqueeze(1)).squeeze(1)
        return AdaptiveLoss(output, (-output).mean())
