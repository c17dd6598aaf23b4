"""Branches and loops that IREE gets wrong as they are: what we rewrite, and that IREE still needs it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from support import Together, assert_same
from torch import Tensor

from flambeau import torchscript
from flambeau.dialects.context import parse_module
from flambeau.engines.iree.compiler import compile_mlir
from flambeau.engines.iree.executable import IreeExecutable
from flambeau.engines.iree.growing import is_growing_loop
from flambeau.engines.iree.loops import Structured, with_branches
from flambeau.engines.iree.prepare import for_iree
from flambeau.engines.iree.registers import passes_narrow_numbers, widen_arguments
from flambeau.files import signature_of
from flambeau.ir.printing import generic_text

TARGETS = ("linalg-on-tensors", "stablehlo", "tosa")


# Programs


def both(x: Tensor, n: Tensor) -> tuple[Tensor, int]:
    i = 0
    while i < int(n) and bool(x.sum() < 100.0):
        x = x + 1
        i += 1
    return x, i


def either(x: Tensor, n: Tensor) -> tuple[Tensor, int]:
    i = 0
    while i < int(n) or bool(x.sum() < 10.0):
        x = x + 1
        i += 1
    return x, i


def nested(x: Tensor, n: Tensor) -> tuple[Tensor, int]:
    i = 0
    while (i < int(n) and bool(x.sum() < 100.0)) or (i < 2 and not bool(x.max() > 1000.0)):
        x = x + 1
        i += 1
    return x, i


def breaks(x: Tensor, n: Tensor) -> tuple[Tensor, int]:
    k = 0
    for _ in range(int(n)):
        if bool(x.sum() > 12.0):
            break
        if bool(x[0] == 2.0):
            x = x + 2
            continue
        x = x + 1
        k += 1
    return x, k


def flags(x: Tensor, n: Tensor) -> tuple[Tensor, bool, bool, float]:
    was_big, was_odd, total = False, False, 0.5
    for _ in range(int(n)):
        was_big = was_big or bool(x.sum() > 7.0)
        was_odd = not was_odd
        total = total * 2
        x = x + 1
    return x, was_big, was_odd, total


PROGRAMS: list[Callable[..., Any]] = [both, either, nested, breaks, flags]


def on_targets(programs: list[Callable[..., Any]], *args: Any) -> dict[str, Together]:
    """Compile programs for each target, those of a target together."""
    return {t: Together({p.__name__: partial(torchscript.compile, p, args, t) for p in programs}) for t in TARGETS}


ON_DATA = on_targets(PROGRAMS, torch.zeros(3), torch.tensor(5))


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_conditions_on_data_in_loops(program: Callable[..., Any], target: str) -> None:
    """Both sides of `and` and `or` count, however often the loop runs."""
    x, run = torch.zeros(3), ON_DATA[target][program.__name__]
    for start, n in ((0.0, 5), (0.0, 0), (100.0, 5), (31.0, 7)):
        given = x + start, torch.tensor(n)
        assert_same(run(*given), program(*given))


def grows(x: Tensor, n: int) -> Tensor:
    y = x
    for i in range(n):
        y = torch.cat([y, x + i], 1)
    return y


def grows_in_both(x: Tensor, n: int) -> Tensor:
    y = x
    for i in range(n):
        y = torch.cat([y, y[:1]], 0)
        if i % 2 == 0:
            y = torch.cat([y, y[:, :1] * 2], 1)
    return y


def grows_until(x: Tensor, n: int) -> tuple[Tensor, int]:
    y = x
    while bool(y.sum() < 6.0) and y.size(0) < 5 + n:
        y = torch.cat([y, x + 1], 0)
    return y, y.size(0)


def grows_from_nothing(x: Tensor, n: int) -> Tensor:
    y = torch.zeros(0, 1)
    for i in range(n):
        for j in range(i):
            if bool(y.sum() > 20.0):
                break
            y = torch.cat([y, x + j], 0)
    return y


GROWING_PROGRAMS: list[Callable[..., Any]] = [grows, grows_in_both, grows_until, grows_from_nothing]
THAT_GROW = on_targets(GROWING_PROGRAMS, torch.arange(2.0)[:, None], 3)


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("program", GROWING_PROGRAMS, ids=lambda p: p.__name__)
def test_tensors_that_grow_in_loops(program: Callable[..., Any], target: str) -> None:
    x, run = torch.arange(2.0)[:, None], THAT_GROW[target][program.__name__]
    for n in (0, 1, 3):
        assert_same(run(x, n), program(x, n))


# Programs of others

CONDITIONS_WITH_DIMS = """
func.func @main(%x: tensor<3xf32>, %flag: tensor<1xi1>) -> tensor<3xf32> {
  %0 = "tosa.cond_if"(%flag, %x) ({
  ^bb0(%a: tensor<3xf32>):
    %1:1 = "tosa.while_loop"(%a) ({
    ^bb0(%b: tensor<3xf32>):
      %limit = "tosa.const"() <{values = dense<100.0> : tensor<1xf32>}> : () -> tensor<1xf32>
      %sum = tosa.reduce_sum %b {axis = 0 : i32} : (tensor<3xf32>) -> tensor<1xf32>
      %less = tosa.greater %limit, %sum : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xi1>
      tosa.yield %less : tensor<1xi1>
    }, {
    ^bb0(%b: tensor<3xf32>):
      %twice = tosa.add %b, %b : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      tosa.yield %twice : tensor<3xf32>
    }) : (tensor<3xf32>) -> tensor<3xf32>
    tosa.yield %1 : tensor<3xf32>
  }, {
  ^bb0(%a: tensor<3xf32>):
    tosa.yield %a : tensor<3xf32>
  }) : (tensor<1xi1>, tensor<3xf32>) -> tensor<3xf32>
  func.return %0 : tensor<3xf32>
}
"""


@pytest.mark.engine
def test_conditions_of_tosa_that_have_dims() -> None:
    op = for_iree(parse_module(CONDITIONS_WITH_DIMS))
    (function,) = op.ops
    artefact = compile_mlir(generic_text(op).encode(), profile="quick")
    run = IreeExecutable(artefact.vmfb, {}, {"main": signature_of(function)}, device="local-sync")  # type: ignore[arg-type]
    x = torch.ones(3)
    assert_same(run(x, torch.tensor([False])), x)
    assert_same(run(x, torch.tensor([True])), x * 64)


# What IREE makes of them without us

NARROW = """
#element = affine_map<(i) -> (i)>
#scalar = affine_map<(i) -> ()>
func.func @main(%x: tensor<3xf32>, %n: tensor<i64>) -> i64 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %limit = arith.constant 100.0 : f32
  %one = arith.constant 1.0 : f32
  %n0 = tensor.extract %n[] : tensor<i64>
  %n1 = arith.index_cast %n0 : i64 to index
  %inside = arith.cmpi slt, %c0, %n1 : index
  %empty = tensor.empty() : tensor<f32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<f32>) -> tensor<f32>
  %sum = linalg.generic {indexing_maps = [#element, #scalar], iterator_types = ["reduction"]}
      ins(%x : tensor<3xf32>) outs(%start : tensor<f32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.addf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<f32>
  %total = tensor.extract %sum[] : tensor<f32>
  %small = arith.cmpf olt, %total, %limit : f32
  %both = arith.andi %inside, %small : i1
  cf.br ^head(%both, %x, %c0 : i1, tensor<3xf32>, index)
^head(%go: i1, %y: tensor<3xf32>, %i: index):
  cf.cond_br %go, ^body, ^end
^body:
  %room = tensor.empty() : tensor<3xf32>
  %next = linalg.generic {indexing_maps = [#element, #element], iterator_types = ["parallel"]}
      ins(%y : tensor<3xf32>) outs(%room : tensor<3xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.addf %a, %one : f32
    linalg.yield %c : f32
  } -> tensor<3xf32>
  %j = arith.addi %i, %c1 : index
  %again = arith.cmpi slt, %j, %n1 : index
  cf.br ^head(%again, %next, %j : i1, tensor<3xf32>, index)
^end:
  %unused = tensor.extract %y[%c0] : tensor<3xf32>
  %count = arith.index_cast %i : index to i64
  func.return %count : i64
}
"""

GROWING = """
func.func @main(%x: tensor<2x1xf32>, %n: i64) -> tensor<2x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n0 = arith.index_cast %n : i64 to index
  %start = tensor.cast %x : tensor<2x1xf32> to tensor<2x?xf32>
  %end = scf.for %i = %c0 to %n0 step %c1 iter_args(%y = %start) -> (tensor<2x?xf32>) {
    %z = tensor.concat dim(1) %y, %x : (tensor<2x?xf32>, tensor<2x1xf32>) -> tensor<2x?xf32>
    scf.yield %z : tensor<2x?xf32>
  }
  func.return %end : tensor<2x?xf32>
}
"""


def run_text(text: str, *arguments: Any, rewritten: bool = False, need: Callable[[Structured], bool]) -> Any:
    """Run hand-written text, as it is or with one of our rewrites."""
    op = parse_module(text)
    if rewritten:
        op = with_branches(op, need)
        widen_arguments(op)
    (function,) = op.ops
    signatures = {"main": signature_of(function)}  # type: ignore[arg-type]
    artefact = compile_mlir(generic_text(op).encode(), profile="quick")
    return IreeExecutable(artefact.vmfb, {}, signatures, device="local-sync")(*arguments)


@pytest.mark.engine
@pytest.mark.parametrize("rewritten", [pytest.param(False, marks=pytest.mark.xfail(reason="IREE 3.13")), True])
def test_a_branch_passes_narrow_and_wide_numbers(rewritten: bool) -> None:
    x, n = torch.zeros(3), torch.tensor(5)
    assert run_text(NARROW, x, n, rewritten=rewritten, need=passes_narrow_numbers) == 5


@pytest.mark.engine
@pytest.mark.parametrize("rewritten", [pytest.param(False, marks=pytest.mark.xfail(reason="IREE 3.13")), True])
def test_a_loop_carries_a_tensor_that_grows(rewritten: bool) -> None:
    x = torch.arange(2.0)[:, None]
    assert_same(run_text(GROWING, x, 3, rewritten=rewritten, need=is_growing_loop), x.expand(2, 4))


@pytest.mark.engine
def test_all_narrow_numbers_are_widened() -> None:
    text = """
    func.func @main(%a: i1, %b: f32, %c: f64, %d: i32, %e: f16) -> (i1, f32, f64, i32, f16) {
      cf.cond_br %a, ^bb1(%a, %b, %c, %d, %e : i1, f32, f64, i32, f16), ^bb2
    ^bb1(%a1: i1, %b1: f32, %c1: f64, %d1: i32, %e1: f16):
      func.return %a1, %b1, %c1, %d1, %e1 : i1, f32, f64, i32, f16
    ^bb2:
      %b2 = arith.addf %b, %b : f32
      cf.br ^bb1(%a, %b2, %c, %d, %e : i1, f32, f64, i32, f16)
    }
    """
    op = parse_module(text)
    widen_arguments(op)
    op.verify()
    (function,) = op.ops
    assert [str(a.type) for a in function.regions[0].blocks[1].args] == ["i64", "i64", "f64", "i64", "i64"]


def test_branches_inside_the_bodies_of_other_ops_stay() -> None:
    """What runs in a kernel has no registers of the virtual machine."""
    text = """
    #element = affine_map<(i) -> (i)>
    func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %room = tensor.empty() : tensor<3xf32>
      %y = linalg.generic {indexing_maps = [#element, #element], iterator_types = ["parallel"]}
          ins(%x : tensor<3xf32>) outs(%room : tensor<3xf32>) {
      ^bb0(%a: f32, %b: f32):
        %is_less = arith.cmpf olt, %a, %b : f32
        %c = scf.if %is_less -> (f32) {
          scf.yield %a : f32
        } else {
          scf.yield %b : f32
        }
        linalg.yield %c : f32
      } -> tensor<3xf32>
      func.return %y : tensor<3xf32>
    }
    """
    op = parse_module(text)
    assert with_branches(op, passes_narrow_numbers) is op
