"""Results that contents decide: numbers with Python's types, and sizes that are counted."""

from __future__ import annotations

import pytest
import torch
from frontends.script_import import upstream_accepts
from fx_support import load
from torch import Tensor, nn

import flambeau
from flambeau.engines.errors import RunError


class Item(nn.Module):
    def forward(self, x: Tensor) -> object:
        return x.item()


class Larger(nn.Module):
    def forward(self, x: Tensor) -> object:
        n = x.item()
        return n, n > 2, x + 1


class Selected(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.masked_select(x, mask)


class AtMost(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        chosen = torch.masked_select(x, mask)
        torch._check(chosen.shape[0] <= 2)
        return chosen


@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo", "tosa"])
@pytest.mark.engine
def test_a_truth_value_is_one_in_python_too(target: str):
    run = load(flambeau.compile(Item(), (torch.tensor(True),), output_type=target))
    assert run(torch.tensor(True)) is True
    assert run(torch.tensor(False)) is False


def test_a_comparison_of_numbers_is_a_truth_value():
    run = flambeau.load(flambeau.compile(Larger(), (torch.tensor(3),), output_type="torch"), engine="eager")
    for n in (3, 2):
        number, larger, _ = run(torch.tensor(n))
        assert (number, larger, type(number)) == (n, n > 2, int)
        assert isinstance(larger, bool)


def test_truth_values_among_the_operands_parse_in_torch_mlir():
    text = flambeau.compile(Item(), (torch.tensor(True),), output_type="torch").text()
    assert "torch.aten.Bool.int" in text
    upstream_accepts(text)


@pytest.mark.engine
def test_a_mask_that_is_broadcast_may_select_more_than_there_is():
    """PyTorch's own exported program refuses it: its fake kernel takes the operand's size for the limit."""
    x, mask = torch.arange(3.0)[:, None], torch.tensor([[True, False, True, True]])
    module = flambeau.compile(Selected(), (x, mask))
    assert "cf.assert" not in module.text()
    run = load(module)
    for wanted in (mask, ~mask, torch.ones_like(mask)):
        torch.testing.assert_close(run(x, wanted), torch.masked_select(x, wanted), rtol=0, atol=0)


@pytest.mark.engine
def test_a_limit_of_the_users_own_is_checked():
    x, mask = torch.arange(3.0), torch.tensor([True, False, True])
    run = load(flambeau.compile(AtMost(), (x, mask)))
    torch.testing.assert_close(run(x, mask), x[mask])
    with pytest.raises(RunError, match="u0 <= 2"):
        run(x, torch.ones(3, dtype=torch.bool))
