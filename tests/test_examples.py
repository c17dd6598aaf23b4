"""The examples that no page runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from flambeau.testing.models import MODELS

EXAMPLES = Path(__file__).parent.parent / "examples"


def example(name: str) -> ModuleType:
    """Import an example from its file."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.engine
@pytest.mark.parametrize("engine", ["xla", "iree"])
def test_the_demo_compiles_runs_and_compares(
    engine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S106: what `make demo` does, on the same architectures scaled down."""
    demo: Any = example("demo")
    small = {
        name: SimpleNamespace(
            build=lambda name=name: MODELS[name].build(small=True),
            inputs=lambda batch, sequence, name=name: MODELS[name].inputs(batch, 16, small=True),
        )
        for name in demo.NAMES
    }
    monkeypatch.setattr(demo, "MODELS", small)
    monkeypatch.setattr("sys.argv", ["demo.py", "--engine", engine])
    monkeypatch.setattr(demo, "console", demo.Console(width=100))
    assert demo.main() == 0
    printed = capsys.readouterr().out
    assert "resnet-50" in printed
    assert printed.count("✔") == 2


def test_the_demo_sees_a_difference() -> None:
    demo: Any = example("demo")
    x = torch.tensor([1.0, 2.0])
    assert demo.relative_error(x, x) == 0
    assert demo.relative_error(x + torch.tensor([0.0, 0.5]), x) == 0.25
    assert demo.relative_error(x * float("nan"), x) == float("inf")
