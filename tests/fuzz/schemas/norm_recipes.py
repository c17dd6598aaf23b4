"""Arguments of norms, losses, and of ops that do not check theirs."""

from __future__ import annotations

from typing import Any

import torch
from fuzz.schemas.index_recipes import Exactly, Sorted
from fuzz.schemas.recipes import Given, recipe, windows
from fuzz.schemas.shape_recipes import reshape
from fuzz.schemas.tensors import FLOATS, Chooser

# --- Norms and losses ---


@recipe("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm")
def layer_norm(c: Chooser, name: str) -> Given:
    shape = c.shape(1, 4)
    last = shape[len(shape) - c.rng.randint(1, len(shape)) :]
    d = c.dtype(FLOATS)
    return {
        "input": c.tensor(shape, d), "normalized_shape": list(last), "eps": c.rng.choice((1e-5, 1e-3)),
        "weight": c.tensor(last, d) if c.chance(0.5) else None, "bias": c.tensor(last, d) if c.chance(0.5) else None,
        "cudnn_enable": True,
    }  # fmt: skip


@recipe("group_norm", "native_group_norm")
def group_norm(c: Chooser, name: str) -> Given:
    groups, each, batch = c.rng.randint(1, 3), c.rng.randint(1, 2), c.rng.randint(1, 2)
    rest = tuple(c.rng.randint(1, 4) for _ in range(c.rng.randint(0, 2)))
    d = c.dtype(FLOATS)
    channels = groups * each
    spatial = 1
    for n in rest:
        spatial *= n
    return {
        "input": c.tensor((batch, channels, *rest), d), "weight": c.tensor((channels,), d) if c.chance(0.5) else None,
        "bias": c.tensor((channels,), d) if c.chance(0.5) else None, "num_groups": groups, "N": batch, "C": channels,
        "HxW": spatial, "group": groups, "eps": 1e-5, "cudnn_enabled": True,
    }  # fmt: skip


@recipe(
    "batch_norm", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training", "instance_norm",
)  # fmt: skip
def batch_norm(c: Chooser, name: str) -> Given:
    channels = c.rng.randint(1, 3)
    rest = tuple(c.rng.randint(1, 4) for _ in range(c.rng.randint(0 if "instance" not in name else 1, 3)))
    d = c.dtype(FLOATS)
    # Without statistics, PyTorch dies where it should not train.
    training = c.chance(0.4) or "no_stats" in name
    per = (channels,)
    statistics = "running_mean" if "functional" in name or not training or c.chance(0.3) else None
    return {
        "input": c.tensor((c.rng.randint(1, 3), channels, *rest), d, "plain"),
        "weight": c.tensor(per, d, "plain") if c.chance(0.6) else None,
        "bias": c.tensor(per, d, "plain") if c.chance(0.6) else None,
        "running_mean": c.tensor(per, d, "plain") if statistics else None,
        "running_var": c.tensor(per, d, "positive") if statistics else None,
        "training": training, "use_input_stats": training, "momentum": 0.1, "eps": c.rng.choice((1e-5, 1e-3)),
        "cudnn_enabled": True,
    }  # fmt: skip


@recipe("nll_loss", "nll_loss_nd", "nll_loss_forward", "nll_loss2d", "nll_loss2d_forward", "cross_entropy_loss")
def class_loss(c: Chooser, name: str) -> Given:
    n, classes = c.rng.randint(1, 4), c.rng.randint(1, 5)
    rest = (c.rng.randint(1, 3), 2) if "2d" in name else ()
    d = c.dtype((torch.float32, torch.float64))
    return {
        "self": c.tensor((n, classes, *rest), d),
        "target": c.tensor((n, *rest), torch.int64, "rows" if c.chance(0.9) else "index", classes),
        "weight": c.tensor((classes,), d, "positive") if c.chance(0.4) else None, "reduction": c.rng.randrange(3),
        "ignore_index": c.rng.choice((-100, 0, 1)), "label_smoothing": c.rng.choice((0.0, 0.0, 0.1)),
    }  # fmt: skip


@recipe("binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "huber_loss", "smooth_l1_loss", "l1_loss",
        "mse_loss", "soft_margin_loss", "poisson_nll_loss")  # fmt: skip
def paired_loss(c: Chooser, name: str) -> Given:
    shape = c.shape(0, 3)
    d = c.dtype(FLOATS)
    unit = "unit" if name == "aten.binary_cross_entropy" else "plain"
    positive = "unit" if "cross" in name or "kl" in name else "plain"
    return {
        "self": c.tensor(shape, d, unit), "input": c.tensor(shape, d), "target": c.tensor(shape, d, positive),
        "weight": c.tensor(shape, d, "positive") if c.chance(0.3) else None, "reduction": c.rng.randrange(3),
        "pos_weight": None, "log_target": c.chance(0.3), "delta": c.rng.choice((1.0, 0.5)),
        "beta": c.rng.choice((1.0, 0.5)), "log_input": c.chance(0.5), "full": False, "eps": 1e-8,
    }  # fmt: skip


# --- Ops that do not check their arguments: PyTorch dies of others ---


@recipe("_fft_c2c", "_fft_r2c", "_fft_c2r")
def fourier(c: Chooser, name: str) -> Given:
    shape = tuple(c.rng.randint(1, 5) for _ in range(c.rng.randint(1, 3)))
    dims = sorted(c.rng.sample(range(len(shape)), c.rng.randint(1, len(shape))))
    real = name == "aten._fft_r2c"
    x = c.tensor(
        shape, c.rng.choice((torch.float32, torch.float64) if real else (torch.complex64, torch.complex128)), "plain"
    )
    last = shape[dims[-1]]
    return {
        "self": x, "dim": dims, "normalization": c.rng.randrange(3), "forward": c.chance(0.5),
        "onesided": c.chance(0.5),
        "last_dim_size": max(1, 2 * (last - 1) + c.rng.randrange(2)),
    }  # fmt: skip


@recipe("_pdist_forward")
def pdist(c: Chooser, name: str) -> Given:
    return {
        "self": c.tensor(
            (c.rng.randint(1, 5), c.size()), c.dtype((torch.float32, torch.float64)), "plain", contiguous=True
        ),
        "p": c.rng.choice((0.0, 1.0, 2.0, 3.0, float("inf"))),
    }  # fmt: skip


@recipe("_softmax_backward_data", "_log_softmax_backward_data", "mse_loss_backward", "log_sigmoid_backward")
def backward(c: Chooser, name: str) -> Given:
    shape, d = c.shape(), c.dtype(FLOATS)
    x, y, z = (c.tensor(shape, d, "plain") for _ in range(3))
    return {
        "grad_output": x,
        "output": y,
        "self": y,
        "target": z,
        "buffer": z,
        "dim": c.dim(len(shape)),
        "input_dtype": d,
    }


@recipe("_unsafe_view")
def unsafe_view(c: Chooser, name: str) -> Given:
    return reshape(c, name)


# --- Others whose arguments must fit ---


@recipe("linalg_det", "linalg_inv", "linalg_slogdet", "_linalg_det", "inverse", "det", "linalg_qr")
def square(c: Chooser, name: str) -> Given:
    n = c.rng.randint(1, 4)
    lead = (c.rng.randint(1, 2),) * c.rng.randint(0, 1)
    x = c.tensor((*lead, n, n), c.dtype((torch.float32, torch.float64)), "plain")
    return {"self": x, "A": x, "mode": "reduced"}


@recipe("linalg_cross")
def cross(c: Chooser, name: str) -> Given:
    shape = (c.size(), 3)
    return {"self": c.tensor(shape), "other": c.tensor(shape), "dim": -1}


@recipe("fill")
def fill(c: Chooser, name: str) -> Given:
    d = c.dtype()
    return {"self": c.tensor(c.shape(), d), "value": c.tensor((), d, "plain") if "Tensor" in name else c.number()}


@recipe("narrow", "narrow_copy")
def narrow(c: Chooser, name: str) -> Given:
    shape = tuple(c.rng.randint(1, 5) for _ in range(c.rng.randint(1, 3)))
    dim = c.rng.randrange(-len(shape), len(shape))
    start = c.rng.randint(-shape[dim], shape[dim])
    left = shape[dim] - (start % shape[dim] if start < shape[dim] else start)
    given: Given = {"self": c.tensor(shape), "dim": dim, "start": start, "length": c.rng.randint(0, left)}
    if "Tensor" in name:
        given["start"] = Number(start % shape[dim])
        given["length"] = min(given["length"], 1)
    return given


class Number(int):
    """A 0-d int64 tensor."""

    shape: tuple[int, ...] = ()
    dtype = torch.int64

    def make(self) -> torch.Tensor:
        return torch.tensor(int(self))

    def __str__(self) -> str:
        return f"torch.tensor({int(self)})"


@recipe("repeat_interleave")
def repeat_interleave(c: Chooser, name: str) -> Given:
    shape = tuple(c.rng.randint(1, 4) for _ in range(c.rng.randint(1, 3)))
    dim = c.rng.randrange(len(shape))
    counts = c.tensor((shape[dim],) if c.chance(0.7) else (1,), torch.int64, "small")
    if name == "aten.repeat_interleave.Tensor":
        return {"repeats": counts, "output_size": None}
    repeats: Any = counts if "Tensor" in name else c.rng.randint(0, 3)
    return {"self": c.tensor(shape), "repeats": repeats, "dim": dim, "output_size": None}


@recipe("embedding_renorm")
def renorm_rows(c: Chooser, name: str) -> Given:
    return {
        "self": c.tensor((5, c.rng.randint(1, 3)), c.dtype((torch.float32, torch.float64)), "plain"),
        "indices": c.tensor(c.shape(1, 2), torch.int64, "small"), "max_norm": c.rng.choice((0.5, 1.0, 2.0)),
        "norm_type": c.rng.choice((1.0, 2.0)),
    }  # fmt: skip


@recipe("fake_quantize_per_tensor_affine", "fake_quantize_per_tensor_affine_cachemask",
        "fake_quantize_per_channel_affine", "fake_quantize_per_channel_affine_cachemask",
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")  # fmt: skip
def fake_quantize(c: Chooser, name: str) -> Given:
    shape = tuple(c.rng.randint(1, 4) for _ in range(c.rng.randint(1, 3)))
    axis = c.rng.randrange(len(shape))
    by_channel, by_tensor = "channel" in name, "tensor_qparams" in name
    given: Given = {
        "self": c.tensor(shape, torch.float32, "plain"), "axis": axis, "quant_min": -128, "quant_max": 127,
        "scale": 0.1,
        "zero_point": 3, "fake_quant_enabled": Exactly([1]),
    }  # fmt: skip
    if by_channel:
        given["scale"] = c.tensor((shape[axis],), torch.float32, "positive")
        given["zero_point"] = c.tensor((shape[axis],), torch.int32, "small")
    if by_tensor:
        given["scale"], given["zero_point"] = (
            c.tensor((1,), torch.float32, "positive"),
            c.tensor((1,), torch.int32, "small"),
        )
        given["fake_quant_enabled"] = c.tensor((1,), torch.int64, "positive")
    return given


@recipe("col2im")
def col2im(c: Chooser, name: str) -> Given:
    given = windows(c)
    height, width = c.rng.randint(5, 6), c.rng.randint(5, 6)
    x = torch.empty((1, 2, height, width), device="meta")
    columns = torch.ops.aten.im2col(x, given["kernel_size"], given["dilation"], given["padding"], given["stride"])
    return {
        "self": c.tensor(columns.shape, c.dtype((torch.float32, torch.float64))),
        "output_size": [height, width],
        **given,
    }


@recipe("max_unpool2d")
def unpool(c: Chooser, name: str) -> Given:
    h, w = c.rng.randint(1, 3), c.rng.randint(1, 3)
    return {
        "self": c.tensor((1, 2, h, w), torch.float32, "plain"), "output_size": [2 * h, 2 * w],
        "indices": c.tensor((1, 2, h, w), torch.int64, "rows", 4 * h * w),
    }  # fmt: skip


@recipe("histogram")
def histogram(c: Chooser, name: str) -> Given:
    x = c.tensor(c.shape(0, 2), c.rng.choice((torch.float32, torch.float64)), "plain")
    bins: Any = c.rng.randint(1, 5)
    if "tensor" in name:
        bins = c.tensor((c.rng.randint(2, 5),), x.dtype, "distinct", contiguous=True)
        bins = Sorted(bins.shape, bins.dtype, bins.seed)
    weight = c.tensor(x.shape, x.dtype, "plain") if c.chance(0.4) else None
    return {"self": x, "bins": bins, "range": None, "weight": weight, "density": c.chance(0.3)}


@recipe("segment_reduce", "stft", "gru", "lstm", "rnn_tanh", "rnn_relu", "gru_cell", "lstm_cell",
        "rnn_tanh_cell", "rnn_relu_cell", "max_unpool3d", "nll_loss_backward", "nll_loss2d_backward", "_grouped_mm",
        "_int_mm", "cosine_embedding_loss")  # fmt: skip
def special(c: Chooser, name: str) -> Given:
    """Ops whose arguments take tests of their own; mostly rejected here."""
    return {}
