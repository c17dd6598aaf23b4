"""Compiling with IREE: errors, profiles, linking, and the cache of artefacts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from flambeau.engines import EngineError
from flambeau.engines.cache import ArtefactCache
from flambeau.engines.errors import InvalidProgram
from flambeau.engines.iree import compiler, flags
from flambeau.engines.iree.compiler import compile_mlir
from flambeau.engines.iree.runtime import Program
from flambeau.ir import dtypes
from flambeau.ir.module import TensorSpec

pytestmark = pytest.mark.engine


def test_bad_program_is_an_error_with_its_line() -> None:
    source = b"func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %y = foo.bar %x : tensor<4xf32>\n}"
    with pytest.raises(InvalidProgram) as caught:
        compile_mlir(source)
    assert "source.mlir:2:8" in str(caught.value)
    assert "  |   %y = foo.bar %x : tensor<4xf32>\n  |        ^" in str(caught.value)
    assert caught.value.diagnostics[0][0] == "error"
    assert "Dialect `foo' not found" in caught.value.diagnostics[0][1]


def test_unknown_flags_and_profiles() -> None:
    with pytest.raises(EngineError, match="bogus"):
        compile_mlir(b"", profile="quick", extra_flags=["--bogus"])
    with pytest.raises(ValueError, match="no profile 'fast'; known profiles: model, host, quick"):
        compile_mlir(b"", profile="fast")


def test_second_compile_is_a_cache_hit(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch, binary_text: Callable[..., bytes]
) -> None:
    source = binary_text("main", "arith.subf")
    first = compile_mlir(source, profile="quick")
    assert not first.cached
    second = compile_mlir(source, profile="quick")
    assert second.cached
    assert second.vmfb == first.vmfb
    assert second.profile == "quick"

    newest = max((cache_folder / "iree").iterdir(), key=lambda p: p.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-1])
    assert not compile_mlir(source, profile="quick").cached
    assert compile_mlir(source, profile="quick").cached
    assert not compile_mlir(source, profile="quick", use_cache=False).cached
    monkeypatch.setenv("FLAMBEAU_CACHE", "0")
    assert not compile_mlir(source, profile="quick").cached


def test_profile_falls_back(monkeypatch: pytest.MonkeyPatch, binary_text: Callable[..., bytes]) -> None:
    tried: list[tuple[str, ...]] = []
    real = compiler._compile

    def picky(source: bytes, given: tuple[str, ...]) -> bytes:
        tried.append(given)
        if "--iree-global-opt-data-tiling" in given:
            raise EngineError("vectors too large")
        return real(source, given)

    monkeypatch.setattr(compiler, "_compile", picky)
    source = binary_text("main", "arith.divf")
    made = compile_mlir(source, profile="model")
    assert (made.profile, made.cached) == ("host", False)
    again = compile_mlir(source, profile="model")
    assert (again.profile, again.cached) == ("host", True)
    assert len(tried) == 2


def test_links_without_binutils(monkeypatch: pytest.MonkeyPatch, sin_text: bytes) -> None:
    monkeypatch.setattr(flags.shutil, "which", lambda name: None)
    assert any("system-linker-path" in flag for flag in flags.profile_flags("quick"))
    program = Program(compile_mlir(sin_text, profile="quick").vmfb, {}, "local-sync")
    x = torch.randn(2, 3, dtype=torch.float64)
    (y,) = program.call("double_sin", [x], [TensorSpec((2, None), dtypes.float64)])
    torch.testing.assert_close(y, x.sin(), rtol=1e-15, atol=1e-15)


def test_cache_is_bounded_and_survives_damage(tmp_path: Path) -> None:
    cache = ArtefactCache(tmp_path / "c", limit=1000)
    for i in range(5):
        cache.put(f"k{i}", bytes(300), {"n": i})
        if i < 4:
            os.utime(tmp_path / "c" / f"k{i}", (i, i))
    assert cache.get("k4") == (bytes(300), {"n": 4})
    assert cache.get("k0") is None
    assert sum(p.stat().st_size for p in (tmp_path / "c").iterdir()) <= 1000
    for damage in (b"", b"\n", b"[1]\n", b'{"sha256": "0"}\nxx', b"\xff\xfe"):
        (tmp_path / "c" / "k4").write_bytes(damage)
        assert cache.get("k4") is None
    (tmp_path / "file").write_bytes(b"")
    ArtefactCache(tmp_path / "file").put("k", b"x", {})


def test_flags_from_the_environment_are_passed_on(monkeypatch: pytest.MonkeyPatch, sin_text: bytes) -> None:
    monkeypatch.setenv("FLAMBEAU_IREE_FLAGS", "--verify=false --no-such-flag='a b'")
    with pytest.raises(EngineError, match=r"--no-such-flag=a b"):
        compile_mlir(sin_text, profile="quick")
