"""Models of the zoo under `torch.compile(backend="flambeau")`: a sample of `bench/compile_models.py`."""

from __future__ import annotations

import copy

import pytest
import torch

from flambeau.testing.steps import step, without_dropout, worst_error
from flambeau.testing.zoo import ZOO
from flambeau.torch_compile import counters


@pytest.mark.engine
@pytest.mark.long
@pytest.mark.parametrize("engine, name", [("xla", "lenet"), ("iree", "dlrm"), ("xla", "mixture-of-experts")])
def test_a_call_and_a_step_of_training(engine: str, name: str) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    (model, args, kwargs), (other, *_) = ZOO[name].make(), ZOO[name].make()
    fast = torch.compile(model, backend="flambeau", options={"engine": engine})
    with torch.no_grad():
        result = fast(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        assert worst_error(result, other(*copy.deepcopy(args), **copy.deepcopy(kwargs))) < 1e-5
    ours = step(without_dropout(model), fast, args, kwargs)
    assert worst_error(ours, step(without_dropout(other), other, args, kwargs)) < 1e-4
    assert counters()["graphs"] == 3


def test_errors_are_relative_to_what_is_large() -> None:
    one, tiny = torch.tensor([1.0, 2.0]), torch.tensor([1e-9, 2e-9])
    assert worst_error([one], [one]) == 0
    assert worst_error([one * 1.5], [one]) == pytest.approx(0.5)
    assert worst_error([one, -tiny], [one, tiny]) == pytest.approx(2e-6)
    assert worst_error([one], [one.double()]) == worst_error([one], (one,)) == float("inf")
    assert worst_error([one], [torch.tensor([1.0, float("nan")])]) == float("inf")
