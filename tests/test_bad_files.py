"""Files and objects that are not programs: each error says what was given and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import flambeau
from flambeau.commands import flambeau as command
from flambeau.diagnostics import CompileError
from flambeau.engines.errors import EngineError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("model.onnx", "model.pt2", "model.safetensors", "model.txt"):
        (tmp_path / name).write_bytes(b"\x08\x07content")
    for name in ("empty.mlir", "empty.pt"):
        (tmp_path / name).touch()
    (tmp_path / "binary.mlir").write_bytes(b"ML\xefR\x00\x01")
    (tmp_path / "junk.pt").write_bytes(b"junk")
    torch.save({"weight": torch.ones(3)}, tmp_path / "weights.pt")
    for name in ("folder", "folder.mlir", "folder.pt", "folder.vmfb"):
        (tmp_path / name).mkdir()
    return tmp_path


COMPILED = {
    "model.onnx": "does not read ONNX",
    "missing.onnx": "no such file",
    "model.pt2": "torch.export.load",
    "model.safetensors": "weights, not a program",
    "model.txt": "none of these",
    "folder": "is a folder",
    "missing.mlir": "there is no such file",
    "empty.mlir": "it is empty",
    "binary.mlir": "byte 2 is not UTF-8",
    "folder.mlir": "it is a folder",
    "missing.pt": "there is no file",
    "empty.pt": "is empty, not a TorchScript archive",
    "folder.pt": "is a folder, not a TorchScript archive",
    "junk.pt": "is not a TorchScript archive",
    "weights.pt": "holds weights, not a program",
}


@pytest.mark.parametrize("name", COMPILED)
def test_a_file_that_cannot_be_compiled(folder: Path, name: str) -> None:
    for path in (folder / name, str(folder / name)):
        with pytest.raises(CompileError) as caught:
            flambeau.compile(path, (torch.ones(3),))
        text = str(caught.value)
        assert COMPILED[name] in text
        assert str(folder / name) in text
        assert len(text) < 500


LOADED = {
    "model.onnx": "does not read ONNX",
    "model.pt2": "torch.export.load",
    "junk.pt": "none of these",
    "folder": "is a folder",
    "folder.vmfb": "is a folder",
    "empty.mlir": "it is empty",
    "binary.mlir": "byte 2 is not UTF-8",
}


@pytest.mark.parametrize("name", LOADED)
def test_a_file_that_cannot_be_loaded(folder: Path, name: str) -> None:
    with pytest.raises(CompileError) as caught:
        flambeau.load(folder / name)
    assert LOADED[name] in str(caught.value)
    assert str(folder / name) in str(caught.value)


def test_mlir_text_is_compiled_by_its_path(tmp_path: Path) -> None:
    flambeau.compile(nn.ReLU(), (torch.ones(3),), output_type="raw").save(tmp_path / "raw.mlir")
    module = flambeau.compile(tmp_path / "raw.mlir", output_type="stablehlo")
    assert "stablehlo.maximum" in str(module)


@pytest.mark.parametrize("thing", [nn.ReLU(), None, lambda x: x, 3], ids=lambda t: type(t).__name__)
def test_load_takes_compiled_modules_only(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"load\(\) takes a compiled Module, .*compile it first"):
        flambeau.load(thing)


@pytest.mark.parametrize("output_type", ["raw", "torch"])
def test_iree_does_not_take_the_torch_dialect(output_type: str) -> None:
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(12)))
    module = flambeau.compile(model, (torch.ones(2, 8),), output_type=output_type)
    with pytest.raises(EngineError, match=r"is in the torch dialect .*lower it first") as caught:
        flambeau.load(module)
    assert len(str(caught.value)) < 300


COMMANDS: dict[str, tuple[list[str], str]] = {
    "onnx": (["compile", "model.onnx"], "does not read ONNX"),
    "run onnx": (["run", "model.onnx"], "does not read ONNX"),
    "pt2": (["compile", "model.pt2", "--input", "2xf32"], "torch.export.load"),
    "folder of mlir": (["compile", "folder.mlir"], "folder.mlir is a folder"),
    "opt of a folder": (["opt", "folder.mlir"], "cannot read folder.mlir: it is a folder"),
    "opt of bytes": (["opt", "binary.mlir"], "cannot read binary.mlir: byte 2 is not UTF-8 text"),
    "opt of nothing": (["opt", "empty.mlir"], "cannot read empty.mlir: it is empty"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_on_the_command_line(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    arguments, message = COMMANDS[name]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_the_command_runs_as_a_module(call_module: Callable[..., str]) -> None:
    assert "flambeau, version" in call_module("--version")


@pytest.fixture
def call_module() -> Callable[..., str]:
    import subprocess
    import sys

    def call(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "flambeau", *arguments], capture_output=True, text=True, check=True
        ).stdout

    return call
