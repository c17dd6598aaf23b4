"""The command line: what people type, what they read, and one line for each mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import flambeau as package
from flambeau.commands import flambeau

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 4)
    def forward(self, x):
        return torch.relu(self.linear(x))

class Dropping(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, self.training) + 1

class Ids(nn.Module):
    def forward(self, ids, mask):
        return ids * 2, ids.sum(), mask

class Sorted(nn.Module):
    def forward(self, x):
        return torch.sort(x)

class Branch(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x

ready = Net()
def needs(n):
    return Net()
def broken():
    raise RuntimeError("no such checkpoint")
number = 3
def gives_a_number():
    return 3
"""

RAW = """
func.func @main(%x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %0 = torch.aten.relu %x : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
  %1 = torch.aten.tanh %x : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
  return %0 : !torch.vtensor<[2,3],f32>
}
"""

IN_PLACE = """
func.func @main(%x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %0 = torch.copy.to_tensor %x : !torch.tensor<[2,3],f32>
  %1 = torch.aten.relu_ %0 : !torch.tensor<[2,3],f32> -> !torch.tensor<[2,3],f32>
  %2 = torch.copy.to_vtensor %1 : !torch.vtensor<[2,3],f32>
  return %2 : !torch.vtensor<[2,3],f32>
}
"""

Call = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(MODEL)
    (tmp_path / "raw.mlir").write_text(RAW)
    (tmp_path / "in_place.mlir").write_text(IN_PLACE)
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "bad.mlir").write_text("func.func @f( {")
    return tmp_path


@pytest.fixture
def call(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "net", raising=False)

    def invoke(*args: str, status: int = 0, **options: Any) -> Result:
        result = CliRunner().invoke(flambeau, list(args), **options)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == status, result.output
        return result

    yield invoke
    sys.modules.pop("net", None)


def parses_in_iree(text: str) -> bool:
    from iree.compiler import ir

    with ir.Context() as context:
        return bool(ir.Module.parse(text, context).operation.verify())


def parses_in_torch_mlir(text: str) -> bool:
    ir = pytest.importorskip("torch_mlir.ir")
    from torch_mlir.dialects import torch as torch_dialect

    with ir.Context() as context:
        torch_dialect.register_dialect(context)
        return bool(ir.Module.parse(text, context).operation.verify())


# compile


def test_compile_prints_linalg(call: Call) -> None:
    text = call("compile", "net.py:Net", "--input", "2x8xf32").stdout
    assert "func.func @main(%x: tensor<2x8xf32>) -> tensor<2x4xf32>" in text
    assert "linalg.matmul" in text
    assert "dense_resource<linear.weight>" in text
    assert parses_in_iree(text)


def test_compile_with_dynamic_dims(call: Call) -> None:
    text = call("compile", "net.py:Net", "--input", "?x8xf32").stdout
    assert "func.func @main(%x: tensor<?x8xf32>) -> tensor<?x4xf32>" in text


def test_compile_takes_a_model_that_exists_already(call: Call) -> None:
    assert "linalg.matmul" in call("compile", "net.py:ready", "--input", "2x8xf32").stdout


def test_compile_puts_the_model_in_eval_mode(call: Call) -> None:
    text = call("compile", "net.py:Dropping", "--input", "4xf32").stdout
    assert text.count("linalg.generic") == 1


def test_compile_takes_many_inputs_of_many_dtypes(call: Call) -> None:
    text = call("compile", "net.py:Ids", "--input", "3xi64", "--input", "i1").stdout
    assert "(%ids: tensor<3xi64>, %mask: tensor<i1>) -> (tensor<3xi64>, tensor<i64>, tensor<i1>)" in text


@pytest.mark.parametrize(
    "emit, expected", [("raw", "torch.aten.linear"), ("torch", "torch.aten."), ("linalg-on-tensors", "linalg.matmul")]
)
def test_compile_emits(call: Call, emit: str, expected: str) -> None:
    text = call("compile", "net.py:Net", "--input", "2x8xf32", "--emit", emit).stdout
    assert expected in text
    inline = call("compile", "net.py:Net", "--input", "2x8xf32", "--emit", emit, "--inline-weights").stdout
    assert inline.startswith(text)
    assert 'linear.weight: "0x' in inline
    assert parses_in_iree(inline) if emit == "linalg-on-tensors" else parses_in_torch_mlir(inline)


def test_compile_to_a_file_writes_the_weights_beside_it(call: Call, folder: Path) -> None:
    assert call("compile", "net.py:Net", "--input", "2x8xf32", "-o", "out.mlir").stdout == ""
    assert "linalg.matmul" in (folder / "out.mlir").read_text()
    assert (folder / "out.safetensors").stat().st_size > 4 * (8 * 4 + 4)
    call("compile", "net.py:Net", "--input", "2x8xf32", "-o", "one.mlir", "--inline-weights")
    assert "dialect_resources" in (folder / "one.mlir").read_text()
    assert not (folder / "one.safetensors").exists()


def test_compile_lowers_a_saved_module(call: Call) -> None:
    call("compile", "net.py:Net", "--input", "2x8xf32", "--emit", "raw", "-o", "out.mlir")
    again = call("compile", "out.mlir").stdout
    assert again == call("compile", "net.py:Net", "--input", "2x8xf32").stdout


def test_compile_shows_locations_on_request(call: Call, folder: Path) -> None:
    arguments = ("compile", "net.py:Net", "--input", "2x8xf32", "--emit", "raw")
    assert f'"{folder / "net.py"}":11' in call(*arguments, "--locations").stdout
    assert "net.py" not in call(*arguments).stdout


def test_compile_shows_timings(call: Call) -> None:
    result = call("compile", "net.py:Net", "--input", "2x8xf32", "--timing")
    for stage in ("load model", "export", "import", "passes", "lowering", "total"):
        assert stage in result.stderr
        assert "seconds" not in result.stdout


# run


@pytest.mark.engine
def test_run_checks_a_program_without_its_model(call: Call) -> None:
    result = call("run", "raw.mlir", "--input", "2x3xf32=ones", "--check")
    assert result.exit_code == 0, result.output
    assert "result 0" in result.stdout


@pytest.mark.engine
def test_run_prints_and_checks(call: Call) -> None:
    result = call("run", "net.py:Net", "--input", "2x8xf32=ones", "--check", "--timing")
    assert "result 0: (2, 4) float32" in result.stdout
    assert "equal to eager PyTorch" in result.stdout
    assert "run" in result.stderr


@pytest.mark.engine
def test_run_takes_values(call: Call, folder: Path) -> None:
    np.save(folder / "ids.npy", np.array([5, 6, 7]))
    result = call("run", "net.py:Ids", "--input", "3xi64=@ids.npy", "--input", "i1=1")
    assert "tensor([10, 12, 14])" in result.stdout
    assert "tensor(18)" in result.stdout
    assert "tensor(True)" in result.stdout
    result = call("run", "net.py:Ids", "--input", "3xi64=arange", "--input", "i1=0")
    assert "tensor([0, 2, 4])" in result.stdout


@pytest.mark.engine
def test_run_of_saved_files(call: Call, folder: Path) -> None:
    call("compile", "net.py:Net", "--input", "2x8xf32", "--emit", "torch", "-o", "out.mlir")
    expected = call("run", "net.py:Net", "--input", "2x8xf32=ones", "--save", "out.vmfb").stdout
    assert call("run", "out.mlir", "--input", "2x8xf32=ones").stdout == expected
    assert call("run", "out.vmfb", "--input", "2x8xf32=ones").stdout == expected


# opt


def test_opt_prints_what_it_reads(call: Call) -> None:
    text = call("opt", "raw.mlir").stdout
    assert "torch.aten.relu" in text
    assert "torch.aten.tanh" in text
    assert call("opt", input=RAW).stdout == text
    assert call("opt", "-", input=text).stdout == text


def test_opt_takes_upstreams_pipeline_names(call: Call) -> None:
    """S14: the name that torch-mlir-opt takes, with one dash or two."""
    name = "torch-backend-to-linalg-on-tensors-backend-pipeline"
    text = call("opt", "raw.mlir", f"--pass-pipeline={name}").stdout
    assert "linalg.generic" in text
    assert "torch." not in text
    assert call("opt", "raw.mlir", "-p", f"builtin.module({name})").stdout == text


def test_opt_takes_nested_pipelines_with_options(call: Call) -> None:
    """S114: upstream's first stage, verbatim."""
    pipeline = (
        "builtin.module(func.func(torch-match-quantized-custom-ops),"
        "torchdynamo-export-to-torch-backend-pipeline{extra-library=},"
        "torch-backend-to-linalg-on-tensors-backend-pipeline)"
    )
    assert "linalg.generic" in call("opt", "raw.mlir", "-p", pipeline).stdout


def test_opt_removes_dead_code(call: Call) -> None:
    assert "torch.aten.tanh" not in call("opt", "raw.mlir", "-p", "canonicalize").stdout


def test_opt_runs_single_passes(call: Call) -> None:
    reduced = call("opt", "in_place.mlir", "-p", "torch-reduce-op-variants").stdout
    assert "torch.overwrite.tensor.contents" in reduced
    assert "relu_" not in reduced
    values = call(
        "opt", "in_place.mlir", "-p", "torch-reduce-op-variants,torch-maximize-value-semantics", "--verify-each"
    )
    assert "!torch.tensor<" not in values.stdout


def test_opt_shows_each_pass(call: Call, folder: Path) -> None:
    result = call("opt", "raw.mlir", "-p", "canonicalize,cse", "--print-ir-after-all", "-o", "out.mlir")
    assert "// ----- after canonicalize" in result.stderr
    assert "// ----- after cse" in result.stderr
    assert "torch.aten.relu" in (folder / "out.mlir").read_text()


def test_opt_prints_generic_form(call: Call) -> None:
    text = call("opt", "raw.mlir", "-p", "convert-torch-to-linalg", "--generic").stdout
    assert '"linalg.generic"(' in text
    assert parses_in_iree(text)


def test_opt_lists_passes(call: Call) -> None:
    from flambeau.opt import PASSES, get_pass

    listed = call("opt", "--list").stdout
    for name in PASSES:
        assert name in listed
        assert callable(get_pass(name))


# registry


def test_registry_shows_an_op(call: Call) -> None:
    for name in ("aten.relu", "torch.aten.relu", "aten::relu", "aten.relu.default"):
        text = call("registry", "show", name).stdout
        assert "aten.relu" in text
        assert "def Torch_AtenReluOp" in text
    assert "def Torch" not in call("registry", "show", "aten.relu", "--no-ods").stdout


def test_registry_lists_ops(call: Call) -> None:
    names = call("registry", "list", "aten.relu").stdout.split()
    assert {"aten.relu", "aten.relu_", "aten.relu6"} <= set(names)
    assert len(call("registry", "list").stdout.split()) > 3000


def test_the_snapshot_is_that_of_the_installed_torch(call: Call) -> None:
    assert call("registry", "update", "--check").stdout == "0 ops differ\n"


# Mistakes: one line, exit status 2

MISTAKES = {
    "no file": (["compile", "missing.py:Net", "--input", "2xf32"], "there is no file missing.py"),
    "no factory": (["compile", "net.py", "--input", "2xf32"], "write FILE.py:FACTORY"),
    "unknown factory": (["compile", "net.py:Nat", "--input", "2xf32"], "has no 'Nat'; it defines"),
    "not a model": (["compile", "net.py:number", "--input", "2xf32"], "'number' in net.py is a int"),
    "makes no model": (["compile", "net.py:gives_a_number", "--input", "2xf32"], "gave a int"),
    "factory with arguments": (["compile", "net.py:needs", "--input", "2xf32"], "without arguments"),
    "factory that fails": (["compile", "net.py:broken", "--input", "2xf32"], "no such checkpoint"),
    "file that fails": (["compile", "broken.py:Net", "--input", "2xf32"], "cannot import broken.py"),
    "no input": (["compile", "net.py:Net"], "give an --input"),
    "bad dtype": (["compile", "net.py:Net", "--input", "2x8xfloaty"], "'floaty' is not a dtype"),
    "bad size": (["compile", "net.py:Net", "--input", "2xAx8xf32"], "'A' is not a size"),
    "bad value": (["run", "net.py:Net", "--input", "2x8xf32=many"], "'many' is not a number"),
    "no npy": (["run", "net.py:Net", "--input", "2x8xf32=@none.npy"], "cannot read none.npy"),
    "cannot write": (["compile", "net.py:Net", "--input", "2x8xf32", "-o", "net.py/out.mlir"], "cannot write"),
    "no vmfb": (["run", "missing.vmfb"], "there is no file missing.vmfb"),
    "no mlir": (["compile", "missing.mlir"], "there is no file missing.mlir"),
    "check of an artefact": (["run", "net.vmfb", "--input", "2x3xf32", "--check"], "there is no file net.vmfb"),
    "unknown engine": (["run", "net.py:Net", "--input", "2x8xf32", "--engine", "no"], "there is no engine 'no'"),
    "wrong arguments": (["run", "raw.mlir", "--input", "2x4xf32"], "expected a tensor 2x3xfloat32, got 2x4xfloat32"),
    "unknown pass": (["opt", "raw.mlir", "-p", "canonicalise"], "did you mean 'canonicalize'?"),
    "unbalanced": (["opt", "raw.mlir", "-p", "builtin.module(cse"], "unbalanced '('"),
    "opt of nothing": (["opt", "missing.mlir"], "cannot read missing.mlir"),
    "unknown op": (["registry", "show", "aten.rellu"], "did you mean"),
    "no such prefix": (["registry", "list", "atan."], "no op starts with 'atan.'"),
}


@pytest.mark.parametrize(
    "mistake", [pytest.param(name, marks=pytest.mark.engine if name == "wrong arguments" else ()) for name in MISTAKES]
)
def test_a_mistake_is_one_line(call: Call, mistake: str) -> None:
    arguments, message = MISTAKES[mistake]
    result = call(*arguments, status=2)
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output


def test_text_that_is_not_mlir(call: Call) -> None:
    result = call("opt", "bad.mlir", status=2)
    assert result.stderr.startswith("error: ")
    assert "bad.mlir" in result.stderr
    result = call("compile", "bad.mlir", status=1)
    assert "bad.mlir is not MLIR that Flambeau reads" in result.stderr


def test_click_reports_unknown_options(call: Call) -> None:
    assert "no such option" in call("compile", "--emits", status=2).stderr.lower()
    assert "invalid value" in call("compile", "net.py:Net", "--emit", "llvm", status=2).stderr.lower()


def test_a_model_that_cannot_be_compiled(call: Call) -> None:
    """The program is at fault, not the command: status 1, the user's line, no traceback."""
    result = call("compile", "net.py:Branch", "--input", "4xf32", status=1)
    assert result.stderr.startswith("error: torch.export could not trace the model")
    line = 1 + MODEL.splitlines().index("        return x if x.sum() > 0 else -x")
    assert f"net.py:{line}" in result.stderr
    assert "with torch.where" in result.stderr
    assert "Traceback" not in result.output


def test_a_wrong_number_of_inputs(call: Call) -> None:
    result = call("compile", "net.py:Ids", "--input", "4xi64", status=1)
    assert "mask" in result.stderr


@pytest.mark.parametrize(("target", "op"), [("stablehlo", "stablehlo.dot_general"), ("tosa", "tosa.matmul")])
def test_every_target(call: Call, target: str, op: str) -> None:
    assert op in call("compile", "net.py:Net", "--input", "2x8xf32", "--emit", target).stdout


def test_wide_integers_in_tosa(call: Call) -> None:
    for policy, type_ in (("narrow", "i32"), ("keep", "i64")):
        text = call(
            "compile",
            "net.py:Ids",
            "--input",
            "4xi64",
            "--input",
            "4xi64",
            "--emit",
            "tosa",
            "--option",
            f"int64={policy}",
        )
        assert f"x{type_}>" in text.stdout


def test_the_ops_of_tm_tensor_in_linalg(call: Call) -> None:
    for value, is_there in (("true", True), ("false", False)):
        text = call("compile", "net.py:Sorted", "--input", "4xf32", "--option", f"tm_tensor={value}").stdout
        assert ("tm_tensor.sort" in text) == is_there


# The program itself


def run(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    source = str(Path(package.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, "-m", "flambeau", *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_console_script(folder: Path) -> None:
    version = run("--version", cwd=folder)
    assert (version.returncode, version.stdout) == (0, f"flambeau, version {package.__version__}\n")
    help_text = run("--help", cwd=folder)
    assert all(name in help_text.stdout for name in ("compile", "run", "opt", "registry"))
    mistake = run("opt", "missing.mlir", cwd=folder)
    assert mistake.returncode == 2
    assert mistake.stderr.count("\n") == 1
    assert run("opt", "raw.mlir", "-p", "cse", cwd=folder).returncode == 0
