"""Constants of dynamic size that are reduced, which the IREE engine makes tensors of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.export import Dim

import flambeau
from flambeau.engines.iree.prepare import for_iree

TARGETS = ("linalg-on-tensors", "stablehlo", "tosa")


def splats(function: Callable[[torch.Tensor], torch.Tensor], target: str, dynamic: bool = True) -> int:
    """How many constants the engine takes out of a program."""
    shapes = ({0: Dim.AUTO, 1: Dim.AUTO},) if dynamic else None
    module = flambeau.compile(function, (torch.ones(4, 5),), dynamic_shapes=shapes, output_type=target)
    return str(for_iree(module.op)).count("flow.tensor.splat")


@pytest.mark.parametrize("target", TARGETS)
def test_constants_are_tensors_where_nothing_else_is_reduced(target: str) -> None:
    assert splats(lambda x: torch.ones_like(x).sum(), target) > 0
    assert splats(lambda x: (torch.full_like(x, 2.0).exp() + 1).amax(0), target) > 0


@pytest.mark.parametrize("target", TARGETS)
def test_other_constants_stay_where_they_are(target: str) -> None:
    assert splats(lambda x: (torch.ones_like(x) * x).sum(), target) == 0
    assert splats(lambda x: torch.ones_like(x) + x, target) == 0
    assert splats(lambda x: torch.ones_like(x).sum(), target, dynamic=False) == 0
