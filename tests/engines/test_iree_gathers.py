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


@pytest.mark.engine
@pytest.mark.parametrize("name", PROGRAMS)
def test_slices_are_gathered_from(name: str) -> None:
    x = torch.randn(2, 2, 4, 6)
    run = flambeau.load(flambeau.compile(PROGRAMS[name], (x,), output_type="tosa"), profile="quick")
    torch.testing.assert_close(run(x), PROGRAMS[name](x))


@pytest.mark.engine
@pytest.mark.parametrize("name", ["rows of a column", "doubled"])
def test_slices_of_any_size_are_gathered_from(name: str) -> None:
    program = PROGRAMS.get(name, lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"))
    x, dims = torch.randn(2, 2, 5, 6), ({0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC},)
    module = flambeau.compile(program, (x,), dynamic_shapes=dims, output_type="tosa")
    run = flambeau.load(module, profile="quick")
    for given in (x, torch.randn(3, 2, 9, 6)):
        torch.testing.assert_close(run(given), program(given))


def test_other_gathers_stay_as_they_are() -> None:
    def rows(x: Tensor) -> Tensor:
        return x.index_select(1, torch.tensor([1, 1, 0]))[..., 1]

    module = flambeau.compile(rows, (torch.randn(2, 2, 4),), output_type="tosa").op
    assert for_iree(module) is module
