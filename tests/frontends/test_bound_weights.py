"""Weights that `torch.compile(model, backend="flambeau")` binds to the program: results follow what becomes of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flambeau.frontends.fx import bound_weights
from flambeau.frontends.fx.bound_weights import Held

SIZE = 300
"""A weight of so many rows and columns is large enough to be bound."""


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()


@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many weights were bound, for each time that a program was loaded with weights."""
    counts: list[int] = []
    rebound = bound_weights.BoundProgram._rebound

    def counted(self: Any, bound: Any, new: dict[int, Held]) -> Any:
        counts.append(len(new))
        return rebound(self, bound, new)

    monkeypatch.setattr(bound_weights.BoundProgram, "_rebound", counted)
    return counts


def fast(model: Any, **options: Any) -> Any:
    options = {"profile": "quick", "device": "local-sync", "weights": "compared", **options}
    return torch.compile(model, backend="flambeau", options=options)


def optimise(model: nn.Linear) -> None:
    with torch.enable_grad():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        model(torch.ones(1, SIZE)).square().sum().backward()
        optimizer.step()


def swap_rows(model: nn.Linear) -> None:
    """Change contents by a write that keeps the sum, the address and the version counter."""
    model.weight.data.copy_(model.weight.detach().flip(0).clone())


COUNTED: dict[str, Callable[[nn.Linear], Any]] = {
    "add_": lambda m: m.weight.add_(1),
    "optimizer": optimise,
    "load_state_dict": lambda m: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}),
    "replaced": lambda m: setattr(m, "weight", nn.Parameter(torch.randn(SIZE, SIZE))),
    "other data": lambda m: setattr(m.weight, "data", torch.randn(SIZE, SIZE)),
    "transposed data": lambda m: setattr(m.weight, "data", torch.randn(SIZE, SIZE).t()),
}
UNCOUNTED: dict[str, Callable[[nn.Linear], Any]] = {
    "data.copy_": lambda m: m.weight.data.copy_(torch.randn(SIZE, SIZE)),
    "one element": lambda m: m.weight.data[7, 7].neg_(),
    "rows swapped": swap_rows,
    "numpy": lambda m: m.weight.detach().numpy().fill(2),
}


@pytest.mark.engine
@pytest.mark.parametrize("weights", ["compared", "tracked"])
def test_results_follow_weights(weights: str, bindings: list[int]) -> None:
    model, x = nn.Linear(SIZE, SIZE).eval(), torch.randn(2, SIZE)
    run = fast(model, weights=weights)
    changes = COUNTED if weights == "tracked" else {**COUNTED, **UNCOUNTED}
    with torch.no_grad():
        for name, change in changes.items():
            for _ in range(3):
                torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")
            change(model)
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-4)
    assert bindings == [1] * (len(changes) - 1)  # for other strides, Dynamo captures the model anew


@pytest.mark.engine
def test_weights_under_inference_mode_are_compared(bindings: list[int]) -> None:
    with torch.inference_mode():
        model, x = nn.Linear(SIZE, SIZE).eval(), torch.randn(2, SIZE)
        run = fast(model, weights="tracked")
        for _ in range(2):
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-4)
            model.weight.mul_(2)
    assert bindings == [1]


@pytest.mark.engine
def test_weights_that_change_in_each_call_become_arguments(bindings: list[int]) -> None:
    model, x = nn.Linear(SIZE, SIZE).eval(), torch.randn(2, SIZE)
    run = fast(model)
    with torch.no_grad():
        for _ in range(8):
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-4)
            model.weight.mul_(0.9)
    assert len(bindings) == bound_weights._RESTLESS - 1


@pytest.mark.engine
def test_buffers_that_the_model_writes_are_not_bound(bindings: list[int]) -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(SIZE, SIZE)
            self.register_buffer("seen", torch.zeros(SIZE, SIZE))

        def forward(self, x: Tensor) -> Tensor:
            self.seen.add_(x.sum())
            return self.linear(x) + self.seen[0]

    model, x = Counts().eval(), torch.randn(2, SIZE)
    ours = copy.deepcopy(model)
    run = fast(ours)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.seen, model.seen, rtol=1e-4, atol=1e-4)
    assert not bindings


@pytest.mark.engine
def test_calls_are_checked_with_the_weights_that_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_CHECK", "1")
    model, x = nn.Linear(SIZE, SIZE).eval(), torch.randn(2, SIZE)
    run = fast(model)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-4)
            model.weight.data.mul_(2)


@pytest.mark.engine
def test_threads_see_their_weights() -> None:
    model, x = nn.Linear(SIZE, SIZE, bias=False).eval(), torch.randn(2, SIZE)
    run = fast(model)

    def call(_: int) -> Tensor:
        with torch.no_grad():
            result: Tensor = run(x)
            return result

    with torch.no_grad(), ThreadPoolExecutor(4) as pool:
        for scale in (1, 2, 0.5):
            model.weight.mul_(scale)
            for result in pool.map(call, range(8)):
                torch.testing.assert_close(result, model(x), rtol=1e-4, atol=1e-4)


def test_what_counts_as_the_same_contents() -> None:
    tensor = torch.randn(4, 6)
    tensor[0, 0] = float("nan")
    held = Held.of(tensor)
    assert held.equals(tensor)
    assert held.equals(tensor.t().contiguous().t())
    assert held.is_untouched(tensor)
    assert held.is_untouched(tensor.detach())
    assert not held.equals(-tensor)
    assert not held.equals(tensor.reshape(6, 4))
    assert not held.equals(tensor.double())
    assert not held.is_untouched(tensor.clone())
    assert not held.is_untouched(tensor.t())
    zero = Held.of(torch.zeros(3))
    assert zero.equals(torch.zeros(3))
    assert not zero.equals(-torch.zeros(3))
    tensor.data[1, 1] += 1
    assert held.is_untouched(tensor)
    assert not held.equals(tensor)
    tensor[1, 1] += 1
    assert not held.is_untouched(tensor)


def test_ways_for_weights_that_there_are_not() -> None:
    with pytest.raises(Exception, match="option 'weights' is 'passed' or 'tracked' or 'compared', not 'frozen'"):
        torch.compile(nn.Linear(2, 2), backend="flambeau", options={"weights": "frozen"})(torch.ones(2))
