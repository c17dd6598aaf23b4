"""Finding backends, calling them, and what is said about those that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import flambeau
from flambeau.testing.backends import (
    BackendError,
    EagerBackend,
    IreeBackend,
    compile_cached,
    invoke,
    load_backend,
    name_of,
    targets_of,
)

EXAMPLES = Path(__file__).parents[2] / "examples"


def a_file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.py"
    path.write_text(text)
    return str(path)


METHODS = "    def compile(self, module): return b''\n    def run(self, artefact, function, inputs): return []\n"


@pytest.mark.parametrize(
    "text, name",
    [
        (f"class Any:\n{METHODS}", "Any"),
        (f"class Backend:\n    name = 'mine'\n{METHODS}", "mine"),
        (f"class A:\n{METHODS}class B:\n{METHODS}backend = B()", "B"),
        (f"class A:\n{METHODS}def backend():\n    return A()", "A"),
    ],
)
def test_a_backend_is_found_in_a_file(tmp_path: Path, text: str, name: str) -> None:
    """S102: a backend is found by its path."""
    backend = load_backend(a_file(tmp_path, text))
    assert name_of(backend) == name
    assert targets_of(backend) == ("linalg-on-tensors",)


@pytest.mark.parametrize(
    "text, reason",
    [
        ("x = 1", "has 0 classes with `compile` and `run`"),
        (f"class A:\n{METHODS}class B:\n{METHODS}", "has 2 classes with `compile` and `run`"),
        ("class Backend:\n    def compile(self, module): ...", "it lacks run"),
        ("import nothing_of_that_name", "cannot import .*: ModuleNotFoundError"),
    ],
)
def test_what_is_no_backend_is_told(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(BackendError, match=reason):
        load_backend(a_file(tmp_path, text))


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(
        BackendError, match="there is no backend 'nix'; known are eager, iree, iree-host, iree-int64, iree-quick"
    ):
        load_backend("nix")
    with pytest.raises(BackendError, match=r"there is no file nix\.py"):
        load_backend("nix.py")


def test_an_entry_point_is_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """S102: or by an entry point of another package."""

    class Entry:
        name = "installed"

        @staticmethod
        def load() -> Any:
            return EagerBackend

    monkeypatch.setattr("flambeau.testing.backends.entry_points", lambda group: [Entry])
    assert name_of(load_backend("installed")) == "eager"


@pytest.mark.parametrize(
    "backend", [pytest.param(IreeBackend(), marks=pytest.mark.engine), EagerBackend()], ids=name_of
)
def test_invoke_calls_as_python_would(backend: Any) -> None:
    def program(pair: dict[str, torch.Tensor], k: torch.Tensor) -> tuple[torch.Tensor, int]:
        return pair["a"] @ pair["b"] + k, 3

    args = ({"a": torch.randn(2, 3), "b": torch.randn(3, 2)}, torch.ones(2))
    module = flambeau.compile(program, args, output_type=targets_of(backend)[0])
    got = invoke(backend, backend.compile(module), module, "main", args, {})
    assert got[1] == 3
    torch.testing.assert_close(got[0], program(*args)[0])


@pytest.mark.engine
def test_a_lost_device_is_tried_again() -> None:
    class Flaky(IreeBackend):
        retries = 2
        lost = 2

        def run(self, artefact: Any, function: str, inputs: list[Any]) -> list[Any]:
            if self.lost:
                self.lost -= 1
                raise ConnectionResetError("the lab's power went out")
            return super().run(artefact, function, inputs)

    x = torch.ones(2)
    module = flambeau.compile(torch.neg, (x,))
    backend = Flaky()
    artefact = backend.compile(module)
    torch.testing.assert_close(invoke(backend, artefact, module, "main", (x,), {}), -x)
    backend.lost = 3
    with pytest.raises(ConnectionResetError):
        invoke(backend, artefact, module, "main", (x,), {})


def test_bytes_are_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    compiled = []

    class Bytes:
        def compile(self, module: Any) -> bytes:
            compiled.append(module)
            return b"artefact"

        def run(self, artefact: Any, function: str, inputs: list[Any]) -> list[Any]:
            return inputs

    module = flambeau.compile(torch.neg, (torch.ones(2),))
    assert [compile_cached(Bytes(), module) for _ in range(2)] == [b"artefact"] * 2
    assert len(compiled) == 1
    other = flambeau.compile(torch.abs, (torch.ones(2),))
    compile_cached(Bytes(), other)
    assert len(compiled) == 2
    with_weights = flambeau.compile(torch.nn.Linear(2, 2), (torch.ones(2),))
    for _ in range(2):
        compile_cached(Bytes(), with_weights)
    assert len(compiled) == 4


def test_a_wrong_number_of_results_is_told() -> None:
    class Broken(IreeBackend):
        def run(self, artefact: Any, function: str, inputs: list[Any]) -> list[Any]:
            return []

    module = flambeau.compile(torch.neg, (torch.ones(2),))
    with pytest.raises(ValueError, match="main has 1 results, and the backend gave 0"):
        invoke(Broken(), None, module, "main", (torch.ones(2),), {})


def test_the_example_is_short() -> None:
    """S47, S101: a backend is a file of less than 40 lines."""
    assert len((EXAMPLES / "backend.py").read_text().splitlines()) < 40


@pytest.mark.engine
def test_the_remote_example_survives_the_death_of_its_device() -> None:
    """S103: a device in another process, that is lost and tried again."""
    backend: Any = load_backend(str(EXAMPLES / "remote_backend.py"))
    module = flambeau.compile(torch.neg, (torch.ones(3),))
    artefact = backend.compile(module)
    x = np.arange(3, dtype=np.float32)
    try:
        assert np.array_equal(backend.run(artefact, "main", [x])[0], -x)
        first = backend.device.pid
        backend.device.kill()
        backend.device.wait()
        assert np.array_equal(backend.run(artefact, "main", [x])[0], -x)
        assert backend.device.pid != first
        with pytest.raises(RuntimeError, match="nothing"):
            backend.run(artefact, "nothing", [x])
    finally:
        backend.device.kill()
        backend.device.wait()
