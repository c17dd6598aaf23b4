"""What `torch.compile(model, backend="flambeau")` finds on disk: the same program, and never another one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from flambeau.frontends.fx.graph_text import NoText, graph_text
from flambeau.torch_compile import counters


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    again()


def again() -> None:
    """Forget what this process has compiled, and its counts."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def of_cache() -> tuple[int, int, int]:
    counts = counters()
    return counts["cache_hits"], counts["cache_misses"], counts["cache_bypasses"]


PROGRAM = """
import json, torch
import flambeau.api
from torch import nn
from flambeau.torch_compile import counters
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2))
fast = torch.compile(model, backend="flambeau")
compiled = []
compile_module = flambeau.api.compile
flambeau.api.compile = lambda *args, **kwargs: compiled.append(1) or compile_module(*args, **kwargs)
losses = []
for batch in (3, 4):
    torch.manual_seed(batch)
    loss = fast(torch.randn(batch, 4)).square().sum()
    loss.backward()
    losses.append(loss.item())
gradient = model[0].weight.grad.tolist()
print("RESULT", json.dumps([losses, gradient, counters(), len(compiled)]))
"""


@pytest.mark.engine
@pytest.mark.long
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    def run() -> Any:
        environment = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path)}
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        return json.loads(next(line for line in ended.stdout.splitlines() if line.startswith("RESULT"))[6:])

    first, second = run(), run()
    assert second[:2] == first[:2]
    graphs = first[2]["graphs"]
    assert graphs == 4  # forward and backward, for one batch size, and then for any
    assert (first[2]["cache_hits"], first[2]["cache_misses"], first[2]["compiled"]) == (0, graphs, graphs)
    assert (second[2]["cache_hits"], second[2]["cache_misses"], second[2]["compiled"]) == (graphs, 0, 0)
    assert (first[3], second[3]) == (graphs, 0)


@pytest.mark.engine
def test_programs_of_any_size_are_found_for_xla() -> None:
    model, found = nn.Linear(4, 2), []
    for _ in range(2):
        again()
        fast = torch.compile(model, backend="flambeau", options={"engine": "xla"}, dynamic=True)
        for batch in (3, 4):
            x = torch.randn(batch, 4)
            torch.testing.assert_close(fast(x), model(x))
            fast(x).sum().backward()
        found.append(of_cache())
    assert found == [(0, 2, 0), (2, 0, 0)]


@pytest.mark.engine
@pytest.mark.parametrize("weights", ["passed", "tracked"])
def test_other_weights_are_the_same_program(weights: str) -> None:
    x, options = torch.randn(2, 300), {"weights": weights, "profile": "quick"}
    hits = []
    with torch.no_grad():
        for _ in range(2):
            again()
            model = nn.Linear(300, 300).eval()
            fast = torch.compile(model, backend="flambeau", options=options)
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
            model.weight.mul_(2)
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
            hits.append(of_cache())
    assert hits == [(0, 1, 0), (1, 0, 0)]


@pytest.mark.engine
def test_other_constants_and_options_are_other_programs() -> None:
    x = torch.ones(400)
    found = []
    for number, options in [(1.0, {}), (1.0, {}), (2.0, {}), (2.0, {"target": "stablehlo"}), (2.0, {"cache": False})]:
        again()
        constant = torch.full((400,), number)

        def program(x: Tensor, constant: Tensor = constant) -> Tensor:
            return x + torch.tensor(constant.tolist())

        fast = torch.compile(program, backend="flambeau", options={"profile": "quick", **options})
        assert torch.equal(fast(x), x + number)
        found.append(of_cache())
    assert found == [(0, 1, 0), (1, 0, 0), (0, 1, 0), (0, 1, 0), (0, 0, 1)]


@pytest.mark.engine
def test_a_damaged_file_is_compiled_again(tmp_path: Path) -> None:
    x = torch.ones(3)
    for expected in ((0, 1, 0), (0, 1, 0), (1, 0, 0)):
        again()
        assert torch.equal(torch.compile(torch.neg, backend="flambeau", options={"profile": "quick"})(x), -x)
        assert of_cache() == expected
        if expected == (0, 1, 0) and not (tmp_path / "damaged").exists():
            (tmp_path / "damaged").touch()
            (file,) = (tmp_path / "graphs").iterdir()
            file.write_bytes(file.read_bytes()[:-10])


def traced(function: Callable[..., Any], *args: Tensor, mode: str = "fake") -> GraphModule:
    return make_fx(function, tracing_mode=mode)(*args)


def test_the_text_of_a_graph_tells_programs_apart() -> None:
    x = torch.ones(3, 4)
    programs = [
        traced(lambda x: x + 1, x),
        traced(lambda x: x + 1.0, x),
        traced(lambda x: x + True, x),
        traced(lambda x: x - 1, x),
        traced(lambda x: x + 1, x.double()),
        traced(lambda x: x + 1, torch.ones(4, 3)),
        traced(lambda x: x + 1, torch.ones(4, 3).t()),
        traced(lambda x: x + 1, x, mode="symbolic"),
        traced(lambda x: (x + 1, x), x),
        traced(lambda x: (x + 1).view(-1)[2:], x),
    ]
    texts = [graph_text(program) for program in programs]
    assert len(set(texts)) == len(texts)
    assert graph_text(traced(lambda x: x + 1, x)) == texts[0]


def test_the_contents_of_attributes_are_in_the_text() -> None:
    def program(value: float) -> GraphModule:
        constant = torch.full((3,), value)
        return make_fx(lambda x: x + constant)(torch.ones(3))

    name = next(str(node.target) for node in program(1.0).graph.nodes if node.op == "get_attr")
    assert graph_text(program(1.0)) == graph_text(program(1.0)) != graph_text(program(2.0))
    assert graph_text(program(1.0), [name]) == graph_text(program(2.0), [name])


def test_there_is_no_text_of_what_python_code_decides() -> None:
    @torch.library.custom_op("flambeau_test::thrice", mutates_args=())
    def thrice(x: Tensor) -> Tensor:
        return x * 3

    thrice.register_fake(torch.empty_like)
    with pytest.raises(NoText, match="flambeau_test::thrice"):
        graph_text(traced(lambda x: thrice(x), torch.ones(3)))


@pytest.mark.engine
def test_a_check_of_calls_needs_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_CHECK", "first")
    x = torch.ones(3)
    assert torch.equal(torch.compile(torch.neg, backend="flambeau", options={"profile": "quick"})(x), -x)
    assert of_cache() == (0, 0, 1)
