"""S95: programs that are lowered in part, with `torch_c` between torch types and builtin ones, on every target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
from flambeau.engines.iree.compiler import compile_mlir
from flambeau.engines.iree.runtime import Program
from flambeau.ir import dtypes
from flambeau.ir.module import TensorSpec
from flambeau.ir.printing import generic_text, pretty_text
from flambeau.opt import run_pipeline

MIXED = """
func.func @main(%x: !torch.vtensor<[2,?],f32>, %k: tensor<2x?xf32>) -> (tensor<2x?xf32>, !torch.vtensor<[2,?],f32>) {
  %y = torch.aten.relu %x : !torch.vtensor<[2,?],f32> -> !torch.vtensor<[2,?],f32>
  %z = torch_c.to_builtin_tensor %y : !torch.vtensor<[2,?],f32> -> tensor<2x?xf32>
  %a = arith.addf %z, %k : tensor<2x?xf32>
  %b = torch_c.from_builtin_tensor %a : tensor<2x?xf32> -> !torch.vtensor<[2,?],f32>
  %c = torch.aten.neg %b : !torch.vtensor<[2,?],f32> -> !torch.vtensor<[2,?],f32>
  func.return %a, %c : tensor<2x?xf32>, !torch.vtensor<[2,?],f32>
}
"""
NUMBERS = """
func.func @main(%n: i64, %i: !torch.int, %f: f64, %p: !torch.bool) -> (i64, !torch.bool, f64, i1) {
  %m = torch_c.from_i64 %n
  %s = torch.aten.add.int %m, %i : !torch.int, !torch.int -> !torch.int
  %t = torch_c.to_i64 %s
  %l = torch.aten.lt.int %m, %i : !torch.int, !torch.int -> !torch.bool
  %g = torch_c.from_f64 %f
  %h = torch.aten.mul.float %g, %g : !torch.float, !torch.float -> !torch.float
  %j = torch_c.to_f64 %h
  %q = torch_c.to_i1 %p
  func.return %t, %l, %j, %q : i64, !torch.bool, f64, i1
}
"""
TARGETS = ("linalg-on-tensors", "stablehlo", "tosa")


def lowered(text: str, target: str) -> str:
    module = run_pipeline(parse_module(text), f"torch-backend-to-{target}-backend-pipeline")
    module.verify()
    return pretty_text(module)


@pytest.mark.parametrize("target", TARGETS)
def test_conversions_are_gone_and_the_other_ops_as_they_were(target: str) -> None:
    text = lowered(MIXED, target)
    assert "torch" not in text
    assert "%a = arith.addf" in text
    assert "(%x: tensor<2x?xf32>, %k: tensor<2x?xf32>) -> (tensor<2x?xf32>, tensor<2x?xf32>)" in text


@pytest.mark.parametrize("target", TARGETS)
def test_numbers(target: str) -> None:
    text = lowered(NUMBERS, target)
    assert "torch" not in text
    assert "(%n: i64, %i: i64, %f: f64, %p: i1) -> (i64, i1, f64, i1)" in text


@pytest.mark.engine
def test_a_program_that_is_lowered_in_part_computes_what_it_says() -> None:
    module = run_pipeline(parse_module(MIXED), "torch-backend-to-linalg-on-tensors-backend-pipeline")
    program = Program(compile_mlir(generic_text(module).encode(), profile="quick").vmfb, {}, "local-sync")
    x, k = np.float32([[1, -2, 3], [-4, 5, -6]]), np.float32([[1, 2, 3], [4, 5, 6]])
    spec = TensorSpec((2, None), dtypes.float32)
    total, negated = program.call("main", [x, k], [spec, spec])
    np.testing.assert_array_equal(total, np.maximum(x, 0) + k)
    np.testing.assert_array_equal(negated, -total)


def test_what_belongs_to_neither_side_is_refused() -> None:
    one = "%c = builtin.unrealized_conversion_cast %b : !torch.vtensor<[2,?],f32> to !torch.vtensor<[2,?],f32>"
    lines = [one if "aten.neg" in line else line for line in MIXED.splitlines()]
    with pytest.raises(CompileError, match=r"unrealized_conversion_cast is not part of the backend contract"):
        lowered("\n".join(lines), "linalg-on-tensors")


def test_an_argument_that_cannot_be_lowered_is_named(tmp_path: Path) -> None:
    """S91: by the pipeline of a backend alone, too."""
    text = "func.func @main(%mask: !torch.vtensor<*,f32>) {\n  func.return\n}\n"
    with pytest.raises(CompileError, match=r"the argument %mask: !torch.vtensor<\*,f32> has no static rank"):
        lowered(text, "linalg-on-tensors")
    with pytest.raises(CompileError, match=r"C3: the rank of every tensor is static; here is %mask: !torch.vtensor"):
        run_pipeline(parse_module(text), "torch-verify-backend-contract")
