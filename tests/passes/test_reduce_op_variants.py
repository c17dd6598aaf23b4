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
          %0 = torch.operator "torch.aten.normal_"(%arg0, %f, %f, %none)
            : (!torch.tensor<[2],f32>, !torch.float, !torch.float, !torch.none) -> !torch.tensor<[2],f32>
          func.return %0 : !torch.tensor<[2],f32>
        }
        """
    )
    with pytest.raises(CompileError, match=r"aten\.normal_: this in-place op has no value form"):
        run_pipeline(module, PASS)
