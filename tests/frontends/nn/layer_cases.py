"""Layers, a line each: `n` is torch.nn or flambeau.nn. The inputs follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_generator = torch.Generator().manual_seed(0)


def _randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=_generator)


def _ids(limit: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, limit, shape, generator=_generator)


X, Y, V = _randn(3, 4), _randn(3, 4), _randn(3)
P, Q = X.sigmoid(), Y.sigmoid()
S, I, D = _randn(2, 4, 9), _randn(2, 4, 6, 7), _randn(2, 2, 4, 5, 6)  # noqa: E741 (an image)
T, U = _randn(5, 2, 6), _randn(5, 2, 8)  # sequence, batch, features
SIGN, SIGNS = torch.tensor([1.0, -1.0, 1.0]), torch.where(X > 0, 1.0, -1.0)
CLASS, CLASSES = torch.tensor([1, 3, 0]), torch.tensor([[1, 3, -1, 0], [2, -1, 1, 1], [0, 1, 2, 3]])
IDS, BAG, OFFSETS = _ids(10, 3, 4), _ids(10, 7), torch.tensor([0, 2, 2])
W4 = torch.tensor([0.5, 1.0, 2.0, 0.25])
CAUSAL = torch.full((5, 5), float("-inf")).triu(1)
PADDED = torch.tensor([[False, False, False, True, True], [False] * 5])
SPEECH, WORDS = _randn(7, 3, 5).log_softmax(-1), torch.tensor([[0, 0, 3], [4, 2, 2], [2, 3, 4]])
PLACES = torch.tensor([1, 3, 8]).expand(2, 4, 3).clone()  # of maxima, one for each window
CORNERS = torch.tensor([[0, 3], [9, 14]]).expand(2, 4, 2, 2).clone()
EDGES = CORNERS[:, :2, :1].unsqueeze(2).clone()

Case = tuple[Callable[[Any], Any], tuple[Any, ...]] | tuple[Callable[[Any], Any], tuple[Any, ...], Callable[..., Any]]
"""How a layer is made, its inputs and, if that is not all, how it is called."""


def weights(n: Any) -> Any:
    """Make a weight of a loss, for either side."""
    return W4 if n is torch.nn else W4.numpy()


CASES: dict[str, Case] = {
    "Linear": (lambda n: n.Linear(4, 5), (X,)),
    "Bilinear": (lambda n: n.Bilinear(4, 4, 3), (X, Y)),
    "Identity": (lambda n: n.Identity(3, a=1), (X,)),
    "Flatten": (lambda n: n.Flatten(), (I,)),
    "Unflatten": (lambda n: n.Unflatten(1, (2, 2)), (X,)),
    "Embedding": (lambda n: n.Embedding(10, 4, padding_idx=-2), (IDS,)),
    "EmbeddingBag": (lambda n: n.EmbeddingBag(10, 4), (IDS,)),
    "EmbeddingBag sum offsets": (lambda n: n.EmbeddingBag(10, 4, mode="sum"), (BAG, OFFSETS)),
    "EmbeddingBag max padded": (lambda n: n.EmbeddingBag(10, 4, mode="max", padding_idx=3), (BAG, OFFSETS)),
    # Convolutions.
    "Conv1d": (lambda n: n.Conv1d(4, 6, 3, stride=2, padding=1), (S,)),
    "Conv1d circular": (lambda n: n.Conv1d(4, 6, 3, padding=2, padding_mode="circular"), (S,)),
    "Conv2d": (lambda n: n.Conv2d(4, 6, (3, 2), groups=2, dilation=2, bias=False), (I,)),
    "Conv2d same": (lambda n: n.Conv2d(4, 6, 3, padding="same"), (I,)),
    "Conv2d reflect": (lambda n: n.Conv2d(4, 6, 3, padding=(1, 2), padding_mode="reflect"), (I,)),
    "Conv2d replicate same": (lambda n: n.Conv2d(4, 2, (2, 3), padding="same", padding_mode="replicate"), (I,)),
    "Conv3d": (lambda n: n.Conv3d(2, 3, 2, padding="valid"), (D,)),
    "ConvTranspose1d": (lambda n: n.ConvTranspose1d(4, 6, 3, stride=2), (S,)),
    "ConvTranspose2d": (lambda n: n.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), (I,)),
    "ConvTranspose2d size": (
        lambda n: n.ConvTranspose2d(4, 2, 3, stride=2), (I,), lambda m, x: m(x, output_size=(14, 16))
    ),
    "ConvTranspose3d": (lambda n: n.ConvTranspose3d(2, 3, 2, bias=False), (D,)),
    # Pools.
    "MaxPool1d": (lambda n: n.MaxPool1d(2), (S,)),
    "MaxPool2d": (lambda n: n.MaxPool2d(3, stride=1, padding=1, ceil_mode=True), (I,)),
    "MaxPool2d indices": (lambda n: n.MaxPool2d(2, return_indices=True), (I,)),
    "MaxPool3d": (lambda n: n.MaxPool3d((1, 2, 2)), (D,)),
    "MaxUnpool1d": (lambda n: n.MaxUnpool1d(3), (S[..., :3].clone(), PLACES)),
    "MaxUnpool2d": (lambda n: n.MaxUnpool2d(2), (I[..., :2, :2].clone(), CORNERS)),
    "MaxUnpool3d": (lambda n: n.MaxUnpool3d(2), (D[..., :1, :1, :2].clone(), EDGES)),
    "AvgPool1d": (lambda n: n.AvgPool1d(3, 2, 1), (S,)),
    "AvgPool2d": (lambda n: n.AvgPool2d(2, padding=1, count_include_pad=False), (I,)),
    "AvgPool3d": (lambda n: n.AvgPool3d(2, divisor_override=3), (D,)),
    "LPPool1d": (lambda n: n.LPPool1d(2, 3), (S,)),
    "LPPool2d": (lambda n: n.LPPool2d(2, (2, 3), stride=1), (I,)),
    "LPPool3d": (lambda n: n.LPPool3d(2, 2), (D,)),
    "AdaptiveAvgPool1d": (lambda n: n.AdaptiveAvgPool1d(3), (S,)),
    "AdaptiveAvgPool2d": (lambda n: n.AdaptiveAvgPool2d((3, None)), (I,)),
    "AdaptiveAvgPool3d": (lambda n: n.AdaptiveAvgPool3d(1), (D,)),
    "AdaptiveMaxPool1d": (lambda n: n.AdaptiveMaxPool1d(3), (S,)),
    "AdaptiveMaxPool2d": (lambda n: n.AdaptiveMaxPool2d((3, 7)), (I,)),
    "AdaptiveMaxPool3d": (lambda n: n.AdaptiveMaxPool3d((2, 5, 3)), (D,)),
    # Padding.
    "CircularPad1d": (lambda n: n.CircularPad1d(2), (S,)),
    "CircularPad2d": (lambda n: n.CircularPad2d((1, 0, 2, 1)), (I,)),
    "CircularPad3d": (lambda n: n.CircularPad3d(1), (D,)),
    "ConstantPad1d": (lambda n: n.ConstantPad1d(2, 3.5), (S,)),
    "ConstantPad2d": (lambda n: n.ConstantPad2d((1, 0, 2, -1), 0.5), (I,)),
    "ConstantPad3d": (lambda n: n.ConstantPad3d(1, -1.0), (D,)),
    "ReflectionPad1d": (lambda n: n.ReflectionPad1d(2), (S,)),
    "ReflectionPad2d": (lambda n: n.ReflectionPad2d((1, 0, 2, 1)), (I,)),
    "ReflectionPad3d": (lambda n: n.ReflectionPad3d(1), (D,)),
    "ReplicationPad1d": (lambda n: n.ReplicationPad1d((2, 1)), (S,)),
    "ReplicationPad2d": (lambda n: n.ReplicationPad2d(1), (I,)),
    "ReplicationPad3d": (lambda n: n.ReplicationPad3d(1), (D,)),
    "ZeroPad1d": (lambda n: n.ZeroPad1d(1), (S,)),
    "ZeroPad2d": (lambda n: n.ZeroPad2d((1, 2, 0, 1)), (I,)),
    "ZeroPad3d": (lambda n: n.ZeroPad3d(1), (D,)),
    # Norms.
    "BatchNorm1d": (lambda n: n.BatchNorm1d(4), (X,)),
    "BatchNorm2d": (lambda n: n.BatchNorm2d(4, affine=False), (I,)),
    "BatchNorm3d": (lambda n: n.BatchNorm3d(2, bias=False), (D,)),
    "BatchNorm2d no stats": (lambda n: n.BatchNorm2d(4, track_running_stats=False), (I,)),
    "InstanceNorm1d": (lambda n: n.InstanceNorm1d(4, affine=True), (S,)),
    "InstanceNorm2d": (lambda n: n.InstanceNorm2d(4), (I,)),
    "InstanceNorm2d stats": (lambda n: n.InstanceNorm2d(4, track_running_stats=True), (I,)),
    "InstanceNorm3d": (lambda n: n.InstanceNorm3d(2, eps=1e-3), (D,)),
    "GroupNorm": (lambda n: n.GroupNorm(2, 4), (I,)),
    "LayerNorm": (lambda n: n.LayerNorm((6, 7)), (I,)),
    "RMSNorm": (lambda n: n.RMSNorm(4, eps=1e-6), (X,)),
    "LocalResponseNorm": (lambda n: n.LocalResponseNorm(3), (I,)),
    # Activations.
    "CELU": (lambda n: n.CELU(0.7), (X,)),
    "ELU": (lambda n: n.ELU(0.7), (X,)),
    "GELU": (lambda n: n.GELU("tanh"), (X,)),
    "GLU": (lambda n: n.GLU(), (X,)),
    "Hardshrink": (lambda n: n.Hardshrink(0.3), (X,)),
    "Hardsigmoid": (lambda n: n.Hardsigmoid(), (X,)),
    "Hardswish": (lambda n: n.Hardswish(), (X,)),
    "Hardtanh": (lambda n: n.Hardtanh(-0.5, 0.7), (X,)),
    "LeakyReLU": (lambda n: n.LeakyReLU(0.2), (X,)),
    "LogSigmoid": (lambda n: n.LogSigmoid(), (X,)),
    "LogSoftmax": (lambda n: n.LogSoftmax(1), (X,)),
    "Mish": (lambda n: n.Mish(), (X,)),
    "PReLU": (lambda n: n.PReLU(4), (X,)),
    "RReLU": (lambda n: n.RReLU(), (X,)),
    "ReLU": (lambda n: n.ReLU(), (X,)),
    "ReLU6": (lambda n: n.ReLU6(), (X,)),
    "SELU": (lambda n: n.SELU(), (X,)),
    "SiLU": (lambda n: n.SiLU(), (X,)),
    "Sigmoid": (lambda n: n.Sigmoid(), (X,)),
    "Softmax": (lambda n: n.Softmax(dim=0), (X,)),
    "Softmax2d": (lambda n: n.Softmax2d(), (I,)),
    "Softmin": (lambda n: n.Softmin(1), (X,)),
    "Softplus": (lambda n: n.Softplus(2.0), (X,)),
    "Softshrink": (lambda n: n.Softshrink(), (X,)),
    "Softsign": (lambda n: n.Softsign(), (X,)),
    "Tanh": (lambda n: n.Tanh(), (X,)),
    "Tanhshrink": (lambda n: n.Tanhshrink(), (X,)),
    "Threshold": (lambda n: n.Threshold(0.1, 20.0), (X,)),
    "Dropout": (lambda n: n.Dropout(0.3), (X,)),
    "Dropout2d": (lambda n: n.Dropout2d(), (I,)),
    "AlphaDropout": (lambda n: n.AlphaDropout(), (X,)),
    # Vision and distances.
    "ChannelShuffle": (lambda n: n.ChannelShuffle(2), (I,)),
    "PixelShuffle": (lambda n: n.PixelShuffle(2), (I,)),
    "PixelUnshuffle": (lambda n: n.PixelUnshuffle(3), (_randn(1, 2, 6, 3),)),
    "Upsample": (lambda n: n.Upsample(scale_factor=2), (I,)),
    "Upsample linear": (lambda n: n.Upsample(size=5, mode="linear"), (S,)),
    "Upsample bilinear": (lambda n: n.Upsample(size=(4, 9), mode="bilinear"), (I,)),
    "Upsample bicubic": (lambda n: n.Upsample(scale_factor=2.0, mode="bicubic", align_corners=True), (I,)),
    "Upsample trilinear": (lambda n: n.Upsample(scale_factor=(2, 1, 1), mode="trilinear"), (D,)),
    "UpsamplingBilinear2d": (lambda n: n.UpsamplingBilinear2d(scale_factor=2), (I,)),
    "UpsamplingNearest2d": (lambda n: n.UpsamplingNearest2d(size=(9, 9)), (I,)),
    "Fold": (lambda n: n.Fold((4, 5), 2), (_randn(1, 8, 12),)),
    "Unfold": (lambda n: n.Unfold((2, 3), stride=2, padding=1), (I,)),
    "CosineSimilarity": (lambda n: n.CosineSimilarity(), (X, Y)),
    "PairwiseDistance": (lambda n: n.PairwiseDistance(keepdim=True), (X, Y)),
    # Losses.
    "L1Loss": (lambda n: n.L1Loss(), (X, Y)),
    "MSELoss": (lambda n: n.MSELoss(reduction="sum"), (X, Y)),
    "MSELoss reduce": (lambda n: n.MSELoss(size_average=False, reduce=False), (X, Y)),
    "SmoothL1Loss": (lambda n: n.SmoothL1Loss(beta=0.5), (X, Y)),
    "HuberLoss": (lambda n: n.HuberLoss(delta=0.5), (X, Y)),
    "BCELoss": (lambda n: n.BCELoss(), (P, Q)),
    "BCELoss weight": (lambda n: n.BCELoss(weights(n), reduction="none"), (P, Q)),
    "BCEWithLogitsLoss": (lambda n: n.BCEWithLogitsLoss(pos_weight=weights(n)), (X, Q)),
    "CrossEntropyLoss": (lambda n: n.CrossEntropyLoss(), (X, CLASS)),
    "CrossEntropyLoss weight": (lambda n: n.CrossEntropyLoss(weights(n), reduction="none"), (X, CLASS)),
    "NLLLoss": (lambda n: n.NLLLoss(ignore_index=3), (X, CLASS)),
    "KLDivLoss": (lambda n: n.KLDivLoss(reduction="batchmean"), (X, P)),
    "PoissonNLLLoss": (lambda n: n.PoissonNLLLoss(), (X, P)),
    "CTCLoss": (lambda n: n.CTCLoss(blank=1), (SPEECH, WORDS, torch.tensor([7, 6, 5]), torch.tensor([3, 2, 3]))),
    "CTCLoss row": (
        lambda n: n.CTCLoss(zero_infinity=True, reduction="none"),
        (SPEECH, torch.tensor([1, 2, 2, 3, 4, 3, 2]), torch.tensor([7, 7, 2]), torch.tensor([3, 0, 4])),
    ),
    "GaussianNLLLoss": (lambda n: n.GaussianNLLLoss(full=True), (X, Y, P)),
    "CosineEmbeddingLoss": (lambda n: n.CosineEmbeddingLoss(0.2), (X, Y, SIGN)),
    "HingeEmbeddingLoss": (lambda n: n.HingeEmbeddingLoss(), (X, SIGNS)),
    "MarginRankingLoss": (lambda n: n.MarginRankingLoss(0.1), (V, V.flip(0).clone(), SIGN)),
    "MultiMarginLoss": (lambda n: n.MultiMarginLoss(p=2, weight=weights(n)), (X, CLASS)),
    "MultiLabelMarginLoss": (lambda n: n.MultiLabelMarginLoss(), (X, CLASSES)),
    "MultiLabelSoftMarginLoss": (lambda n: n.MultiLabelSoftMarginLoss(weights(n)), (X, (P > 0.5).float())),
    "SoftMarginLoss": (lambda n: n.SoftMarginLoss(), (X, SIGNS)),
    "TripletMarginLoss": (lambda n: n.TripletMarginLoss(swap=True), (X, Y, P)),
    "TripletMarginWithDistanceLoss": (lambda n: n.TripletMarginWithDistanceLoss(margin=0.5), (X, Y, P)),
    "LinearCrossEntropyLoss": (lambda n: n.LinearCrossEntropyLoss(4, 6, bias=True), (X, CLASS)),
    "AdaptiveLogSoftmaxWithLoss": (lambda n: n.AdaptiveLogSoftmaxWithLoss(4, 9, [2, 5], 2.0), (X, CLASS)),
    # Recurrence.
    "RNN": (lambda n: n.RNN(6, 3, nonlinearity="relu"), (T,)),
    "LSTM": (lambda n: n.LSTM(6, 3, num_layers=2, bidirectional=True), (T,)),
    "LSTM proj": (lambda n: n.LSTM(6, 4, proj_size=2, batch_first=True, bias=False), (T,)),
    "GRU": (lambda n: n.GRU(6, 3, bidirectional=True), (T, _randn(2, 2, 3))),
    "GRU unbatched": (lambda n: n.GRU(6, 3, num_layers=2, dropout=0.5), (T[:, 0].clone(),)),
    "RNNCell": (lambda n: n.RNNCell(4, 3), (X,)),
    "LSTMCell": (lambda n: n.LSTMCell(4, 3), (X,)),
    "GRUCell": (lambda n: n.GRUCell(4, 3), (X, _randn(3, 3))),
    # Attention.
    "MultiheadAttention": (lambda n: n.MultiheadAttention(6, 2), (T,), lambda m, x: m(x, x, x)),
    "MultiheadAttention kdim": (lambda n: n.MultiheadAttention(6, 3, kdim=8, add_zero_attn=True), (T, U, T * 2)),
    "MultiheadAttention mask": (
        lambda n: n.MultiheadAttention(6, 2, add_bias_kv=True), (T, PADDED), lambda m, x, p: m(x, x, x, p)
    ),
    "MultiheadAttention batch": (
        lambda n: n.MultiheadAttention(6, 2, batch_first=True), (T, T * 2, CAUSAL),
        lambda m, x, y, mask: m(x, y, y, attn_mask=mask[:2, :2], need_weights=False),
    ),
    "MultiheadAttention unbatched": (
        lambda n: n.MultiheadAttention(6, 2), (T[:, 0].clone(), CAUSAL),
        lambda m, x, mask: m(x, x, x, attn_mask=mask < 0, average_attn_weights=False),
    ),
    "TransformerEncoderLayer": (lambda n: n.TransformerEncoderLayer(6, 2, 8), (T, CAUSAL)),
    "TransformerEncoderLayer first": (
        lambda n: n.TransformerEncoderLayer(8, 2, 8, activation="gelu", norm_first=True, bias=False), (U,)
    ),
    "TransformerEncoderLayer causal": (
        lambda n: n.TransformerEncoderLayer(6, 2, 8, batch_first=True), (T, CAUSAL),
        lambda m, x, mask: m(x, mask[:2, :2], is_causal=True),
    ),
    "TransformerDecoderLayer": (lambda n: n.TransformerDecoderLayer(6, 2, 8), (T, T * 2)),
    "TransformerEncoder": (
        lambda n: n.TransformerEncoder(n.TransformerEncoderLayer(6, 2, 8), 2, enable_nested_tensor=False), (T,)
    ),
    "TransformerDecoder": (
        lambda n: n.TransformerDecoder(n.TransformerDecoderLayer(6, 2, 8), 2, n.LayerNorm(6)), (T, T * 2)
    ),
    "Transformer": (lambda n: n.Transformer(6, 2, 1, 1, 8), (T, T * 2)),
}  # fmt: skip
"""By name. The first word is the layer's class."""
