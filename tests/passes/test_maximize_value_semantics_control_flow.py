"""MaximizeValueSemantics, IR in and IR out: writes in branches and loops."""

from __future__ import annotations

from passes.value_semantics import PASS, Check

# --- Branches ---


def test_a_write_in_one_branch_becomes_a_result(check: Check) -> None:
    """What a branch may write is a result of the branch, and the rest stays where it is."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[FLAG:.*]]: !torch.bool, %[[X:.*]]: !torch.vtensor<[2,3],f32>)
        // CHECK-NEXT: %[[A:.*]] = torch.prim.If %[[FLAG]] -> (!torch.vtensor<[2,3],f32>) {
        // CHECK:      %[[R:.*]] = torch.aten.relu
        // CHECK-NEXT: %[[NEW:.*]] = torch.aten.t %[[R]]
        // CHECK-NEXT: torch.prim.If.yield %[[NEW]]
        // CHECK-NEXT: } else {
        // CHECK-NEXT: torch.prim.If.yield %[[X]]
        // CHECK-NEXT: }
        // CHECK-NEXT: %[[V:.*]] = torch.aten.t %[[A]]
        // CHECK-NEXT: func.return %[[A]], %[[V]]
        func.func @f(%flag: !torch.bool, %x: !torch.vtensor<[2,3],f32>)
            -> (!torch.vtensor<[2,3],f32>, !torch.vtensor<[3,2],f32>) {
          %a = torch.copy.to_tensor %x : !torch.tensor<[2,3],f32>
          %v = torch.aten.t %a : !torch.tensor<[2,3],f32> -> !torch.tensor<[3,2],f32>
          torch.prim.If %flag -> () {
            %0 = torch.aten.relu_ %v : !torch.tensor<[3,2],f32> -> !torch.tensor<[3,2],f32>
            torch.prim.If.yield
          } else {
            torch.prim.If.yield
          }
          %1 = torch.copy.to_vtensor %a : !torch.vtensor<[2,3],f32>
          %2 = torch.copy.to_vtensor %v : !torch.vtensor<[3,2],f32>
          func.return %1, %2 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[3,2],f32>
        }
        """,
    )


def test_one_tensor_or_another_is_written(check: Check) -> None:
    """A write to `a if flag else b` is a write to the one that it is: all three are right afterwards."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[FLAG:.*]]: !torch.bool, %[[X:.*]]: {{.*}}, %[[Y:.*]]: !torch.vtensor<[2],f32>)
        // CHECK: %[[C:.*]], %[[IS_B:.*]] = torch.prim.If %[[FLAG]] -> (!torch.vtensor<[2],f32>, !torch.bool) {
        // CHECK-NEXT: torch.prim.If.yield %[[X]], %false
        // CHECK-NEXT: } else {
        // CHECK-NEXT: torch.prim.If.yield %[[Y]], %true
        // CHECK-NEXT: }
        // CHECK-NEXT: %[[R:.*]] = torch.aten.relu %[[C]]
        // CHECK-NEXT: %[[NEW_A:.*]] = torch.prim.If %[[FLAG]] -> (!torch.vtensor<[2],f32>) {
        // CHECK-NEXT: torch.prim.If.yield %[[R]]
        // CHECK-NEXT: } else {
        // CHECK-NEXT: torch.prim.If.yield %[[X]]
        // CHECK-NEXT: }
        // CHECK-NEXT: %[[NEW_B:.*]] = torch.prim.If %[[IS_B]] -> (!torch.vtensor<[2],f32>) {
        // CHECK-NEXT: torch.prim.If.yield %[[R]]
        // CHECK-NEXT: } else {
        // CHECK-NEXT: torch.prim.If.yield %[[Y]]
        // CHECK-NEXT: }
        // CHECK-NEXT: func.return %[[NEW_A]], %[[NEW_B]], %[[R]]
        func.func @f(%flag: !torch.bool, %x: !torch.vtensor<[2],f32>, %y: !torch.vtensor<[2],f32>)
            -> (!torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>) {
          %a = torch.copy.to_tensor %x : !torch.tensor<[2],f32>
          %b = torch.copy.to_tensor %y : !torch.tensor<[2],f32>
          %c = torch.prim.If %flag -> (!torch.tensor<[2],f32>) {
            torch.prim.If.yield %a : !torch.tensor<[2],f32>
          } else {
            torch.prim.If.yield %b : !torch.tensor<[2],f32>
          }
          %0 = torch.aten.relu_ %c : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
          %1 = torch.copy.to_vtensor %a : !torch.vtensor<[2],f32>
          %2 = torch.copy.to_vtensor %b : !torch.vtensor<[2],f32>
          %3 = torch.copy.to_vtensor %c : !torch.vtensor<[2],f32>
          func.return %1, %2, %3 : !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>
        }
        """,
    )


def test_a_write_to_an_original_is_seen_through_the_result_of_a_branch(check: Check) -> None:
    """The other direction: `c = a if flag else b; b.neg_()`, and c is read."""
    check(
        PASS,
        """
        // CHECK: %[[C:.*]], %[[IS_B:.*]] = torch.prim.If %{{.*}} -> (!torch.vtensor<[2],f32>, !torch.bool) {
        // CHECK: %[[N:.*]] = torch.aten.neg
        // CHECK-NEXT: %[[NEW_C:.*]] = torch.prim.If %[[IS_B]] -> (!torch.vtensor<[2],f32>) {
        // CHECK-NEXT: torch.prim.If.yield %[[N]]
        // CHECK-NEXT: } else {
        // CHECK-NEXT: torch.prim.If.yield %[[C]]
        // CHECK-NEXT: }
        // CHECK: func.return %{{.*}}, %[[NEW_C]]
        func.func @f(%flag: !torch.bool, %x: !torch.vtensor<[2],f32>, %y: !torch.vtensor<[2],f32>)
            -> (!torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>) {
          %a = torch.copy.to_tensor %x : !torch.tensor<[2],f32>
          %b = torch.copy.to_tensor %y : !torch.tensor<[2],f32>
          %c = torch.prim.If %flag -> (!torch.tensor<[2],f32>) {
            torch.prim.If.yield %a : !torch.tensor<[2],f32>
          } else {
            torch.prim.If.yield %b : !torch.tensor<[2],f32>
          }
          %0 = torch.aten.neg_ %b : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
          %1 = torch.copy.to_vtensor %a : !torch.vtensor<[2],f32>
          %2 = torch.copy.to_vtensor %c : !torch.vtensor<[2],f32>
          func.return %1, %2 : !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>
        }
        """,
    )


def test_a_view_or_a_new_tensor_is_written(check: Check) -> None:
    """`c = a[0] if flag else a[1].clone()`: the write reaches a only where c is a view of it."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[FLAG:.*]]: !torch.bool, %[[X:.*]]: !torch.vtensor<[2,3],f32>)
        // CHECK: %[[N:.*]] = torch.aten.neg
        // CHECK-NEXT: %[[A:.*]] = torch.prim.If %[[FLAG]] -> (!torch.vtensor<[2,3],f32>) {
        // CHECK-NEXT: %[[NEW:.*]] = torch.aten.select_scatter %[[X]], %[[N]]
        // CHECK-NEXT: torch.prim.If.yield %[[NEW]]
        // CHECK-NEXT: } else {
        // CHECK-NEXT: torch.prim.If.yield %[[X]]
        // CHECK-NEXT: }
        // CHECK-NEXT: func.return %[[A]], %[[N]]
        func.func @f(%flag: !torch.bool, %x: !torch.vtensor<[2,3],f32>)
            -> (!torch.vtensor<[2,3],f32>, !torch.vtensor<[3],f32>) {
          %int0 = torch.constant.int 0
          %int1 = torch.constant.int 1
          %none = torch.constant.none
          %a = torch.copy.to_tensor %x : !torch.tensor<[2,3],f32>
          %c = torch.prim.If %flag -> (!torch.tensor<[3],f32>) {
            %0 = torch.aten.select.int %a, %int0, %int0
              : !torch.tensor<[2,3],f32>, !torch.int, !torch.int -> !torch.tensor<[3],f32>
            torch.prim.If.yield %0 : !torch.tensor<[3],f32>
          } else {
            %1 = torch.aten.select.int %a, %int0, %int1
              : !torch.tensor<[2,3],f32>, !torch.int, !torch.int -> !torch.tensor<[3],f32>
            %2 = torch.aten.clone %1, %none : !torch.tensor<[3],f32>, !torch.none -> !torch.tensor<[3],f32>
            torch.prim.If.yield %2 : !torch.tensor<[3],f32>
          }
          %3 = torch.aten.neg_ %c : !torch.tensor<[3],f32> -> !torch.tensor<[3],f32>
          %4 = torch.copy.to_vtensor %a : !torch.vtensor<[2,3],f32>
          %5 = torch.copy.to_vtensor %c : !torch.vtensor<[3],f32>
          func.return %4, %5 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[3],f32>
        }
        """,
    )


def test_nested_branches(check: Check) -> None:
    """A tensor that is one of three, written in an inner branch and behind both."""
    check(
        PASS,
        """
        // CHECK: %[[D:.*]], %[[B:.*]], %[[IS_A:.*]], %[[IS_B:.*]], %[[IS_C:.*]] = torch.prim.If
        // CHECK: %[[NEW:.*]] = torch.aten.add.Scalar %[[D]]
        // CHECK-NEXT: %[[NEW_A:.*]] = torch.prim.If %[[IS_A]] -> (!torch.vtensor<[2],f32>) {
        // CHECK: %[[NEW_B:.*]] = torch.prim.If %[[IS_B]] -> (!torch.vtensor<[2],f32>) {
        // CHECK: torch.prim.If.yield %[[B]]
        // CHECK: %[[NEW_C:.*]] = torch.prim.If %[[IS_C]] -> (!torch.vtensor<[2],f32>) {
        // CHECK: func.return %[[NEW_A]], %[[NEW_B]], %[[NEW_C]], %[[NEW]]
        func.func @f(%p: !torch.bool, %q: !torch.bool, %x: !torch.vtensor<[2],f32>, %y: !torch.vtensor<[2],f32>,
            %z: !torch.vtensor<[2],f32>)
            -> (!torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>) {
          %int1 = torch.constant.int 1
          %a = torch.copy.to_tensor %x : !torch.tensor<[2],f32>
          %b = torch.copy.to_tensor %y : !torch.tensor<[2],f32>
          %c = torch.copy.to_tensor %z : !torch.tensor<[2],f32>
          %d = torch.prim.If %p -> (!torch.tensor<[2],f32>) {
            %0 = torch.prim.If %q -> (!torch.tensor<[2],f32>) {
              %1 = torch.aten.relu_ %b : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
              torch.prim.If.yield %a : !torch.tensor<[2],f32>
            } else {
              torch.prim.If.yield %b : !torch.tensor<[2],f32>
            }
            torch.prim.If.yield %0 : !torch.tensor<[2],f32>
          } else {
            torch.prim.If.yield %c : !torch.tensor<[2],f32>
          }
          %2 = torch.aten.add_.Scalar %d, %int1, %int1
            : !torch.tensor<[2],f32>, !torch.int, !torch.int -> !torch.tensor<[2],f32>
          %3 = torch.copy.to_vtensor %a : !torch.vtensor<[2],f32>
          %4 = torch.copy.to_vtensor %b : !torch.vtensor<[2],f32>
          %5 = torch.copy.to_vtensor %c : !torch.vtensor<[2],f32>
          %6 = torch.copy.to_vtensor %d : !torch.vtensor<[2],f32>
          func.return %3, %4, %5, %6
            : !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>
        }
        """,
    )


def test_a_list_that_both_branches_grow(check: Check) -> None:
    """Both branches append: the new element is a result of the branch."""
    check(
        PASS,
        """
        // CHECK: %[[E:.*]], %[[IS_B:.*]] = torch.prim.If %{{.*}} -> (!torch.vtensor<[2],f32>, !torch.bool) {
        // CHECK: %[[N:.*]] = torch.aten.neg %[[E]]
        // CHECK: func.return %{{.*}}, %{{.*}}, %[[N]]
        // CHECK-NOT: torch.prim.ListConstruct
        func.func @f(%flag: !torch.bool, %x: !torch.vtensor<[2],f32>, %y: !torch.vtensor<[2],f32>)
            -> (!torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>) {
          %int1 = torch.constant.int 1
          %a = torch.copy.to_tensor %x : !torch.tensor<[2],f32>
          %b = torch.copy.to_tensor %y : !torch.tensor<[2],f32>
          %list = torch.prim.ListConstruct %a : (!torch.tensor<[2],f32>) -> !torch.list<tensor<[2],f32>>
          torch.prim.If %flag -> () {
            %0 = torch.aten.append.t %list, %a
              : !torch.list<tensor<[2],f32>>, !torch.tensor<[2],f32> -> !torch.list<tensor<[2],f32>>
            torch.prim.If.yield
          } else {
            %1 = torch.aten.append.t %list, %b
              : !torch.list<tensor<[2],f32>>, !torch.tensor<[2],f32> -> !torch.list<tensor<[2],f32>>
            torch.prim.If.yield
          }
          %2 = torch.aten.__getitem__.t %list, %int1
            : !torch.list<tensor<[2],f32>>, !torch.int -> !torch.tensor<[2],f32>
          %3 = torch.aten.neg_ %2 : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
          %4 = torch.copy.to_vtensor %a : !torch.vtensor<[2],f32>
          %5 = torch.copy.to_vtensor %b : !torch.vtensor<[2],f32>
          %6 = torch.copy.to_vtensor %2 : !torch.vtensor<[2],f32>
          func.return %4, %5, %6 : !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>
        }
        """,
    )


# --- Loops ---


def test_a_tensor_that_a_loop_writes_is_carried(check: Check) -> None:
    """A write in the body, through a view, makes the base a value that the loop carries."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[N:.*]]: !torch.int, %[[X:.*]]: !torch.vtensor<[4,2],f32>)
        // CHECK: %[[A:.*]] = torch.prim.Loop %[[N]], %{{.*}}, init(%[[X]]) {
        // CHECK-NEXT: ^bb0(%[[I:.*]]: !torch.int, %[[BEFORE:.*]]: !torch.vtensor<[4,2],f32>):
        // CHECK-NEXT: %[[ROW:.*]] = torch.aten.select.int %[[BEFORE]], %{{.*}}, %[[I]]
        // CHECK-NEXT: %[[SUM:.*]] = torch.aten.add.Scalar %[[ROW]], %[[I]]
        // CHECK-NEXT: %[[NEW:.*]] = torch.aten.select_scatter %[[BEFORE]], %[[SUM]], %{{.*}}, %[[I]]
        // CHECK-NEXT: torch.prim.Loop.condition %{{.*}}, iter(%[[NEW]] : !torch.vtensor<[4,2],f32>)
        // CHECK: func.return %[[A]]
        func.func @f(%n: !torch.int, %x: !torch.vtensor<[4,2],f32>) -> !torch.vtensor<[4,2],f32> {
          %int0 = torch.constant.int 0
          %int1 = torch.constant.int 1
          %true = torch.constant.bool true
          %a = torch.copy.to_tensor %x : !torch.tensor<[4,2],f32>
          torch.prim.Loop %n, %true, init() {
          ^bb0(%i: !torch.int):
            %0 = torch.aten.select.int %a, %int0, %i
              : !torch.tensor<[4,2],f32>, !torch.int, !torch.int -> !torch.tensor<[2],f32>
            %1 = torch.aten.add_.Scalar %0, %i, %int1
              : !torch.tensor<[2],f32>, !torch.int, !torch.int -> !torch.tensor<[2],f32>
            torch.prim.Loop.condition %true, iter()
          } : (!torch.int, !torch.bool) -> ()
          %2 = torch.copy.to_vtensor %a : !torch.vtensor<[4,2],f32>
          func.return %2 : !torch.vtensor<[4,2],f32>
        }
        """,
    )


def test_a_carried_tensor_is_one_outside_in_the_first_iteration_only(check: Check) -> None:
    """`b = a; for _ in range(n): b.neg_(); b = b + 1`: only the first write reaches a."""
    check(
        PASS,
        """
        // CHECK: %[[B:.*]], %[[A:.*]], %{{.*}} = torch.prim.Loop %{{.*}}, init(%[[X:.*]], %[[X]], %[[TRUE:.*]]) {
        // CHECK-NEXT: ^bb0(%{{.*}}, %[[C:.*]]: {{.*}}, %[[OUT:.*]]: {{.*}}, %[[IS_A:.*]]: !torch.bool):
        // CHECK-NEXT: %[[NEG:.*]] = torch.aten.neg %[[C]]
        // CHECK-NEXT: %[[NEW:.*]] = torch.prim.If %[[IS_A]] -> (!torch.vtensor<[2],f32>) {
        // CHECK-NEXT: torch.prim.If.yield %[[NEG]]
        // CHECK-NEXT: } else {
        // CHECK-NEXT: torch.prim.If.yield %[[OUT]]
        // CHECK-NEXT: }
        // CHECK-NEXT: %[[SUM:.*]] = torch.aten.add.Scalar %[[NEG]]
        // CHECK-NEXT: torch.prim.Loop.condition %[[TRUE]], iter(%[[SUM]], %[[NEW]], %false
        // CHECK: func.return %[[A]], %[[B]]
        func.func @f(%n: !torch.int, %x: !torch.vtensor<[2],f32>)
            -> (!torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>) {
          %int1 = torch.constant.int 1
          %true = torch.constant.bool true
          %a = torch.copy.to_tensor %x : !torch.tensor<[2],f32>
          %b = torch.prim.Loop %n, %true, init(%a) {
          ^bb0(%i: !torch.int, %c: !torch.tensor<[2],f32>):
            %0 = torch.aten.neg_ %c : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
            %1 = torch.aten.add.Scalar %c, %int1, %int1
              : !torch.tensor<[2],f32>, !torch.int, !torch.int -> !torch.tensor<[2],f32>
            torch.prim.Loop.condition %true, iter(%1 : !torch.tensor<[2],f32>)
          } : (!torch.int, !torch.bool, !torch.tensor<[2],f32>) -> !torch.tensor<[2],f32>
          %2 = torch.copy.to_vtensor %a : !torch.vtensor<[2],f32>
          %3 = torch.copy.to_vtensor %b : !torch.vtensor<[2],f32>
          func.return %2, %3 : !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>
        }
        """,
    )


def test_what_a_loop_gives_is_written_behind_it(check: Check) -> None:
    """After no iteration, the loop's result is the tensor that went in, and a write reaches it."""
    check(
        PASS,
        """
        // CHECK: %[[B:.*]], %[[IS_A:.*]] = torch.prim.Loop %{{.*}}, %[[TRUE:.*]], init(%[[X:.*]], %[[TRUE]]) {
        // CHECK: torch.prim.Loop.condition %[[TRUE]], iter(%{{.*}}, %false
        // CHECK: %[[NEG:.*]] = torch.aten.neg %[[B]]
        // CHECK-NEXT: %[[A:.*]] = torch.prim.If %[[IS_A]] -> (!torch.vtensor<[2],f32>) {
        // CHECK: func.return %[[A]], %[[NEG]]
        func.func @f(%n: !torch.int, %x: !torch.vtensor<[2],f32>)
            -> (!torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>) {
          %int1 = torch.constant.int 1
          %true = torch.constant.bool true
          %a = torch.copy.to_tensor %x : !torch.tensor<[2],f32>
          %b = torch.prim.Loop %n, %true, init(%a) {
          ^bb0(%i: !torch.int, %c: !torch.tensor<[2],f32>):
            %1 = torch.aten.add.Scalar %c, %int1, %int1
              : !torch.tensor<[2],f32>, !torch.int, !torch.int -> !torch.tensor<[2],f32>
            torch.prim.Loop.condition %true, iter(%1 : !torch.tensor<[2],f32>)
          } : (!torch.int, !torch.bool, !torch.tensor<[2],f32>) -> !torch.tensor<[2],f32>
          %0 = torch.aten.neg_ %b : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
          %2 = torch.copy.to_vtensor %a : !torch.vtensor<[2],f32>
          %3 = torch.copy.to_vtensor %b : !torch.vtensor<[2],f32>
          func.return %2, %3 : !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>
        }
        """,
    )


def test_a_view_of_a_carried_tensor(check: Check) -> None:
    """A view of what the loop carries is written in the body, and the carried tensor read behind the loop."""
    check(
        PASS,
        """
        // CHECK: %[[B:.*]] = torch.prim.Loop %{{.*}}, %{{.*}}, init(%{{.*}}) {
        // CHECK-NEXT: ^bb0(%{{.*}}: !torch.int, %[[C:.*]]: !torch.vtensor<[2,3],f32>):
        // CHECK-NEXT: %[[CLONE:.*]] = torch.aten.clone %[[C]]
        // CHECK-NEXT: %[[ROW:.*]] = torch.aten.select.int %[[CLONE]]
        // CHECK-NEXT: %[[NEG:.*]] = torch.aten.neg %[[ROW]]
        // CHECK-NEXT: %[[NEW:.*]] = torch.aten.select_scatter %[[CLONE]], %[[NEG]]
        // CHECK-NEXT: torch.prim.Loop.condition %{{.*}}, iter(%[[NEW]]
        // CHECK: func.return %[[B]]
        func.func @f(%n: !torch.int, %x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
          %int0 = torch.constant.int 0
          %int1 = torch.constant.int 1
          %true = torch.constant.bool true
          %none = torch.constant.none
          %a = torch.copy.to_tensor %x : !torch.tensor<[2,3],f32>
          %b = torch.prim.Loop %n, %true, init(%a) {
          ^bb0(%i: !torch.int, %c: !torch.tensor<[2,3],f32>):
            %0 = torch.aten.clone %c, %none : !torch.tensor<[2,3],f32>, !torch.none -> !torch.tensor<[2,3],f32>
            %1 = torch.aten.select.int %0, %int0, %int1
              : !torch.tensor<[2,3],f32>, !torch.int, !torch.int -> !torch.tensor<[3],f32>
            %2 = torch.aten.neg_ %1 : !torch.tensor<[3],f32> -> !torch.tensor<[3],f32>
            torch.prim.Loop.condition %true, iter(%0 : !torch.tensor<[2,3],f32>)
          } : (!torch.int, !torch.bool, !torch.tensor<[2,3],f32>) -> !torch.tensor<[2,3],f32>
          %3 = torch.copy.to_vtensor %b : !torch.vtensor<[2,3],f32>
          func.return %3 : !torch.vtensor<[2,3],f32>
        }
        """,
    )


def test_two_carried_tensors_change_places(check: Check) -> None:
    """`a, b = b, a` in a loop, with a write to the first of the two."""
    check(
        PASS,
        """
        // CHECK: %[[A:.*]], %[[B:.*]] = torch.prim.Loop %{{.*}}, %[[TRUE:.*]], init(%{{.*}}, %{{.*}}) {
        // CHECK-NEXT: ^bb0(%[[I:.*]]: !torch.int, %[[C:.*]]: {{.*}}, %[[D:.*]]: !torch.vtensor<[2],f32>):
        // CHECK-NEXT: %[[SUM:.*]] = torch.aten.add.Scalar %[[C]], %[[I]]
        // CHECK-NEXT: torch.prim.Loop.condition %[[TRUE]], iter(%[[D]], %[[SUM]]
        // CHECK: func.return %[[A]], %[[B]]
        func.func @f(%n: !torch.int, %x: !torch.vtensor<[2],f32>, %y: !torch.vtensor<[2],f32>)
            -> (!torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>) {
          %int1 = torch.constant.int 1
          %true = torch.constant.bool true
          %a = torch.copy.to_tensor %x : !torch.tensor<[2],f32>
          %b = torch.copy.to_tensor %y : !torch.tensor<[2],f32>
          %r:2 = torch.prim.Loop %n, %true, init(%a, %b) {
          ^bb0(%i: !torch.int, %c: !torch.tensor<[2],f32>, %d: !torch.tensor<[2],f32>):
            %0 = torch.aten.add.Scalar %c, %i, %int1
              : !torch.tensor<[2],f32>, !torch.int, !torch.int -> !torch.tensor<[2],f32>
            torch.prim.Loop.condition %true, iter(%d, %0 : !torch.tensor<[2],f32>, !torch.tensor<[2],f32>)
          } : (!torch.int, !torch.bool, !torch.tensor<[2],f32>, !torch.tensor<[2],f32>)
            -> (!torch.tensor<[2],f32>, !torch.tensor<[2],f32>)
          %2 = torch.copy.to_vtensor %r#0 : !torch.vtensor<[2],f32>
          %3 = torch.copy.to_vtensor %r#1 : !torch.vtensor<[2],f32>
          func.return %2, %3 : !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>
        }
        """,
    )
