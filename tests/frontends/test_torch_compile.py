"""`torch.compile(model, backend="flambeau")`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()


def test_a_model_runs_and_recompiles_for_other_sizes() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    fast = torch.compile(model, backend="flambeau")
    with torch.no_grad():
        for batch in (3, 5, 6):
            x = torch.randn(batch, 4)
            torch.testing.assert_close(fast(x), model(x))


def test_writes_constants_and_python_results() -> None:
    def program(x: Tensor) -> tuple[Tensor, int]:
        y = x * torch.tensor([1.0, 2.0, 3.0, 4.0])
        y[0] = 1
        return y, x.shape[0]

    fast = torch.compile(program, backend="flambeau")
    for x in (torch.randn(3, 4), torch.randn(5, 4)):
        expected = program(x)
        actual = fast(x)
        torch.testing.assert_close(actual[0], expected[0])
        assert actual[1] == expected[1]


def test_an_edited_weight_is_seen() -> None:
    model = nn.Linear(4, 2).eval()
    fast = torch.compile(model, backend="flambeau")
    x = torch.randn(3, 4)
    with torch.no_grad():
        fast(x)
        model.weight.mul_(2)
        torch.testing.assert_close(fast(x), model(x))
