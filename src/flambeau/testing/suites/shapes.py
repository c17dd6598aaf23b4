"""The blocks that models are made of, at all small sizes: where tiles, padding and fusion of an engine go wrong.

Attention, matrix products between fused producers and consumers, convolutions, norms and softmax, at sizes 1 to 17 and
around powers of two; each size compiled for itself, and one program with dynamic sizes run at all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from flambeau.testing.cases import Call, Case, Sample, Suite, as_module
from flambeau.testing.suites import contractions

SMALL = tuple(range(1, 18))
AROUND = (31, 32, 33, 63, 64, 65, 127, 128, 129)
"""Sizes next to powers of two."""
LARGE = (511, 512, 513)
FLOATS = ("float32", "float16", "bfloat16")
CHAINS = 2000
"""How many random chains there are."""
FOLDS = 1000
"""How many random reductions of what is broadcast."""
TOLERANCES = {"float32": 1e-4, "float16": 6e-3, "bfloat16": 5e-2}
"""Largest difference relative to the largest value."""


def make(dtypes: Iterable[str]) -> Suite:
    """Make a case for each block and float dtype."""
    suite = Suite("shapes")
    for name in dtypes:
        if name not in FLOATS:
            continue
        for title, family, samples in _blocks(getattr(torch, name)):
            limit = (TOLERANCES[name], 0.0)
            suite.add(Case("shapes", title, samples, name, family, tolerance=limit, compare="norm"))
    return suite


Named = tuple[str, str, Callable[[], list[Sample]]]
"""The name of a block, its family, and what makes its samples."""


def _blocks(dtype: torch.dtype) -> Iterable[Named]:
    yield from _attention(dtype)
    yield from _rows(dtype)
    yield from _convolutions(dtype)
    for seed in range(CHAINS):
        yield f"chain-{seed:04}", "chain", partial(_chain, seed, dtype)
    for seed in range(CHAINS // 10):
        yield f"chain-dynamic-{seed:04}", "chain", partial(_dynamic_chain, seed, dtype)
    for seed in range(FOLDS):
        yield f"fold-{seed:04}", "fold", partial(_fold, seed, dtype)
    for seed in range(contractions.COUNT):
        yield f"product-{seed:04}", "product", partial(contractions.contraction, seed, dtype)


# --- Attention ---


class Attention(nn.Module):
    """Self-attention with projections, written out or by PyTorch's own function."""

    def __init__(self, heads: int, width: int, fused: bool, masked: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads, self.fused, self.masked = heads, fused, masked
        self.inner = nn.Linear(heads * width, 3 * heads * width, dtype=dtype)
        self.outer = nn.Linear(heads * width, heads * width, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.inner(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind()
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.masked)
        else:
            scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
            if self.masked:
                mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
                scores = scores.masked_fill(~mask, float("-inf"))
            y = scores.softmax(-1) @ v
        return self.outer(y.transpose(1, 2).reshape(batch, length, width))


def _attention(dtype: torch.dtype) -> Iterable[Named]:
    for i, (batch, length, heads) in enumerate(product((1, 2, 3), SMALL, (1, 2, 3, 4))):
        width = (8, 16, 32)[i % 3]
        for fused in (False, True):
            sizes, how = [(batch, length)], "sdpa" if fused else "eager"
            title = f"attention-{how}-{batch}x{length}-{heads}x{width}"
            yield title, "attention", partial(_attention_samples, heads, width, fused, i % 2 == 1, sizes, dtype)
    for length, heads in product((31, 63, 65, 127, 129), (2, 3)):
        title = f"attention-sdpa-2x{length}-{heads}x16"
        yield title, "attention", partial(_attention_samples, heads, 16, True, True, [(2, length)], dtype)
    everywhere = [(b, n) for n in (*SMALL, 31, 33, 64) for b in (2, 1, 3)]
    for heads, width, fused in product((1, 2, 3, 4), (8, 16, 32), (False, True)):
        title = f"attention-dynamic-{'sdpa' if fused else 'eager'}-{heads}x{width}"
        yield title, "attention", partial(_attention_samples, heads, width, fused, False, everywhere, dtype)


def _attention_samples(
    heads: int, width: int, fused: bool, masked: bool, sizes: list[tuple[int, int]], dtype: torch.dtype
) -> list[Sample]:
    module = Attention(heads, width, fused, masked, dtype)
    calls = [Call((torch.randn(*size, heads * width).to(dtype),)) for size in sizes]
    if len(sizes) == 1:
        return [Sample(module, calls, rounding=True)]
    calls.sort(key=lambda c: c.args[0].shape != (2, 7, heads * width))
    return [Sample(module, calls, _open(calls[0], (0, 1)), rounding=True)]


def _open(call: Call, dims: tuple[int, ...]) -> Any:
    """Leave these dims of each argument open."""
    return tuple({d: torch.export.Dim.DYNAMIC for d in dims if d < x.dim()} for x in call.args)


# --- Rows: softmax, norms, reductions ---


def _rows(dtype: torch.dtype) -> Iterable[Named]:
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "softmax": lambda x: x.softmax(-1),
        "log_softmax": lambda x: x.log_softmax(1),
        "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
        "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
        "mean": lambda x: x - x.mean(-1, keepdim=True),
        "var": lambda x: x.var(-1, correction=0),
        "cumsum": lambda x: x.cumsum(-1),
        "amax": lambda x: x.amax(1),
        "gelu_sum": lambda x: F.gelu(x).sum(1),
    }
    for name, function in functions.items():
        for size in (*SMALL, *AROUND, *LARGE):
            yield f"rows-{name}-{size}", "rows", partial(_row_samples, function, [(3, 5, size), (size, 3, 2)], dtype)


def _row_samples(
    function: Callable[[Tensor], Tensor], shapes: list[tuple[int, ...]], dtype: torch.dtype
) -> list[Sample]:
    return [Sample(as_module(function), [Call((torch.randn(shape).to(dtype),))], rounding=True) for shape in shapes]


# --- Convolutions ---


class Convolution(nn.Module):
    """A convolution between a bias and a norm, as in residual networks."""

    def __init__(self, dims: int, inputs: int, outputs: int, dtype: torch.dtype, **options: Any) -> None:
        super().__init__()
        kind = {1: nn.Conv1d, 2: nn.Conv2d}[dims]
        self.convolution = kind(inputs, outputs, dtype=dtype, **options)
        self.shift = nn.Parameter(torch.randn(inputs, *[1] * dims).to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        y = self.convolution(torch.relu(x + self.shift))
        return y * torch.sigmoid(y.mean(-1, keepdim=True))


def _convolutions(dtype: torch.dtype) -> Iterable[Named]:
    options: dict[str, dict[str, Any]] = {
        "1x1": {"kernel_size": 1},
        "3x3": {"kernel_size": 3, "padding": 1},
        "strided": {"kernel_size": 3, "stride": 2, "padding": 1},
        "dilated": {"kernel_size": 3, "dilation": 2, "padding": 2},
        "circular": {"kernel_size": 3, "padding": 1, "padding_mode": "circular"},
    }
    for (name, given), size in product(options.items(), (*SMALL, 31, 32, 33)):
        title, inputs, outputs = f"conv-{name}-{size}", 1 + size % 5, (4, 7, 16)[size % 3]
        yield title, "convolution", partial(_conv_samples, inputs, outputs, given, [(2, size), (1, size + 2)], dtype)
    for size in (*SMALL, 32):
        given = {"kernel_size": 3, "padding": 1, "groups": size}
        yield f"conv-depthwise-{size}", "convolution", partial(_conv_samples, size, size, given, [(2, 9)], dtype)


def _conv_samples(
    inputs: int, outputs: int, options: dict[str, Any], sizes: list[tuple[int, int]], dtype: torch.dtype
) -> list[Sample]:
    found = []
    for dims, (batch, size) in product((1, 2), sizes):
        module = Convolution(dims, inputs, outputs, dtype, **options)
        call = Call((torch.randn(batch, inputs, *[size] * dims).to(dtype),))
        found.append(Sample(module, [call], rounding=True))
    return found


# --- Chains of producers, matrix products and consumers ---


Step = Callable[["Chain", Tensor], Tensor]

STEPS: dict[str, Step] = {
    "softmax": lambda c, x: x.softmax(-1),
    "softmax_rows": lambda c, x: x.softmax(-2),
    "layer_norm": lambda c, x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda c, x: F.rms_norm(x, x.shape[-1:]),
    "share": lambda c, x: x / (x.abs().sum(-1, keepdim=True) + 1),
    "centre": lambda c, x: x - x.mean(-2, keepdim=True),
    "relu": lambda c, x: x.relu(),
    "gelu": lambda c, x: F.gelu(x),
    "tanh": lambda c, x: x.tanh(),
    "cumsum": lambda c, x: x.cumsum(-1) * 0.25,
    "bias": lambda c, x: x + c.weight(x.shape[-1]),
    "column": lambda c, x: x * c.weight(x.shape[-2], 1),
    "mask": lambda c, x: x.masked_fill(x < -1, 0.5),
    "flip": lambda c, x: x.flip(-1),
    "roll": lambda c, x: x.roll(1, -2),
    "pad": lambda c, x: F.pad(x, (1, 0)),
    "max": lambda c, x: x - x.amax(-1, keepdim=True),
}
"""What happens to a tensor before and after a product. Weights of a chain are made when they are first needed."""
PRODUCTS: dict[str, Step] = {
    "weight": lambda c, x: x @ c.weight(x.shape[-1], c.width),
    "linear": lambda c, x: F.linear(x, c.weight(c.width, x.shape[-1]), c.weight(c.width)),
    "batched": lambda c, x: x @ c.weight(*x.shape[:-2], x.shape[-1], c.width),
    "left": lambda c, x: c.weight(c.width, x.shape[-2]) @ x,
    "gram": lambda c, x: x @ x.transpose(-1, -2) * 0.3,
    "vector": lambda c, x: (x @ c.weight(x.shape[-1])).unsqueeze(-1) + x,
    "sum": lambda c, x: torch.einsum("...ij,jk->...ik", x, c.weight(x.shape[-1], c.width)),
}


class Chain(nn.Module):
    """A random sequence of steps; one of them at least is a matrix product."""

    shape: tuple[int, ...]
    """Of the input."""
    width: int
    """How many columns the weights of its products have."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        super().__init__()
        random = Random(seed)
        sizes = SMALL + tuple(range(18, 34))
        pool = (*sizes, *sizes, *AROUND, *LARGE) if seed % 4 == 0 else sizes
        batch = random.choice([(), (2,), (3,), (4,), (2, 2), (1,), (2, 3)])
        rows, columns = random.choice(pool), random.choice(pool)
        if rows * columns > 40_000:
            columns = random.choice(sizes)
        self.shape, self.width = (*batch, rows, columns), random.choice(pool)
        self.dtype, self.random = dtype, random
        before, after = (random.choices(sorted(STEPS), k=random.choice((0, 1, 1, 2, 3))) for _ in range(2))
        self.names = [*before, random.choice(sorted(PRODUCTS)), *after]
        if random.random() < 0.5:
            self.names += [random.choice(sorted(PRODUCTS)), *random.choices(sorted(STEPS), k=random.choice((0, 1)))]
        self.weights = nn.ParameterList()
        self.used = 0

    def weight(self, *shape: int) -> Tensor:
        """Give the next weight; the first run through the chain makes it."""
        if self.used == len(self.weights):
            size = shape[-2] if len(shape) > 1 else 1
            self.weights.append(nn.Parameter(torch.randn(shape).to(self.dtype) / size**0.5))
        self.used += 1
        return self.weights[self.used - 1]

    def forward(self, x: Tensor) -> Tensor:
        self.used = 0
        for name in self.names:
            x = (STEPS.get(name) or PRODUCTS[name])(self, x)
        return x


def _chain(seed: int, dtype: torch.dtype) -> list[Sample]:
    module = Chain(seed, dtype)
    call = Call((torch.randn(module.shape).to(dtype),))
    module(*call.args)
    return [Sample(module, [call], label=" ".join(module.names), rounding=True)]


NOT_DYNAMIC = frozenset({"column", "batched", "left", "gram"})
"""Steps whose weights, or those of the steps behind them, have a size that a dynamic chain leaves open."""


def _dynamic_chain(seed: int, dtype: torch.dtype) -> list[Sample]:
    module = Chain(CHAINS + seed, dtype)
    module.names = [n if n not in NOT_DYNAMIC else "linear" for n in module.names]
    width = module.shape[-1]
    module.names = ["linear" if n == "gram" else n for n in module.names]
    calls = [
        Call((torch.randn(b, n, width).to(dtype),))
        for b, n in ((2, 7), *product((1, 2, 3, 4), (1, 3, 5, 8, 13, 16, 31)))
    ]
    module(*calls[0].args)
    return [Sample(module, calls, _open(calls[0], (0, 1)), label=" ".join(module.names), rounding=True)]


# --- Reductions of what is broadcast, broadcast again ---

JOINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "mul": torch.mul,
    "sub": lambda x, y: y - x,
    "ratio": lambda x, y: x / (y.abs() + 1),
    "maximum": torch.maximum,
    "where": lambda x, y: torch.where(y > 0, x, y),
    "difference": lambda x, y: (x - y) * (x - y),
}
REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": torch.amax,
    "var": partial(torch.var, correction=0),
    "norm": torch.linalg.vector_norm,
    "logsumexp": torch.logsumexp,
}
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1),
    "flat": lambda x: x.flatten(1) if x.dim() > 2 else x,
    "tanh": torch.tanh,
    "every other": lambda x: x[..., ::2],
    "twice": lambda x: torch.cat([x, x], 0),
}


class Fold(nn.Module):
    """Tensors of which some dims are 1, joined, reduced over some dims, joined with another and reduced again."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random = Random(seed)
        pool = (1, 2, 2, 3, 4, 5, 7, 8, 9, 16, 17) if seed % 5 else (1, 2, 3, 33, 64, 65)
        self.sizes = [random.choice(pool) for _ in range(random.choice((1, 2, 2, 3, 3, 4)))]
        self.steps = [random.choice(sorted(JOINS)) for _ in range(random.choice((1, 1, 2)))]
        self.shapes = [self._shape(self.sizes) for _ in range(len(self.steps) + 1)]
        self.view = random.choice(sorted(VIEWS))
        self.last = random.choice(sorted(REDUCTIONS))
        self.dims: list[int] | None = None
        self.keep = random.random() < 0.5
        self.again = random.choice((None, *sorted(JOINS)))

    def _shape(self, sizes: list[int]) -> tuple[int, ...]:
        """Draw a shape that broadcasts to `sizes`: some sizes are 1, leading ones may be missing."""
        given = [n if self.random.random() < 0.6 else 1 for n in sizes]
        return tuple(given[self.random.choice((0, 0, 0, 1)) :]) or (1,)

    def forward(self, *tensors: Tensor) -> Tensor:
        x, *others = tensors
        for name, y in zip(self.steps, others, strict=True):
            x = JOINS[name](x, y)
        x = VIEWS[self.view](x)
        if self.dims is None:
            self.dims = sorted(self.random.sample(range(x.dim()), self.random.randint(1, x.dim())))
        y = REDUCTIONS[self.last](x, dim=self.dims, keepdim=self.keep or self.again is not None)
        return y if self.again is None else JOINS[self.again](x, y).sum(self.dims[:1])


def _fold(seed: int, dtype: torch.dtype) -> list[Sample]:
    module = Fold(seed)
    call = Call(tuple(torch.randn(shape).to(dtype) for shape in module.shapes))
    module(*call.args)
    label = f"{' '.join(module.steps)}, {module.view}, {module.last} over {module.dims}, {module.again}"
    return [Sample(module, [call], label=label, rounding=True)]
