"""`nn.functional`: what layers do not call, or call in one way only. `f` is torch's or ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from frontends.nn.layer_cases import (
    BAG,
    CAUSAL,
    CLASS,
    IDS,
    OFFSETS,
    SIGN,
    SIGNS,
    W4,
    D,
    I,
    P,
    Q,
    S,
    T,
    X,
    Y,
)  # fmt: skip
from frontends.nn.parity import as_torch, specs_of
from support import assert_same

import flambeau
from flambeau import nn
from flambeau.nn import functional

torch.manual_seed(0)
G, THETA, THETA3 = torch.rand(2, 3, 3, 2) * 2.4 - 1.2, torch.randn(2, 2, 3), torch.randn(1, 3, 4)
MAP, MAP_WEIGHT = torch.randn(2, 4, 3, 3), torch.randint(0, 4, (2, 3, 3))
HEADS, KEYS = torch.randn(2, 4, 5, 6), torch.randn(2, 2, 5, 6)
LAST = torch.tensor([0, 2, 2, 7])

Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]

CASES: dict[str, Case] = {
    # Activations.
    "softmax of no dim": (lambda f, x, s: [f.softmax(x), f.log_softmax(s), f.softmin(s[0, 0])], (X, S)),
    "softmax dtype": (lambda f, x: f.softmax(x, 1, dtype=torch.float64 if f is not functional else "f64"), (X,)),
    "forms in place": (
        lambda f, x: [
            f.relu_(x.clone()), f.elu_(x.clone(), 0.5), f.celu_(x.clone()), f.selu_(x.clone()),
            f.hardtanh_(x.clone()), f.leaky_relu_(x.clone(), 0.3), f.threshold_(x.clone(), 0.1, 2.0),
            f.rrelu_(x.clone()), f.silu(x.clone(), inplace=True), f.hardswish(x.clone(), True), f.mish(x.clone(), True),
        ],
        (X,),
    ),
    "operators": (
        lambda f, x: [
            f.gelu(x), f.logsigmoid(x), f.softplus(x), f.softshrink(x), f.hardshrink(x), f.sigmoid(x), f.tanh(x),
            f.relu6(x), f.glu(x, dim=1), f.hardsigmoid(x), f.softsign(x), f.tanhshrink(x),
        ],
        (X,),
    ),
    "prelu": (lambda f, x, w: f.prelu(x, w), (X, W4)),
    "dropout": (lambda f, x: [f.dropout(x, training=False), f.dropout(x, 0.0), f.feature_alpha_dropout(x)], (X,)),
    # Vectors.
    "linear": (lambda f, x, w: f.linear(x, w), (X, Y)),
    "normalize": (lambda f, x: [f.normalize(x), f.normalize(x, p=1, dim=0)], (X,)),
    "pdist": (lambda f, x: [f.pdist(x), f.pdist(x, p=1.0)], (X,)),
    "distances": (lambda f, x, y: [f.cosine_similarity(x, y, dim=0), f.pairwise_distance(x, y, 1.0)], (X, Y)),
    "one_hot": (lambda f, i: f.one_hot(i, 10), (IDS,)),
    "embedding": (lambda f, i, w: f.embedding(i, w, padding_idx=-1), (CLASS, X.repeat(2, 1))),
    "embedding_bag weights": (
        lambda f, i, w, p: f.embedding_bag(i, w, mode="sum", per_sample_weights=p), (IDS % 3, X, P)
    ),
    "embedding_bag last": (
        lambda f, i, o, w: f.embedding_bag(i, w, o, include_last_offset=True, padding_idx=2), (BAG % 3, LAST, X)
    ),
    "embedding_bag max": (lambda f, i, o, w: f.embedding_bag(i, w, o, mode="max"), (BAG % 3, OFFSETS, X)),
    "layer_norm": (lambda f, x, w: [f.layer_norm(x, (4,), w), f.rms_norm(x, (4,)), f.group_norm(x, 2)], (X, W4)),
    "batch_norm": (lambda f, x, w: f.batch_norm(x, w, w, training=False), (X, W4)),
    "batch_norm training": (lambda f, x: f.batch_norm(x, None, None, training=True), (X,)),
    "instance_norm": (lambda f, x, w: f.instance_norm(x, weight=w), (S, W4)),
    "local_response_norm": (lambda f, s, d: [f.local_response_norm(s, 2), f.local_response_norm(d, 3, k=2.0)], (S, D)),
    # Images.
    "conv": (lambda f, i, w: f.conv2d(i, w, padding=1), (I, torch.randn(2, 4, 3, 3))),
    "pools": (
        lambda f, s, i: [
            *f.max_pool1d(s, 2, return_indices=True), *f.adaptive_max_pool2d(i, 3, return_indices=True),
            *f.max_pool2d_with_indices(i, 2), f.lp_pool2d(i, 2.0, 2, ceil_mode=True), f.avg_pool2d(i, 2, stride=1),
            f.adaptive_avg_pool2d(i, (None, 2)),
        ],
        (S, I),
    ),
    "unpool": (lambda f, i: f.max_unpool2d(*f.max_pool2d(i, 2, return_indices=True), 2, output_size=(6, 7)), (I,)),
    "pad": (lambda f, i: [f.pad(i, (1, -1, 0, 2), value=2.0), f.pad(i, (1, 1), mode="circular")], (I[0],)),
    "nearest": (
        lambda f, s, i, d: [
            f.interpolate(s, 5), f.interpolate(i, scale_factor=1.5), f.interpolate(d, (3, 7, 4)),
            f.interpolate(i, 4, mode="nearest-exact"), f.upsample_nearest(i, scale_factor=2),
        ],
        (S, I, D),
    ),
    "area": (lambda f, s, i: [f.interpolate(s, 4, mode="area"), f.interpolate(i, None, 0.5, mode="area")], (S, I)),
    "linear modes": (
        lambda f, i: [
            f.interpolate(i, scale_factor=1.5, mode="bilinear", recompute_scale_factor=True), f.upsample_bilinear(i, 4),
            f.interpolate(i, scale_factor=(1.7, 0.6), mode="bilinear"), f.upsample(i, 9, mode="bilinear"),
        ],
        (I,),
    ),
    "bicubic": (
        lambda f, i: [
            f.interpolate(i, 5, mode="bicubic"), f.interpolate(i, scale_factor=(1.7, 0.6), mode="bicubic"),
            f.interpolate(i, (9, 3), mode="bicubic", align_corners=True),
        ],
        (I,),
    ),
    "antialias": (
        lambda f, i: [
            f.interpolate(i, (3, 9), mode="bilinear", antialias=True),
            f.interpolate(i, 3, mode="bicubic", antialias=True),
            f.interpolate(i, scale_factor=0.4, mode="bilinear", antialias=True),
        ],
        (I,),
    ),
    "grid_sample": (
        lambda f, i, g: [
            f.grid_sample(i, g, align_corners=False),
            f.grid_sample(i, g, mode="nearest", padding_mode="border", align_corners=True),
            f.grid_sample(i, g, padding_mode="reflection", align_corners=True),
            f.grid_sample(i, g, mode="bicubic", padding_mode="reflection", align_corners=False),
            f.grid_sample(i, g * 2, mode="bicubic", align_corners=True),
        ],
        (I, G),
    ),
    "affine_grid": (
        lambda f, t, u: [
            f.affine_grid(t, [2, 1, 3, 4], align_corners=False), f.affine_grid(t, [2, 1, 3, 1], align_corners=True),
            f.affine_grid(u, [1, 1, 2, 3, 4], align_corners=False),
        ],
        (THETA, THETA3),
    ),
    "unfold": (lambda f, i: [f.unfold(i, (2, 3), dilation=2, stride=(1, 2)), f.unfold(i[0], 3, padding=1)], (I,)),
    "fold": (
        lambda f, i: f.fold(f.unfold(i, (2, 3), 1, 1, 2), (6, 7), (2, 3), padding=1, stride=2), (I,)
    ),
    "shuffles": (lambda f, i: [f.channel_shuffle(i, 2), f.native_channel_shuffle(i, 4), f.pixel_shuffle(i, 2)], (I,)),
    # Attention.
    "attention": (
        lambda f, q, m: [
            f.scaled_dot_product_attention(q, q, q, m),
            f.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3),
        ],
        (HEADS, CAUSAL),
    ),
    "attention of groups": (lambda f, q, k: f.scaled_dot_product_attention(q, k, k, enable_gqa=True), (HEADS, KEYS)),
    # Losses.
    "weighted": (
        lambda f, x, y, w: [
            f.mse_loss(x, y, weight=w), f.l1_loss(x, y, weight=w, reduction="sum"), f.huber_loss(x, y, weight=w),
            f.mse_loss(x, y, reduction="none", weight=w),
        ],
        (X, Y, P),
    ),
    "cross_entropy smooth": (
        lambda f, x, t, w: [
            f.cross_entropy(x, t, label_smoothing=0.2), f.cross_entropy(x, t, w, label_smoothing=0.2, ignore_index=3),
            f.cross_entropy(x, t, reduction="sum", label_smoothing=0.1),
            f.cross_entropy(x, t, w, reduction="none", label_smoothing=0.1),
        ],
        (X, CLASS, W4),
    ),
    "cross_entropy of probabilities": (
        lambda f, x, p, w: [f.cross_entropy(x, p), f.cross_entropy(x, p, w, reduction="sum", label_smoothing=0.3)],
        (X, P, W4),
    ),
    "cross_entropy of images": (
        lambda f, x, t, w: [f.cross_entropy(x, t, w, ignore_index=1), f.nll_loss(x, t, w, reduction="none")],
        (MAP, MAP_WEIGHT, W4),
    ),
    "cross_entropy of one": (lambda f, x, t: f.cross_entropy(x[0], t[0]), (X, CLASS)),
    "kl_div": (lambda f, x, y: [f.kl_div(x, y, log_target=True), f.kl_div(x, y.exp(), reduction="none")], (X, Y)),
    "poisson": (
        lambda f, x, y: [f.poisson_nll_loss(x, y, full=True), f.poisson_nll_loss(x.exp(), y, log_input=False)],
        (X, (Y * 2).exp()),
    ),
    "gaussian": (lambda f, x, y, v: [f.gaussian_nll_loss(x, y, 0.5), f.gaussian_nll_loss(x, y, v[:, 0])], (X, Y, P)),
    "binary": (
        lambda f, x, p, q, w: [
            f.binary_cross_entropy(p, q, reduction="sum"), f.binary_cross_entropy_with_logits(x, q, w),
        ],
        (X, P, Q, P + 1),
    ),
    "margins": (
        lambda f, x, y, s, t: [
            f.hinge_embedding_loss(x, s, 0.3, reduction="none"), f.multi_margin_loss(x, t, margin=0.5),
            f.soft_margin_loss(x, s, reduction="sum"), f.smooth_l1_loss(x, y, beta=0.0),
        ],
        (X, Y, SIGNS, CLASS),
    ),
    "margins of pairs": (
        lambda f, x, y, s: [
            f.margin_ranking_loss(x[:, 0], y[:, 0], s, reduction="none"), f.cosine_embedding_loss(x, y, s, 0.1),
            f.triplet_margin_loss(x, y, x + 1, p=1.0, reduction="none"),
            f.triplet_margin_with_distance_loss(x, y, x + 1, distance_function=lambda a, b: (a - b).abs().sum(1)),
        ],
        (X, Y, SIGN),
    ),
    "labels": (
        lambda f, x, t: [f.multilabel_margin_loss(x, t, reduction="none"), f.multilabel_margin_loss(x[0], t[0])],
        (X, torch.tensor([[3, 0, -1, 1], [0, -1, 1, 2], [-1, 0, 0, 0]])),
    ),
    "linear_cross_entropy": (
        lambda f, x, w, t: f.linear_cross_entropy(x, w, t, reduction="sum"), (X, Y, CLASS % 3)
    ),
    "multi_head_attention_forward": (
        lambda f, x, w, o: f.multi_head_attention_forward(
            x, x, x, 6, 2, w, None, None, None, True, 0.0, o, None, training=False, average_attn_weights=False
        ),
        (T, torch.randn(18, 6), torch.randn(6, 6)),
    ),
}  # fmt: skip


PARTS = 4


@pytest.mark.engine
@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's, about functions that it deprecates
@pytest.mark.parametrize("part", range(PARTS))
def test_same_numbers(part: int) -> None:
    names = list(CASES)[part::PARTS]

    def listed(found: Any) -> Any:
        return list(found) if isinstance(found, tuple) else found

    def everything(*xs: Any) -> list[Any]:
        results, at = [], 0
        for name in names:
            case, inputs = CASES[name]
            results.append(listed(case(functional, *xs[at : at + len(inputs)])))
            at += len(inputs)
        return results

    arguments = [x for name in names for x in CASES[name][1]]
    module = flambeau.compile(flambeau.trace(everything, *specs_of(arguments)))
    run = flambeau.load(module, engine="iree", profile="quick", device="local-sync")
    actual = run(*(x.clone().numpy() for x in arguments))
    for name, found in zip(names, actual, strict=True):
        case, inputs = CASES[name]
        wanted = listed(case(torch.nn.functional, *(x.clone() for x in inputs)))
        assert_same(as_torch(found), as_torch(wanted), name, 1e-4, 2e-5)


def test_mistakes() -> None:
    def fails(call: Callable[[Any], Any], error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            flambeau.trace(call, nn.TensorSpec([2, 3, 4, 5]))

    f = functional
    fails(lambda x: f.interpolate(x), ValueError, "either size or scale_factor")
    fails(lambda x: f.interpolate(x, 3, mode="linear"), NotImplementedError, "no mode 'linear' for 4 dims")
    fails(lambda x: f.interpolate(x, 3, align_corners=True), ValueError, "align_corners goes with")
    fails(lambda x: f.interpolate(x, 3, antialias=True), ValueError, "antialias goes with")
    fails(lambda x: f.grid_sample(x, x, mode="some"), ValueError, "mode is one of")
    fails(lambda x: f.affine_grid(x, [1, 1, 2, 2]), ValueError, "theta for a size of 4 dims is Nx2x3")
    fails(lambda x: f.local_response_norm(x[0, 0], 2), ValueError, "3D or higher")
    fails(lambda x: f.mse_loss(x, x, reduction="all"), ValueError, "all is not a valid value for reduction")
    fails(lambda x: f.multi_margin_loss(x, x, p=3), ValueError, "p == 1 and p == 2")
    fails(lambda x: f.triplet_margin_loss(x, x, x, margin=0), ValueError, "margin must be greater than 0")
    fails(lambda x: f.dropout(x, 2.0), ValueError, "between 0 and 1")
    fails(lambda x: f.scaled_dot_product_attention(x, x, x, dropout_p=0.1), NotImplementedError, "random numbers")
    fails(lambda x: f.embedding_bag(x, x), ValueError, "input of 2 dims, or input of 1 dim and offsets")
    fails(lambda x: f.embedding_bag(x, x, mode="most"), ValueError, "one of sum, mean or max")
    small = nn.TensorSpec([2, 3, None, 5])
    smooth = flambeau.trace(lambda x: f.interpolate(x, 3, mode="bicubic", antialias=True), small)
    with pytest.raises(flambeau.CompileError, match="antialiasing to or from a size that only the run time knows"):
        flambeau.compile(smooth)
    with pytest.raises(ValueError, match="ctc_loss is unrolled"):
        flambeau.trace(
            lambda x, y: f.ctc_loss(x, y, [3], [2]), nn.TensorSpec([None, 1, 5]), nn.TensorSpec([1, 2], "i64")
        )


def test_older_reductions() -> None:
    from flambeau.frontends.nn.functional.loss import reduction_of

    for size_average in (None, True, False):
        for reduce in (None, True, False):
            wanted = (
                "mean" if size_average is None is reduce
                else torch.nn._reduction.legacy_get_string(size_average, reduce, emit_warning=False)
            )  # fmt: skip
            assert reduction_of("mean", size_average, reduce) == wanted
