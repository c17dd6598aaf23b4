"""Integers become bfloat16 on CPUs that have no instruction for it, and round as in PyTorch."""

from __future__ import annotations

import platform

import pytest
import torch
from torch import Tensor

import flambeau

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="about code for x86 processors"),
]

WHOLE = {
    torch.int64: [0, 1, -1, 257, 258, 259, -385, 2**31 - 1, -(2**40), 2**62 + 12345, 2**63 - 1],
    torch.int32: [0, 127, -128, 257, 65535, -65537, 2**31 - 1, -(2**31)],
    torch.uint8: [0, 1, 255],
    torch.bool: [True, False],
}


def through_views(x: Tensor) -> tuple[Tensor, ...]:
    wide = x.float()
    return x.bfloat16(), wide.reshape(-1, 1).expand(-1, 3).bfloat16(), (x.float()[1:] * 1).bfloat16()


@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo", "tosa"])
def test_integers_that_become_bfloat16(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_IREE_FLAGS", "--iree-llvmcpu-target-cpu=x86-64-v3")
    for dtype, values in WHOLE.items():
        x = torch.tensor([v for v in values if target != "tosa" or abs(v) < 2**31], dtype=dtype)
        module = flambeau.compile(through_views, (x,), output_type=target)
        for actual, expected in zip(flambeau.load(module, profile="quick")(x), through_views(x), strict=True):
            assert torch.equal(actual, expected), (dtype, actual, expected)
