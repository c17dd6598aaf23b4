"""Arguments that fit each other, for ops that take no others: what a random choice would almost never hit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from fuzz.schemas.tensors import FLOATS, Chooser

Given = dict[str, Any]
Recipe = Callable[[Chooser, str], Given]

RECIPES: dict[str, Recipe] = {}


def recipe(*names: str) -> Callable[[Recipe], Recipe]:
    """Declare the arguments of ops by their names without overload."""

    def register(function: Recipe) -> Recipe:
        RECIPES.update(dict.fromkeys(names, function))
        return function

    return register


def _spatial(name: str) -> int:
    for n in (1, 2, 3):
        if f"{n}d" in name:
            return n
    return 2


# --- Products ---


@recipe("mm", "bmm", "matmul", "linalg_matmul", "mv", "dot", "vdot", "inner", "outer", "ger", "linear", "addmm")
def product(c: Chooser, name: str) -> Given:
    d = c.dtype()
    n, k, m, b = (c.size() for _ in range(4))
    base = name.split(".")[1]
    left, right = {
        "mm": ((n, k), (k, m)), "bmm": ((b, n, k), (b, k, m)), "mv": ((n, k), (k,)), "dot": ((k,), (k,)),
        "vdot": ((k,), (k,)), "outer": ((n,), (m,)), "ger": ((n,), (m,)), "inner": ((n, k), (m, k)),
        "linear": ((b, n, k), (m, k)), "addmm": ((n, k), (k, m)),
    }.get(base, ((n, k), (k, m)))  # fmt: skip
    if base in ("matmul", "linalg_matmul"):
        left = c.rng.choice(((k,), (n, k), (b, n, k), (1, n, k), (2, b, n, k)))
        right = c.rng.choice(((k,), (k, m), (b, k, m), (1, k, m)))
    if base in ("inner", "linear") and c.chance(0.3):
        left = (k,)
    x, y = c.tensor(left, d), c.tensor(right, d)
    names = {"mm": "mat2", "bmm": "mat2", "mv": "vec", "dot": "tensor", "outer": "vec2", "ger": "vec2"}
    if base == "addmm":
        bias = c.rng.choice(((n, m), (m,), (1, m), (n, 1), ()))
        return {"self": c.tensor(bias, d), "mat1": x, "mat2": y, **_factors(c)}
    if base == "linear":
        return {"input": x, "weight": y, "bias": c.tensor((m,), d) if c.chance(0.5) else None}
    return {"self": x, names.get(base, "other"): y}


def _factors(c: Chooser) -> Given:
    return {"beta": c.rng.choice((1, 0, 2, 0.5)), "alpha": c.rng.choice((1, 3, 2, 0.5))} if c.chance(0.5) else {}


@recipe("baddbmm", "addbmm", "addmv", "addr")
def added_product(c: Chooser, name: str) -> Given:
    d = c.dtype()
    n, k, m, b = (c.size() for _ in range(4))
    base = name.split(".")[1]
    if base == "addmv":
        return {"self": c.tensor((n,), d), "mat": c.tensor((n, k), d), "vec": c.tensor((k,), d), **_factors(c)}
    if base == "addr":
        return {"self": c.tensor((n, m), d), "vec1": c.tensor((n,), d), "vec2": c.tensor((m,), d), **_factors(c)}
    start = (b, n, m) if base == "baddbmm" else (n, m)
    return {
        "self": c.tensor(c.like(start) if c.chance(0.3) else start, d),
        "batch1": c.tensor((b, n, k), d),
        "batch2": c.tensor((b, k, m), d),
        **_factors(c),
    }


@recipe("einsum")
def einsum(c: Chooser, name: str) -> Given:
    sizes = {letter: c.size() for letter in "ijkb"}
    equation = c.rng.choice(("ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "ij->", "ij,ij->i", "i,j->ij", "bij->bj"))
    inputs = equation.split("->")[0].split(",")
    d = c.dtype(FLOATS)
    return {"equation": equation, "tensors": [c.tensor([sizes[x] for x in term], d) for term in inputs], "path": None}


@recipe("bilinear")
def bilinear(c: Chooser, name: str) -> Given:
    d = c.dtype(FLOATS)
    n, a, b, o = (c.rng.randint(1, 4) for _ in range(4))
    return {
        "input1": c.tensor((n, a), d), "input2": c.tensor((n, b), d), "weight": c.tensor((o, a, b), d),
        "bias": c.tensor((o,), d) if c.chance(0.5) else None,
    }  # fmt: skip


@recipe("polygamma", "special_polygamma")
def polygamma(c: Chooser, name: str) -> Given:
    # At its poles, which are integers, PyTorch gives large numbers that come of rounding.
    return {"n": c.rng.randint(0, 3), "self": c.tensor(c.shape(), c.dtype(FLOATS), "positive")}


@recipe("_trilinear")
def trilinear(c: Chooser, name: str) -> Given:
    d = c.dtype(FLOATS)
    n, a, b, o = (c.size() for _ in range(4))
    return {
        "i1": c.tensor((n, a), d, "plain"), "i2": c.tensor((o, a, b), d, "plain"),
        "i3": c.tensor((n, b), d, "plain"), "expand1": [1, 3], "expand2": [0], "expand3": [1, 2],
        "sumdim": c.rng.choice(([2, 3], [3], [], [0, 2])), "unroll_dim": 1,
    }  # fmt: skip


@recipe("_cdist_forward")
def cdist(c: Chooser, name: str) -> Given:
    d = c.dtype((torch.float32, torch.float64))
    n, m, k = (c.size() for _ in range(3))
    return {
        "x1": c.tensor((n, k), d, "plain"), "x2": c.tensor((m, k), d, "plain"),
        "p": c.rng.choice((0.0, 1.0, 2.0, 3.0, float("inf"))), "compute_mode": None,
    }  # fmt: skip


@recipe("scaled_dot_product_attention")
def attention(c: Chooser, name: str) -> Given:
    d = c.dtype((torch.float32, torch.float64, torch.float16))
    b, h, n, s, e = (c.rng.randint(1, 3), c.rng.randint(1, 2), c.rng.randint(1, 5), c.rng.randint(1, 5), 4)
    mask = c.tensor((n, s), c.rng.choice((d, torch.bool)), "plain") if c.chance(0.4) else None
    # Whether a row that nothing is left of is 0 or 0 times the values is up to the kernel that PyTorch chooses.
    value = c.tensor((b, h, s, 3), d, None if mask is None else "plain")
    return {
        "query": c.tensor((b, h, n, e), d), "key": c.tensor((b, h, s, e), d), "value": value,
        "attn_mask": mask, "dropout_p": 0.0, "is_causal": mask is None and c.chance(0.4),
        "scale": c.rng.choice((None, 0.5)), "enable_gqa": False,
    }  # fmt: skip


# --- Convolutions and windows ---


@recipe(
    "conv1d", "conv2d", "conv3d", "convolution", "_convolution", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d",
)  # fmt: skip
def convolution(c: Chooser, name: str) -> Given:
    n = _spatial(name)
    if "convolution" in name:
        n = c.rng.choice((1, 2, 2, 3))
    transposed = "transpose" in name or ("convolution" in name and c.chance(0.4))
    groups = c.rng.choice((1, 1, 1, 2, 3))
    inner, outer = c.rng.randint(1, 2), c.rng.randint(1, 2)
    d = c.dtype(FLOATS)
    kernel = [c.rng.randint(1, 3) for _ in range(n)]
    channels = inner * groups
    weight = (channels, outer, *kernel) if transposed else (outer * groups, inner, *kernel)
    features = outer * groups
    batch = (c.rng.randint(0, 2),) if c.chance(0.1) else (c.rng.randint(1, 2),)
    if c.chance(0.1) and "convolution" not in name:
        batch = ()
    stride = [c.rng.randint(1, 3) for _ in range(n)]
    x = c.tensor((*batch, channels, *(c.rng.randint(2, 6) for _ in range(n))), d)
    given: Given = {
        # What zeros between and around the elements make of infinite weights is not the same in all of PyTorch.
        "input": x, "weight": c.tensor(weight, d, "plain"),
        "bias": c.tensor((features,), d) if c.chance(0.5) else None,
        "stride": stride, "padding": [c.rng.randint(0, 2) for _ in range(n)],
        "dilation": [c.rng.randint(1, 2) for _ in range(n)], "groups": groups, "transposed": transposed,
        "output_padding": [c.rng.randrange(s) if transposed else 0 for s in stride],
        "benchmark": False, "deterministic": False, "cudnn_enabled": True, "allow_tf32": True,
    }  # fmt: skip
    if name.endswith(".padding"):
        given["padding"] = c.rng.choice(("same", "valid"))
        if given["padding"] == "same":
            given["stride"] = [1] * n
    return given


@recipe("conv_tbc")
def conv_tbc(c: Chooser, name: str) -> Given:
    t, b, i, o, k = (c.rng.randint(1, 4) for _ in range(5))
    d = c.dtype((torch.float32, torch.float64))
    return {
        "self": c.tensor((t + k, b, i), d), "weight": c.tensor((k, i, o), d), "bias": c.tensor((o,), d),
        "pad": c.rng.randint(0, 2),
    }  # fmt: skip


@recipe(
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices",
    "max_pool2d_with_indices", "max_pool3d_with_indices",
)  # fmt: skip
def pool(c: Chooser, name: str) -> Given:
    n = _spatial(name)
    kernel = [c.rng.randint(1, 3) for _ in range(n)]
    lead = (c.rng.randint(1, 2), c.rng.randint(1, 2)) if c.chance(0.8) else (2,)
    values = "distinct" if "max" in name else None
    given: Given = {
        "self": c.tensor((*lead, *(c.rng.randint(3, 6) for _ in range(n))), c.dtype((*FLOATS, torch.int64)), values),
        "kernel_size": kernel, "stride": c.rng.choice(([], [c.rng.randint(1, 3) for _ in range(n)])),
        "padding": [c.rng.randint(0, k // 2) for k in kernel], "dilation": [c.rng.randint(1, 2) for _ in range(n)],
        "ceil_mode": c.chance(0.4), "count_include_pad": c.chance(0.5),
    }  # fmt: skip
    if "avg" in name:
        given["divisor_override"] = c.rng.choice((None, None, 3, -2))
    return given


@recipe(
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
)  # fmt: skip
def adaptive(c: Chooser, name: str) -> Given:
    n = _spatial(name)
    lead = (c.rng.randint(1, 2), c.rng.randint(1, 2)) if c.chance(0.8) else (2,)
    values = "distinct" if "max" in name else None
    x = c.tensor((*lead, *(c.rng.randint(1, 6) for _ in range(n))), c.dtype(FLOATS), values)
    return {"self": x, "output_size": [c.rng.randint(1, 5) for _ in range(n)]}


@recipe(
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d",
    "replication_pad3d",
)  # fmt: skip
def edge_pad(c: Chooser, name: str) -> Given:
    n = _spatial(name)
    lead = (c.rng.randint(1, 2), c.rng.randint(1, 2)) if c.chance(0.8) else (2,)
    sizes = [c.rng.randint(1, 5) for _ in range(n)]
    return {"self": c.tensor((*lead, *sizes)), "padding": [c.rng.randint(-1, 2) for _ in range(2 * n)]}


@recipe("constant_pad_nd", "pad", "_pad_circular")
def pad(c: Chooser, name: str) -> Given:
    shape = c.shape(1, 4)
    dims = c.rng.randint(1, len(shape))
    mode = "constant"
    if name == "aten.pad":
        mode = c.rng.choice(("constant", "constant", "reflect", "replicate", "circular"))
    if name == "aten._pad_circular" or mode != "constant":
        n = c.rng.randint(1, 2)
        shape, dims = (2, 2, *(c.rng.randint(2, 5) for _ in range(n))), n
    low = 0 if mode == "circular" or name == "aten._pad_circular" else -1
    given: Given = {"self": c.tensor(shape), "pad": [c.rng.randint(low, 2) for _ in range(2 * dims)]}
    if name == "aten.pad":
        given |= {"mode": mode, "value": c.rng.choice((None, 1.5)) if mode == "constant" else None}
    return given


@recipe("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d",
        "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
        "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")  # fmt: skip
def upsample(c: Chooser, name: str) -> Given:
    n = _spatial(name)
    d = c.dtype((torch.float32, torch.float64, torch.float16, torch.bfloat16))
    x = c.tensor((c.rng.randint(1, 2), c.rng.randint(1, 2), *(c.rng.randint(1, 5) for _ in range(n))), d)
    size = [c.rng.randint(2 if "_aa" in name else 1, 7) for _ in range(n)]
    corners = c.chance(0.5)
    if name.endswith(".vec"):
        by_size = "_aa" in name or c.chance(0.5)
        factors = [c.rng.choice((0.5, 1.0, 1.5, 2.0)) for _ in range(n)]
        return {
            "input": x, "output_size": size if by_size else None, "align_corners": corners,
            "scale_factors": None if by_size else factors,
        }  # fmt: skip
    scales = dict.fromkeys(("scales", "scales_d", "scales_h", "scales_w"), None)
    return {"self": x, "output_size": size, "align_corners": corners, **scales}


@recipe("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid(c: Chooser, name: str) -> Given:
    n = 3 if "3d" in name else 2
    d = c.dtype((torch.float32, torch.float64))
    lead = (c.rng.randint(1, 2), c.rng.randint(1, 2))
    modes = (0, 1, 2) if n == 2 else (0, 1)
    return {
        "input": c.tensor((*lead, *(c.rng.randint(1, 4) for _ in range(n))), d, "plain"),
        "grid": c.tensor((lead[0], *(c.rng.randint(1, 3) for _ in range(n)), n), d, "unit"),
        "interpolation_mode": c.rng.choice(modes), "padding_mode": c.rng.choice((0, 1, 2)),
        "align_corners": c.chance(0.5),
    }  # fmt: skip


@recipe("im2col")
def im2col(c: Chooser, name: str) -> Given:
    x = c.tensor((c.rng.randint(1, 2), 2, c.rng.randint(3, 6), c.rng.randint(3, 6)), c.dtype(FLOATS))
    return {"self": x, **windows(c)}


def windows(c: Chooser) -> Given:
    return {
        "kernel_size": [c.rng.randint(1, 3), c.rng.randint(1, 3)], "dilation": [c.rng.randint(1, 2)] * 2,
        "padding": [c.rng.randint(0, 1)] * 2, "stride": [c.rng.randint(1, 2)] * 2,
    }  # fmt: skip


@recipe("pixel_shuffle", "pixel_unshuffle", "channel_shuffle")
def shuffle(c: Chooser, name: str) -> Given:
    r = c.rng.randint(1, 3)
    base = name.split(".")[1]
    lead = (c.rng.randint(1, 2),) * c.rng.randint(0, 2)
    if base == "pixel_shuffle":
        return {"self": c.tensor((*lead, c.rng.randint(1, 2) * r * r, 2, 3)), "upscale_factor": r}
    if base == "pixel_unshuffle":
        return {"self": c.tensor((*lead, 2, 2 * r, 1 * r)), "downscale_factor": r}
    return {"self": c.tensor((2, 2 * r, 3, 2)), "groups": r}
