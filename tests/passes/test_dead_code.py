"""Dead code goes, and takes its shape bindings along."""

from __future__ import annotations

from collections.abc import Callable


def test_unused_ops_and_their_shape_bindings_go(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        "dce",
        """
        // CHECK: func.func @f
        // CHECK-NEXT: torch.symbolic_int "s0"
        // CHECK-NEXT: torch.bind_symbolic_shape %a
        // CHECK-NEXT: func.return %a
        func.func @f(%a: !torch.vtensor<[?],f32>) -> !torch.vtensor<[?],f32> {
          %s = torch.symbolic_int "s0" {min_val = 0, max_val = 9} : !torch.int
          torch.bind_symbolic_shape %a, [%s], affine_map<()[s0] -> (s0)> : !torch.vtensor<[?],f32>
          %0 = torch.aten.relu %a : !torch.vtensor<[?],f32> -> !torch.vtensor<[?],f32>
          torch.bind_symbolic_shape %0, [%s], affine_map<()[s0] -> (s0)> : !torch.vtensor<[?],f32>
          func.return %a : !torch.vtensor<[?],f32>
        }
        """,
    )


def test_unused_results_of_a_branch_go(check: Callable[[str, str], None]) -> None:
    """With all that only they needed, in both branches and in front of them."""
    check(
        "dce",
        """
        // CHECK: func.func @f(%[[FLAG:.*]]: !torch.bool, %[[X:.*]]: !torch.vtensor<[2],f32>)
        // CHECK-NEXT: %[[R:.*]] = torch.prim.If %[[FLAG]] -> (!torch.vtensor<[2],f32>) {
        // CHECK-NEXT: %[[C:.*]] = torch.aten.cos %[[X]]
        // CHECK-NEXT: torch.prim.If.yield %[[C]] : !torch.vtensor<[2],f32>
        // CHECK-NEXT: } else {
        // CHECK-NEXT: torch.prim.If.yield %[[X]] : !torch.vtensor<[2],f32>
        // CHECK-NEXT: }
        // CHECK-NEXT: func.return %[[R]]
        func.func @f(%flag: !torch.bool, %x: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32> {
          %0 = torch.aten.tanh %x : !torch.vtensor<[2],f32> -> !torch.vtensor<[2],f32>
          %1:2 = torch.prim.If %flag -> (!torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>) {
            %2 = torch.aten.sin %0 : !torch.vtensor<[2],f32> -> !torch.vtensor<[2],f32>
            %3 = torch.aten.cos %x : !torch.vtensor<[2],f32> -> !torch.vtensor<[2],f32>
            torch.prim.If.yield %2, %3 : !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>
          } else {
            torch.prim.If.yield %0, %x : !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>
          }
          func.return %1#1 : !torch.vtensor<[2],f32>
        }
        """,
    )


def test_a_branch_without_results_and_effects_goes(check: Callable[[str, str], None]) -> None:
    """And takes its condition along."""
    check(
        "dce",
        """
        // CHECK: func.func @f(%[[N:.*]]: !torch.int, %[[X:.*]]: !torch.vtensor<[2],f32>)
        // CHECK-NEXT: func.return %[[X]]
        func.func @f(%n: !torch.int, %x: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32> {
          %flag = torch.aten.Bool.int %n : !torch.int -> !torch.bool
          %0 = torch.prim.If %flag -> (!torch.vtensor<[2],f32>) {
            %1 = torch.aten.sin %x : !torch.vtensor<[2],f32> -> !torch.vtensor<[2],f32>
            torch.prim.If.yield %1 : !torch.vtensor<[2],f32>
          } else {
            torch.prim.If.yield %x : !torch.vtensor<[2],f32>
          }
          func.return %x : !torch.vtensor<[2],f32>
        }
        """,
    )


def test_what_a_loop_carries_for_nobody_goes(check: Callable[[str, str], None]) -> None:
    """A value that only feeds itself is dead; one that another needs, or the condition, lives."""
    check(
        "dce",
        """
        // CHECK: %[[R:.*]], %{{.*}}, %{{.*}} = torch.prim.Loop %{{.*}}, %{{.*}}, init(%[[X:.*]], %[[X]], %{{.*}}) {
        // CHECK-NEXT: ^bb0(%{{.*}}: !torch.int, %{{.*}}, %[[B:.*]]: !torch.vtensor<[2],f32>, %[[N:.*]]: !torch.int):
        // CHECK-NEXT: %[[COS:.*]] = torch.aten.cos %[[B]]
        // CHECK-NEXT: %[[M:.*]] = torch.aten.add.int %[[N]]
        // CHECK-NEXT: %[[GO:.*]] = torch.aten.lt.int %[[M]]
        // CHECK-NEXT: torch.prim.Loop.condition %[[GO]], iter(%[[B]], %[[COS]], %[[M]]
        // CHECK-NOT: torch.aten.sin
        func.func @f(%count: !torch.int, %x: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32> {
          %true = torch.constant.bool true
          %int0 = torch.constant.int 0
          %int1 = torch.constant.int 1
          %int2 = torch.constant.int 2
          %0:4 = torch.prim.Loop %count, %true, init(%x, %x, %x, %int0) {
          ^bb0(%i: !torch.int, %a: !torch.vtensor<[2],f32>, %b: !torch.vtensor<[2],f32>, %c: !torch.vtensor<[2],f32>,
              %n: !torch.int):
            %1 = torch.aten.cos %b : !torch.vtensor<[2],f32> -> !torch.vtensor<[2],f32>
            %2 = torch.aten.sin %c : !torch.vtensor<[2],f32> -> !torch.vtensor<[2],f32>
            %3 = torch.aten.add.int %n, %int1 : !torch.int, !torch.int -> !torch.int
            %4 = torch.aten.lt.int %3, %int2 : !torch.int, !torch.int -> !torch.bool
            torch.prim.Loop.condition %4, iter(%b, %1, %2, %3
              : !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.int)
          } : (!torch.int, !torch.bool, !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>,
               !torch.int)
            -> (!torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.int)
          func.return %0#0 : !torch.vtensor<[2],f32>
        }
        """,
    )


def test_effects_stay(check: Callable[[str, str], None]) -> None:
    """Writes to arguments, also in branches and loops whose results nobody uses, with all that they need."""
    check(
        "dce",
        """
        // CHECK: torch.prim.Loop %{{.*}}, %{{.*}}, init(%{{.*}}) {
        // CHECK-NEXT: ^bb0(%{{.*}}: !torch.int, %[[X:.*]]: !torch.vtensor<[2],f32>):
        // CHECK-NEXT: %[[COS:.*]] = torch.aten.cos %[[X]]
        // CHECK-NEXT: torch.prim.If %{{.*}} -> () {
        // CHECK-NEXT: torch.overwrite.tensor.contents %[[COS]] overwrites %{{.*}}
        // CHECK-NEXT: torch.prim.If.yield
        // CHECK-NEXT: } else {
        // CHECK-NEXT: torch.prim.If.yield
        // CHECK-NEXT: }
        // CHECK-NEXT: torch.prim.Loop.condition %{{.*}}, iter(%[[COS]] : !torch.vtensor<[2],f32>)
        func.func @f(%count: !torch.int, %flag: !torch.bool, %a: !torch.tensor<[2],f32>, %x: !torch.vtensor<[2],f32>) {
          %true = torch.constant.bool true
          %0 = torch.prim.Loop %count, %true, init(%x) {
          ^bb0(%i: !torch.int, %b: !torch.vtensor<[2],f32>):
            %1 = torch.aten.cos %b : !torch.vtensor<[2],f32> -> !torch.vtensor<[2],f32>
            %2 = torch.prim.If %flag -> (!torch.vtensor<[2],f32>) {
              torch.overwrite.tensor.contents %1 overwrites %a : !torch.vtensor<[2],f32>, !torch.tensor<[2],f32>
              torch.prim.If.yield %1 : !torch.vtensor<[2],f32>
            } else {
              torch.prim.If.yield %b : !torch.vtensor<[2],f32>
            }
            torch.prim.Loop.condition %true, iter(%1 : !torch.vtensor<[2],f32>)
          } : (!torch.int, !torch.bool, !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32>
          func.return
        }
        """,
    )


def test_assertions_stay(filecheck: Callable[[str, str], None]) -> None:
    """They fail or not whoever uses what."""
    filecheck(
        "dce",
        """
        // CHECK: %[[FLAG:.*]] = torch.aten.Bool.int
        // CHECK-NEXT: torch.runtime.assert %[[FLAG]], "must hold"
        // CHECK-NEXT: func.return
        func.func @f(%n: !torch.int, %x: !torch.vtensor<[2],f32>) {
          %flag = torch.aten.Bool.int %n : !torch.int -> !torch.bool
          torch.runtime.assert %flag, "must hold"
          %0 = torch.aten.tanh %x : !torch.vtensor<[2],f32> -> !torch.vtensor<[2],f32>
          func.return
        }
        """,
    )
