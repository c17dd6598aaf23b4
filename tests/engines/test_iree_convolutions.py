"""Convolutions in groups: `engines/iree/grouped_convolutions.py`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import flambeau
from flambeau.engines.iree.prepare import for_iree

OPTIONS: list[dict[str, Any]] = [{"padding": 2, "dilation": 2}, {"padding": (1, 2), "dilation": (1, 2), "stride": 2}]


@pytest.mark.engine
@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo", "tosa"])
def test_infinities_reach_what_they_are_weighed_into_and_nothing_else(target: str) -> None:
    def convolutions(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        return [F.conv2d(x, w, groups=2, **options) for options in OPTIONS]

    x, w = torch.randn(2, 4, 6, 6), torch.randn(6, 2, 3, 3)
    x[0, 0, 2, 2], x[1, 3, 4, 1] = float("inf"), float("nan")
    run = flambeau.load(flambeau.compile(convolutions, (x, w), output_type=target), profile="quick")
    for got, expected in zip(run(x, w), convolutions(x, w), strict=True):
        torch.testing.assert_close(got, expected, equal_nan=True)


def test_depthwise_convolutions_stay_as_they_are() -> None:
    module = flambeau.compile(
        lambda x, w: F.conv2d(x, w, groups=4, dilation=2),
        (torch.ones(1, 4, 6, 6), torch.ones(4, 1, 3, 3)),
        output_type="stablehlo",
    )
    assert for_iree(module.op) is module.op
