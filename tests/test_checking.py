"""`load(..., check=...)`: programs that compare themselves with eager PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import flambeau
from flambeau.checking import difference, interval
from flambeau.engines import WrongResult
from flambeau.engines.iree import flags
from flambeau.lowering.linalg.lower import rules


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        y = torch.relu(self.linear(x)) + 1
        self.total += y.sum(0)
        return y, int(x.shape[0])


X = torch.randn(3, 4)


def load(check: str | int | None, **options: Any) -> Any:
    torch.manual_seed(0)
    module = flambeau.compile(Model(), (X,))
    return flambeau.load(module, check=check, profile="quick", device="local-sync", **options)


@pytest.fixture
def wrong_relu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower `relu` to nothing at all."""
    monkeypatch.setitem(rules().rules, "aten.relu", lambda b, x: x)


@pytest.mark.engine
@pytest.mark.parametrize("check, checks", [("first", 1), (2, 3), (1, 5), ("never", None), (None, None)])
def test_how_often_calls_are_compared(check: str | int | None, checks: int | None):
    run = load(check)
    for _ in range(5):
        run(X)
    assert getattr(run, "checks", None) == checks
    assert set(run.weights) >= {"total"}
    assert (run.profile, run.device) == ("quick", "local-sync")


@pytest.mark.engine
def test_state_is_compared_and_written_once():
    torch.manual_seed(0)
    model = Model()
    torch.manual_seed(0)
    other = Model()
    run = flambeau.load(flambeau.compile(model, (X,)), check=1, profile="quick", device="local-sync")
    for _ in range(3):
        y, n = run(X)
        torch.testing.assert_close(y, other(X)[0])
        assert n == 3
    torch.testing.assert_close(model.total, other.total)


@pytest.mark.engine
def test_the_first_op_that_differs_is_named(wrong_relu: None):
    with pytest.raises(WrongResult) as raised:
        load("first")(X)
    text = str(raised.value)
    assert "of 'main' is not that of eager PyTorch" in text
    assert "the first op that differs is aten.relu" in text
    assert "y = torch.relu(self.linear(x)) + 1" in text


@pytest.mark.engine
def test_a_call_that_is_not_compared_says_nothing(wrong_relu: None):
    run = load(3)
    with pytest.raises(WrongResult):
        run(X)
    run(X)
    run(X)
    with pytest.raises(WrongResult):
        run(X)


@pytest.mark.engine
def test_the_environment_decides_where_nothing_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FLAMBEAU_CHECK", "2")
    assert interval(None) == 2
    assert interval("first") == 0
    assert interval("never") is None
    monkeypatch.setenv("FLAMBEAU_CHECK", "first")
    assert load(None)._every == 0


@pytest.mark.parametrize("check", ["always", 0, -1, "1.5", True])
def test_what_check_may_be(check: Any):
    with pytest.raises(ValueError, match="check is 'first', 'never' or a number"):
        load(check)


@pytest.mark.engine
def test_an_engine_that_compiles_ops_together_wrongly(monkeypatch: pytest.MonkeyPatch):
    # The flag that the profile avoids; tests/engines/test_iree_bugs.py has it alone.
    wrong = tuple("--iree-opt-data-tiling" if "data-tiling" in f else f for f in flags._PROFILES["model"])
    monkeypatch.setitem(flags._PROFILES, "model", wrong)
    x, bias, w = torch.randn(4, 7, 16), torch.randn(16), torch.randn(4, 16, 8)
    module = flambeau.compile(lambda x, bias, w: (x + bias) @ w, (x, bias, w))
    with pytest.raises(WrongResult, match="elements differ"):
        flambeau.load(module, check="first", device="local-sync")(x, bias, w)


@pytest.mark.engine
def test_without_the_torch_dialect_the_plainest_code_is_compared_with(tmp_path, monkeypatch: pytest.MonkeyPatch):
    module = flambeau.compile(torch.nn.Softmax(-1), (X,))
    module.save(tmp_path / "softmax.mlir")
    run = flambeau.load(tmp_path / "softmax.mlir", check="first")
    np.testing.assert_allclose(run(X.numpy()), X.softmax(-1).numpy(), rtol=1e-5)
    assert run.checks == 1
    run._reference.call_flat = lambda *args: [np.zeros((3, 4), np.float32)]
    run._calls.clear()
    with pytest.raises(WrongResult, match=r"not that of the same program, compiled plainly: 0.* expected 0 at"):
        run(X.numpy())


@pytest.mark.engine
def test_an_artefact_has_nothing_to_be_checked_with(tmp_path):
    load(None).save(tmp_path / "a.vmfb")
    with pytest.raises(ValueError, match="artefact cannot be checked"):
        flambeau.load(tmp_path / "a.vmfb", check="first")


@pytest.mark.parametrize(
    "actual, expected, text",
    [
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]), None),
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 0.0]), "nan, expected 0 at [1]; 1 of 2 elements differ"),
        (torch.tensor([1.0, 1e-8]), torch.tensor([1.0, 0.0]), None),
        (torch.tensor([float("inf")]), torch.tensor([float("-inf")]), "inf, expected -inf at [0]"),
        (torch.tensor([3, 4]), torch.tensor([3, 5]), "4, expected 5 at [1]"),
        (torch.tensor([3, 4]), torch.tensor([3.0, 4.0]), "2xint64, expected 2xfloat32"),
        (torch.tensor([1.0]).bfloat16(), torch.tensor([1.01]).bfloat16(), None),
        (torch.tensor([1j]), torch.tensor([2j]), "expected 0+2j"),
        (np.float32([1.0]), np.float32([2.0]), "1, expected 2"),
        (True, False, "True, expected False"),
        (1.0, 1.0 + 1e-9, None),
        (torch.zeros(0), torch.zeros(0), None),
    ],
)
def test_difference(actual: Any, expected: Any, text: str | None):
    found = difference(actual, expected)
    assert found is None if text is None else found is not None and text in found
