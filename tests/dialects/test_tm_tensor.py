"""The tm_tensor dialect: every op in both forms, read and printed as torch-mlir does, and what is refused."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from flambeau.dialects import tm_tensor
from flambeau.dialects.context import parse_module
from flambeau.ir.printing import generic_text, pretty_text

EXAMPLES = """
func.func @all(%x: tensor<3x5xf32>, %n: tensor<3x5xi64>, %row: tensor<3xf32>, %u: tensor<4x5xf32>, %i: tensor<4x1xi32>,
               %k: tensor<3x2xf32>, %j: tensor<3x2xi32>, %q: tensor<2x?x4xf32>, %m: tensor<2x?x?xi1>) {
  %0:2 = tm_tensor.sort dimension(1) outs(%x, %n : tensor<3x5xf32>, tensor<3x5xi64>) {
  ^bb0(%a: f32, %b: f32, %c: i64, %d: i64):
    %s = arith.cmpf ole, %a, %b : f32
    tm_tensor.yield %s : i1
  } -> tensor<3x5xf32>, tensor<3x5xi64>
  %1:2 = tm_tensor.scan dimension(1) inclusive(true) {tag = 1 : i64}
      ins(%x : tensor<3x5xf32>)
      outs(%x, %row : tensor<3x5xf32>, tensor<3xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %a, %b : f32
    tm_tensor.yield %s : f32
  } -> tensor<3x5xf32>, tensor<3xf32>
  %2 = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false)
      ins(%u, %i : tensor<4x5xf32>, tensor<4x1xi32>)
      outs(%x : tensor<3x5xf32>) {
  ^bb0(%a: f32, %b: f32):
    tm_tensor.yield %a : f32
  } -> tensor<3x5xf32>
  %3:2 = tm_tensor.topk dimension(1) ins(%x : tensor<3x5xf32>) outs(%k, %j : tensor<3x2xf32>, tensor<3x2xi32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.cmpf ogt, %a, %b : f32
    tm_tensor.yield %s : i1
  } -> tensor<3x2xf32>, tensor<3x2xi32>
  %4 = tm_tensor.attention
      ins(%q, %q, %q : tensor<2x?x4xf32>, tensor<2x?x4xf32>, tensor<2x?x4xf32>)
      outs(%q : tensor<2x?x4xf32>) -> tensor<2x?x4xf32>
  %5 = tm_tensor.attention
      ins(%q, %q, %q, %m : tensor<2x?x4xf32>, tensor<2x?x4xf32>, tensor<2x?x4xf32>, tensor<2x?x?xi1>)
      outs(%q : tensor<2x?x4xf32>) -> tensor<2x?x4xf32>
  return
}
"""


@pytest.fixture(scope="module")
def examples() -> ModuleOp:
    module = parse_module(EXAMPLES)
    module.verify()
    return module


def test_every_op_has_an_example(examples: ModuleOp) -> None:
    assert {f"tm_tensor.{name}" for name in tm_tensor.TABLE} <= {op.name for op in examples.walk()}


@pytest.mark.peer
def test_torch_mlir_and_we_read_what_either_prints(round_trip) -> None:
    round_trip(EXAMPLES)


def test_what_is_printed_reads_back(examples: ModuleOp) -> None:
    generic, pretty = generic_text(examples), pretty_text(examples)
    for text in (generic, pretty):
        again = parse_module(text)
        again.verify()
        assert generic_text(again) == generic
    assert pretty_text(again) == pretty


ARGUMENTS = "%x: tensor<3x5xf32>, %n: tensor<3x4xi64>, %row: tensor<3xf32>, %i: tensor<4x1xi32>, %k: tensor<3x2xf32>"
ADD = "{\n^bb0(%a: f32, %b: f32):\n %s = arith.addf %a, %b : f32\n tm_tensor.yield %s : f32\n}"
T, ROW = "tensor<3x5xf32>", "tensor<3xf32>"

INVALID = [
    (f"tm_tensor.sort dimension(2) outs(%x : {T}) {ADD} -> {T}", "dimension 2 is out of range"),
    (f"tm_tensor.sort dimension(1) outs(%x : {T}) {ADD} -> {T}", "region 0 gives .i1., got .f32."),
    (f"tm_tensor.sort dimension(1) ins(%x : {T}) outs(%x : {T}) {ADD} -> {T}", "takes 0 inputs and some outputs"),
    (f"tm_tensor.sort dimension(1) outs(%x, %n : {T}, tensor<3x4xi64>) {ADD} -> {T}, tensor<3x4xi64>", "one shape"),
    (f"tm_tensor.sort dimension(1) outs(%x, %x : {T}, {T}) {ADD} -> {T}, {T}", "region 0 takes"),
    (f"tm_tensor.sort dimension(1) outs(%x : {T}) {ADD} -> {ROW}", "the results have the types of the outputs"),
    (
        f"tm_tensor.scan dimension(1) inclusive(true) ins(%x : {T}) outs(%row, %x : {ROW}, {T}) {ADD} -> {ROW}, {T}",
        "the result has the shape",
    ),
    (
        f"tm_tensor.scan dimension(0) inclusive(true) ins(%x : {T}) outs(%x, %row : {T}, {ROW}) {ADD} -> {T}, {ROW}",
        "the result has the shape .5.",
    ),
    (
        f"tm_tensor.scan dimension(1) inclusive(true) outs(%x, %row : {T}, {ROW}) {ADD} -> {T}, {ROW}",
        "takes 1 inputs and 2 outputs",
    ),
    (
        "tm_tensor.scatter {dimension_map = array<i64: 0, 1>} unique_indices(true) "
        f"ins(%row, %i : {ROW}, tensor<4x1xi32>) outs(%x : {T}) {ADD} -> {T}",
        "2 indices for each update",
    ),
    (
        "tm_tensor.scatter {dimension_map = array<i64: 7>} unique_indices(true) "
        f"ins(%row, %i : {ROW}, tensor<4x1xi32>) outs(%x : {T}) {ADD} -> {T}",
        "dimension 7 is out of range",
    ),
    (
        f"tm_tensor.topk dimension(1) ins(%x : {T}) outs(%k, %k : tensor<3x2xf32>, tensor<3x2xf32>) {ADD} "
        "-> tensor<3x2xf32>, tensor<3x2xf32>",
        "region 0 gives",
    ),
    (
        f"tm_tensor.attention ins(%x, %k, %x : {T}, tensor<3x2xf32>, {T}) outs(%x : {T}) -> {T}",
        "do not fit",
    ),
    (f"tm_tensor.attention ins(%x, %x, %row : {T}, {T}, {ROW}) outs(%x : {T}) -> {T}", "at least two dimensions"),
]


@pytest.mark.parametrize(("text", "message"), INVALID)
def test_what_is_wrong_is_refused(text: str, message: str) -> None:
    count = text.rpartition("->")[2].count("tensor<")
    module = parse_module(f"func.func @f({ARGUMENTS}) {{\n%0:{count} = {text}\nreturn\n}}")
    with pytest.raises(VerifyException, match=message):
        module.verify()
