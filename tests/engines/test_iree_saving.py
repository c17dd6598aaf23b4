"""Saving executables, loading them, and running them without PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from flambeau.engines import EngineError
from flambeau.engines.iree.executable import IreeExecutable, load_executable
from flambeau.ir.module import Output, Signature


@pytest.fixture
def saved(tmp_path: Path, counter: Callable[..., IreeExecutable]) -> Path:
    w = torch.arange(4.0)
    weights = {
        "w": w,
        "tied": w,
        "layer.b": torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16),
        "flags": torch.tensor([True, False]),
        "z": torch.tensor([1 + 2j], dtype=torch.complex128),
        "scalar": torch.tensor(5),
        "none": torch.empty(0, 3),
        "array": np.arange(6, dtype=np.int16).reshape(3, 2).T,
        "f8": torch.tensor([1.0, -2.0]).to(torch.float8_e4m3fn),
        "total": torch.zeros(4),
    }
    run = counter(weights)
    assert torch.equal(run(x=torch.ones(4)), torch.ones(4))
    run.save(tmp_path / "net.v1.vmfb")
    return tmp_path / "net.v1.vmfb"


@pytest.mark.engine
def test_save_and_load(saved: Path) -> None:
    assert sorted(p.name for p in saved.parent.iterdir()) == ["net.v1.json", "net.v1.safetensors", "net.v1.vmfb"]
    run = load_executable(saved)
    assert (run.profile, run.device) == ("quick", "local-sync")
    assert torch.equal(run(x=torch.ones(4)), torch.full((4,), 2.0))  # the state was saved too
    assert torch.equal(run(x=torch.ones(4)), torch.full((4,), 3.0))
    assert torch.equal(run.function("plus_weight")(torch.ones(4)), torch.arange(4.0) + 1)
    weights = run.weights
    assert weights["tied"] is weights["w"]
    assert weights["layer.b"].dtype == torch.bfloat16
    assert weights["layer.b"].tolist() == [1.0, 2.0, 3.0]
    assert weights["flags"].tolist() == [True, False]
    assert weights["z"].tolist() == [1 + 2j]
    assert weights["scalar"].shape == ()
    assert weights["scalar"] == 5
    assert weights["none"].shape == (0, 3)
    assert np.array_equal(weights["array"], np.arange(6).reshape(3, 2).T)
    assert weights["f8"].dtype == torch.float8_e4m3fn
    assert weights["f8"].float().tolist() == [1.0, -2.0]
    # The file was not written through.
    assert torch.equal(load_executable(saved).weights["total"], torch.ones(4))
    assert torch.equal(load_executable(saved.with_suffix("")).weights["total"], torch.ones(4))


@pytest.mark.engine
def test_saved_weights_are_ordinary_safetensors(saved: Path) -> None:
    from safetensors.torch import load_file

    weights = load_file(saved.with_suffix(".safetensors"))
    assert torch.equal(weights["w"], torch.arange(4.0))
    assert weights["layer.b"].dtype == torch.bfloat16
    assert weights["z"].tolist() == [[1.0, 2.0]]
    assert "tied" not in weights


@pytest.mark.engine
def test_loading_names_the_side_that_is_wrong(saved: Path) -> None:
    description, weights = saved.with_suffix(".json"), saved.with_suffix(".safetensors")
    good = {p: p.read_bytes() for p in (saved, description, weights)}
    data = json.loads(good[description])

    def changed(**fields: Any) -> bytes:
        return json.dumps({**data, **fields}).encode()

    renamed = good[weights].replace(b'"total"', b'"totem"')
    cases = [
        (saved, good[saved][:-1], "net.v1.vmfb is damaged, or does not belong"),
        (description, b"{", "net.v1.json does not describe a program"),
        (description, b"[]", "net.v1.json does not describe a program"),
        (description, changed(format="other"), "net.v1.json does not describe a program .*'other'"),
        (description, changed(version=99), "format version 99, and this Flambeau reads 3"),
        (description, changed(machine="z80"), "was compiled for z80"),
        (description, changed(instructions=["avx4096"]), "for a CPU with avx4096, which this one lacks"),
        (weights, good[weights][:-1], "net.v1.safetensors is not a safetensors file, or is damaged: it is shorter"),
        (weights, b"", "net.v1.safetensors is not a safetensors file"),
        (weights, renamed, "net.v1.safetensors does not have the weight 'total'"),
        (
            weights,
            good[weights].replace(b'"BOOL"', b'"U8"  '),
            "the weight 'flags' in .* is not the one that was saved",
        ),
    ]
    for side, content, message in cases:
        side.write_bytes(content)
        with pytest.raises(EngineError, match=message):
            load_executable(saved)
        side.write_bytes(good[side])
    for side in good:
        side.unlink()
        with pytest.raises(EngineError, match=f"cannot load net.v1.vmfb: .*{side.name} is missing"):
            load_executable(saved)
        side.write_bytes(good[side])
    load_executable(saved)


@pytest.mark.engine
def test_what_json_cannot_say_is_an_error(weighted: bytes, tmp_path: Path, vectors: Callable[..., Signature]) -> None:
    class Point:
        def __init__(self, x: Any) -> None:
            self.x = x

    pytree.register_pytree_node(Point, lambda p: ([p.x], None), lambda c, _: Point(c[0]))
    _, tree = pytree.tree_flatten(Point(0))
    weights = {"w": torch.zeros(4), "layer.b": torch.zeros(3, dtype=torch.bfloat16)}
    run = IreeExecutable(weighted, weights, {"plus_weight": vectors("y", out_spec=tree)})
    assert isinstance(run(torch.ones(4)), Point)
    with pytest.raises(EngineError, match=r"result of 'plus_weight' contain a type .*Point.*serialized_type_name"):
        run.save(tmp_path / "x")
    odd = vectors("y", outputs=(Output(None, object()),))
    with pytest.raises(EngineError, match=r"returns the constant .*object has no form in JSON"):
        IreeExecutable(weighted, weights, {"plus_weight": odd}).save(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_importing_the_package_imports_no_engine() -> None:
    code = "import sys, flambeau.engines; assert not {'torch', 'iree', 'jax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.engine
def test_runs_where_torch_is_not_installed(saved: Path, weighted: bytes) -> None:
    saved.with_name("plain.vmfb").write_bytes(weighted)
    code = f"""
import sys
sys.modules["torch"] = None
import numpy as np
from flambeau.engines import EngineError
from flambeau.engines.iree.executable import IreeExecutable, load_executable
from flambeau.ir import dtypes
from flambeau.ir.module import Argument, Output, Signature, TensorSpec
vector = TensorSpec((4,), dtypes.float32)
half = TensorSpec((3,), dtypes.bfloat16)
signatures = {{
    "plus_weight": Signature((Argument("y", vector),), (vector,), (Output(0),)),
    "weight": Signature((), (half,), (Output(0),)),
}}
weights = {{"w": np.ones(4, np.float32), "layer.b": np.array([0x3F80, 0x4000, 0x4040], np.uint16)}}
run = IreeExecutable(open({str(saved.with_name("plain.vmfb"))!r}, "rb").read(), weights, signatures)
run.save({str(saved.with_name("plain"))!r})
run = load_executable({str(saved.with_name("plain"))!r})
assert run.function("plus_weight")(np.zeros(4, np.float32)).tolist() == [1.0] * 4
assert run.function("weight")().astype(np.float32).tolist() == [1.0, 2.0, 3.0]
try:
    load_executable({str(saved)!r})
except EngineError as error:
    assert "needs PyTorch" in str(error), error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)
