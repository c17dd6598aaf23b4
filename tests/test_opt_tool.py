"""`flambeau opt` as torch-mlir-opt's users know it: passes by upstream's names, nested pipelines."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from flambeau.commands import flambeau
from flambeau.opt import NOTHING, PASSES, parse_pipeline

Run = Callable[..., Result]

OBJECTS = """
func.func private @Layer.forward(%self: !torch.nn.Module<"Layer">, %x: !torch.tensor) -> !torch.tensor {
  %w = torch.prim.GetAttr %self["w"] : !torch.nn.Module<"Layer"> -> !torch.tensor
  %0 = torch.aten.mul.Tensor %x, %w : !torch.tensor, !torch.tensor -> !torch.tensor
  func.return %0 : !torch.tensor
}
torch.class_type @Layer { torch.attr private "w" : !torch.tensor  torch.method private "forward", @Layer.forward }
func.func private @Model.forward(%self: !torch.nn.Module<"Model">,
    %x: !torch.tensor {torch.type_bound = !torch.vtensor<[?,2],f32>}) -> !torch.tensor {
  %l = torch.prim.GetAttr %self["l"] : !torch.nn.Module<"Model"> -> !torch.nn.Module<"Layer">
  %0 = torch.prim.CallMethod %l["forward"] (%x) : !torch.nn.Module<"Layer">, (!torch.tensor) -> !torch.tensor
  func.return %0 : !torch.tensor
}
torch.class_type @Model { torch.attr private "l" : !torch.nn.Module<"Layer">  torch.method "forward", @Model.forward }
%w = torch.tensor.literal(dense<[1.0, 2.0]> : tensor<2xf32>) : !torch.tensor<[2],f32>
%l = torch.nn_module { torch.slot "w", %w : !torch.tensor<[2],f32> } : !torch.nn.Module<"Layer">
%m = torch.nn_module { torch.slot "l", %l : !torch.nn.Module<"Layer"> } : !torch.nn.Module<"Model">
"""

WRITES = """
func.func @forward(%x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %int1 = torch.constant.int 1
  %int2 = torch.constant.int 2
  %n = torch.aten.add.int %int1, %int1 : !torch.int, !torch.int -> !torch.int
  %0 = torch.copy.to_tensor %x : !torch.tensor<[2,3],f32>
  %1 = torch.aten.relu_ %0 : !torch.tensor<[2,3],f32> -> !torch.tensor<[2,3],f32>
  %2 = torch.copy.to_vtensor %0 : !torch.vtensor<[2,3],f32>
  %3 = torch.aten.tanh %2 : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],unk>
  %4 = torch.aten.mul.Scalar %2, %n : !torch.vtensor<[2,3],f32>, !torch.int -> !torch.vtensor<[2,3],f32>
  func.return %4 : !torch.vtensor<[2,3],f32>
}
"""

VALUES = """
func.func @forward(%x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %none = torch.constant.none
  %a = torch.aten.silu %x : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
  %b = torch.aten.silu %x : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
  %c = torch.aten.mul.Tensor %a, %b
    : !torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
  func.return %c : !torch.vtensor<[2,3],f32>
}
"""

LOSS = """
func.func @forward(%x: !torch.vtensor<[2,3],f32>, %y: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[],f32> {
  %int1 = torch.constant.int 1
  %0 = torch.aten.mse_loss %x, %y, %int1
    : !torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32>, !torch.int -> !torch.vtensor<[],f32>
  func.return %0 : !torch.vtensor<[],f32>
}
"""

UNUSED = """
func.func private @unused() {
  func.return
}
"""


@pytest.fixture
def run() -> Run:
    """`run(text, *options)` gives what `flambeau opt` says to the text."""

    def call(text: str, *options: str, status: int = 0) -> Result:
        result = CliRunner().invoke(flambeau, ["opt", *options], input=text)
        assert result.exit_code == status, result.output
        return result

    return call


PREPARE = "torch-prepare-for-globalize-object-graph"
GLOBALIZE = f"{PREPARE},torch-globalize-object-graph"
INLINE = f"{GLOBALIZE},symbol-dce,inline"

EFFECTS = {
    PREPARE: (OBJECTS, PREPARE, "func.call @Layer.forward(", "torch.prim.CallMethod"),
    "torch-globalize-object-graph": (OBJECTS, GLOBALIZE, "torch.global_slot.get @l.w", "torch.nn_module"),
    "inline": (OBJECTS, f"{GLOBALIZE},inline", "torch.global_slot.get @l.w", "func.call"),
    "symbol-dce": (OBJECTS + UNUSED, "symbol-dce", "torch.class_type @Model", "@unused"),
    "torch-adjust-calling-conventions": (
        OBJECTS,
        f"{INLINE},torch-adjust-calling-conventions",
        "func.func @forward(%x: !torch.vtensor<[?,2],f32>)",
        "torch.type_bound",
    ),
    "torch-inline-global-slots": (
        OBJECTS,
        f"{INLINE},torch-inline-global-slots",
        "torch.tensor.literal",
        "torch.global_slot.get",
    ),
    "torch-erase-module-initializer": (
        OBJECTS,
        f"{INLINE},torch-inline-global-slots,torch-erase-module-initializer",
        "func.func @forward",
        "module_initializer",
    ),
    "torch-refine-public-return": (
        WRITES.replace("-> !torch.vtensor<[2,3],f32> {", "-> !torch.tensor {").replace(
            "func.return %4 : !torch.vtensor<[2,3],f32>",
            "%5 = torch.copy.to_tensor %4 : !torch.tensor<[2,3],f32>\n"
            "  %6 = torch.tensor_static_info_cast %5 : !torch.tensor<[2,3],f32> to !torch.tensor\n"
            "  func.return %6 : !torch.tensor",
        ),
        "torch-refine-public-return",
        "-> !torch.vtensor<[2,3],f32> {",
        "func.return %6",
    ),
    "torch-reduce-op-variants": (
        WRITES,
        "torch-reduce-op-variants",
        "torch.overwrite.tensor.contents",
        "torch.aten.relu_",
    ),
    "torch-maximize-value-semantics": (
        WRITES,
        "torch-reduce-op-variants,torch-maximize-value-semantics",
        "torch.aten.relu %x",
        "!torch.tensor",
    ),
    "torch-refine-types": (WRITES, "torch-refine-types", "torch.aten.tanh", "unk"),
    "torch-decompose-complex-ops": (LOSS, "torch-decompose-complex-ops", "torch.aten.mean", "mse_loss"),
    "canonicalize": (WRITES, "canonicalize", "torch.aten.relu_", "torch.aten.add.int"),
    "dce": (WRITES, "dce", "torch.aten.relu_", "torch.aten.tanh"),
    "cse": (VALUES, "cse", "torch.aten.mul.Tensor %a, %a", "%b"),
    "torch-verify-backend-contract": (VALUES, "torch-verify-backend-contract", "torch.aten.silu", ""),
    "convert-torch-to-linalg": (VALUES, "convert-torch-to-linalg", "linalg.generic", "torch."),
    "torch-function-to-torch-backend-pipeline": (
        WRITES,
        "torch-function-to-torch-backend-pipeline",
        "torch.aten.relu %x",
        "!torch.tensor",
    ),
    "torchdynamo-export-to-torch-backend-pipeline": (
        WRITES,
        "torchdynamo-export-to-torch-backend-pipeline",
        "torch.aten.relu %x",
        "!torch.tensor",
    ),
    "torch-lower-to-backend-contract": (
        WRITES,
        "torch-lower-to-backend-contract",
        "torch.aten.relu %x",
        "!torch.tensor",
    ),
    "torchscript-module-to-torch-backend-pipeline": (
        OBJECTS,
        "torchscript-module-to-torch-backend-pipeline",
        "func.func @forward(%x: !torch.vtensor<[?,2],f32>) -> !torch.vtensor<[?,2],f32>",
        "torch.nn_module",
    ),
    "torch-backend-to-linalg-on-tensors-backend-pipeline": (
        VALUES,
        "torch-backend-to-linalg-on-tensors-backend-pipeline",
        "linalg.generic",
        "torch.",
    ),
    "convert-torch-to-stablehlo": (
        VALUES,
        "convert-torch-to-stablehlo",
        "stablehlo.",
        "torch.",
    ),
    "convert-torch-to-tosa": (
        VALUES,
        "convert-torch-to-tosa",
        "tosa.",
        "torch.",
    ),
    "torch-backend-to-stablehlo-backend-pipeline": (
        VALUES,
        "torch-backend-to-stablehlo-backend-pipeline",
        "stablehlo.",
        "torch.",
    ),
    "torch-backend-to-tosa-backend-pipeline": (
        VALUES,
        "torch-backend-to-tosa-backend-pipeline",
        "tosa.",
        "torch.",
    ),
    "torch-shape-refinement-pipeline": (WRITES, "torch-shape-refinement-pipeline", "torch.aten.tanh", "unk"),
    "torch-simplify-shape-calculations": (WRITES, "torch-simplify-shape-calculations", "torch.aten.tanh", "unk"),
    "torch-simplify-dtype-calculations": (WRITES, "torch-simplify-dtype-calculations", "torch.aten.tanh", "unk"),
    "torch-simplification-pipeline": (WRITES, "torch-simplification-pipeline", "torch.aten.relu %x", "!torch.tensor"),
    "torch-verify-backend-contract-no-decompositions": (
        VALUES,
        "torch-verify-backend-contract-no-decompositions",
        "torch.aten.silu",
        "",
    ),
    "torch-verify-linalg-on-tensors-backend-contract": (
        VALUES,
        "convert-torch-to-linalg,torch-verify-linalg-on-tensors-backend-contract",
        "linalg.generic",
        "",
    ),
    "torch-verify-stablehlo-backend-contract": (
        VALUES,
        "convert-torch-to-stablehlo,torch-verify-stablehlo-backend-contract",
        "stablehlo.",
        "",
    ),
    "torch-verify-tosa-backend-contract": (
        VALUES,
        "convert-torch-to-tosa,torch-verify-tosa-backend-contract",
        "tosa.",
        "",
    ),
}
"""For each pass a program, a pipeline that ends in the pass, what is there afterwards, and what only before."""


def test_every_pass_is_tried() -> None:
    assert sorted(EFFECTS) == sorted(PASSES)


@pytest.mark.parametrize("name", EFFECTS)
def test_a_pass_does_what_its_name_says(name: str, run: Run) -> None:
    """S14: each pass by upstream's name, verified behind each step."""
    program, pipeline, there, gone = EFFECTS[name]
    assert parse_pipeline(pipeline)[-1].name == name
    before = run(program, "-p", pipeline.rpartition(",")[0]).stdout
    after = run(program, "-p", pipeline, "--verify-each").stdout
    assert there in after
    assert gone in before
    assert not gone or gone not in after


@pytest.mark.parametrize("name", EFFECTS)
def test_pipelines_nest_as_in_mlir(name: str, run: Run) -> None:
    """S14: `builtin.module(func.func(a,b),c)` is a, b, c; options that a pass does not have are read over."""
    program, pipeline, _, _ = EFFECTS[name]
    *first, last = pipeline.split(",")
    inner = f"func.func({','.join(first)})," if first else ""
    nested = f"builtin.module({inner}{last}{{max-iterations=10}})"
    assert run(program, f"--pass-pipeline={nested}").stdout == run(program, "-p", pipeline).stdout


def test_the_whole_way_of_torchscript_in_upstreams_words(run: Run) -> None:
    """S14: the pipeline of torch-mlir's users, from objects to linalg, with functions' passes nested."""
    pipeline = """builtin.module(
        torchscript-module-to-torch-backend-pipeline,
        func.func(torch-decompose-complex-ops, canonicalize, cse),
        torch-backend-to-linalg-on-tensors-backend-pipeline
    )"""
    text = run(OBJECTS, "-p", pipeline).stdout
    assert "func.func @forward(%x: tensor<?x2xf32>) -> tensor<?x2xf32>" in text


def test_a_problem_is_reported_with_its_op(run: Run) -> None:
    """S19: the op, its schema and its types, and no traceback."""
    text = """
    func.func @f(%x: !torch.vtensor<[2,3],f32>, %y: !torch.vtensor<[4],f32>) -> !torch.vtensor {
      %0 = torch.aten.mul.Tensor %x, %y : !torch.vtensor<[2,3],f32>, !torch.vtensor<[4],f32> -> !torch.vtensor
        loc("model.py":7:4)
      func.return %0 : !torch.vtensor
    }
    """
    result = run(text, "-p", "torch-refine-types", status=1)
    assert "aten.mul.Tensor" in result.stderr
    assert "called with (vtensor<[2,3],f32>, vtensor<[4],f32>)" in result.stderr
    assert "model.py:7" in result.stderr
    assert "Traceback" not in result.stderr


def test_locations_are_printed_on_request(run: Run) -> None:
    """S20: without them by default, and each once as an alias or in place with the option."""
    text = VALUES.replace(
        "-> !torch.vtensor<[2,3],f32>\n  %b", '-> !torch.vtensor<[2,3],f32> loc("model.py":7:4)\n  %b'
    )
    assert "loc(" not in run(text).stdout
    printed = run(text, "--mlir-print-debuginfo").stdout
    assert "model.py" in printed
    assert run(printed, "--mlir-print-debuginfo").stdout == printed


def test_options_of_a_pass_are_set(run: Run) -> None:
    """S14: `{option=a,b}` as upstream writes it, names of ops without quotes."""
    kept = run(LOSS, "-p", "builtin.module(torch-decompose-complex-ops{legal-ops=aten.mse_loss,aten.tanh})").stdout
    assert "torch.aten.mse_loss" in kept
    assert "mse_loss" not in run(LOSS, "-p", "torch-decompose-complex-ops{legal-ops=aten.tanh}").stdout
    wrong = run(VALUES, "-p", "convert-torch-to-tosa{int64=3}", status=2)
    assert "convert-torch-to-tosa: Incompatible types" in wrong.stderr


def test_a_program_of_another_dialect_breaks_the_contract_of_a_target(run: Run) -> None:
    """S14: what is left of the torch dialect is named, with its types."""
    for target in ("linalg-on-tensors", "stablehlo", "tosa"):
        result = run(VALUES, "-p", f"torch-verify-{target}-backend-contract", status=1)
        assert "aten.silu" in result.stderr
        assert "the program is to consist of" in result.stderr
    result = run(VALUES, "-p", "convert-torch-to-tosa,torch-verify-stablehlo-backend-contract", status=1)
    assert "tosa." in result.stderr


@pytest.mark.parametrize("name", NOTHING)
def test_what_changes_nothing_here_says_so(name: str, run: Run) -> None:
    """S14: a pass of upstream's whose work is done elsewhere leaves the program as it is, with a word."""
    result = run(VALUES, "-p", name)
    assert result.stdout == run(VALUES).stdout
    assert f"{name} changes nothing here: {NOTHING[name]}" in result.stderr


def test_options_may_have_one_dash_and_passes_are_options(run: Run) -> None:
    """S14: `-pass-pipeline=...`, and each pass as an option, as MLIR's own drivers take them."""
    pipeline = "torch-backend-to-linalg-on-tensors-backend-pipeline"
    expected = run(VALUES, "-p", pipeline).stdout
    assert run(VALUES, f"-pass-pipeline=builtin.module({pipeline})").stdout == expected
    assert run(VALUES, f"--{pipeline}").stdout == expected
    assert run(VALUES, "-canonicalize", f"-{pipeline}").stdout == expected
    kept = run(LOSS, "--torch-decompose-complex-ops=legal-ops=aten.mse_loss").stdout
    assert "torch.aten.mse_loss" in kept
