"""Casts between every two dtypes give PyTorch's bits, on every target."""

from __future__ import annotations

import pytest
import torch

import flambeau

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128,
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
