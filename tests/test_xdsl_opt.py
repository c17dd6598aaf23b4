"""`xdsl-opt`, as xDSL installs it, reads our dialects and runs our passes: they are in a universe of ours."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from xdsl.dialects import get_all_dialects
from xdsl.transforms import get_all_passes

import flambeau
from flambeau.opt import PASSES
from flambeau.universe import UNIVERSE

ROOT = Path(__file__).parents[1]

WRITES = """
func.func @main(%x: !torch.vtensor<[2,?],f32>) -> !torch.vtensor<[2,?],f32> {
  %0 = torch.copy.to_tensor %x : !torch.tensor<[2,?],f32>
  %1 = torch.aten.silu_ %0 : !torch.tensor<[2,?],f32> -> !torch.tensor<[2,?],f32>
  %2 = torch.copy.to_vtensor %1 : !torch.vtensor<[2,?],f32>
  func.return %2 : !torch.vtensor<[2,?],f32>
}
"""

Opt = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def opt(tmp_path: Path) -> Opt:
    """`opt(text, *options)` runs `xdsl-opt` where the entry points of pyproject.toml are installed."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["xdsl.universe"]
    info = tmp_path / "site" / "flambeau-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flambeau\nVersion: 0\n")
    entries = "".join(f"{name} = {value}\n" for name, value in declared.items())
    (info / "entry_points.txt").write_text(f"[xdsl.universe]\n{entries}")
    source = Path(flambeau.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (info.parent, source)))}

    def call(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "program.mlir").write_text(text)
        command = [sys.executable, "-m", "xdsl.tools.xdsl_opt", "program.mlir", *options]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    return call


def test_xdsl_opt_reads_and_prints_the_torch_dialect(opt: Opt) -> None:
    printed = opt(WRITES)
    assert printed.returncode == 0, printed.stderr
    assert "torch.aten.silu_ %0 : !torch.tensor<[2,?],f32>" in printed.stdout
    assert opt(printed.stdout).stdout == printed.stdout


@pytest.mark.parametrize(
    "pipeline, there",
    [
        ("torch-reduce-op-variants", "torch.overwrite.tensor.contents"),
        ("torch-function-to-torch-backend-pipeline", "torch.aten.silu %x"),
        ("torch-lower-to-backend-contract,torch-backend-to-linalg-on-tensors-backend-pipeline", "linalg.generic"),
        ("torch-lower-to-backend-contract,convert-torch-to-stablehlo", "stablehlo.divide"),
        ('torch-lower-to-backend-contract,convert-torch-to-tosa{int64="keep"}', "tosa."),
        ("torch-canonicalize,canonicalize,cse,dce", "torch.aten.silu_"),
    ],
)  # fmt: skip
def test_xdsl_opt_runs_our_passes_and_pipelines_by_name(opt: Opt, pipeline: str, there: str) -> None:
    result = opt(WRITES, "-p", pipeline)
    assert result.returncode == 0, result.stderr
    assert there in result.stdout


def test_options_of_a_pass_are_fields(opt: Opt) -> None:
    loss = """
    func.func @main(%x: !torch.vtensor<[2],f32>, %y: !torch.vtensor<[2],f32>) -> !torch.vtensor<[],f32> {
      %mean = torch.constant.int 1
      %0 = torch.aten.mse_loss %x, %y, %mean
        : !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.int -> !torch.vtensor<[],f32>
      func.return %0 : !torch.vtensor<[],f32>
    }
    """
    assert "aten.mse_loss" not in opt(loss, "-p", "torch-lower-to-backend-contract").stdout
    pipeline = 'torch-lower-to-backend-contract{backend-legal-ops="aten.mse_loss","aten.tanh"}'
    assert "aten.mse_loss" in opt(loss, "-p", pipeline).stdout


def test_a_problem_is_one_of_xdsls_diagnostics(opt: Opt) -> None:
    result = opt(WRITES, "-p", "torch-verify-backend-contract", "--verify-diagnostics")
    assert result.returncode == 0, result.stderr
    assert "C2: tensors are values" in result.stdout


def test_the_universe_holds_every_pass_and_no_name_of_xdsls() -> None:
    theirs = get_all_passes()
    assert not theirs.keys() & UNIVERSE.all_passes.keys()
    assert not get_all_dialects().keys() & UNIVERSE.all_dialects.keys()
    assert {"torch", "torch_c"} <= UNIVERSE.all_dialects.keys()
    assert len(UNIVERSE.all_passes) == len(PASSES)
    for name, load in UNIVERSE.all_passes.items():
        assert load().name == name
        assert load().__doc__
