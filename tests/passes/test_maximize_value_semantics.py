"""MaximizeValueSemantics, IR in and IR out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
from flambeau.opt import run_pipeline

PASS = "torch-maximize-value-semantics,dce"
Check = Callable[[str, str], None]


def test_a_write_separates_what_was_from_what_is(filecheck: Check) -> None:
    """S73: the deck's trivial example, with its old spelling of the write."""
    filecheck(
        PASS,
        """
        // CHECK: func.func @f(%[[A:.*]]: !torch.vtensor, %[[B:.*]]: !torch.vtensor)
        // CHECK-NEXT: func.return %[[A]], %[[B]]
        func.func @f(%arg0: !torch.vtensor, %arg1: !torch.vtensor) -> (!torch.vtensor, !torch.vtensor) {
          %0 = torch.copy.to_tensor %arg0 : !torch.tensor
          %equal_to_arg0 = torch.copy.to_vtensor %0 : !torch.vtensor
          torch.override.tensor %arg1 overwrites %0 : !torch.vtensor, !torch.tensor
          %equal_to_arg1 = torch.copy.to_vtensor %0 : !torch.vtensor
          func.return %equal_to_arg0, %equal_to_arg1 : !torch.vtensor, !torch.vtensor
        }
        """,
    )


def test_views_are_taken_of_values(filecheck: Check) -> None:
    """S74: the deck's two unsqueezes."""
    filecheck(
        PASS,
        """
        // CHECK: func.func @f(%[[A:.*]]: !torch.vtensor)
        // CHECK-NEXT: %[[ZERO:.*]] = torch.constant.int 0
        // CHECK-NEXT: %[[V:.*]] = torch.aten.unsqueeze %[[A]], %[[ZERO]] : !torch.vtensor, !torch.int -> !torch.vtensor
        // CHECK-NEXT: %[[W:.*]] = torch.aten.unsqueeze %[[V]], %[[ZERO]] : !torch.vtensor, !torch.int -> !torch.vtensor
        // CHECK-NEXT: func.return %[[W]]
        func.func @f(%arg0: !torch.vtensor) -> !torch.vtensor {
          %int0 = torch.constant.int 0
          %0 = torch.copy.to_tensor %arg0 : !torch.tensor
          %1 = torch.aten.unsqueeze %0, %int0 : !torch.tensor, !torch.int -> !torch.tensor
          %2 = torch.aten.unsqueeze %1, %int0 : !torch.tensor, !torch.int -> !torch.tensor
          %3 = torch.copy.to_vtensor %2 : !torch.vtensor
          func.return %3 : !torch.vtensor
        }
        """,
    )


def test_a_write_through_a_view_reaches_the_base(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: func.func @f(%[[A:.*]]: !torch.vtensor<[4,3],f32>, %[[B:.*]]: !torch.vtensor<[3],f32>)
        // CHECK: %[[NEW:.*]] = torch.aten.select_scatter %[[A]], %[[B]]
        // CHECK: func.return %[[NEW]]
        func.func @f(%arg0: !torch.vtensor<[4,3],f32>, %arg1: !torch.vtensor<[3],f32>) -> !torch.vtensor<[4,3],f32> {
          %int0 = torch.constant.int 0
          %0 = torch.copy.to_tensor %arg0 : !torch.tensor<[4,3],f32>
          %1 = torch.aten.select.int %0, %int0, %int0
            : !torch.tensor<[4,3],f32>, !torch.int, !torch.int -> !torch.tensor<[3],f32>
          torch.overwrite.tensor.contents %arg1 overwrites %1 : !torch.vtensor<[3],f32>, !torch.tensor<[3],f32>
          %2 = torch.copy.to_vtensor %0 : !torch.vtensor<[4,3],f32>
          func.return %2 : !torch.vtensor<[4,3],f32>
        }
        """,
    )


def test_a_view_taken_before_a_write_to_its_base_sees_it(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: func.func @f(%[[A:.*]]: !torch.vtensor<[4,3],f32>, %[[B:.*]]: !torch.vtensor<[4,3],f32>)
        // CHECK-NEXT: %[[T:.*]] = torch.aten.t %[[B]]
        // CHECK-NEXT: func.return %[[T]]
        func.func @f(%arg0: !torch.vtensor<[4,3],f32>, %arg1: !torch.vtensor<[4,3],f32>) -> !torch.vtensor<[3,4],f32> {
          %0 = torch.copy.to_tensor %arg0 : !torch.tensor<[4,3],f32>
          %1 = torch.aten.t %0 : !torch.tensor<[4,3],f32> -> !torch.tensor<[3,4],f32>
          torch.overwrite.tensor.contents %arg1 overwrites %0 : !torch.vtensor<[4,3],f32>, !torch.tensor<[4,3],f32>
          %2 = torch.copy.to_vtensor %1 : !torch.vtensor<[3,4],f32>
          func.return %2 : !torch.vtensor<[3,4],f32>
        }
        """,
    )


def test_a_write_that_has_no_inverse_is_an_error_that_names_the_view() -> None:
    module = parse_module(
        """
        func.func @f(%arg0: !torch.vtensor<[1,3],f32>, %arg1: !torch.vtensor<[4,3],f32>) -> !torch.vtensor<[1,3],f32> {
          %int4 = torch.constant.int 4
          %int3 = torch.constant.int 3
          %false = torch.constant.bool false
          %l = torch.prim.ListConstruct %int4, %int3 : (!torch.int, !torch.int) -> !torch.list<int>
          %0 = torch.copy.to_tensor %arg0 : !torch.tensor<[1,3],f32>
          %1 = torch.aten.expand %0, %l, %false
            : !torch.tensor<[1,3],f32>, !torch.list<int>, !torch.bool -> !torch.tensor<[4,3],f32>
          torch.overwrite.tensor.contents %arg1 overwrites %1 : !torch.vtensor<[4,3],f32>, !torch.tensor<[4,3],f32>
          %2 = torch.copy.to_vtensor %0 : !torch.vtensor<[1,3],f32>
          func.return %2 : !torch.vtensor<[1,3],f32>
        }
        """
    )
    with pytest.raises(CompileError, match=r"a write through aten\.expand cannot be expressed"):
        run_pipeline(module, PASS)
