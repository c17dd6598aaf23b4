"""What the property tests of algorithms share: hard values, programs that take many shapes, exact comparison.

A program is compiled once for each dtype, with sizes that the run time says, and called with many inputs.
`FLAMBEAU_EXAMPLES=1000` in the environment calls each with so many, and transforms each length in every way.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import flambeau

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
NAN, INF = float("nan"), float("inf")

EXAMPLES = int(os.environ.get("FLAMBEAU_EXAMPLES", "15"))

examples = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
"""How many inputs a program is called with; the same ones in each run."""

seeds = st.integers(0, 2**31 - 1)


class Program(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


def lowered(function: Callable[..., Any], *like: Tensor, dynamic: bool = True) -> flambeau.Module:
    """Lower a function of tensors of these ranks and dtypes; every dim may be of another size, if it is dynamic.

    Examples need dims of size 2 and more, no two alike, as PyTorch takes other sizes for fixed or the same.
    """
    auto = torch.export.Dim.AUTO
    shapes = {"tensors": tuple(dict.fromkeys(range(t.dim()), auto) for t in like)} if dynamic else None
    return flambeau.compile(Program(function), like, dynamic_shapes=shapes)


def compiled(function: Callable[..., Any], *like: Tensor, dynamic: bool = True) -> Callable[..., Any]:
    """Load the same on IREE."""
    return flambeau.load(lowered(function, *like, dynamic=dynamic), profile="quick", device="local-sync")


def hard_values(dtype: torch.dtype) -> Tensor:
    """Values where orders, sums and extremes go wrong: NaN of both signs, infinities, zeros, denormals, limits."""
    if dtype is torch.bool:
        return torch.tensor([False, True])
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        return torch.tensor([limits.min, limits.min + 1, limits.max - 1, limits.max, 0, 1, 2]).to(dtype)
    limits = torch.finfo(dtype)
    smallest = limits.smallest_normal * limits.eps
    given = [NAN, -NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, limits.max, limits.min, limits.tiny, smallest, -smallest]
    values = torch.tensor(given, dtype=torch.float64).to(dtype)
    values[1] = -values[0]
    return values


def filled(shape: tuple[int, ...], dtype: torch.dtype, kind: str, seed: int) -> Tensor:
    """Make a tensor of hard values, of any bits, of few numbers that repeat, or of numbers in order."""
    generator = torch.Generator().manual_seed(seed)
    hard = hard_values(dtype)
    if kind == "hard":
        return hard[torch.randint(len(hard), shape, generator=generator)]
    if kind == "bits" and dtype is not torch.bool:
        size = torch.empty(0, dtype=dtype).element_size()
        return torch.randint(256, (*shape, size), generator=generator, dtype=torch.uint8).view(dtype).reshape(shape)
    if kind == "ordered":
        count = shape[-1] if shape else 1
        return torch.arange(count).expand(shape).to(dtype).clone()
    return torch.randint(0, 3, shape, generator=generator).to(dtype)


kinds = st.sampled_from(["hard", "bits", "few", "ordered"])


def assert_identical(actual: Tensor, expected: Tensor) -> None:
    """Assert that bits are the same; NaN is the same as any other NaN."""
    assert actual.dtype is expected.dtype
    assert actual.shape == expected.shape
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    if expected.dtype.is_floating_point:
        numbers = ~expected.isnan()
        assert torch.equal(actual.signbit()[numbers], expected.signbit()[numbers])
