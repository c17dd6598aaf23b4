"""Functions and modules as programs: signatures, structures, writes, locations, files, engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from frontends.nn.parity import same_program

import flambeau
from flambeau import nn, ops
from flambeau.commands import flambeau as command_line
from flambeau.files import read_module
from flambeau.ir.locations import module_path, user_frame

SPEC = nn.TensorSpec([2, 3], "f32")
A = np.arange(6, dtype="f").reshape(2, 3)


def run(module: flambeau.Module, *args: Any, **kwargs: Any) -> Any:
    return flambeau.load(flambeau.compile(module), profile="quick", device="local-sync")(*args, **kwargs)


def test_a_function_is_named_and_its_arguments_too() -> None:
    module = flambeau.trace(lambda left, right: left + right, SPEC, right=SPEC, name="sum")
    assert str(module) == (
        "builtin.module {\n"
        "  func.func @sum(%left: !torch.vtensor<[2,3],f32>, %right: !torch.vtensor<[2,3],f32>)"
        " -> !torch.vtensor<[2,3],f32> {\n"
        "    %int1 = torch.constant.int 1\n"
        "    %0 = torch.aten.add.Tensor %left, %right, %int1 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32>,"
        " !torch.int -> !torch.vtensor<[2,3],f32>\n"
        "    func.return %0 : !torch.vtensor<[2,3],f32>\n"
        "  }\n"
        "}\n"
    )
    module.verify()


@pytest.mark.engine
def test_arrays_are_examples() -> None:
    module = flambeau.trace(lambda x: x * 2, A)
    assert str(module.signatures["main"].arguments[0].spec) == "2x3xfloat32"
    np.testing.assert_array_equal(run(module, A + 1), (A + 1) * 2)


def test_the_command_line_takes_it(tmp_path: Path) -> None:
    flambeau.trace(nn.Linear(3, 4), SPEC).save(tmp_path / "model.mlir")
    arguments = ["compile", str(tmp_path / "model.mlir"), "-o", str(tmp_path / "linalg.mlir")]
    result = CliRunner().invoke(command_line, arguments)
    assert result.exit_code == 0, result.output
    assert "linalg.matmul" in (tmp_path / "linalg.mlir").read_text()


@pytest.mark.engine
def test_arguments_by_name() -> None:
    module = flambeau.trace(lambda x, y: x - y, SPEC, SPEC)
    np.testing.assert_array_equal(run(module, A, y=A + 1), A - (A + 1))


@pytest.mark.engine
def test_structures_of_arguments_and_results() -> None:
    def f(pair: Any, table: Any, scale: Any = 1.0) -> Any:
        return {"sum": pair[0] + pair[1], "rest": [table["z"] * scale, (pair[0], 7, None)]}

    module = flambeau.trace(f, (SPEC, SPEC), {"z": SPEC}, scale=2.0)
    got = run(module, (A, A), {"z": A}, scale=2.0)
    assert list(got) == ["sum", "rest"]
    np.testing.assert_array_equal(got["sum"], A + A)
    np.testing.assert_array_equal(got["rest"][0], 2 * A)
    assert isinstance(got["rest"][1], tuple)
    np.testing.assert_array_equal(got["rest"][1][0], A)
    assert got["rest"][1][1:] == (7, None)
    with pytest.raises(TypeError, match=r"takes \(\(pair_0, pair_1\), \{'z': table_z\}, scale=scale\) but was called"):
        run(module, A, {"z": A}, scale=2.0)


@pytest.mark.engine
def test_numbers_as_arguments() -> None:
    module = flambeau.trace(lambda x, n, f: x * n + f, SPEC, int, float)
    np.testing.assert_allclose(run(module, A, 3, 0.5), A * 3 + 0.5)


@pytest.mark.engine
def test_several_results_have_names() -> None:
    def f(x: Any) -> Any:
        found = x.max(1)
        return found.values, found.indices

    values, indices = run(flambeau.trace(f, SPEC), A)
    np.testing.assert_array_equal(values, A.max(1))
    np.testing.assert_array_equal(indices, A.argmax(1))


@pytest.mark.parametrize("output_type", ["torch", "linalg-on-tensors", "stablehlo", "tosa"])
def test_every_target_takes_it(output_type: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    module = flambeau.compile(flambeau.trace(model, SPEC), output_type=output_type)
    assert module.output_type == output_type
    module.verify()


@pytest.mark.engine
def test_save_and_read(tmp_path: Path) -> None:
    model = nn.Linear(3, 4)
    module = flambeau.trace(model, SPEC)
    module.save(tmp_path / "model.mlir")
    again = read_module(tmp_path / "model.mlir")
    assert str(again) == str(module)
    np.testing.assert_array_equal(again.weights["weight"], model.weight.data)
    want = A @ model.weight.data.T + model.bias.data
    np.testing.assert_allclose(flambeau.load(tmp_path / "model.mlir", profile="quick")(A), want, rtol=1e-5)


@pytest.mark.engine
def test_a_compiled_artefact_keeps_the_structure(tmp_path: Path) -> None:
    module = flambeau.trace(lambda x: {"a": x + 1, "b": [x]}, SPEC)
    flambeau.load(flambeau.compile(module), profile="quick").save(tmp_path / "model.flambeau")
    got = flambeau.load(tmp_path / "model.flambeau")(A)
    np.testing.assert_array_equal(got["a"], A + 1)
    np.testing.assert_array_equal(got["b"][0], A)


def test_locations_are_the_users_lines() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 4)

        def forward(self, x: Any) -> Any:
            return self.inner(x).relu()

    module = flambeau.trace(Model(), SPEC)
    found = {}
    for op in module.op.walk():
        if op.name in ("torch.aten.linear", "torch.aten.relu"):
            frame = user_frame(op.location)
            assert frame is not None
            assert frame.file == __file__
            found[op.name] = (frame.source, module_path(op.location))
    assert found == {
        "torch.aten.linear": ("return self.inner(x).relu()", "inner"),
        "torch.aten.relu": ("return self.inner(x).relu()", ""),
    }


# --- Writes ---


def test_without_a_write_everything_is_a_value() -> None:
    module = flambeau.trace(lambda x: x[0].clone() + x.t()[:, 0], SPEC)
    assert "!torch.tensor" not in str(module)


@pytest.mark.engine
def test_an_argument_that_is_written_changes_for_the_caller() -> None:
    def f(x: Any, y: Any) -> Any:
        x[0].add_(1)
        return x + y

    same_program(f, f, torch.arange(6.0).reshape(2, 3), torch.ones(2, 3))
    x = A.copy()
    got = run(flambeau.trace(f, SPEC, SPEC), x, A)
    want = A + np.array([[1], [0]], "f")
    np.testing.assert_array_equal(x, want)
    np.testing.assert_array_equal(got, want + A)


@pytest.mark.engine
def test_a_buffer_that_is_written_is_state() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", np.zeros(3, np.float32))

        def forward(self, x: Any) -> Any:
            self.count.add_(x.sum(0))
            self.count = self.count * 2
            return x + self.count

    model = Counter()
    module = flambeau.trace(model, SPEC)
    assert [a.state for a in module.signatures["main"].arguments] == [None, "count"]
    step = flambeau.load(flambeau.compile(module), profile="quick")
    np.testing.assert_array_equal(step(A), A + 2 * A.sum(0))
    np.testing.assert_array_equal(model.count.data, 2 * A.sum(0))
    step(A)
    np.testing.assert_array_equal(model.count.data, 2 * (2 * A.sum(0) + A.sum(0)))


@pytest.mark.engine
def test_an_in_place_op_gives_the_object_back() -> None:
    def f(x: Any) -> Any:
        y = x.clone()
        assert y.add_(1) is y
        z = y.view(-1)
        y += 1
        z.mul_(2)
        return y, z[0]

    same_program(f, f, torch.arange(6.0).reshape(2, 3))


@pytest.mark.engine
def test_changing_the_shape_in_place() -> None:
    def f(x: Any) -> Any:
        y = x.clone()
        y.unsqueeze_(0).transpose_(1, 2)
        return y.shape[1] * y.squeeze_(0), y.t_()

    got = run(flambeau.trace(f, SPEC), A)
    np.testing.assert_array_equal(got[0], 3 * A.T)


@pytest.mark.engine
def test_constants_are_results_too() -> None:
    got = run(flambeau.trace(lambda x: (x, np.ones(2, np.float32), ops.tensor([1, 2])), SPEC), A)
    np.testing.assert_array_equal(got[1], np.ones(2, "f"))
    np.testing.assert_array_equal(got[2], np.array([1, 2]))
