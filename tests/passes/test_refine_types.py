"""RefineTypes: what follows from the types of the arguments alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
from flambeau.opt import run_pipeline

PASS = "torch-refine-types"
Check = Callable[[str, str], None]


def test_a_convolution_and_a_relu_follow_from_the_input(check: Check) -> None:
    """S75: every dim and dtype is derived from the input and the weight."""
    check(
        PASS,
        """
        // CHECK: torch.aten.conv2d %{{.*}} -> !torch.vtensor<[?,10,6,?],f32>
        // CHECK-NEXT: %[[R:.*]] = torch.aten.relu %{{.*}} -> !torch.vtensor<[?,10,6,?],f32>
        // CHECK-NEXT: %[[CAST:.*]] = torch.tensor_static_info_cast %[[R]] : {{.*}} to !torch.vtensor
        // CHECK-NEXT: func.return %[[CAST]] : !torch.vtensor
        func.func @f(%x: !torch.vtensor<[?,2,8,?],f32>) -> !torch.vtensor {
          %int0 = torch.constant.int 0
          %int1 = torch.constant.int 1
          %none = torch.constant.none
          %w = torch.vtensor.literal(dense<0.5> : tensor<10x2x3x3xf32>) : !torch.vtensor<[10,2,3,3],f32>
          %ones = torch.prim.ListConstruct %int1, %int1 : (!torch.int, !torch.int) -> !torch.list<int>
          %zeros = torch.prim.ListConstruct %int0, %int0 : (!torch.int, !torch.int) -> !torch.list<int>
          %0 = torch.aten.conv2d %x, %w, %none, %ones, %zeros, %ones, %int1
            : !torch.vtensor<[?,2,8,?],f32>, !torch.vtensor<[10,2,3,3],f32>, !torch.none, !torch.list<int>,
              !torch.list<int>, !torch.list<int>, !torch.int -> !torch.vtensor
          %1 = torch.aten.relu %0 : !torch.vtensor -> !torch.vtensor
          func.return %1 : !torch.vtensor
        }
        """,
    )


def test_dtypes_follow_promotion(check: Check) -> None:
    """An integer tensor plus a half is a half, and divided by an integer one a float."""
    check(
        PASS,
        """
        // CHECK: torch.aten.add.Tensor %{{.*}} -> !torch.vtensor<[4,3],f16>
        // CHECK: torch.aten.div.Tensor %{{.*}} -> !torch.vtensor<[4,3],f32>
        func.func @f(%x: !torch.vtensor<[4,1],si64>, %y: !torch.vtensor<[3],f16>, %z: !torch.vtensor<[3],si32>)
            -> (!torch.vtensor<[4,3],unk>, !torch.vtensor) {
          %int1 = torch.constant.int 1
          %0 = torch.aten.add.Tensor %x, %y, %int1
            : !torch.vtensor<[4,1],si64>, !torch.vtensor<[3],f16>, !torch.int -> !torch.vtensor<[4,3],unk>
          %1 = torch.aten.div.Tensor %x, %z : !torch.vtensor<[4,1],si64>, !torch.vtensor<[3],si32> -> !torch.vtensor
          func.return %0, %1 : !torch.vtensor<[4,3],unk>, !torch.vtensor
        }
        """,
    )


def test_what_is_not_known_stays_open(filecheck: Check) -> None:
    """Nothing is invented for a tensor whose dtype is unknown, and what is declared is kept."""
    filecheck(
        PASS,
        """
        // CHECK: torch.aten.relu %{{.*}} : !torch.vtensor<[2,3],unk> -> !torch.vtensor<[2,3],unk>
        // CHECK: torch.aten.tanh %{{.*}} : !torch.vtensor -> !torch.vtensor<*,f32>
        func.func @f(%x: !torch.vtensor<[2,3],unk>, %y: !torch.vtensor)
            -> (!torch.vtensor<[2,3],unk>, !torch.vtensor<*,f32>) {
          %0 = torch.aten.relu %x : !torch.vtensor<[2,3],unk> -> !torch.vtensor<[2,3],unk>
          %1 = torch.aten.tanh %y : !torch.vtensor -> !torch.vtensor<*,f32>
          func.return %0, %1 : !torch.vtensor<[2,3],unk>, !torch.vtensor<*,f32>
        }
        """,
    )


def test_declared_and_inferred_both_hold(check: Check) -> None:
    """A dim that only the program declares stays, beside one that only the rule knows."""
    check(
        PASS,
        """
        // CHECK: torch.aten.mm %{{.*}} -> !torch.vtensor<[3,5],f32>
        func.func @f(%x: !torch.vtensor<[?,4],f32>, %y: !torch.vtensor<[4,5],f32>) -> !torch.vtensor<[3,?],f32> {
          %0 = torch.aten.mm %x, %y : !torch.vtensor<[?,4],f32>, !torch.vtensor<[4,5],f32> -> !torch.vtensor<[3,?],f32>
          func.return %0 : !torch.vtensor<[3,?],f32>
        }
        """,
    )


def test_branches_give_what_holds_on_both_sides(check: Check) -> None:
    """Equal dims stay, different ones are `?`; different dtypes are unknown; different ranks leave nothing."""
    check(
        PASS,
        """
        // CHECK: torch.prim.If {{.*}} -> (!torch.vtensor<[2,?],f32>, !torch.vtensor<[2,3],unk>, !torch.vtensor<*,f32>)
        // CHECK: torch.tensor_static_info_cast %{{.*}} : !torch.vtensor<[2,6],f32> to !torch.vtensor<[2,?],f32>
        // CHECK: torch.aten.relu %{{.*}} : !torch.vtensor<[2,?],f32> -> !torch.vtensor<[2,?],f32>
        func.func @f(%flag: !torch.bool, %x: !torch.vtensor<[2,3],f32>)
            -> (!torch.vtensor, !torch.vtensor, !torch.vtensor) {
          %int1 = torch.constant.int 1
          %int3 = torch.constant.int 3
          %false = torch.constant.bool false
          %none = torch.constant.none
          %0:3 = torch.prim.If %flag -> (!torch.vtensor, !torch.vtensor, !torch.vtensor) {
            %2 = torch.prim.ListConstruct %x, %x : (!torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32>)
              -> !torch.list<vtensor<[2,3],f32>>
            %3 = torch.aten.cat %2, %int1 : !torch.list<vtensor<[2,3],f32>>, !torch.int -> !torch.vtensor
            %4 = torch.aten.relu %x : !torch.vtensor<[2,3],f32> -> !torch.vtensor
            torch.prim.If.yield %3, %4, %4 : !torch.vtensor, !torch.vtensor, !torch.vtensor
          } else {
            %5 = torch.aten.tanh %x : !torch.vtensor<[2,3],f32> -> !torch.vtensor
            %6 = torch.aten.to.dtype %x, %int3, %false, %false, %none
              : !torch.vtensor<[2,3],f32>, !torch.int, !torch.bool, !torch.bool, !torch.none -> !torch.vtensor
            %7 = torch.aten.sum %x, %none : !torch.vtensor<[2,3],f32>, !torch.none -> !torch.vtensor
            torch.prim.If.yield %5, %6, %7 : !torch.vtensor, !torch.vtensor, !torch.vtensor
          }
          %1 = torch.aten.relu %0#0 : !torch.vtensor -> !torch.vtensor
          func.return %1, %0#1, %0#2 : !torch.vtensor, !torch.vtensor, !torch.vtensor
        }
        """,
    )


def test_a_loop_keeps_a_shape_that_does_not_change(check: Check) -> None:
    """The body gives back what it takes: the type of the initial value holds for all iterations."""
    check(
        PASS,
        """
        // CHECK: torch.prim.Loop %{{.*}} {
        // CHECK-NEXT: ^bb0(%{{.*}}: !torch.int, %{{.*}}: !torch.vtensor<[2,3],f32>):
        // CHECK-NEXT: torch.aten.tanh %{{.*}} : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
        // CHECK: -> !torch.vtensor<[2,3],f32>
        func.func @f(%n: !torch.int, %x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor {
          %true = torch.constant.bool true
          %x0 = torch.aten.relu %x : !torch.vtensor<[2,3],f32> -> !torch.vtensor
          %0 = torch.prim.Loop %n, %true, init(%x0) {
          ^bb0(%i: !torch.int, %a: !torch.vtensor):
            %1 = torch.aten.tanh %a : !torch.vtensor -> !torch.vtensor
            torch.prim.Loop.condition %true, iter(%1 : !torch.vtensor)
          } : (!torch.int, !torch.bool, !torch.vtensor) -> !torch.vtensor
          func.return %0 : !torch.vtensor
        }
        """,
    )


def test_a_shape_that_grows_in_a_loop_becomes_open(check: Check) -> None:
    """A fixed point: the dim that grows is `?` in the first iteration already, the others stay."""
    check(
        PASS,
        """
        // CHECK: torch.prim.Loop %{{.*}} {
        // CHECK-NEXT: ^bb0(%{{.*}}: !torch.int, %{{.*}}: !torch.vtensor<[?,3],f32>):
        // CHECK: torch.aten.cat %{{.*}} -> !torch.vtensor<[?,3],f32>
        // CHECK: -> !torch.vtensor<[?,3],f32>
        // CHECK: torch.aten.relu %{{.*}} : !torch.vtensor<[?,3],f32> -> !torch.vtensor<[?,3],f32>
        func.func @f(%n: !torch.int, %x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor {
          %int0 = torch.constant.int 0
          %true = torch.constant.bool true
          %x0 = torch.aten.relu %x : !torch.vtensor<[2,3],f32> -> !torch.vtensor
          %0 = torch.prim.Loop %n, %true, init(%x0) {
          ^bb0(%i: !torch.int, %a: !torch.vtensor):
            %1 = torch.prim.ListConstruct %a, %x0 : (!torch.vtensor, !torch.vtensor) -> !torch.list<vtensor>
            %2 = torch.aten.cat %1, %int0 : !torch.list<vtensor>, !torch.int -> !torch.vtensor
            torch.prim.Loop.condition %true, iter(%2 : !torch.vtensor)
          } : (!torch.int, !torch.bool, !torch.vtensor) -> !torch.vtensor
          %3 = torch.aten.relu %0 : !torch.vtensor -> !torch.vtensor
          func.return %3 : !torch.vtensor
        }
        """,
    )


def test_a_branch_in_a_loop_in_a_branch(check: Check) -> None:
    """Types go in and come out through all three."""
    check(
        PASS,
        """
        // CHECK: torch.prim.If %{{.*}} -> (!torch.vtensor<[?,3],f32>) {
        // CHECK: ^bb0(%{{.*}}: !torch.int, %{{.*}}: !torch.vtensor<[?,3],f32>):
        // CHECK: torch.prim.If %{{.*}} -> (!torch.vtensor<[?,3],f32>) {
        // CHECK: func.return
        func.func @f(%p: !torch.bool, %q: !torch.bool, %n: !torch.int, %x: !torch.vtensor<[2,3],f32>)
            -> !torch.vtensor {
          %int0 = torch.constant.int 0
          %true = torch.constant.bool true
          %x0 = torch.aten.relu %x : !torch.vtensor<[2,3],f32> -> !torch.vtensor
          %0 = torch.prim.If %p -> (!torch.vtensor) {
            %1 = torch.prim.Loop %n, %true, init(%x0) {
            ^bb0(%i: !torch.int, %a: !torch.vtensor):
              %2 = torch.prim.If %q -> (!torch.vtensor) {
                %3 = torch.prim.ListConstruct %a, %a : (!torch.vtensor, !torch.vtensor) -> !torch.list<vtensor>
                %4 = torch.aten.cat %3, %int0 : !torch.list<vtensor>, !torch.int -> !torch.vtensor
                torch.prim.If.yield %4 : !torch.vtensor
              } else {
                torch.prim.If.yield %a : !torch.vtensor
              }
              torch.prim.Loop.condition %true, iter(%2 : !torch.vtensor)
            } : (!torch.int, !torch.bool, !torch.vtensor) -> !torch.vtensor
            torch.prim.If.yield %1 : !torch.vtensor
          } else {
            torch.prim.If.yield %x0 : !torch.vtensor
          }
          func.return %0 : !torch.vtensor
        }
        """,
    )


def test_numbers_become_ints_and_floats(check: Check) -> None:
    """A `number` whose kind follows from its operands gets that type."""
    check(
        PASS,
        """
        // CHECK: torch.aten.mul %{{.*}} : !torch.int, !torch.int -> !torch.int
        // CHECK: torch.aten.mul %{{.*}} : !torch.int, !torch.float -> !torch.float
        func.func @f(%a: !torch.int, %b: !torch.float) -> (!torch.number, !torch.number) {
          %0 = torch.aten.mul %a, %a : !torch.int, !torch.int -> !torch.number
          %1 = torch.aten.mul %a, %b : !torch.int, !torch.float -> !torch.number
          func.return %0, %1 : !torch.number, !torch.number
        }
        """,
    )


def test_tuples_have_the_types_of_their_elements(check: Check) -> None:
    """What is packed with a refined type is unpacked with it."""
    check(
        PASS,
        """
        // CHECK: torch.prim.TupleConstruct %{{.*}} -> !torch.tuple<vtensor<[2,3],f32>, int>
        // CHECK: torch.aten.tanh %{{.*}} : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
        func.func @f(%x: !torch.vtensor<[2,3],f32>, %n: !torch.int) -> !torch.vtensor {
          %0 = torch.aten.relu %x : !torch.vtensor<[2,3],f32> -> !torch.vtensor
          %1 = torch.prim.TupleConstruct %0, %n : !torch.vtensor, !torch.int -> !torch.tuple<vtensor, int>
          %2:2 = torch.prim.TupleUnpack %1 : !torch.tuple<vtensor, int> -> !torch.vtensor, !torch.int
          %3 = torch.aten.tanh %2#0 : !torch.vtensor -> !torch.vtensor
          func.return %3 : !torch.vtensor
        }
        """,
    )


def test_a_list_is_split_into_parts_of_known_shape(check: Check) -> None:
    """The op gives a list; what is unpacked of it has the shapes of the parts."""
    check(
        PASS,
        """
        // CHECK: torch.aten.tanh %{{.*}} : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
        // CHECK: torch.aten.tanh %{{.*}} : !torch.vtensor<[1,3],f32> -> !torch.vtensor<[1,3],f32>
        func.func @f(%x: !torch.vtensor<[3,3],f32>) -> (!torch.vtensor, !torch.vtensor) {
          %int0 = torch.constant.int 0
          %int2 = torch.constant.int 2
          %0 = torch.aten.split.Tensor %x, %int2, %int0
            : !torch.vtensor<[3,3],f32>, !torch.int, !torch.int -> !torch.list<vtensor>
          %1:2 = torch.prim.ListUnpack %0 : !torch.list<vtensor> -> !torch.vtensor, !torch.vtensor
          %2 = torch.aten.tanh %1#0 : !torch.vtensor -> !torch.vtensor
          %3 = torch.aten.tanh %1#1 : !torch.vtensor -> !torch.vtensor
          func.return %2, %3 : !torch.vtensor, !torch.vtensor
        }
        """,
    )


def test_a_cast_that_forgets_is_seen_through(check: Check) -> None:
    """`tensor_static_info_cast` to less: the op behind it works on what is known."""
    check(
        PASS,
        """
        // CHECK: torch.aten.tanh %{{.*}} : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
        func.func @f(%x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor {
          %0 = torch.tensor_static_info_cast %x : !torch.vtensor<[2,3],f32> to !torch.vtensor
          %1 = torch.aten.tanh %0 : !torch.vtensor -> !torch.vtensor
          func.return %1 : !torch.vtensor
        }
        """,
    )


def test_a_cast_that_adds_is_believed(check: Check) -> None:
    """`tensor_static_info_cast` to more: the op behind it works on what the cast says."""
    check(
        PASS,
        """
        // CHECK: torch.aten.tanh %{{.*}} : !torch.vtensor<[3,2],f32> -> !torch.vtensor<[3,2],f32>
        func.func @f(%x: !torch.vtensor<[?,2],f32>) -> !torch.vtensor {
          %0 = torch.tensor_static_info_cast %x : !torch.vtensor<[?,2],f32> to !torch.vtensor<[3,2],f32>
          %1 = torch.aten.tanh %0 : !torch.vtensor<[3,2],f32> -> !torch.vtensor
          func.return %1 : !torch.vtensor
        }
        """,
    )


def test_shapes_that_do_not_fit_are_an_error_with_the_line() -> None:
    """All of them are reported, each where it stands."""
    module = parse_module(
        """
        func.func @f(%x: !torch.vtensor<[2,3],f32>, %y: !torch.vtensor<[4],f32>) -> (!torch.vtensor, !torch.vtensor) {
          %int1 = torch.constant.int 1
          %0 = torch.aten.add.Tensor %x, %y, %int1
            : !torch.vtensor<[2,3],f32>, !torch.vtensor<[4],f32>, !torch.int -> !torch.vtensor loc("model.py":3:8)
          %1 = torch.aten.mm %x, %x : !torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32> -> !torch.vtensor
            loc("model.py":4:8)
          func.return %0, %1 : !torch.vtensor, !torch.vtensor
        }
        """
    )
    with pytest.raises(CompileError) as error:
        run_pipeline(module, PASS)
    assert [(d.op, d.line) for d in error.value.diagnostics] == [("aten.add.Tensor", 3), ("aten.mm", 4)]
    assert "[refine types] aten.add.Tensor" in str(error.value)
