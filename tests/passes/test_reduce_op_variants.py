"""ReduceOpVariants, IR in and IR out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
from flambeau.opt import run_pipeline

PASS = "torch-reduce-op-variants"
Check = Callable[[str, str], None]


def test_value_semantic_ops_work_on_values(filecheck: Check) -> None:
    """S71: the deck's tanh."""
    filecheck(
        PASS,
        """
        // CHECK: func.func @f(%[[ARG:.*]]: !torch.tensor<[],f32>)
        // CHECK-NEXT: %[[V:.*]] = torch.copy.to_vtensor %[[ARG]] : !torch.vtensor<[],f32>
        // CHECK-NEXT: %[[R:.*]] = torch.aten.tanh %[[V]] : !torch.vtensor<[],f32> -> !torch.vtensor<[],f32>
        // CHECK-NEXT: %[[T:.*]] = torch.copy.to_tensor %[[R]] : !torch.tensor<[],f32>
        // CHECK-NEXT: func.return %[[T]]
        func.func @f(%arg0: !torch.tensor<[],f32>) -> !torch.tensor<[],f32> {
          %0 = torch.aten.tanh %arg0 : !torch.tensor<[],f32> -> !torch.tensor<[],f32>
          func.return %0 : !torch.tensor<[],f32>
        }
        """,
    )


def test_trailing_underscore_variants_become_a_value_op_and_a_write(filecheck: Check) -> None:
    """S72: the deck's add_, in today's spelling."""
    filecheck(
        PASS,
        """
        // CHECK: func.func @f(%[[A:.*]]: !torch.tensor<[2],f32>, %[[B:.*]]: !torch.tensor<[2],f32>)
        // CHECK: %[[INT1:.*]] = torch.constant.int 1
        // CHECK-NEXT: %[[VA:.*]] = torch.copy.to_vtensor %[[A]]
        // CHECK-NEXT: %[[VB:.*]] = torch.copy.to_vtensor %[[B]]
        // CHECK-NEXT: %[[SUM:.*]] = torch.aten.add.Tensor %[[VA]], %[[VB]], %[[INT1]]
        // CHECK-NEXT: torch.overwrite.tensor.contents %[[SUM]] overwrites %[[A]]
        // CHECK-NEXT: func.return %[[A]], %[[A]]
        func.func @f(%arg0: !torch.tensor<[2],f32>, %arg1: !torch.tensor<[2],f32>)
            -> (!torch.tensor<[2],f32>, !torch.tensor<[2],f32>) {
          %int1 = torch.constant.int 1
          %0 = torch.aten.add_.Tensor %arg0, %arg1, %int1
            : !torch.tensor<[2],f32>, !torch.tensor<[2],f32>, !torch.int -> !torch.tensor<[2],f32>
          func.return %0, %arg0 : !torch.tensor<[2],f32>, !torch.tensor<[2],f32>
        }
        """,
    )


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
          %0 = torch.operator "torch.aten.normal_"(%arg0, %f, %f, %none)
            : (!torch.tensor<[2],f32>, !torch.float, !torch.float, !torch.none) -> !torch.tensor<[2],f32>
          func.return %0 : !torch.tensor<[2],f32>
        }
        """
    )
    with pytest.raises(CompileError, match=r"aten\.normal_: this in-place op has no value form"):
        run_pipeline(module, PASS)
