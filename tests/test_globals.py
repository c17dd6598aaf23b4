"""State in variables of the module: what a loaded program keeps between calls, on every target and engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_cli import parses_in_iree
from torch import Tensor, nn

import flambeau
from flambeau.engines import EngineError


class Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 3))
        self.register_buffer("count", torch.tensor(0))
        self.scale = nn.Parameter(torch.full((3,), 2.0))

    def forward(self, row: Tensor, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        before = self.rows.clone()
        self.rows.index_copy_(0, at, row * self.scale)
        self.count += 1
        return self.rows, before, self.count.clone()


class Sum(nn.Module):
    def __init__(self, cache: Cache) -> None:
        super().__init__()
        self.cache = cache

    def forward(self) -> Tensor:
        return self.cache.rows.sum()


ROW, AT = torch.ones(1, 3), torch.tensor([0])
RUNS = [("linalg-on-tensors", "iree"), ("stablehlo", "iree"), ("tosa", "iree"), ("stablehlo", "xla")]


def loaded(module: flambeau.Module, engine: str) -> Any:
    return flambeau.load(module, engine=engine, **({"profile": "quick"} if engine == "iree" else {}))


def test_a_function_loads_and_stores_variables() -> None:
    module = flambeau.compile(Cache(), (ROW, AT), state="globals", verify=True)
    text = str(module)
    assert "ml_program.global private mutable @rows(dense_resource<rows> : tensor<4x3xf32>)" in text
    assert "func.func @main(%row: tensor<1x3xf32>, %at: tensor<1xi64>)" in text
    assert text.count("ml_program.global_store @rows") == 2  # in main and in the function that sets it
    assert parses_in_iree(text)
    assert parses_in_iree(module.text(generic=True))


@pytest.mark.engine
@pytest.mark.parametrize(("target", "engine"), RUNS)
def test_state_lives_in_what_is_loaded(target: str, engine: str, tmp_path: Path) -> None:
    model, eager = Cache(), Cache()
    module = flambeau.compile(
        {"write": (model, (ROW, AT)), "total": (Sum(model), ())}, state="globals", output_type=target
    )
    run, other = loaded(module, engine), loaded(module, engine)
    given, expected = [], []
    for i in range(4):
        row, at = torch.full((1, 3), i + 1.0), torch.tensor([i])
        given.append(run.function("write")(row, at))
        expected.append([v.detach().clone() for v in eager(row, at)])
        row.zero_()
    # What was given is the caller's: later calls do not change it.
    for ours, theirs in zip(given, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a, b)
    assert run.function("total")() == eager.rows.sum()
    assert other.function("total")() == 0
    assert not model.rows.any()
    new = torch.randn(4, 3)
    run.set_state({"rows": new})
    wanted = new.clone()
    new.zero_()
    state = run.state()
    assert torch.equal(state["rows"], wanted)
    assert state["count"] == 4
    if engine == "iree":
        state["rows"].zero_()
        assert torch.equal(run.state()["rows"], wanted)
    run.save(tmp_path / "program")
    again = flambeau.load(tmp_path / f"program.{'vmfb' if engine == 'iree' else 'xla'}")
    if engine == "iree":
        assert torch.equal(again.state()["rows"], wanted)


@pytest.mark.engine
def test_mistakes_in_state_are_told() -> None:
    run = loaded(flambeau.compile(Cache(), (ROW, AT), state="globals"), "iree")
    with pytest.raises(ValueError, match="keeps no state 'row'; it keeps: rows, count"):
        run.set_state({"row": ROW})
    with pytest.raises(ValueError, match=r"'rows' has shape \(4, 3\), and the value \(1, 3\)"):
        run.set_state({"rows": ROW})
    plain = loaded(flambeau.compile(nn.ReLU(), (ROW,), state="globals"), "iree")
    assert plain.state() == {}
    torch.testing.assert_close(plain(ROW), ROW)


def test_what_has_no_variables_is_refused(tmp_path: Path) -> None:
    for output in ("raw", "torch"):
        with pytest.raises(ValueError, match="state='globals' is for targets"):
            flambeau.compile(Cache(), (ROW, AT), output_type=output, state="globals")
    with pytest.raises(ValueError, match="is for one device"):
        flambeau.compile(nn.ReLU(), (ROW,), output_type="stablehlo", state="globals", mesh={"x": 1}, plan={})
    flambeau.compile(Cache(), (ROW, AT), output_type="stablehlo", state="globals").save(tmp_path / "cache.mlir")
    with pytest.raises(EngineError, match="XLA has no variables"):
        flambeau.load(tmp_path / "cache.mlir", engine="xla")


@pytest.mark.engine
def test_a_saved_module_keeps_its_variables(tmp_path: Path) -> None:
    flambeau.compile(Cache(), (ROW, AT), state="globals").save(tmp_path / "cache.mlir")
    run = loaded(flambeau.compile(tmp_path / "cache.mlir"), "iree")
    run(ROW, AT)
    assert run(ROW, torch.tensor([2]))[0].tolist() == [[2.0] * 3, [0.0] * 3, [2.0] * 3, [0.0] * 3]


@pytest.mark.engine
@pytest.mark.parametrize(("target", "engine"), [RUNS[0], RUNS[3]])
def test_random_numbers_are_seeded(target: str, engine: str) -> None:
    class Noise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("random_state", torch.zeros(3))  # the name that the state would have

        def forward(self) -> Tensor:
            self.random_state += 1
            return torch.rand(3) + self.random_state

    run = loaded(flambeau.compile(Noise(), (), output_type=target, state="globals"), engine)
    run.seed(7)
    first, second = run(), run()
    assert not torch.equal(first + 1, second)
    run.seed(7)
    torch.testing.assert_close(run(), first + 2)


@pytest.mark.engine
def test_a_training_step_keeps_parameters_and_the_optimizers_state() -> None:
    model, x, y = nn.Linear(3, 2), torch.randn(4, 3), torch.randn(4, 2)
    eager = nn.Linear(3, 2)
    eager.load_state_dict(model.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    step = flambeau.export_train_step(model, nn.MSELoss(), optimizer, (x, y), state="globals")
    run = loaded(step, "iree")
    theirs = torch.optim.Adam(eager.parameters(), lr=0.1)
    for _ in range(3):
        loss = run(x, y, lr=0.1)
        theirs.zero_grad()
        expected = nn.functional.mse_loss(eager(x), y)
        expected.backward()
        theirs.step()
        torch.testing.assert_close(loss, expected.detach())
    state = run.state()
    torch.testing.assert_close(state["weight"], eager.weight.detach())
    assert state["optimizer.weight.step"] == 3
