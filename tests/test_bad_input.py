"""Programs and calls that cannot work: each ends in one of our errors, which says where and what to do."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import assert_same
from torch import Tensor, nn
from torch.export import Dim

import flambeau
from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.engines.errors import RunError


def load(module: flambeau.Module) -> Any:
    return flambeau.load(module, profile="quick", device="local-sync")


def line_of(function: Callable[..., Any], text: str) -> int:
    """Find the number of the line of a function that contains a text."""
    lines, start = inspect.getsourcelines(function)
    return next(start + i for i, line in enumerate(lines) if text in line)


# Ops that nobody knows


@pytest.fixture(scope="module")
def custom_ops() -> Iterator[Any]:
    """Two ops of a vendor, with shapes but without a decomposition."""
    library = torch.library.Library("flambeau_tests", "DEF")
    for name in ("twist", "swirl"):
        library.define(f"{name}(Tensor x, int times=1) -> Tensor")
        library.impl(name, lambda x, times=1: x * times, "CPU")
        library.impl(name, lambda x, times=1: torch.empty_like(x), "Meta")
    yield torch.ops.flambeau_tests
    library._destroy()


class Vendor(nn.Module):
    def helper(self, x: Tensor) -> Tensor:
        return torch.ops.flambeau_tests.swirl(x)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.ops.flambeau_tests.twist(x, 3)
        z = self.helper(y.relu())
        return torch.ops.flambeau_tests.twist(z + 1)


@pytest.fixture
def failure(custom_ops: Any) -> CompileError:
    with pytest.raises(CompileError) as caught:
        flambeau.compile(nn.Sequential(Vendor()), (torch.ones(2, 3),))
    return caught.value


def test_all_unknown_ops_are_reported_at_once(failure: CompileError) -> None:
    """S4, S19: every op, its schema, types and exact line are data."""
    found = [(d.op, d.file, d.line) for d in failure.diagnostics]
    assert sorted(found) == sorted(
        [
            ("flambeau_tests.twist", __file__, line_of(Vendor, "twist(x, 3)")),
            ("flambeau_tests.swirl", __file__, line_of(Vendor, "swirl(x)")),
            ("flambeau_tests.twist", __file__, line_of(Vendor, "twist(z + 1)")),
        ]
    )
    twist = next(d for d in failure.diagnostics if d.op == "flambeau_tests.twist")
    assert twist.schema == "flambeau_tests::twist(Tensor x, int times=1) -> Tensor"
    assert twist.operands == ("vtensor<[2,3],f32>", "int")
    assert twist.results == ("vtensor<[2,3],f32>",)
    assert twist.stage == "lower to linalg-on-tensors"
    assert twist.hint


def test_the_chain_of_callers_is_reported(failure: CompileError) -> None:
    """S4: the line of the call, and the lines that led there."""
    swirl = next(d for d in failure.diagnostics if d.op == "flambeau_tests.swirl")
    lines = [f"{__file__}:{line_of(Vendor, text)}" for text in ("swirl(x)", "self.helper(y.relu())")]
    assert [frame for frame in swirl.stack if frame.startswith(__file__)] == lines


def test_the_message_is_grouped_and_shows_the_source(failure: CompileError) -> None:
    """S19: the exception's own text has the error, the op, and the source line."""
    text = str(failure)
    assert "3 ops not supported" in text
    assert text.count("flambeau_tests.twist: no lowering rule (2 times)") == 1
    assert text.count("flambeau_tests.swirl: no lowering rule") == 1
    assert "schema: flambeau_tests::swirl(Tensor x, int times=1) -> Tensor" in text
    assert f"at {__file__}:{line_of(Vendor, 'twist(x, 3)')} in forward" in text
    assert "y = torch.ops.flambeau_tests.twist(x, 3)" in text
    assert "in module 0" in text
    assert "called with (vtensor<[2,3],f32>, int) -> (vtensor<[2,3],f32>)" in text
    assert "Traceback" not in text


def test_unknown_ops_can_be_imported(custom_ops: Any) -> None:
    """Only a lowering needs to know an op: in the torch dialect it is upstream's `torch.operator`."""
    for output_type in ("raw", "torch"):
        text = str(flambeau.compile(Vendor(), (torch.ones(2, 3),), output_type=output_type))
        assert 'torch.operator "torch.flambeau_tests.twist"' in text


def test_errors_pickle(failure: CompileError) -> None:
    again = pickle.loads(pickle.dumps(failure))
    assert type(again) is CompileError
    assert str(again) == str(failure)
    assert [(d.op, d.file, d.line) for d in again.diagnostics] == [(d.op, d.file, d.line) for d in failure.diagnostics]


def test_a_long_list_of_places_is_cut_short() -> None:
    from flambeau.ir.locations import location_of_trace

    places = [location_of_trace(f'File "model.py", line {i}, in forward') for i in range(1, 8)]
    error = CompileError([Diagnostic("lower", "no rule", op="aten.x", location=place) for place in places])
    assert "aten.x: no rule (7 times)" in str(error)
    assert "model.py:3" in str(error)
    assert "model.py:4" not in str(error)
    assert "and at 4 more places" in str(error)


# Programs that torch.export refuses


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x
        return -x


def test_a_branch_on_data(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CompileError, match="could not trace") as caught:
        flambeau.compile(Branch(), (torch.ones(3),))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.stage == "export"
    assert (diagnostic.file, diagnostic.line) == (__file__, line_of(Branch, "if x.sum() > 0"))
    assert "with torch.where" in diagnostic.hint
    assert "if x.sum() > 0:" in str(caught.value)
    assert capfd.readouterr().err == ""


class Pool(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(8, x)


def test_swapped_arguments() -> None:
    """S25: the error says which argument is wrong and where."""
    with pytest.raises(CompileError, match=r"'input'.*must be Tensor, not int") as caught:
        flambeau.compile(Pool(), (torch.ones(1, 1, 8, 8),))
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.file, diagnostic.line) == (__file__, line_of(Pool, "max_pool2d"))


class Fails(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return {"a": x}["b"]


def test_an_error_of_the_model_itself() -> None:
    """S35: a KeyError of the model arrives as ours, with its line."""
    with pytest.raises(CompileError, match="KeyError") as caught:
        flambeau.compile(Fails(), (torch.ones(3),))
    assert caught.value.diagnostics[0].line == line_of(Fails, '["b"]')
    assert isinstance(caught.value.__cause__, KeyError)


def test_inputs_that_do_not_fit_forward() -> None:
    with pytest.raises(CompileError, match="Check the example inputs"):
        flambeau.compile(nn.ReLU(), (torch.ones(3), torch.ones(3)))
    with pytest.raises(CompileError, match="same reduction dim") as caught:
        flambeau.compile(nn.Linear(4, 2), (torch.ones(3, 5),))
    assert str(caught.value.diagnostics[0].file).endswith("linear.py")


def test_dynamic_shapes_that_the_model_does_not_allow() -> None:
    with pytest.raises(CompileError):
        flambeau.compile(lambda x: x.reshape(3, 4), (torch.ones(3, 4),), dynamic_shapes=({0: Dim("n")},))
    with pytest.raises(CompileError):
        flambeau.compile(nn.ReLU(), (torch.ones(3, 4),), dynamic_shapes=({7: Dim("n")},))


# Wrong arguments of compile() and load()


def test_compile_needs_example_inputs() -> None:
    with pytest.raises(TypeError, match=r"needs example inputs for an nn.Module: compile\(model, \(x,\)\)"):
        flambeau.compile(nn.ReLU())


@pytest.mark.parametrize("thing", [3, b"model", None, torch.ones(3)], ids=lambda t: type(t).__name__)
def test_compile_takes_programs_only(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"takes an nn.Module, an ExportedProgram"):
        flambeau.compile(thing, (torch.ones(3),))


def test_output_types_are_known_names() -> None:
    with pytest.raises(ValueError, match="unknown output type 'llvm'; it is one of raw, torch, linalg-on-tensors"):
        flambeau.compile(nn.ReLU(), (torch.ones(3),), output_type="llvm")
    with pytest.raises(ValueError, match="unknown output type 3"):
        flambeau.compile(nn.ReLU(), (torch.ones(3),), output_type=3)  # type: ignore[arg-type]
    module = flambeau.compile(nn.ReLU(), (torch.ones(3),), output_type="LINALG_ON_TENSORS")
    assert module.output_type is flambeau.OutputType.LINALG_ON_TENSORS


def test_a_module_is_not_lowered_back() -> None:
    module = flambeau.compile(nn.ReLU(), (torch.ones(3),))
    with pytest.raises(CompileError, match="a linalg-on-tensors module cannot be taken to torch"):
        flambeau.compile(module, output_type="torch")


def test_the_policy_for_wide_integers_is_a_known_word() -> None:
    with pytest.raises(ValueError, match="int64 is 'narrow' or 'keep', not 'wide'"):
        flambeau.compile(nn.ReLU(), (torch.ones(3),), output_type="tosa", options={"int64": "wide"})


def test_engines_are_known_names() -> None:
    module = flambeau.compile(nn.ReLU(), (torch.ones(3),))
    with pytest.raises(ValueError, match="there is no engine 'gpu'; known engines"):
        flambeau.load(module, engine="gpu")
    with pytest.raises(ValueError, match="needs a `compile` method"):
        flambeau.load(module, engine=3)


def test_graphs_that_are_not_of_aten_ops() -> None:
    """S35: a symbolic trace has no shapes, and calls modules and methods."""
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    with pytest.raises(CompileError, match=r"has no meta\['val'\]"):
        flambeau.compile(graph)
    next(iter(graph.graph.nodes)).meta["val"] = torch.empty(3)
    with pytest.raises(CompileError, match="'call_module' is not imported"):
        flambeau.compile(graph)


# Tensors that have no MLIR type


def test_sparse_inputs_and_weights() -> None:
    """S35: a clear refusal, not an exception of the importer's own."""
    with pytest.raises(CompileError, match=r"layout torch.sparse_coo has no MLIR type"):
        flambeau.compile(lambda x: x.to_dense() + 1, (torch.eye(3).to_sparse(),))

    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", torch.eye(3).to_sparse())

        def forward(self, x: Tensor) -> Tensor:
            return torch.sparse.mm(self.w, x)

    with pytest.raises(CompileError, match=r"'w'.*torch.sparse_coo has no MLIR type"):
        flambeau.compile(Sparse(), (torch.ones(3, 3),))


def test_quantized_tensors() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()

    with pytest.raises(CompileError):
        flambeau.compile(program, (torch.ones(3),))


@pytest.mark.engine
def test_complex_numbers() -> None:
    def program(x: Tensor) -> Tensor:
        return x * (1 + 2j) + 3j

    module = flambeau.compile(program, (torch.ones(3),))
    x = torch.tensor([1.0, -2.0, 0.5])
    assert_same(load(module)(x), program(x))


def test_several_problems_of_an_import_come_together() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = (x + 1).to(torch.uint1)
        return y, (x + 2).to(torch.uint3)

    with pytest.raises(CompileError, match="uint1 has no MLIR type") as caught:
        flambeau.compile(program, (torch.ones(3),))
    assert "uint3 has no MLIR type" in str(caught.value)
    assert "Use a standard dtype" in str(caught.value)
    assert {d.line for d in caught.value.diagnostics} == {line_of(program, "x + 1"), line_of(program, "x + 2")}


# Small and strange tensors that work


@pytest.mark.engine
def test_zero_dimensional_and_empty_tensors() -> None:
    cases: list[tuple[Callable[..., Any], tuple[Tensor, ...]]] = [
        (lambda x: x * 2 + 1, (torch.tensor(3.0),)),
        (lambda x: x + 1, (torch.empty(0),)),
        (lambda x: x.sum(), (torch.empty(0, 3),)),
        (lambda x: x.sum(0), (torch.empty(0, 3),)),
        (lambda x: x.reshape(-1), (torch.tensor(3.0),)),
        (lambda x, y: x @ y, (torch.empty(2, 0), torch.empty(0, 3))),
        (lambda x, y: torch.cat([x, y]), (torch.empty(0, 3), torch.ones(2, 3))),
        (lambda x: x[:0], (torch.ones(3),)),
    ]
    for function, inputs in cases:
        module = flambeau.compile(function, inputs)
        assert_same(load(module)(*inputs), function(*inputs))


@pytest.mark.engine
def test_a_dynamic_dim_may_be_zero() -> None:
    module = flambeau.compile(lambda x: x * 2, (torch.ones(3, 4),), dynamic_shapes=({0: Dim("n", min=0, max=8)},))
    assert load(module)(torch.ones(0, 4)).shape == (0, 4)


@pytest.mark.engine
def test_constants_that_are_not_finite() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + float("nan"), torch.maximum(x, torch.tensor(float("-inf")))

    module = flambeau.compile(program, (torch.ones(2),))
    nan, same = load(module)(torch.tensor([1.0, -2.0]))
    assert nan.isnan().all()
    assert same.tolist() == [1.0, -2.0]


@pytest.mark.engine
def test_a_model_on_meta_compiles_and_says_why_it_does_not_run() -> None:
    with torch.device("meta"):
        model = nn.Linear(1000, 1000)
    module = flambeau.compile(model, (torch.ones(2, 1000, device="meta"),))
    assert "dense_resource<weight>" in str(module)
    assert module.weights["weight"].device.type == "meta"
    with pytest.raises((flambeau.CompileError, Exception), match="meta") as caught:
        load(module)
    assert type(caught.value).__module__.startswith("flambeau")


# Calls that do not fit


@pytest.fixture(scope="module")
def program() -> Any:
    """`main(xs=[2x3xf32, ?x4xi64], scale)`; gives a dictionary."""

    class Mixed(nn.Module):
        def forward(self, xs: list[Tensor], scale: Tensor) -> dict[str, Tensor]:
            return {"a": xs[0] * scale, "b": xs[1] + 1}

    inputs = ([torch.ones(2, 3), torch.ones(5, 4, dtype=torch.int64)], torch.tensor(2.0))
    shapes = {"xs": [None, {0: Dim("n", min=1, max=64)}], "scale": None}
    return load(flambeau.compile(Mixed(), inputs, dynamic_shapes=shapes))


IDS = torch.ones(7, 4, dtype=torch.int64)
BAD_CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "shape": (([torch.ones(2, 4), IDS], torch.tensor(1.0)), {}, ValueError, "expected a tensor 2x3xfloat32"),
    "rank": (([torch.ones(2, 3, 1), IDS], torch.tensor(1.0)), {}, ValueError, "expected a tensor 2x3xfloat32"),
    "static dim beside a dynamic one": (
        ([torch.ones(2, 3), IDS[:, :3]], torch.tensor(1.0)), {}, ValueError, r"expected a tensor \?x4xint64, got 7x3"
    ),
    "dtype": (([torch.ones(2, 3).double(), IDS], torch.tensor(1.0)), {}, TypeError, "got 2x3xfloat64"),
    "not a tensor": (([torch.ones(2, 3), IDS], 1.0), {}, TypeError, r"got 1.0 \(float\)"),
    "structure": (([torch.ones(2, 3)], torch.tensor(1.0)), {}, TypeError, r"takes \(\[xs_0, xs_1\], scale\)"),
    "too few": (([torch.ones(2, 3), IDS],), {}, TypeError, "but was called with"),
    "too many": (([torch.ones(2, 3), IDS], torch.tensor(1.0), IDS), {}, TypeError, "but was called with"),
    "unknown keyword": (
        ([torch.ones(2, 3), IDS], torch.tensor(1.0)), {"y": IDS}, TypeError, "but was called with"
    ),
}  # fmt: skip


@pytest.mark.engine
@pytest.mark.parametrize("mistake", BAD_CALLS)
def test_a_call_that_does_not_fit(program: Any, mistake: str) -> None:
    args, kwargs, error, message = BAD_CALLS[mistake]
    with pytest.raises(error, match=message):
        program(*args, **kwargs)
    result = program([torch.ones(2, 3), IDS], torch.tensor(3.0))  # and the program still works
    assert_same(result["a"], torch.full((2, 3), 3.0))


@pytest.mark.engine
def test_indices_out_of_range_raise() -> None:
    """S90: at run time, as PyTorch does."""
    cases: list[tuple[Callable[..., Any], tuple[Tensor, ...], tuple[Tensor, ...]]] = [
        (lambda w, i: F.embedding(i, w), (torch.ones(4, 2), torch.tensor([3])), (torch.ones(4, 2), torch.tensor([4]))),
        (lambda x, i: x[i], (torch.ones(4), torch.tensor([0, -4])), (torch.ones(4), torch.tensor([0, -5]))),
        (lambda x, i: x.index_select(0, i), (torch.ones(4), torch.tensor([3])), (torch.ones(4), torch.tensor([9]))),
        (lambda x, i: x.gather(0, i), (torch.ones(4), torch.tensor([3])), (torch.ones(4), torch.tensor([4]))),
    ]  # fmt: skip
    for function, good, bad in cases:
        run = load(flambeau.compile(function, good))
        assert_same(run(*good), function(*good))
        with pytest.raises(RunError, match=r"(?i)index"):
            run(*bad)
        assert_same(run(*good), function(*good))


@pytest.mark.engine
def test_mismatched_dynamic_dims_raise() -> None:
    """S90: dims that the program needs to be equal are checked when it runs."""
    n = Dim("n", min=2, max=64)
    run = load(flambeau.compile(lambda x, y: x + y, (torch.ones(3), torch.ones(3)), dynamic_shapes=({0: n}, {0: n})))
    assert_same(run(torch.ones(5), torch.ones(5)), torch.full((5,), 2.0))
    with pytest.raises((RunError, ValueError), match=r"dimension 0|size|mismatch"):
        run(torch.ones(5), torch.ones(4))


@pytest.mark.engine
def test_mismatched_contracting_dims_raise() -> None:
    """S90: `mismatching contracting dimension`, as upstream says it."""
    text = """
    func.func @main(%x: !torch.vtensor<[?,?],f32>, %y: !torch.vtensor<[?,?],f32>) -> !torch.vtensor<[?,?],f32> {
      %0 = torch.aten.mm %x, %y : !torch.vtensor<[?,?],f32>, !torch.vtensor<[?,?],f32> -> !torch.vtensor<[?,?],f32>
      return %0 : !torch.vtensor<[?,?],f32>
    }
    """
    run = load(flambeau.compile(parsed(text)))
    x = torch.randn(2, 3)
    assert_same(run(x, x.t().contiguous()), x @ x.t())
    with pytest.raises(RunError, match="contract"):
        run(x, x)


def test_unranked_tensors_are_refused() -> None:
    """S91: the error names the value's type."""
    text = """
    func.func @main(%x: !torch.vtensor<*,f32>) -> !torch.vtensor<*,f32> {
      %0 = torch.aten.relu %x : !torch.vtensor<*,f32> -> !torch.vtensor<*,f32>
      return %0 : !torch.vtensor<*,f32>
    }
    """
    with pytest.raises(CompileError, match="rank"):
        flambeau.compile(parsed(text))


def parsed(text: str) -> flambeau.Module:
    """Parse a module of hand-written torch dialect."""
    from flambeau.dialects.context import parse_module
    from flambeau.files import signature_of
    from flambeau.ir.module import Weights

    op = parse_module(text)
    signatures = {f.sym_name.data: signature_of(f) for f in op.ops}  # type: ignore[attr-defined, arg-type]
    return flambeau.Module(op, Weights(), signatures, flambeau.OutputType.RAW)


@pytest.mark.parametrize(
    "dtype, builtin",
    [
        (torch.float64, "f64"), (torch.float16, "f16"), (torch.bfloat16, "bf16"), (torch.int64, "i64"),
        (torch.int8, "i8"), (torch.uint8, "i8"), (torch.bool, "i1"), (torch.complex64, "complex<f32>"),
    ],
    ids=str,
)  # fmt: skip
def test_tensor_types_at_the_border(dtype: torch.dtype, builtin: str) -> None:
    """S88: `vtensor` becomes the builtin tensor, signedness dropped."""
    text = str(flambeau.compile(lambda x: x.clone(), (torch.ones(2, 3).to(dtype),)))
    assert f"tensor<2x3x{builtin}>" in text.splitlines()[1]


def test_a_failure_can_be_written_as_a_repro(tmp_path: Path) -> None:
    """S116: the file names the reason and the command, and the command fails the same way."""
    from click.testing import CliRunner

    from flambeau.commands import flambeau as command

    with pytest.raises(flambeau.CompileError) as caught:
        flambeau.compile(lambda x: torch.poisson(x.relu_()), (torch.randn(3, 3),))
    path = tmp_path / "repro.mlir"
    caught.value.save_repro(path)
    text = path.read_text()
    first = text.splitlines()[0]
    assert first == f"// flambeau opt {path} -p torch-backend-to-linalg-on-tensors-backend-pipeline"
    assert "aten.poisson: no lowering rule" in text
    result = CliRunner().invoke(command, first.split()[2:])
    assert result.exit_code == 1
    assert "aten.poisson: no lowering rule" in result.output


def test_there_is_no_repro_of_what_was_never_mlir(tmp_path: Path) -> None:
    def branches(x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x

    with pytest.raises(flambeau.CompileError) as caught:
        flambeau.compile(branches, (torch.randn(3),))
    with pytest.raises(ValueError, match="before it was MLIR"):
        caught.value.save_repro(tmp_path / "repro.mlir")


def test_a_choice_between_symbolic_floats_is_named() -> None:
    def choice(condition: torch.Tensor, x: torch.Tensor) -> Any:
        return torch.sym_ite(condition.item(), x.item(), x.item() * 2)

    with pytest.raises(CompileError, match="a choice between symbolic numbers that are no integers"):
        flambeau.compile(choice, (torch.tensor(True), torch.tensor(2.0)))


def test_a_failure_can_be_posted_as_a_report(tmp_path: Path) -> None:
    """S60: what is known is filled in: the ops, their places, versions, the command; what is not has a place."""
    from click.testing import CliRunner

    from flambeau.commands import flambeau as command

    model = tmp_path / "model.py"
    lines = ["import torch", "class Model(torch.nn.Module):", "    def forward(self, x):"]
    lines += ["        return torch.poisson(x)", "def make():", "    return Model()", ""]
    model.write_text("\n".join(lines))
    repro = tmp_path / "repro.mlir"
    failed = CliRunner().invoke(command, ["compile", f"{model}:make", "--input", "3x3xf32", "--repro", str(repro)])
    assert failed.exit_code == 1
    report = repro.with_suffix(".md").read_text()
    assert report.startswith("# cannot lower to linalg-on-tensors: aten.poisson")
    assert "model.py:4" in report
    assert f"attached: {repro}" in report
    assert f"| torch | {torch.__version__} |" in report
    assert "## What would make my life easier" in report
