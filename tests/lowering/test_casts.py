"""Casts between every two dtypes give PyTorch's bits, on every target."""

from __future__ import annotations

import pytest
import torch

import flambeau

NAN, INF = float("nan"), float("inf")

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip
RARE = (
    torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
)  # fmt: skip


def numbers(dtype: torch.dtype, target: str) -> torch.Tensor:
    """Numbers of a dtype that all others can hold, or round."""
    generator = torch.Generator().manual_seed(0)
    if dtype is torch.bool:
        return torch.rand(37, generator=generator) > 0.5
    if dtype.is_floating_point or dtype.is_complex:
        return (torch.randn(37, dtype=torch.float64, generator=generator) * 50).to(dtype)
    low = 0 if dtype is torch.uint8 else -120
    found = torch.randint(low, 120, (37,), generator=generator).to(dtype)
    wide = {torch.int32: 10007, torch.int64: 10007 if target == "tosa" else 12345678901}  # TOSA's integers have 32 bits
    return found * wide.get(dtype, 1)


def takes(target: str, dtype: torch.dtype) -> bool:
    return target != "tosa" or not (dtype.is_complex or dtype is torch.float64)


@pytest.mark.engine
@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo", "tosa"])
def test_casts_between_every_two_dtypes(target: str):
    sources = [d for d in DTYPES if takes(target, d)]
    pairs = [
        (i, d) for i, s in enumerate(sources) for d in sources if d is not s and (d.is_complex or not s.is_complex)
    ]

    def cast(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return [tensors[i].to(dtype) for i, dtype in pairs]

    inputs = tuple(numbers(d, target) for d in sources)
    run = flambeau.load(flambeau.compile(cast, inputs, output_type=target), profile="quick", device="local-sync")
    wrong = {
        f"{sources[i]} to {dtype}": (got, expected)
        for (i, dtype), got, expected in zip(pairs, run(*inputs), cast(*inputs), strict=True)
        if got.dtype != expected.dtype or not torch.equal(got, expected)
    }
    assert wrong == {}
    assert len(pairs) > 70


EDGES = (0.0, -0.0, 1.0, -1.0, 0.3, 447.0, 449.0, 464.0, 465.0, 1e9, INF, -INF, NAN, 1e-3, 1e-9, 57344.0, 61440.0, 7e4,
    0.0147, -0.0155, 0.0074, 5.7e-5, -6e-5, 2.9e-5)  # fmt: skip
"""The last round to the least normal floats of 8 bits."""


def edges(dtype: torch.dtype) -> torch.Tensor:
    """Floats around the limits of narrow ones; integers that differ in their high bits."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.tensor(EDGES, dtype=torch.float64).to(dtype)
    if dtype is torch.bool:
        return torch.tensor([True, False])
    info = torch.iinfo(dtype)
    return torch.tensor([0, 1, 100, 448, -1, -(1 << 63), (1 << 62) + 12345, 1 << 31, info.min, -100]).to(dtype)


@pytest.mark.engine
@pytest.mark.parametrize("rare", RARE, ids=str)
def test_casts_of_what_few_programs_have(rare: torch.dtype):
    """To and from each of the others; floats that do not fit an integer are not defined, and not asked for."""
    others = [d for d in (*DTYPES, *RARE) if d is not rare and not d.is_complex]
    pairs = [
        *((edges(rare), d) for d in others if d.is_floating_point or d is torch.bool or not rare.is_floating_point),
        *((edges(d), rare) for d in others if rare.is_floating_point or not d.is_floating_point),
    ]

    def cast(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return [x.to(dtype) for x, (_, dtype) in zip(tensors, pairs, strict=True)]

    inputs = tuple(x for x, _ in pairs)
    run = flambeau.load(flambeau.compile(cast, inputs), profile="quick", device="local-sync")
    wrong = {
        f"{x.dtype} to {dtype}": (x, got, expected)
        for (x, dtype), got, expected in zip(pairs, run(*inputs), cast(*inputs), strict=True)
        if got.dtype != expected.dtype or not same(got, expected)
    }
    assert wrong == {}


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are equal, NaN included; PyTorch compares neither float8 nor wide unsigned integers."""
    x, y = (t.double() for t in (a, b))
    return torch.equal(x.nan_to_num(nan=-7.0), y.nan_to_num(nan=-7.0)) and torch.equal(x.isnan(), y.isnan())
