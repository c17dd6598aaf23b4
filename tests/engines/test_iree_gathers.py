"""Gathers from slices: `engines/iree/gathers.py`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import flambeau
from flambeau.engines.iree.prepare import for_iree

PROGRAMS = {
    "nearest": lambda x: F.interpolate(x, (7, 1), mode="nearest-exact"),
    "pooled": lambda x: F.adaptive_max_pool2d(x, (5, 3)),
    "rows of a column": lambda x: x[..., 1].index_select(-1, torch.tensor([0, 2, 1, 1])),
    "every other": lambda x: x[..., ::2].index_select(1, torch.tensor([1, 1, 0])),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_slices_are_gathered_from(name: str) -> None:
    x = torch.randn(2, 2, 4, 6)
    run = flambeau.load(flambeau.compile(PROGRAMS[name], (x,), output_type="tosa"), profile="quick")
    torch.testing.assert_close(run(x), PROGRAMS[name](x))


def test_other_gathers_stay_as_they_are() -> None:
    def rows(x: Tensor) -> Tensor:
        return x.index_select(1, torch.tensor([1, 1, 0]))[..., 1]

    module = flambeau.compile(rows, (torch.randn(2, 2, 4),), output_type="tosa").op
    assert for_iree(module) is module
