"""Graphs are cut at step marks, found again by their structure, and given to any engine: S51, S53, S84."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn

from flambeau import lazy
from flambeau.engines.eager import EagerEngine


class Counting:
    """A backend of somebody's own: the two methods that every engine has."""

    name = "counting"
    output_type = "torch"

    def __init__(self) -> None:
        self.modules: list[Any] = []
        self.calls: list[tuple[Any, ...]] = []

    def compile(self, module: Any) -> Any:
        self.modules.append(module)
        run = EagerEngine().compile(module)

        def call(*args: Any) -> Any:
            self.calls.append(args)
            return run(*args)

        return call


def test_a_backend_receives_each_graph_at_a_step_mark(device: torch.device) -> None:
    """S53: at each mark the backend is called with inputs; it compiles for the first one only. S84."""
    backend = Counting()
    lazy.use_engine(backend)
    w = torch.ones(2).to(device)
    for i in range(5):
        x = torch.full((2,), float(i)).to(device)
        w.add_(x)
        lazy.step()
        assert len(backend.calls) == i + 1
    assert w.tolist() == [11.0, 11.0]
    assert len(backend.modules) == 1
    assert "torch.aten.add.Tensor" in str(backend.modules[0])
    assert "literal" not in str(backend.modules[0])  # inputs are not baked in
    report = lazy.report()
    assert (report.compiles, report.hits) == (1, 4)


def test_numbers_that_change_become_inputs(device: torch.device) -> None:
    x = torch.ones(2).to(device)
    for i in range(6):
        y, z, k = x * (0.5 + i), x + i, x - i  # the last two are one number to the program
        lazy.step()
        assert (y.tolist(), z.tolist(), k.tolist()) == ([0.5 + i] * 2, [1.0 + i] * 2, [1.0 - i] * 2)
    assert lazy.report().compiles == 2


def test_numbers_of_one_value_may_part(device: torch.device) -> None:
    x = torch.ones(2).to(device)
    for a, b in [(1.0, 1.0), (2.0, 2.0), (3.0, 4.0), (5.0, 6.0), (7.0, 7.0)]:
        y, z = x * a, x * b
        lazy.step()
        assert (y.tolist(), z.tolist()) == ([a] * 2, [b] * 2)
    assert lazy.report().compiles == 3


def test_signed_zeros_and_integers_are_told_apart(device: torch.device) -> None:
    x = torch.ones(1).to(device)
    found = [str((x * number).item()) for number in (0.0, -0.0, float("nan"), 1, 1.0, True)]
    assert found == ["0.0", "-0.0", "nan", "1.0", "1.0", "1.0"]


def test_a_learning_rate_is_an_input_from_the_start(device: torch.device) -> None:
    model = nn.Linear(3, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, 3).to(device)
    for i in range(6):
        optimizer.param_groups[0]["lr"] = 0.1 / (i + 1)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    assert (lazy.report().compiles, lazy.report().hits) == (1, 5)


def test_shapes_that_change_are_graphs_of_their_own(device: torch.device) -> None:
    w = torch.ones(3).to(device)
    for n in (2, 4, 2, 4, 2):
        x = torch.ones(n, 3).to(device)
        assert (x * w).sum().item() == 3.0 * n
    assert (lazy.report().compiles, lazy.report().hits) == (2, 3)


def test_contents_cut_a_graph(device: torch.device) -> None:
    x = torch.ones(3, device=device)
    y = x + 1
    if y.sum() > 5:
        y = y * 2
    assert y.tolist() == [4.0, 4.0, 4.0]
    assert lazy.report().compiles == 2


def test_an_optimizer_marks_the_end_of_a_step(device: torch.device) -> None:
    p = nn.Parameter(torch.ones(2, device=device))
    optimizer = torch.optim.SGD([p], lr=0.5)
    p.sum().backward()
    optimizer.step()
    assert lazy.report().compiles == 1
    assert p.tolist() == [0.5, 0.5]


def test_a_mode_makes_tensors_lazy_and_chooses_an_engine() -> None:
    backend = Counting()
    with lazy.mode(engine=backend):
        x, number, there = torch.zeros(3) + torch.arange(3.0), torch.tensor(2.0), torch.ones(3, device="cpu")
        model = nn.Linear(3, 2)
        y = x * number
    assert lazy.is_lazy(x)
    assert lazy.is_lazy(model.weight)
    assert not lazy.is_lazy(there)
    assert not lazy.is_lazy(number)
    assert len(backend.modules) == 1  # the end of the mode cuts
    assert y.tolist() == [0.0, 2.0, 4.0]
    assert not lazy.is_lazy(torch.ones(2))


def test_threads_record_graphs_of_their_own(device: torch.device) -> None:
    lazy.use_engine("eager")
    found: dict[int, list[float]] = {}

    def loop(k: int) -> None:
        x = torch.full((3,), float(k), device=device)
        for i in range(40):
            x = x * 1.0 + 1
            if i % 10 == 0:
                x.sum().item()
        found[k] = x.tolist()

    threads = [threading.Thread(target=loop, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {k: [k + 40.0] * 3 for k in range(4)}


def test_a_thread_reads_what_another_has_recorded(device: torch.device) -> None:
    x = torch.ones(3, device=device) + 1
    found: list[Any] = []

    def other() -> None:
        found.append((x * 2).tolist())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [[4.0, 4.0, 4.0]]
    assert x.tolist() == [2.0, 2.0, 2.0]


def test_the_report_is_a_table(device: torch.device) -> None:
    x = torch.tensor([0.0, 1.0, 2.0], device=device)
    with pytest.warns(lazy.LazyFallbackWarning, match=r"aten.nonzero.default runs in PyTorch: the shape"):
        (x + 1).nonzero()
    lines = str(lazy.report()).splitlines()
    assert lines[0] == "engine eager: 1 compiled, 0 found, 1 fallbacks"
    assert lines[1].split() == [
        "graph",
        "ops",
        "compiled",
        "found",
        "fallbacks",
        "compiling",
        "a",
        "run",
        "begins",
        "at",
    ]
    assert lines[2].startswith("graph 1")
    assert "test_graphs.py:" in lines[2]
    assert lines[3].startswith("aten.nonzero.default ran in PyTorch 1 times: the shape of its result depends on")
    lazy.reset()
    assert lazy.report().compiles == 0
    assert lazy.report().fallbacks == {}


def test_a_graph_without_end_is_cut(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flambeau.frontends.lazy.trace.MAX_OPS", 10)
    x = torch.zeros(1, device=device)
    for _ in range(25):
        x = x + 1
    assert lazy.report().compiles >= 1
    assert x.item() == 25.0
