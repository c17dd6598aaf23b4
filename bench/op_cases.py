"""The ops that `bench/ops.py` measures, at sizes that models use.

A case is a function of tensors and how to make them; `size` is the number that growth is measured in, from n to 4n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Case:
    """An op at one size: `function(*inputs(size))`, with `limit` times eager's time as its bar."""

    function: Callable[..., Any]
    inputs: Callable[[int], tuple[Tensor, ...]]
    size: int = 1
    grows: bool = False
    """Whether the time from n to 4n has a bar too."""
    limit: float = 3.0


CASES: dict[str, Case] = {}


def _add(name: str, function: Callable[..., Any], *shapes: Any, dtype: torch.dtype = torch.float32) -> None:
    """Add a case on random tensors of these shapes; a tensor stands for itself."""

    def inputs(_: int) -> tuple[Tensor, ...]:
        return tuple(s if isinstance(s, Tensor) else torch.randn(s, dtype=dtype) for s in shapes)

    CASES[name] = Case(function, inputs)


def _grow(name: str, function: Callable[..., Any], inputs: Callable[[int], Any], size: int, limit: float = 3.0) -> None:
    def made(n: int) -> tuple[Tensor, ...]:
        tensors = inputs(n)
        return tensors if isinstance(tensors, tuple) else (tensors,)

    CASES[name] = Case(function, made, size, True, limit)


def _ints(high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape)


# --- Sorting, scans, scatters, transforms: what grows with n ---

_grow("sort 10,000", lambda x: torch.sort(x), torch.randn, 10_000)
_grow("sort 1,000,000", lambda x: torch.sort(x), torch.randn, 1_000_000)
_grow("sort i64 10,000", lambda x: torch.sort(x, stable=True), lambda n: _ints(1000, n), 10_000)
_grow("argsort 64x1000", lambda x: torch.argsort(x, -1), lambda n: torch.randn(64, n), 1000)
_grow("sort dim 0 1000x64", lambda x: torch.sort(x, 0), lambda n: torch.randn(n, 64), 1000)
_grow("topk(50) of 50,000", lambda x: torch.topk(x, 50), torch.randn, 50_000, 5.0)
_grow("topk(5) of 8x50,257", lambda x: torch.topk(x, 5), lambda n: torch.randn(8, n), 50_257, 5.0)
_grow("topk(300) of 8,400", lambda x: torch.topk(x, 300), torch.randn, 8_400, 5.0)
_grow("kthvalue of 10,000", lambda x: torch.kthvalue(x, 100), torch.randn, 10_000, 5.0)
_grow("median 64x1000", lambda x: torch.median(x, -1), lambda n: torch.randn(64, n), 1000, 5.0)
_grow("unique of 10,000", lambda x: torch.unique(x), lambda n: _ints(1000, n), 10_000)
_grow("cumsum of 1M", lambda x: torch.cumsum(x, 0), torch.randn, 1_000_000)
_grow("cumsum 64x1000", lambda x: torch.cumsum(x, -1), lambda n: torch.randn(64, n), 1000)
_grow("cumsum dim 0 1000x64", lambda x: torch.cumsum(x, 0), lambda n: torch.randn(n, 64), 1000)
_grow("cumprod 64x1000", lambda x: torch.cumprod(x, -1), lambda n: torch.rand(64, n), 1000)
_grow("cummax 64x1000", lambda x: torch.cummax(x, -1), lambda n: torch.randn(64, n), 1000)
_grow("logcumsumexp 64x1000", lambda x: torch.logcumsumexp(x, -1), lambda n: torch.randn(64, n), 1000)
_grow("nonzero of 200,000", lambda x: torch.nonzero(x), lambda n: _ints(2, n), 200_000)
_grow("masked_select of 200,000", lambda x: torch.masked_select(x, x > 0), torch.randn, 200_000)
_grow(
    "scatter_add 20,000x64 into 1,000",
    lambda x, i, s: x.scatter_add(0, i[:, None].expand(-1, 64), s),
    lambda n: (torch.zeros(1000, 64), _ints(1000, n), torch.randn(n, 64)),
    20_000,
)
_grow(
    "index_add 20,000x64 into 1,000",
    lambda x, i, s: x.index_add(0, i, s),
    lambda n: (torch.zeros(1000, 64), _ints(1000, n), torch.randn(n, 64)),
    20_000,
)
_grow(
    "index_put accumulate 50,000 into 100,000",
    lambda x, i, s: x.index_put((i,), s, accumulate=True),
    lambda n: (torch.zeros(100_000), _ints(100_000, n), torch.randn(n)),
    50_000,
)
_grow(
    "index_put 50,000 into 100,000",
    lambda x, i, s: x.index_put((i,), s),
    lambda n: (torch.zeros(100_000), _ints(100_000, n), torch.randn(n)),
    50_000,
)
_grow(
    "scatter_reduce amax 20,000 into 1,000",
    lambda x, i, s: x.scatter_reduce(0, i, s, "amax"),
    lambda n: (torch.zeros(1000), _ints(1000, n), torch.randn(n)),
    20_000,
)
_grow("fft.rfft 64x1024", lambda x: torch.fft.rfft(x), lambda n: torch.randn(64, n), 1024)
_grow("fft.fft c64 16x4096", lambda x: torch.fft.fft(x), lambda n: torch.randn(16, n, dtype=torch.complex64), 4096)
_grow(
    "fft.irfft 64x1024",
    lambda x: torch.fft.irfft(x),
    lambda n: torch.randn(64, n // 2 + 1, dtype=torch.complex64),
    1024,
)
_grow("fft.fft 16x1000", lambda x: torch.fft.fft(x), lambda n: torch.randn(16, n), 1000)
_grow("fft.fft prime 16x1009", lambda x: torch.fft.fft(x), lambda n: torch.randn(16, 1009 if n == 1009 else 4021), 1009)
_add("fft.fft2 64x64", lambda x: torch.fft.fft2(x), (8, 64, 64))
_grow(
    "searchsorted 10,000 in 10,000",
    lambda s, x: torch.searchsorted(s, x),
    lambda n: (torch.randn(n).sort()[0], torch.randn(n)),
    10_000,
)

# --- Writes of a part, as key-value caches have them ---

_add(
    "index_copy one row 1x12x1024x64",
    lambda x, i, s: x.index_copy(2, i, s),
    (1, 12, 1024, 64),
    torch.tensor([77]),
    (1, 12, 1, 64),
)
_add("slice_scatter 1x12x1024x64", lambda x, s: torch.slice_scatter(x, s, 2, 77, 78), (1, 12, 1024, 64), (1, 12, 1, 64))
_add("select_scatter 1024x1024", lambda x, s: torch.select_scatter(x, s, 0, 5), (1024, 1024), (1024,))

# --- Products ---

_add("matmul 512", torch.matmul, (512, 512), (512, 512))
_add("matmul 512 bf16", torch.matmul, (512, 512), (512, 512), dtype=torch.bfloat16)
_add("matmul 512 f16", torch.matmul, (512, 512), (512, 512), dtype=torch.float16)
_add("matmul vector 1x1024", torch.matmul, (1, 1024), (1024, 1024))
_add("bmm 12x128x64", torch.bmm, (12, 128, 64), (12, 64, 128))
_add("addmm 128x768", torch.addmm, (768,), (128, 768), (768, 768))
_add("linear bf16 128x768", lambda x, w: F.linear(x, w), (128, 768), (768, 768), dtype=torch.bfloat16)
_add("einsum bhqd,bhkd", lambda q, k: torch.einsum("bhqd,bhkd->bhqk", q, k), (1, 12, 128, 64), (1, 12, 128, 64))
_add("attention 1x12x128x64", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), *[(1, 12, 128, 64)] * 3)
_add(
    "attention causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *[(1, 12, 128, 64)] * 3
)
_add(
    "attention one query",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    (1, 12, 1, 64),
    *[(1, 12, 512, 64)] * 2,
)

# --- Convolutions ---

_add("conv2d 3x3 64", lambda x, w: F.conv2d(x, w, padding=1), (1, 64, 56, 56), (64, 64, 3, 3))
_add("conv2d 7x7 stride 2", lambda x, w: F.conv2d(x, w, stride=2, padding=3), (1, 3, 224, 224), (64, 3, 7, 7))
_add("conv2d 1x1 256", lambda x, w: F.conv2d(x, w), (1, 256, 28, 28), (128, 256, 1, 1))
_add("conv2d 3x3 dilated", lambda x, w: F.conv2d(x, w, padding=2, dilation=2), (1, 64, 28, 28), (64, 64, 3, 3))
_add("conv2d patches 16x16", lambda x, w, b: F.conv2d(x, w, b, stride=16), (1, 3, 224, 224), (768, 3, 16, 16), (768,))
_add("conv2d depthwise 3x3", lambda x, w: F.conv2d(x, w, padding=1, groups=128), (1, 128, 56, 56), (128, 1, 3, 3))
_add("conv2d depthwise 7x7", lambda x, w: F.conv2d(x, w, padding=3, groups=96), (1, 96, 56, 56), (96, 1, 7, 7))
_add("conv2d groups 4", lambda x, w: F.conv2d(x, w, padding=1, groups=4), (1, 64, 28, 28), (64, 16, 3, 3))
_add("conv1d 80 to 384", lambda x, w, b: F.conv1d(x, w, b, padding=1), (1, 80, 3000), (384, 80, 3), (384,))
_add(
    "conv1d 384 stride 2", lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), (1, 384, 3000), (384, 384, 3), (384,)
)
_add("conv1d depthwise", lambda x, w: F.conv1d(x, w, padding=3, groups=256), (1, 256, 1000), (256, 1, 4))
_add("conv3d 3x3x3", lambda x, w: F.conv3d(x, w, padding=1), (1, 16, 8, 28, 28), (16, 16, 3, 3, 3))
_add("conv_transpose2d 64", lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), (1, 64, 28, 28), (64, 64, 4, 4))
_add("conv_transpose1d 64", lambda x, w: F.conv_transpose1d(x, w, stride=4), (1, 64, 500), (64, 64, 8))
_add(
    "conv2d 3x3 64 bf16", lambda x, w: F.conv2d(x, w, padding=1), (1, 64, 28, 28), (64, 64, 3, 3), dtype=torch.bfloat16
)

# --- Windows ---

_add("max_pool2d 3x3", lambda x: F.max_pool2d(x, 3, 2, 1), (1, 64, 112, 112))
_add("avg_pool2d 2x2", lambda x: F.avg_pool2d(x, 2), (1, 128, 56, 56))
_add("adaptive_avg_pool2d 1", lambda x: F.adaptive_avg_pool2d(x, 1), (1, 2048, 7, 7))
_add("adaptive_avg_pool2d 7", lambda x: F.adaptive_avg_pool2d(x, 7), (1, 128, 30, 30))
_add("max_pool1d", lambda x: F.max_pool1d(x, 4), (1, 256, 4000))
_add("unfold 3x3", lambda x: F.unfold(x, 3, padding=1), (1, 32, 56, 56))
_add("fold 3x3", lambda x: F.fold(x, (56, 56), 3, padding=1), (1, 288, 3136))

# --- Norms, softmax, reductions ---

_add("layer_norm 128x768", lambda x, w, b: F.layer_norm(x, (768,), w, b), (128, 768), (768,), (768,))
_add("rms_norm 128x768", lambda x, w: F.rms_norm(x, (768,), w), (128, 768), (768,))
_add("batch_norm 64x56x56", lambda x, m, v: F.batch_norm(x, m, v.abs()), (1, 64, 56, 56), (64,), (64,))
_add("group_norm 32", lambda x: F.group_norm(x, 32), (1, 320, 32, 32))
_add("instance_norm", lambda x: F.instance_norm(x), (1, 64, 64, 64))
_add("softmax 12x128x128", lambda x: torch.softmax(x, -1), (12, 128, 128))
_add("softmax dim 1", lambda x: torch.softmax(x, 1), (8, 21, 64, 64))
_add("log_softmax 128x50,257", lambda x: torch.log_softmax(x, -1), (16, 50_257))
_add("cross_entropy 128x50,257", lambda x: F.cross_entropy(x, torch.arange(16)), (16, 50_257))
_add("sum of all 1M", lambda x: x.sum(), (1000, 1000))
_add("sum dim 0", lambda x: x.sum(0), (1000, 1000))
_add("sum dim 1", lambda x: x.sum(1), (1000, 1000))
_add("mean dims 2, 3", lambda x: x.mean((2, 3)), (8, 256, 28, 28))
_add("amax dim 0", lambda x: x.amax(0), (1000, 1000))
_add("amax dim 1", lambda x: x.amax(1), (1000, 1000))
_add("argmax of 50,257", lambda x: x.argmax(-1), (8, 50_257))
_add("var dim 1", lambda x: x.var(1), (1000, 1000))
_add("norm of all 1M", lambda x: torch.linalg.vector_norm(x), (1000, 1000))
_add("any of 1M", lambda x: (x > 5).any(), (1000, 1000))
_add("prod dim 1", lambda x: x.prod(1), (1000, 1000))
_add("logsumexp", lambda x: torch.logsumexp(x, -1), (1000, 1000))
_add("sum dim 1 bf16", lambda x: x.sum(1), (1000, 1000), dtype=torch.bfloat16)
_add("layer_norm bf16", lambda x, w, b: F.layer_norm(x, (768,), w, b), (128, 768), (768,), (768,), dtype=torch.bfloat16)
_add("softmax bf16", lambda x: torch.softmax(x, -1), (12, 128, 128), dtype=torch.bfloat16)

# --- Moves of data ---

_add("embedding 128 of 50,257x768", lambda w: F.embedding(torch.arange(128)[None] * 100, w), (50_257, 768))
_add("embedding_bag sum", lambda w, i: F.embedding_bag(i, w, mode="sum"), (10_000, 64), _ints(10_000, 512, 20))
_add("gather 64x1000", lambda x, i: x.gather(1, i), (64, 1000), _ints(1000, 64, 1000))
_add("index_select rows", lambda x, i: x.index_select(0, i), (10_000, 64), _ints(10_000, 20_000))
_add("cat dim 1", lambda x, y: torch.cat([x, y], 1), (256, 768), (256, 768))
_add("stack 8", lambda *x: torch.stack(x), *[(256, 256)] * 8)
_add("transpose 1024", lambda x: x.t().contiguous(), (1024, 1024))
_add("permute NCHW to NHWC", lambda x: x.permute(0, 2, 3, 1).contiguous(), (1, 64, 112, 112))
_add("pad reflect", lambda x: F.pad(x, (3, 3, 3, 3), "reflect"), (1, 64, 56, 56))
_add("pad constant", lambda x: F.pad(x, (1, 1, 1, 1)), (1, 64, 56, 56))
_add("roll 64x1000", lambda x: torch.roll(x, 3, 1), (64, 1000))
_add("flip 1M", lambda x: torch.flip(x, [1]), (1000, 1000))
_add("repeat_interleave", lambda x: x.repeat_interleave(4, 1), (1, 8, 128, 64))
_add("triu 1024", lambda x: torch.triu(x), (1024, 1024))
_add("where", lambda x, y: torch.where(x > 0, x, y), (1000, 1000), (1000, 1000))
_add("interpolate nearest 2x", lambda x: F.interpolate(x, scale_factor=2), (1, 64, 64, 64))
_add("interpolate bilinear 2x", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (1, 64, 64, 64))
_add("interpolate bicubic", lambda x: F.interpolate(x, size=(56, 56), mode="bicubic"), (1, 64, 28, 28))
_add("grid_sample", lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), (1, 32, 64, 64), (1, 64, 64, 2))
_add("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), (1, 256, 64, 64))
_add("cdist 500x500", torch.cdist, (500, 64), (500, 64))

# --- Pointwise ---

for _name, _function in {
    "add 1M": lambda x: x + x,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "log": lambda x: torch.log(x.abs()),
    "sin": torch.sin,
    "erf": torch.erf,
    "sqrt": lambda x: torch.sqrt(x.abs()),
    "pow 2.5": lambda x: x.abs() ** 2.5,
    "div": lambda x: x / (x + 3),
    "softplus": F.softplus,
    "atan2": lambda x: torch.atan2(x, x + 1),
}.items():
    _add(_name if " 1M" in _name else f"{_name} 1M", _function, (1000, 1000))
_add("gelu 1M bf16", F.gelu, (1000, 1000), dtype=torch.bfloat16)
_add("add 1M bf16", lambda x: x + x, (1000, 1000), dtype=torch.bfloat16)
_add("floor_divide i64 1M", lambda x: x // 7, _ints(1000, 1000, 1000))
_add("remainder i64 1M", lambda x: x % 7, _ints(1000, 1000, 1000))

# --- Small sizes, where the call is what costs ---

_add("add 4x4", lambda x, y: x + y, (4, 4), (4, 4))
_add("softmax 8x8", lambda x: torch.softmax(x, -1), (8, 8))
_add("layer_norm 4x64", lambda x: F.layer_norm(x, (64,)), (4, 64))


# --- Layers, whose weights belong to the program ---


def _layer(name: str, layer: nn.Module, *shape: int) -> None:
    layer = layer.eval().requires_grad_(False)
    CASES[name] = Case(layer, lambda _: (torch.randn(shape),))


_layer("linear 128x768 to 3072", nn.Linear(768, 3072), 128, 768)
_layer("linear 1x768 to 3072", nn.Linear(768, 3072), 1, 768)
_layer("linear 4x16", nn.Linear(16, 16), 4, 16)


def _recurrent(kind: type[nn.Module], steps: int, size: int) -> None:
    layer = kind(size, size, batch_first=True).eval()
    CASES[f"{kind.__name__} {steps}x{size}"] = Case(lambda x: layer(x)[0], lambda _: (torch.randn(1, steps, size),))


_recurrent(nn.LSTM, 32, 128)
_recurrent(nn.GRU, 32, 128)
