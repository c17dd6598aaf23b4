"""AdjustCallingConventions, IR in and IR out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
from flambeau.opt import run_pipeline

PASS = "torch-adjust-calling-conventions"
Check = Callable[[str, str], None]


def test_type_bounds_become_types(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: func.func @value(%[[X:.*]]: !torch.vtensor<[?,3],f32>, %[[N:.*]]: !torch.int) -> !torch.tensor {
        // CHECK-NEXT: %[[C:.*]] = torch.tensor_static_info_cast %[[X]] : !torch.vtensor<[?,3],f32> to !torch.vtensor
        // CHECK-NEXT: %[[T:.*]] = torch.copy.to_tensor %[[C]] : !torch.tensor
        // CHECK-NEXT: func.return %[[T]]
        func.func @value(%x: !torch.tensor {torch.type_bound = !torch.vtensor<[?,3],f32>}, %n: !torch.int)
            -> !torch.tensor {
          func.return %x : !torch.tensor
        }
        // CHECK: func.func @exact(%[[X:.*]]: !torch.vtensor<[3],f32>)
        // CHECK-NEXT: %[[T:.*]] = torch.copy.to_tensor %[[X]] : !torch.tensor<[3],f32>
        // CHECK-NEXT: func.return %[[T]]
        func.func @exact(%x: !torch.tensor<[3],f32> {torch.type_bound = !torch.vtensor<[3],f32>})
            -> !torch.tensor<[3],f32> {
          func.return %x : !torch.tensor<[3],f32>
        }
        // CHECK: func.func @mutable(%[[X:.*]]: !torch.tensor<[3],f32>)
        // CHECK-NEXT: %[[T:.*]] = torch.tensor_static_info_cast %[[X]] : !torch.tensor<[3],f32> to !torch.tensor
        // CHECK-NEXT: func.return %[[T]]
        func.func @mutable(%x: !torch.tensor {torch.type_bound = !torch.tensor<[3],f32>}) -> !torch.tensor {
          func.return %x : !torch.tensor
        }
        // CHECK: func.func @unused(%{{.*}}: !torch.vtensor<[3],f32> {my.attr = 1 : i64}) {
        // CHECK-NEXT: func.return
        func.func @unused(%x: !torch.tensor {torch.type_bound = !torch.vtensor<[3],f32>, my.attr = 1 : i64}) {
          func.return
        }
        """,
    )


def test_tuples_are_several_results_and_none_is_no_result(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: func.func @known(%[[A:.*]]: !torch.int, %[[B:.*]]: !torch.float)
        // CHECK-SAME: -> (!torch.int, !torch.float, !torch.int)
        // CHECK: func.return %[[A]], %[[B]], %[[A]] : !torch.int, !torch.float, !torch.int
        func.func @known(%a: !torch.int, %b: !torch.float) -> !torch.tuple<int, tuple<float, none, int>> {
          %none = torch.constant.none
          %0 = torch.prim.TupleConstruct %b, %none, %a : !torch.float, !torch.none, !torch.int
            -> !torch.tuple<float, none, int>
          %1 = torch.prim.TupleConstruct %a, %0 : !torch.int, !torch.tuple<float, none, int>
            -> !torch.tuple<int, tuple<float, none, int>>
          func.return %1 : !torch.tuple<int, tuple<float, none, int>>
        }
        // CHECK: func.func @unknown(%[[T:.*]]: !torch.tuple<int, tuple<float>>) -> (!torch.int, !torch.float) {
        // CHECK-NEXT: %[[A:.*]], %[[I:.*]] = torch.prim.TupleUnpack %[[T]]
        // CHECK-NEXT: %[[B:.*]] = torch.prim.TupleUnpack %[[I]]
        // CHECK-NEXT: func.return %[[A]], %[[B]]
        func.func @unknown(%t: !torch.tuple<int, tuple<float>>) -> !torch.tuple<int, tuple<float>> {
          func.return %t : !torch.tuple<int, tuple<float>>
        }
        // CHECK: func.func @wider(%[[A:.*]]: !torch.int) -> !torch.optional<int> {
        // CHECK-NEXT: %[[T:.*]] = torch.prim.TupleConstruct %[[A]]
        // CHECK-NEXT: %[[O:.*]] = torch.prim.TupleUnpack %[[T]]
        // CHECK-NEXT: func.return %[[O]]
        func.func @wider(%a: !torch.int) -> !torch.tuple<optional<int>> {
          %0 = torch.prim.TupleConstruct %a : !torch.int -> !torch.tuple<optional<int>>
          func.return %0 : !torch.tuple<optional<int>>
        }
        // CHECK: func.func @nothing() {
        // CHECK: func.return{{$}}
        func.func @nothing() -> !torch.none {
          %none = torch.constant.none
          func.return %none : !torch.none
        }
        """,
    )


def test_calls_follow(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: func.func @main(%[[X:.*]]: !torch.tensor)
        // CHECK-SAME: -> (!torch.tensor, !torch.int)
        // CHECK: %[[NONE:.*]] = torch.constant.none
        // CHECK: %[[V:.*]] = torch.copy.to_vtensor %[[X]] : !torch.vtensor
        // CHECK-NEXT: %[[C:.*]] = torch.tensor_static_info_cast %[[V]] : !torch.vtensor to !torch.vtensor<[3],f32>
        // CHECK-NEXT: %[[T:.*]], %[[N:.*]] = func.call @f(%[[C]])
        // CHECK-SAME: (!torch.vtensor<[3],f32>) -> (!torch.tensor, !torch.int)
        // CHECK-NEXT: torch.prim.TupleConstruct %[[N]], %[[NONE]]
        // CHECK: func.return %[[T]], %[[N]]
        // CHECK: func.func private @f(%{{.*}}: !torch.vtensor<[3],f32>) -> (!torch.tensor, !torch.int)
        func.func @main(%x: !torch.tensor) -> !torch.tuple<tensor, tuple<int, none>> {
          %0 = func.call @f(%x) : (!torch.tensor) -> !torch.tuple<tensor, tuple<int, none>>
          func.return %0 : !torch.tuple<tensor, tuple<int, none>>
        }
        func.func private @f(%x: !torch.tensor {torch.type_bound = !torch.vtensor<[3],f32>})
            -> !torch.tuple<tensor, tuple<int, none>> {
          %n = torch.constant.int 1
          %none = torch.constant.none
          %0 = torch.prim.TupleConstruct %n, %none : !torch.int, !torch.none -> !torch.tuple<int, none>
          %1 = torch.prim.TupleConstruct %x, %0 : !torch.tensor, !torch.tuple<int, none>
            -> !torch.tuple<tensor, tuple<int, none>>
          func.return %1 : !torch.tuple<tensor, tuple<int, none>>
        }
        """,
    )


def test_declarations_change_with_their_calls(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: func.func private @outside(!torch.int) -> (!torch.int, !torch.float)
        // CHECK: %[[A:.*]], %[[B:.*]] = func.call @outside(%{{.*}}) : (!torch.int) -> (!torch.int, !torch.float)
        func.func private @outside(!torch.int) -> !torch.tuple<int, float>
        func.func @main(%n: !torch.int) -> !torch.int {
          %0 = func.call @outside(%n) : (!torch.int) -> !torch.tuple<int, float>
          %1, %2 = torch.prim.TupleUnpack %0 : !torch.tuple<int, float> -> !torch.int, !torch.float
          func.return %1 : !torch.int
        }
        """,
    )


@pytest.mark.parametrize(
    ("type_", "bound"),
    [
        ("!torch.int", "!torch.vtensor<[3],f32>"),
        ("!torch.tensor<[2],f32>", "!torch.vtensor<[3],f32>"),
        ("!torch.tensor<[3],f32>", "!torch.vtensor<[3],f64>"),
        ("!torch.vtensor", "!torch.tensor<[3],f32>"),
    ],
)
def test_bounds_that_do_not_fit(type_: str, bound: str) -> None:
    text = f"func.func @f(%n: !torch.int, %x: {type_} {{torch.type_bound = {bound}}}) {{ func.return }}"
    with pytest.raises(CompileError, match=r"argument 1 of @f is a .* and cannot be bound to"):
        run_pipeline(parse_module(text), PASS)
