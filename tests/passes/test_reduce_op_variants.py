"""ReduceOpVariants, IR in and IR out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
from flambeau.opt import run_pipeline

PASS = "torch-reduce-op-variants"
Check = Callable[[str, str], None]


def test_views_of_tensors_stay_for_the_next_pass(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: torch.aten.t %{{.*}} : !torch.tensor<[2,3],f32> -> !torch.tensor<[3,2],f32>
        func.func @f(%arg0: !torch.tensor<[2,3],f32>) -> !torch.tensor<[3,2],f32> {
          %0 = torch.aten.t %arg0 : !torch.tensor<[2,3],f32> -> !torch.tensor<[3,2],f32>
          func.return %0 : !torch.tensor<[3,2],f32>
        }
        """,
    )


def test_an_in_place_op_without_a_value_form_is_named() -> None:
    module = parse_module(
        """
        func.func @f(%arg0: !torch.tensor<[2],f32>) -> !torch.tensor<[2],f32> {
          %none = torch.constant.none
          %f = torch.constant.float 1.0
          %0 = torch.operator "torch.aten._no_grad_normal_"(%arg0, %f, %f, %none)
            : (!torch.tensor<[2],f32>, !torch.float, !torch.float, !torch.none) -> !torch.tensor<[2],f32>
          func.return %0 : !torch.tensor<[2],f32>
        }
        """
    )
    with pytest.raises(CompileError, match=r"aten\._no_grad_normal_: this in-place op has no value form"):
        run_pipeline(module, PASS)


def test_ops_in_regions_are_reduced_where_they_stand(check: Check) -> None:
    """A branch in a loop: reads and writes stay in their block."""
    check(
        PASS,
        """
        // CHECK: torch.prim.Loop
        // CHECK: torch.prim.If
        // CHECK-NEXT: %[[V:.*]] = torch.copy.to_vtensor %[[A:.*]] : !torch.vtensor<[2],f32>
        // CHECK-NEXT: %[[R:.*]] = torch.aten.relu %[[V]]
        // CHECK-NEXT: torch.overwrite.tensor.contents %[[R]] overwrites %[[A]]
        // CHECK-NEXT: torch.prim.If.yield
        // CHECK-NEXT: } else {
        // CHECK-NEXT: torch.prim.If.yield
        func.func @f(%n: !torch.int, %flag: !torch.bool, %a: !torch.tensor<[2],f32>) -> !torch.tensor<[2],f32> {
          %true = torch.constant.bool true
          torch.prim.Loop %n, %true, init() {
          ^bb0(%i: !torch.int):
            torch.prim.If %flag -> () {
              %0 = torch.aten.relu_ %a : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
              torch.prim.If.yield
            } else {
              torch.prim.If.yield
            }
            torch.prim.Loop.condition %true, iter()
          } : (!torch.int, !torch.bool) -> ()
          func.return %a : !torch.tensor<[2],f32>
        }
        """,
    )


def test_results_that_are_no_tensors_need_no_copy(check: Check) -> None:
    """A size is read of a value, and is a number."""
    check(
        PASS,
        """
        // CHECK: %[[V:.*]] = torch.copy.to_vtensor
        // CHECK-NEXT: %[[N:.*]] = torch.aten.size.int %[[V]], %int1 : !torch.vtensor<[2,?],f32>, !torch.int
        // CHECK-NEXT: func.return %[[N]]
        func.func @f(%a: !torch.tensor<[2,?],f32>) -> !torch.int {
          %int1 = torch.constant.int 1
          %0 = torch.aten.size.int %a, %int1 : !torch.tensor<[2,?],f32>, !torch.int -> !torch.int
          func.return %0 : !torch.int
        }
        """,
    )


def test_ops_on_containers_stay(filecheck: Check) -> None:
    """They move tensors, which must stay the same tensors: a copy would lose later writes."""
    filecheck(
        PASS,
        """
        // CHECK: torch.prim.ListConstruct %[[A:.*]] : (!torch.tensor) -> !torch.list<tensor>
        // CHECK-NEXT: torch.aten.append.t %{{.*}}, %[[A]] : !torch.list<tensor>, !torch.tensor -> !torch.list<tensor>
        // CHECK-NEXT: torch.aten.__getitem__.t %{{.*}} -> !torch.tensor
        // CHECK-NEXT: torch.operator "torch.aten.pop.t"(%{{.*}}) : (!torch.list<tensor>, !torch.int) -> !torch.tensor
        // CHECK-NEXT: torch.prim.TupleConstruct %[[A]]
        // CHECK-NEXT: torch.prim.TupleIndex %{{.*}} -> !torch.tensor
        // CHECK-NEXT: torch.prim.DictConstruct
        // CHECK-NEXT: torch.aten._set_item.str %{{.*}}, %[[A]] : !torch.dict<str, tensor>, !torch.str, !torch.tensor
        // CHECK-NEXT: torch.derefine %[[A]] : !torch.tensor to !torch.optional<tensor>
        // CHECK-NEXT: torch.prim.unchecked_cast %{{.*}} : !torch.optional<tensor> -> !torch.tensor
        // CHECK-NEXT: func.return
        func.func @f(%a: !torch.tensor) -> (!torch.tensor, !torch.tensor, !torch.tensor, !torch.tensor) {
          %int0 = torch.constant.int 0
          %k = torch.constant.str "k"
          %0 = torch.prim.ListConstruct %a : (!torch.tensor) -> !torch.list<tensor>
          %1 = torch.aten.append.t %0, %a : !torch.list<tensor>, !torch.tensor -> !torch.list<tensor>
          %2 = torch.aten.__getitem__.t %0, %int0 : !torch.list<tensor>, !torch.int -> !torch.tensor
          %3 = torch.operator "torch.aten.pop.t"(%0, %int0) : (!torch.list<tensor>, !torch.int) -> !torch.tensor
          %4 = torch.prim.TupleConstruct %a, %int0 : !torch.tensor, !torch.int -> !torch.tuple<tensor, int>
          %5 = torch.prim.TupleIndex %4, %int0 : !torch.tuple<tensor, int>, !torch.int -> !torch.tensor
          %6 = torch.prim.DictConstruct keys(%k : !torch.str) values(%a : !torch.tensor) -> !torch.dict<str, tensor>
          torch.aten._set_item.str %6, %k, %a : !torch.dict<str, tensor>, !torch.str, !torch.tensor
          %7 = torch.derefine %a : !torch.tensor to !torch.optional<tensor>
          %8 = torch.prim.unchecked_cast %7 : !torch.optional<tensor> -> !torch.tensor
          func.return %2, %3, %5, %8 : !torch.tensor, !torch.tensor, !torch.tensor, !torch.tensor
        }
        """,
    )


def test_writes_of_metadata_stay(filecheck: Check) -> None:
    """They change how a tensor looks at its data, and no data: there is nothing to overwrite."""
    filecheck(
        PASS,
        """
        // CHECK: torch.operator "torch.aten.t_"(%{{.*}}) : (!torch.tensor<[2,3],f32>) -> !torch.tensor<[3,2],f32>
        // CHECK-NEXT: torch.operator "torch.aten.unsqueeze_"
        // CHECK-NOT: torch.overwrite
        func.func @f(%a: !torch.tensor<[2,3],f32>) -> !torch.tensor<[1,3,2],f32> {
          %int0 = torch.constant.int 0
          %0 = torch.operator "torch.aten.t_"(%a) : (!torch.tensor<[2,3],f32>) -> !torch.tensor<[3,2],f32>
          %1 = torch.operator "torch.aten.unsqueeze_"(%0, %int0)
            : (!torch.tensor<[3,2],f32>, !torch.int) -> !torch.tensor<[1,3,2],f32>
          func.return %1 : !torch.tensor<[1,3,2],f32>
        }
        """,
    )


def test_a_value_form_may_have_another_name_and_more_arguments(check: Check) -> None:
    """`zero_` is `zeros_like` with its defaults, and the operands that the value form lacks are left out."""
    check(
        PASS,
        """
        // CHECK: %[[V:.*]] = torch.copy.to_vtensor %[[A:.*]] : !torch.vtensor<[2],f32>
        // CHECK: %[[Z:.*]] = torch.aten.zeros_like %[[V]], %none, %none, %none, %none, %none
        // CHECK: torch.overwrite.tensor.contents %[[Z]] overwrites %[[A]]
        func.func @f(%a: !torch.tensor<[2],f32>) -> !torch.tensor<[2],f32> {
          %0 = torch.aten.zero_ %a : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
          func.return %0 : !torch.tensor<[2],f32>
        }
        """,
    )


def test_a_write_keeps_the_dtype_of_what_is_written(check: Check) -> None:
    """A half plus a float is a float, and becomes a half when it is written."""
    check(
        PASS,
        """
        // CHECK: %[[SUM:.*]] = torch.aten.add.Tensor %{{.*}} -> !torch.vtensor<[2],f32>
        // CHECK-NEXT: %[[NEW:.*]] = torch.aten.to.dtype %[[SUM]], %int5, {{.*}} -> !torch.vtensor<[2],f16>
        // CHECK-NEXT: torch.overwrite.tensor.contents %[[NEW]] overwrites %{{.*}}
        func.func @f(%a: !torch.tensor<[2],f16>, %b: !torch.tensor<[2],f32>) -> !torch.tensor<[2],f16> {
          %int1 = torch.constant.int 1
          %0 = torch.aten.add_.Tensor %a, %b, %int1
            : !torch.tensor<[2],f16>, !torch.tensor<[2],f32>, !torch.int -> !torch.tensor<[2],f16>
          func.return %0 : !torch.tensor<[2],f16>
        }
        """,
    )


def test_out_variants_are_an_error_with_their_line() -> None:
    """`torch.add(x, y, out=z)` writes to an argument and has no value form of that name; all such ops are reported."""
    module = parse_module(
        """
        func.func @f(%a: !torch.tensor<[2],f32>) -> !torch.tensor<[2],f32> {
          %int1 = torch.constant.int 1
          %0 = torch.operator "torch.aten.add.out"(%a, %a, %int1, %a)
            : (!torch.tensor<[2],f32>, !torch.tensor<[2],f32>, !torch.int, !torch.tensor<[2],f32>)
            -> !torch.tensor<[2],f32> loc("model.py":3:8)
          %1 = torch.operator "torch.aten.relu.out"(%a, %a)
            : (!torch.tensor<[2],f32>, !torch.tensor<[2],f32>) -> !torch.tensor<[2],f32> loc("model.py":4:8)
          func.return %0 : !torch.tensor<[2],f32>
        }
        """
    )
    with pytest.raises(CompileError) as error:
        run_pipeline(module, PASS)
    assert [(d.op, d.line) for d in error.value.diagnostics] == [("aten.add.out", 3), ("aten.relu.out", 4)]
    assert "model.py:3" in str(error.value)
