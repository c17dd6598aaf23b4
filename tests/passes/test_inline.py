"""Inlining, IR in and IR out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdsl.dialects import func

from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
from flambeau.ir.locations import frames_of
from flambeau.opt import run_pipeline
from flambeau.passes.inline import callees_first

Check = Callable[[str, str], None]


def test_bodies_stand_where_they_are_called(filecheck: Check) -> None:
    filecheck(
        "inline",
        """
        // CHECK: func.func @main(%[[A:.*]]: !torch.int, %[[B:.*]]: !torch.int)
        // CHECK-NEXT: %[[S:.*]] = torch.aten.add.int %[[A]], %[[B]]
        // CHECK-NEXT: %[[T:.*]] = torch.aten.add.int %[[B]], %[[A]]
        // CHECK-NEXT: %[[P:.*]] = torch.aten.mul.int %[[S]], %[[T]]
        // CHECK-NEXT: func.return %[[P]], %[[T]]
        // CHECK-NOT: func.func
        func.func @main(%a: !torch.int, %b: !torch.int) -> (!torch.int, !torch.int) {
          %0, %1 = func.call @both(%a, %b) : (!torch.int, !torch.int) -> (!torch.int, !torch.int)
          func.return %0, %1 : !torch.int, !torch.int
        }
        func.func private @both(%a: !torch.int, %b: !torch.int) -> (!torch.int, !torch.int) {
          %0 = func.call @add(%a, %b) : (!torch.int, !torch.int) -> !torch.int
          %1 = func.call @add(%b, %a) : (!torch.int, !torch.int) -> !torch.int
          %2 = torch.aten.mul.int %0, %1 : !torch.int, !torch.int -> !torch.int
          func.return %2, %1 : !torch.int, !torch.int
        }
        func.func private @add(%a: !torch.int, %b: !torch.int) -> !torch.int {
          %0 = torch.aten.add.int %a, %b : !torch.int, !torch.int -> !torch.int
          func.return %0 : !torch.int
        }
        """,
    )


def test_regions_on_both_sides(filecheck: Check) -> None:
    """A call inside a branch, of a function with a branch."""
    filecheck(
        "inline",
        """
        // CHECK: func.func @main(%[[C:.*]]: !torch.bool, %[[N:.*]]: !torch.int)
        // CHECK-NEXT: %[[R:.*]] = torch.prim.If %[[C]]
        // CHECK-NEXT: %[[I:.*]] = torch.prim.If %[[C]]
        // CHECK-NEXT: torch.prim.If.yield %[[N]]
        // CHECK: %[[Z:.*]] = torch.constant.int 0
        // CHECK-NEXT: torch.prim.If.yield %[[Z]]
        // CHECK: torch.prim.If.yield %[[I]]
        // CHECK: func.return %[[R]]
        func.func private @pick(%c: !torch.bool, %n: !torch.int) -> !torch.int {
          %0 = torch.prim.If %c -> (!torch.int) {
            torch.prim.If.yield %n : !torch.int
          } else {
            %1 = torch.constant.int 0
            torch.prim.If.yield %1 : !torch.int
          }
          func.return %0 : !torch.int
        }
        func.func @main(%c: !torch.bool, %n: !torch.int) -> !torch.int {
          %0 = torch.prim.If %c -> (!torch.int) {
            %1 = func.call @pick(%c, %n) : (!torch.bool, !torch.int) -> !torch.int
            torch.prim.If.yield %1 : !torch.int
          } else {
            torch.prim.If.yield %n : !torch.int
          }
          func.return %0 : !torch.int
        }
        """,
    )


def test_what_stays(filecheck: Check) -> None:
    """Calls of functions without a body, public functions, private ones that nobody called, and methods."""
    filecheck(
        "inline",
        """
        // CHECK: func.func private @outside
        // CHECK: func.func @public
        // CHECK-NEXT: func.call @outside
        // CHECK: func.func private @alone
        // CHECK: func.func private @A.f
        // CHECK: func.func @main
        // CHECK-NEXT: func.call @outside
        // CHECK-NEXT: func.return
        func.func private @outside()
        func.func @public() { func.call @outside() : () -> ()  func.return }
        func.func private @alone() { func.return }
        func.func private @A.f(%self: !torch.nn.Module<"A">) { func.return }
        torch.class_type @A { torch.method "f", @A.f }
        func.func @main(%a: !torch.nn.Module<"A">) {
          func.call @public() : () -> ()
          func.call @A.f(%a) : (!torch.nn.Module<"A">) -> ()
          func.return
        }
        """,
    )


def test_locations_tell_the_line_and_its_caller() -> None:
    module = parse_module(
        """
        func.func private @g(%n: !torch.int) -> !torch.int {
          %0 = torch.aten.neg.int %n : !torch.int -> !torch.int loc("inner.py":3:1)
          func.return %0 : !torch.int
        }
        func.func private @f(%n: !torch.int) -> !torch.int {
          %0 = func.call @g(%n) : (!torch.int) -> !torch.int loc("outer.py":5:2)
          func.return %0 : !torch.int
        }
        func.func @main(%n: !torch.int) -> !torch.int {
          %0 = func.call @f(%n) : (!torch.int) -> !torch.int loc("main.py":7:4)
          func.return %0 : !torch.int
        }
        """
    )
    (function,) = [op for op in run_pipeline(module, "inline").ops if isinstance(op, func.FuncOp)]
    op = function.body.block.first_op
    assert op is not None
    assert op.name == "torch.aten.neg.int"
    assert [str(f) for f in frames_of(op.location)] == ["inner.py:3", "outer.py:5", "main.py:7"]


def test_recursion_is_named() -> None:
    text = """
    func.func @f() { func.call @g() : () -> ()  func.return }
    func.func private @g() { func.call @h() : () -> ()  func.return }
    func.func private @h() {
      func.call @g() : () -> () loc("model.py":9:1)
      func.return
    }
    """
    with pytest.raises(CompileError, match="the function @g calls itself: @g -> @h -> @g"):
        run_pipeline(parse_module(text), "inline")


def test_an_unknown_callee_is_named() -> None:
    text = 'func.func @f() { func.call @nobody() : () -> () loc("model.py":2:1)  func.return }'
    with pytest.raises(CompileError, match="@f calls @nobody, and there is no such function") as caught:
        run_pipeline(parse_module(text), "inline")
    assert caught.value.diagnostics[0].line == 2


def test_callees_come_first() -> None:
    assert callees_first({1: [2, 3], 2: [3], 3: [], 4: [1, 1]}) == ([3, 2, 1, 4], None)
    deep = {i: [i + 1] for i in range(5000)}
    assert callees_first({**deep, 5000: []}) == (list(range(5000, -1, -1)), None)
    assert callees_first({**deep, 5000: [4999]})[1] == [4999, 5000, 4999]
    assert callees_first({1: [1]})[1] == [1, 1]
