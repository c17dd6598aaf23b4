"""StableHLO of dynamic size that IREE does not take: `engines/iree/stablehlo_ops.py`."""

from __future__ import annotations

import torch

import flambeau
from flambeau import torchscript


class Joined(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.to(torch.float32), y * 2, y], 0)


def test_parts_that_are_computed_are_joined() -> None:
    places = [torchscript.TensorPlaceholder([-1, 3], dtype) for dtype in (torch.float16, torch.float32)]
    run = flambeau.load(torchscript.compile(Joined(), places, output_type="stablehlo"), profile="quick")
    for rows in ((2, 3), (0, 1), (5, 0)):
        x, y = torch.randn(rows[0], 3).half(), torch.randn(rows[1], 3)
        assert torch.equal(run(x, y), Joined()(x, y))
