"""What is checked when a program runs, and what is known before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim

import flambeau
from flambeau import torchscript
from flambeau.engines.errors import RunError


def load(module: flambeau.Module) -> Any:
    return flambeau.load(module, profile="quick", device="local-sync")


def asserts(module: flambeau.Module) -> int:
    return sum(op.name == "cf.assert" for op in module.op.walk())


def test_sizes_outside_the_exported_range_are_refused() -> None:
    batch = Dim("batch", min=3, max=5)
    run = load(flambeau.compile(lambda x: x + 1, (torch.ones(4, 2),), dynamic_shapes=({0: batch},)))
    assert torch.equal(run(torch.ones(3, 2)), torch.full((3, 2), 2.0))
    with pytest.raises(RunError, match="must be at most 5"):
        run(torch.ones(6, 2))
    with pytest.raises(RunError, match="must be at least 3"):
        run(torch.ones(2, 2))


def test_arguments_that_share_a_size_must_agree() -> None:
    """S90."""
    batch = Dim("batch")
    run = load(
        flambeau.compile(
            lambda x, y: x + y, (torch.ones(4, 2), torch.ones(4, 2)), dynamic_shapes=({0: batch}, {0: batch})
        )
    )
    assert torch.equal(run(torch.ones(3, 2), torch.ones(3, 2)), torch.full((3, 2), 2.0))
    with pytest.raises(RunError, match="does not have the size"):
        run(torch.ones(3, 2), torch.ones(4, 2))


@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo", "tosa"])
def test_sizes_that_nobody_knows_do_not_broadcast(target: str) -> None:
    """TOSA's ops would; functions promise that they do not, and the program holds them to it."""
    place = torchscript.TensorPlaceholder([-1], torch.float32)
    run = load(torchscript.compile(Scaled(), [place, place], output_type=target))
    for size in (1, 5):
        assert torch.equal(run(torch.ones(size), torch.ones(size)), torch.full((size,), 3.0))
    for sizes in ((1, 5), (5, 1), (3, 5)):
        with pytest.raises(RunError, match="do not match for broadcasting"):
            run(*map(torch.ones, sizes))


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y * 2


def test_what_is_known_is_not_checked() -> None:
    """Sizes that are equal by their symbol need no guard inside the program; static ones need none at all."""

    def body(x: torch.Tensor) -> torch.Tensor:
        return ((x @ x.t()) + (x @ x.t())).relu().sum(1) + x.sum(1)

    assert asserts(flambeau.compile(body, (torch.ones(4, 3),))) == 0
    assert asserts(flambeau.compile(body, (torch.ones(4, 3),), dynamic_shapes=({0: Dim("n")},))) == 0


def test_a_parameter_that_the_program_writes_is_written_back() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = torch.nn.Parameter(torch.zeros(2), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            return self.total * 2

    model = Counter()
    run = load(flambeau.compile(model, (torch.ones(2),)))
    assert torch.equal(run(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(run(torch.ones(2)), torch.full((2,), 4.0))
    assert torch.equal(model.total, torch.full((2,), 2.0))
