"""Python numbers that `forward` changes: a compiled program has them as they were, and must not need more."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

import flambeau


class Counted(nn.Module):
    """Counts its calls, and computes with the count or not."""

    def __init__(self, uses: bool) -> None:
        super().__init__()
        self.uses = uses
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls if self.uses else x * 2


class InTensor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.5

    def forward(self, x: Tensor) -> Tensor:
        y = x + torch.tensor(self.scale)
        self.scale *= 2
        return y


class Cached(nn.Module):
    """Computes a table once, as rotary embeddings do; it says the same however often it is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.known = 0
        self.register_buffer("table", torch.zeros(8), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > self.known:
            self.known = x.shape[0]
            self.table.copy_(torch.arange(8.0).cos())
        return x * self.table[: x.shape[0]]


class Steps:
    def __init__(self) -> None:
        self.count = 1


class InObjects(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.steps = [Steps()]

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.steps[0].count += 2
        return x * self.steps[0].count


def test_numbers_are_named_and_left_as_they_are():
    model = InObjects()
    with pytest.raises(flambeau.CompileError, match=r"self\.calls \(0 to 1\), self\.steps\[0\]\.count \(1 to 3\)"):
        flambeau.compile(model, (torch.ones(2),))
    assert (model.calls, model.steps[0].count) == (0, 1)


@pytest.mark.parametrize("model", [Counted(True), InTensor()], ids=["number", "tensor"])
def test_a_number_that_is_computed_with_is_refused(model: nn.Module):
    with pytest.raises(flambeau.CompileError, match=r"changes Python numbers that it computes with: self\.\w+ \("):
        flambeau.compile(model, (torch.ones(2),))


@pytest.mark.parametrize("model", [Counted(False), Cached()], ids=["counted", "cached"])
def test_a_number_that_makes_no_difference_is_nobodys_concern(model: nn.Module):
    x = torch.ones(2)
    before = dict(vars(model))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module = flambeau.compile(model, (x,), output_type="torch")
    assert vars(model) == before
    run = flambeau.load(module, engine="eager")
    for _ in range(3):
        assert torch.equal(run(x), model(x))
