"""RefinePublicReturn, IR in and IR out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
from flambeau.opt import run_pipeline

PASS = "torch-refine-public-return"
Check = Callable[[str, str], None]


def test_public_functions_return_values_of_known_type(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[?],f32>, %[[Y:.*]]: !torch.tensor<[2],f32>)
        // CHECK-SAME: -> (!torch.vtensor<[?],f32>, !torch.int, !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>)
        // CHECK: %[[V:.*]] = torch.copy.to_vtensor %[[Y]] : !torch.vtensor<[2],f32>
        // CHECK-NEXT: func.return %[[X]], %{{.*}}, %[[V]], %[[V]]
        func.func @f(%x: !torch.vtensor<[?],f32>, %y: !torch.tensor<[2],f32>)
            -> (!torch.tensor, !torch.int, !torch.tensor, !torch.tensor<[2],f32>) {
          %n = torch.constant.int 1
          %0 = torch.copy.to_tensor %x : !torch.tensor<[?],f32>
          %1 = torch.tensor_static_info_cast %0 : !torch.tensor<[?],f32> to !torch.tensor
          %2 = torch.tensor_static_info_cast %y : !torch.tensor<[2],f32> to !torch.tensor
          func.return %1, %n, %2, %y : !torch.tensor, !torch.int, !torch.tensor, !torch.tensor<[2],f32>
        }
        // CHECK: func.func @casts(%[[X:.*]]: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32>
        // CHECK: func.return %[[X]]
        func.func @casts(%x: !torch.vtensor<[2],f32>) -> !torch.vtensor {
          %0 = torch.tensor_static_info_cast %x : !torch.vtensor<[2],f32> to !torch.vtensor
          %1 = torch.copy.to_tensor %0 : !torch.tensor
          %2 = torch.copy.to_vtensor %1 : !torch.vtensor
          func.return %2 : !torch.vtensor
        }
        // CHECK: func.func @narrows(%[[X:.*]]: !torch.vtensor) -> !torch.vtensor<[2],f32>
        // CHECK-NEXT: %[[C:.*]] = torch.tensor_static_info_cast
        // CHECK-NEXT: func.return %[[C]]
        func.func @narrows(%x: !torch.vtensor) -> !torch.vtensor<[2],f32> {
          %0 = torch.tensor_static_info_cast %x : !torch.vtensor to !torch.vtensor<[2],f32>
          func.return %0 : !torch.vtensor<[2],f32>
        }
        // CHECK: func.func private @private(%[[X:.*]]: !torch.tensor) -> !torch.tensor
        func.func private @private(%x: !torch.tensor) -> !torch.tensor {
          func.return %x : !torch.tensor
        }
        """,
    )


def test_a_copy_that_is_written_is_not_what_it_was(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[2],f32>) -> (!torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>)
        // CHECK-NEXT: %[[T:.*]] = torch.copy.to_tensor %[[X]]
        // CHECK-NEXT: %[[BEFORE:.*]] = torch.copy.to_vtensor %[[T]]
        // CHECK: torch.aten.relu_
        // CHECK: %[[AFTER:.*]] = torch.copy.to_vtensor %[[T]]
        // CHECK-NEXT: func.return %[[AFTER]], %[[BEFORE]]
        func.func @f(%x: !torch.vtensor<[2],f32>) -> (!torch.tensor, !torch.vtensor<[2],f32>) {
          %0 = torch.copy.to_tensor %x : !torch.tensor<[2],f32>
          %before = torch.copy.to_vtensor %0 : !torch.vtensor<[2],f32>
          %1 = torch.aten.detach %0 : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
          %2 = torch.aten.relu_ %1 : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
          %3 = torch.tensor_static_info_cast %0 : !torch.tensor<[2],f32> to !torch.tensor
          func.return %3, %before : !torch.tensor, !torch.vtensor<[2],f32>
        }
        """,
    )


def test_a_public_function_that_is_called_is_reported() -> None:
    text = """
    func.func @f(%x: !torch.tensor) -> !torch.tensor { func.return %x : !torch.tensor }
    func.func @g(%x: !torch.tensor) {
      %0 = func.call @f(%x) : (!torch.tensor) -> !torch.tensor
      func.return
    }
    """
    with pytest.raises(CompileError, match=r"@g calls the public function @f(.|\n)*Run the pass 'inline' first"):
        run_pipeline(parse_module(text), PASS)
