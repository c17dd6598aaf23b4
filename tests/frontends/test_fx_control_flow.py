"""`torch.cond` and `torch.while_loop`, from export to a number out of IREE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau

TARGETS = ["linalg-on-tensors", "stablehlo", "tosa"]


def branch(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))


def counted(x: Tensor) -> Any:
    return torch.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2 + i), (torch.tensor(0), x))


def nested(x: Tensor) -> Any:
    def body(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return i + 1, torch.cond(i > 1, lambda x: x * 3, lambda x: x + 1, (x,))

    return torch.while_loop(lambda i, x: x.sum() < 100, body, (torch.tensor(0), x))


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("function", [branch, counted, nested], ids=lambda f: f.__name__)
def test_runs_equal_to_eager(function: Callable[[Tensor], Any], target: str) -> None:
    module = flambeau.compile(function, (torch.ones(4),), output_type=target)
    run = flambeau.load(module, profile="quick")
    for x in (torch.rand(4), -torch.rand(4), torch.full((4,), 30.0)):
        if function is nested and x.sum() < 0:
            continue
        torch.testing.assert_close(run(x), function(x))


def test_the_torch_dialect_has_a_branch_and_a_loop() -> None:
    text = str(flambeau.compile(nested, (torch.ones(4),), output_type="torch"))
    assert "torch.prim.Loop" in text
    assert "torch.prim.If" in text


@pytest.mark.engine
def test_dynamic_sizes() -> None:
    dim = torch.export.Dim("n", min=2)
    module = flambeau.compile(branch, (torch.ones(4),), dynamic_shapes=({0: dim},))
    run = flambeau.load(module, profile="quick")
    for n in (2, 7):
        x = torch.rand(n) - 0.5
        torch.testing.assert_close(run(x), branch(x))
