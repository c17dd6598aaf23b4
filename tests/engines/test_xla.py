"""XLA: what is particular to it beside the contract of all engines."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch.export import Dim

import flambeau
from flambeau.commands import flambeau as command_line
from flambeau.engines import EngineError
from flambeau.engines.xla import client
from flambeau.engines.xla.executable import ThrashWarning
from flambeau.engines.xla.programs import Wanted, program_of

pytestmark = pytest.mark.engine


def compiled(function: Any, *args: Any, **options: Any) -> flambeau.Module:
    return flambeau.compile(function, args, output_type="stablehlo", **options)


def test_a_program_takes_its_weights_behind_its_arguments() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    program = program_of(compiled(model, torch.ones(2, 4)).op, "main", Wanted())
    assert program.weights == ("_0.weight", "_0.bias", "_1.weight", "_1.bias")
    assert "dense_resource" not in program.text
    assert "(tensor<2x4xf32>, tensor<3x4xf32>, tensor<3xf32>, tensor<2x3xf32>, tensor<2xf32>)" in program.text


def test_checks_are_one_number_behind_the_results() -> None:
    module = compiled(lambda x, i, j: x[i] + x[j], torch.ones(4), torch.tensor([1]), torch.tensor([2]))
    program = program_of(module.op, "main", Wanted())
    assert program.checks == ("index out of range", "index out of range")
    assert "-> (tensor<1xf32>, tensor<i32>)" in program.text
    assert "composite" not in program.text
    unchecked = program_of(module.op, "main", Wanted(checks=False))
    assert unchecked.checks == ()
    assert "flambeau.assert" not in unchecked.text
    run = flambeau.load(module, engine="xla", checks=False)
    assert run(torch.ones(4), torch.tensor([1]), torch.tensor([9])).shape == (1,)


def test_products_of_f32_are_exact_where_they_must_be() -> None:
    module = compiled(torch.matmul, torch.ones(2, 3), torch.ones(3, 2))
    assert "precision" not in program_of(module.op, "main", Wanted()).text
    text = program_of(module.op, "main", Wanted(exact_products=True)).text
    assert "precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]" in text
    half = compiled(torch.matmul, torch.ones(2, 3).bfloat16(), torch.ones(3, 2).bfloat16())
    assert "precision" not in program_of(half.op, "main", Wanted(exact_products=True)).text


def test_16_bit_floats_are_rounded_where_the_program_rounds() -> None:
    x = torch.full((3,), 1.0).bfloat16()

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x + 1 / 512) - 1  # XLA computes 1 / 512 by itself, unless it is told not to keep more digits

    run = flambeau.load(compiled(function, x), engine="xla")
    assert torch.equal(run(x), function(x))


def test_shapes_are_compiled_once_and_the_last_are_kept() -> None:
    module = compiled(torch.sin, torch.ones(4), dynamic_shapes=({0: Dim.AUTO},))
    run = flambeau.load(module, engine="xla", specializations=2)
    assert run.compilations == 0
    for n in (2, 3, 2, 3):
        run(torch.ones(n))
    assert run.compilations == 2
    run(torch.ones(4))
    assert run.specializations == {"main": [((3,),), ((4,),)]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in (2, 3, 4, 2, 3, 4):
            run(torch.ones(n))
    (warning,) = caught
    assert warning.category is ThrashWarning
    assert "more shapes than the 2 that are kept" in str(warning.message)
    assert run.compilations == 9
    with pytest.raises(ValueError, match="at least one specialisation"):
        flambeau.load(module, engine="xla", specializations=0)


def test_few_shapes_give_no_warning() -> None:
    run = flambeau.load(compiled(torch.sin, torch.ones(4), dynamic_shapes=({0: Dim.AUTO},)), engine="xla")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (2, 3, 4, 5) * 3:
            run(torch.ones(n))
    assert run.compilations == 4


def test_programs_share_weights_on_a_device() -> None:
    layer = torch.nn.Linear(4, 4)
    device = client.get_device("cpu")
    first = client.weights_on(device, {"w": layer.weight}, ["w"])
    assert client.weights_on(device, {"other": layer.weight}, ["other"])[0] is first[0]
    assert first[0].array.unsafe_buffer_pointer() == layer.weight.data_ptr()  # nothing is copied on the CPU
    with torch.no_grad():
        layer.weight += 1  # another value: what is on a device may be a copy
    assert client.weights_on(device, {"w": layer.weight}, ["w"])[0] is not first[0]


def test_artefacts_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    module = compiled(lambda x: x * 3.25 + 1, torch.ones(7))
    flambeau.load(module, engine="xla")
    device = client.get_device("cpu")

    class Client:
        """XLA without a compiler."""

        platform_version = device.client.platform_version

        def __getattr__(self, name: str) -> Any:
            assert name != "compile_and_load", "it should have come from the cache"
            return getattr(device.client, name)

    monkeypatch.setattr(
        "flambeau.engines.xla.executable.get_device",
        lambda name: client.Device(name, device.handle, Client(), True),
    )
    assert torch.equal(flambeau.load(module, engine="xla")(torch.ones(7)), torch.full((7,), 4.25))
    with pytest.raises(AssertionError, match="should have come from the cache"):
        flambeau.load(module, engine="xla", cache=False)


FLOATS, INTEGERS = torch.tensor([[1.0, -2, 0], [-3, 4, 5]]), torch.tensor([1, 0, 2, 2, 1])
OPEN_SIZES: dict[str, tuple[Any, torch.Tensor]] = {
    "positions": (lambda x: torch.nonzero(x > 0) + 1, FLOATS),
    "a mask": (lambda x: x[x > 0] * 2, FLOATS),
    "a mask of rows": (lambda x: x[x[:, 0] > 0].sum(1), FLOATS),
    "a mask of columns": (lambda x: x[:, x[0] > 0], FLOATS),
    "a mask that is broadcast": (lambda x: torch.masked_select(x, x[0] > 0), FLOATS),
    "two masks": (lambda x: torch.cat([x[x > 0], x[x < 0]]), FLOATS),
    "distinct elements": (lambda x: torch.unique(x, return_inverse=True, return_counts=True), INTEGERS),
    "neighbours": (lambda x: torch.unique_consecutive(x), INTEGERS),
    "repeats": (lambda x: torch.repeat_interleave(x * 2, x), INTEGERS),
}


@pytest.mark.parametrize("name", OPEN_SIZES)
def test_sizes_that_depend_on_contents(name: str) -> None:
    """A first program computes the size, and for each size there is one that does the rest."""
    function, x = OPEN_SIZES[name]
    run = flambeau.load(compiled(function, x), engine="xla")
    for value in (x, x.flip(0), x, x + 1, x * 0):
        torch.testing.assert_close(run(value), function(value), rtol=0, atol=0)
    before = run.compilations
    run(x)
    assert run.compilations == before


def test_sizes_that_depend_on_contents_and_on_the_call(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0] + 1

    run = flambeau.load(compiled(function, torch.ones(4), dynamic_shapes=({0: Dim.AUTO},)), engine="xla")
    run.save(tmp_path / "net.xla")
    again = flambeau.load(tmp_path / "net.xla")
    for n in (3, 9):
        x = torch.randn(n)
        assert torch.equal(run(x), function(x))
        assert torch.equal(again(x), function(x))


def test_what_is_said_of_a_size_is_checked() -> None:
    class Counting(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n = x[0].item()
            torch._check(n >= 2)
            torch._check(n <= 100)
            return torch.arange(n) + x.shape[0]

    run = flambeau.load(compiled(Counting(), torch.tensor([4, 1]), dynamic_shapes=({0: Dim.AUTO},)), engine="xla")
    assert run(torch.tensor([3, 1])).tolist() == [2, 3, 4]
    assert run(torch.tensor([4, 1, 1])).tolist() == [3, 4, 5, 6]
    for n, message in ((1, "u0 >= 2"), (101, "u0 <= 100")):
        with pytest.raises(RuntimeError, match=message):
            run(torch.tensor([n, 1]))


def test_sizes_that_grow_in_a_loop_are_refused_with_the_line(tmp_path: Path) -> None:
    class Growing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            while bool(x.sum() < 10):
                x = torch.cat([x, x])
            return x

    module = flambeau.compile(Growing(), (torch.ones(2),), frontend="script", output_type="stablehlo")
    with pytest.raises(EngineError, match="the size of a tensor here depends on what others contain"):
        flambeau.load(module, engine="xla")


def test_devices_that_are_not_there() -> None:
    module = compiled(torch.neg, torch.ones(2))
    with pytest.raises(EngineError, match="no device 'cpu:99': cpu has the numbers 0 to"):
        flambeau.load(module, engine="xla", device="cpu:99")
    with pytest.raises(EngineError, match="XLA has no device 'toaster' here"):
        flambeau.load(module, engine="xla", device="toaster")


def test_dynamic_text_in_stablehlo_cannot_be_specialised(tmp_path: Path) -> None:
    dynamic = compiled(torch.neg, torch.ones(2), dynamic_shapes=({0: Dim.AUTO},))
    dynamic.save(tmp_path / "dynamic.mlir")
    with pytest.raises(EngineError, match="load it from the torch dialect"):
        flambeau.load(tmp_path / "dynamic.mlir", engine="xla")
    flambeau.compile(torch.neg, (torch.ones(2),), output_type="torch", dynamic_shapes=({0: Dim.AUTO},)).save(
        tmp_path / "torch.mlir"
    )
    run = flambeau.load(tmp_path / "torch.mlir", engine="xla")
    assert torch.equal(run(torch.ones(5)), -torch.ones(5))


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "net.xla"
    flambeau.load(compiled(torch.neg, torch.ones(2)), engine="xla").save(path)
    assert torch.equal(flambeau.load(path)(torch.ones(2)), -torch.ones(2))
    good = json.loads(path.read_text())
    for change, message in [
        ({"format": "other"}, "its format is 'other'"),
        ({"version": 99}, "has format version 99"),
        ({"programs": {"main": {}}}, "is damaged"),
        ({"origin": "not MLIR"}, "is damaged"),
    ]:
        path.write_text(json.dumps(good | change))
        with pytest.raises(EngineError, match=message):
            flambeau.load(path)
    path.write_text("{")
    with pytest.raises(EngineError, match="is damaged"):
        flambeau.load(path)
    with pytest.raises(ValueError, match="was compiled for the engine 'xla'"):
        flambeau.load(path, engine="eager")


def test_the_command_line_runs_programs_on_xla(tmp_path: Path) -> None:
    source = tmp_path / "rectifier.py"
    source.write_text("import torch\n\n\ndef model():\n    return torch.nn.ReLU()\n")
    saved = tmp_path / "relu.xla"
    arguments = ["run", f"{source}:model", "--input", "3xf32=-1", "--engine", "xla", "--check", "--save", str(saved)]
    result = CliRunner().invoke(command_line, arguments)
    assert result.exit_code == 0, result.output
    assert "equal to eager PyTorch" in result.output
    again = CliRunner().invoke(command_line, ["run", str(saved), "--input", "3xf32=2"])
    assert again.exit_code == 0, again.output
    assert "tensor([2., 2., 2.])" in again.output


def test_torch_compile_runs_on_xla() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    fast = torch.compile(model, backend="flambeau", options={"engine": "xla"})
    with torch.no_grad():
        for rows in (2, 3, 5):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(fast(x), model(x))


def test_edits_of_weights_are_seen_on_the_cpu() -> None:
    layer = torch.nn.Linear(4, 4)
    run = flambeau.load(compiled(layer, torch.ones(2, 4)), engine="xla")
    with torch.no_grad():
        layer.weight.fill_(2)
        layer.bias.zero_()
        assert torch.equal(run(torch.ones(2, 4)), torch.full((2, 4), 8.0))


def test_a_process_ends_after_its_last_call() -> None:
    """A thread of XLA's that gives arguments back when the interpreter has ended would abort the process."""
    program = (
        "import torch, flambeau; x = torch.randn(2048, 1024);"
        "run = flambeau.load(flambeau.compile(torch.exp, (x,), output_type='stablehlo'), engine='xla');"
        "[run(x) for _ in range(10)]"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
