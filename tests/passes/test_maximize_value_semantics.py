"""MaximizeValueSemantics, IR in and IR out: views, metadata, reshapes, arguments."""

from __future__ import annotations

import pytest
from passes.value_semantics import PASS, Check

from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
from flambeau.opt import run_pipeline

# --- Views ---


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


WRITTEN_VIEWS = {
    "aten.slice.Tensor": ("%int1, %int0, %int3, %int2", ("int", "int", "int", "int"), "[2,2,4]"),
    "aten.select.int": ("%int1, %int2", ("int", "int"), "[2,4]"),
    "aten.diagonal": ("%int0, %int0, %int2", ("int", "int", "int"), "[3,2]"),
    "aten.transpose.int": ("%int0, %int2", ("int", "int"), "[4,3,2]"),
    "aten.permute": ("%order", ("list<int>",), "[4,2,3]"),
    "aten.movedim.int": ("%int0, %int2", ("int", "int"), "[3,4,2]"),
    "aten.unsqueeze": ("%int1", ("int",), "[2,1,3,4]"),
    "aten.squeeze": ("", (), "[2,3,4]"),
    "aten.squeeze.dim": ("%int1", ("int",), "[2,3,4]"),
    "aten.view": ("%flat", ("list<int>",), "[24]"),
    "aten.reshape": ("%flat", ("list<int>",), "[24]"),
    "aten.flatten.using_ints": ("%int1, %int2", ("int", "int"), "[2,12]"),
    "aten.unflatten.int": ("%int2, %pair", ("int", "list<int>"), "[2,3,2,2]"),
    "aten.detach": ("", (), "[2,3,4]"),
    "aten.alias": ("", (), "[2,3,4]"),
    "aten.contiguous": ("%int0", ("int",), "[2,3,4]"),
    "aten.expand": ("%same, %false", ("list<int>", "bool"), "[2,3,4]"),
    "aten.as_strided": ("%pair, %strides, %none", ("list<int>", "list<int>", "none"), "[2,2]"),
}
"""View ops of a tensor of shape [2,3,4]: the operands behind the tensor, their types, and the shape of the view."""


@pytest.mark.parametrize("view", WRITTEN_VIEWS)
def test_every_view_can_be_written_through(view: str, same_numbers: Check) -> None:
    """The base sees a write through the view, and a view taken before sees one to the base."""
    operands, types, shape = WRITTEN_VIEWS[view]
    spelt = ", ".join(["!torch.tensor<[2,3,4],f32>", *(f"!torch.{t}" for t in types)])
    part = f"<{shape},f32>"
    same_numbers(
        PASS,
        f"""
        func.func @f(%x: !torch.vtensor<[2,3,4],f32>) -> (!torch.vtensor<[2,3,4],f32>, !torch.vtensor{part}) {{
          %none = torch.constant.none
          %false = torch.constant.bool false
          %int0 = torch.constant.int 0
          %int1 = torch.constant.int 1
          %int2 = torch.constant.int 2
          %int3 = torch.constant.int 3
          %int4 = torch.constant.int 4
          %int24 = torch.constant.int 24
          %order = torch.prim.ListConstruct %int2, %int0, %int1
            : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
          %same = torch.prim.ListConstruct %int2, %int3, %int4
            : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
          %pair = torch.prim.ListConstruct %int2, %int2 : (!torch.int, !torch.int) -> !torch.list<int>
          %strides = torch.prim.ListConstruct %int4, %int1 : (!torch.int, !torch.int) -> !torch.list<int>
          %flat = torch.prim.ListConstruct %int24 : (!torch.int) -> !torch.list<int>
          %a = torch.copy.to_tensor %x : !torch.tensor<[2,3,4],f32>
          %v = torch.operator "torch.{view}"(%a{", " if operands else ""}{operands}) : ({spelt}) -> !torch.tensor{part}
          %0 = torch.aten.add_.Scalar %v, %int3, %int1
            : !torch.tensor{part}, !torch.int, !torch.int -> !torch.tensor{part}
          %1 = torch.aten.relu_ %a : !torch.tensor<[2,3,4],f32> -> !torch.tensor<[2,3,4],f32>
          %2 = torch.aten.mul_.Scalar %v, %int2 : !torch.tensor{part}, !torch.int -> !torch.tensor{part}
          %3 = torch.copy.to_vtensor %a : !torch.vtensor<[2,3,4],f32>
          %4 = torch.copy.to_vtensor %v : !torch.vtensor{part}
          func.return %3, %4 : !torch.vtensor<[2,3,4],f32>, !torch.vtensor{part}
        }}
        """,
    )


PARTS = {
    "aten.split.Tensor": ("%int2, %int0", ("int", "int"), ("[2,2]", "[1,2]")),
    "aten.split_with_sizes": ("%sizes, %int0", ("list<int>", "int"), ("[2,2]", "[1,2]")),
    "aten.chunk": ("%int2, %int0", ("int", "int"), ("[2,2]", "[1,2]")),
    "aten.unbind.int": ("%int1", ("int",), ("[3]", "[3]")),
}


@pytest.mark.parametrize("op", PARTS)
def test_the_parts_of_a_tensor_are_views_of_it(op: str, same_numbers: Check) -> None:
    """A write to the first part is seen in the whole, and one to the whole in the second part."""
    operands, types, (first, second) = PARTS[op]
    spelt = ", ".join(["!torch.tensor<[3,2],f32>", *(f"!torch.{t}" for t in types)])
    same_numbers(
        PASS,
        f"""
        func.func @f(%x: !torch.vtensor<[3,2],f32>) -> (!torch.vtensor<[3,2],f32>, !torch.vtensor<{second},f32>) {{
          %int0 = torch.constant.int 0
          %int1 = torch.constant.int 1
          %int2 = torch.constant.int 2
          %sizes = torch.prim.ListConstruct %int2, %int1 : (!torch.int, !torch.int) -> !torch.list<int>
          %a = torch.copy.to_tensor %x : !torch.tensor<[3,2],f32>
          %parts = torch.operator "torch.{op}"(%a, {operands}) : ({spelt}) -> !torch.list<tensor>
          %0, %1 = torch.prim.ListUnpack %parts : !torch.list<tensor>
            -> !torch.tensor<{first},f32>, !torch.tensor<{second},f32>
          %2 = torch.aten.add_.Scalar %0, %int2, %int1
            : !torch.tensor<{first},f32>, !torch.int, !torch.int -> !torch.tensor<{first},f32>
          %3 = torch.aten.neg_ %a : !torch.tensor<[3,2],f32> -> !torch.tensor<[3,2],f32>
          %4 = torch.copy.to_vtensor %a : !torch.vtensor<[3,2],f32>
          %5 = torch.copy.to_vtensor %1 : !torch.vtensor<{second},f32>
          func.return %4, %5 : !torch.vtensor<[3,2],f32>, !torch.vtensor<{second},f32>
        }}
        """,
    )


# --- Metadata, reshapes, arguments ---


def test_metadata_writes_change_the_tensor_not_its_data(check: Check) -> None:
    """`t_` and `unsqueeze_` change how one tensor looks at its data; another view of the data stays as it is."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[2,3],f32>)
        // CHECK: %[[T:.*]] = torch.aten.t %[[X]]
        // CHECK-NEXT: %[[U:.*]] = torch.aten.unsqueeze %[[T]]
        // CHECK-NEXT: %[[R:.*]] = torch.aten.relu %[[U]]
        // CHECK-DAG: %[[BACK:.*]] = torch.aten.view %[[R]]
        // CHECK: %[[NEW:.*]] = torch.aten.t %[[BACK]] : !torch.vtensor<[3,2],f32> -> !torch.vtensor<[2,3],f32>
        // CHECK: func.return %[[NEW]], %{{.*}} : !torch.vtensor<[2,3],f32>, !torch.vtensor<[1,3,2],f32>
        func.func @f(%x: !torch.vtensor<[2,3],f32>) -> (!torch.vtensor<[2,3],f32>, !torch.vtensor<[1,3,2],f32>) {
          %int0 = torch.constant.int 0
          %a = torch.copy.to_tensor %x : !torch.tensor<[2,3],f32>
          %b = torch.aten.detach %a : !torch.tensor<[2,3],f32> -> !torch.tensor<[2,3],f32>
          %0 = torch.operator "torch.aten.t_"(%b) : (!torch.tensor<[2,3],f32>) -> !torch.tensor<[3,2],f32>
          %1 = torch.operator "torch.aten.unsqueeze_"(%0, %int0)
            : (!torch.tensor<[3,2],f32>, !torch.int) -> !torch.tensor<[1,3,2],f32>
          %2 = torch.aten.relu_ %1 : !torch.tensor<[1,3,2],f32> -> !torch.tensor<[1,3,2],f32>
          %3 = torch.copy.to_vtensor %a : !torch.vtensor<[2,3],f32>
          %4 = torch.copy.to_vtensor %1 : !torch.vtensor<[1,3,2],f32>
          func.return %3, %4 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[1,3,2],f32>
        }
        """,
    )


RESHAPED = """
        func.func @f(%x: !torch.vtensor<[2,3],f32>) -> (!torch.vtensor<[2,3],f32>, !torch.vtensor<[6],f32>) {{
          %int6 = torch.constant.int 6
          %sizes = torch.prim.ListConstruct %int6 : (!torch.int) -> !torch.list<int>
          %a = torch.copy.to_tensor %x : !torch.tensor<[2,3],f32>
          %v = torch.aten.t %a : !torch.tensor<[2,3],f32> -> !torch.tensor<[3,2],f32>
          %b = torch.aten.reshape {source}, %sizes : {type}, !torch.list<int> -> !torch.tensor<[6],f32>
          %0 = torch.aten.relu_ %b : !torch.tensor<[6],f32> -> !torch.tensor<[6],f32>
          %1 = torch.copy.to_vtensor %a : !torch.vtensor<[2,3],f32>
          %2 = torch.copy.to_vtensor %b : !torch.vtensor<[6],f32>
          func.return %1, %2 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[6],f32>
        }}
"""


def test_reshape_of_a_contiguous_tensor_is_an_alias(check: Check) -> None:
    """A write to it is a write to the tensor."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[2,3],f32>)
        // CHECK: %[[B:.*]] = torch.aten.reshape %[[X]]
        // CHECK-NEXT: %[[R:.*]] = torch.aten.relu %[[B]]
        // CHECK: %[[NEW:.*]] = torch.aten.view %[[R]]
        // CHECK: func.return %[[NEW]]
        """
        + RESHAPED.format(source="%a", type="!torch.tensor<[2,3],f32>"),
    )


def test_reshape_of_a_transposed_tensor_is_a_copy(check: Check) -> None:
    """A write to it leaves the tensor alone."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[2,3],f32>)
        // CHECK: %[[R:.*]] = torch.aten.relu
        // CHECK: func.return %[[X]], %[[R]]
        """
        + RESHAPED.format(source="%v", type="!torch.tensor<[3,2],f32>"),
    )


def test_a_write_to_an_argument_stays_visible(check: Check) -> None:
    """The caller has the tensor: the write stays, also one through a view and one in a branch."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[FLAG:.*]]: !torch.bool, %[[A:.*]]: !torch.tensor<[2,3],f32>)
        // CHECK-NEXT: %[[X:.*]] = torch.copy.to_vtensor %[[A]]
        // CHECK: %[[NEW:.*]] = torch.aten.t
        // CHECK: %[[BACK:.*]] = torch.aten.t
        // CHECK-NEXT: torch.overwrite.tensor.contents %[[BACK]] overwrites %[[A]]
        // CHECK-NEXT: torch.prim.If %[[FLAG]] -> () {
        // CHECK-NEXT: %[[NEG:.*]] = torch.aten.neg %[[BACK]]
        // CHECK-NEXT: torch.overwrite.tensor.contents %[[NEG]] overwrites %[[A]]
        // CHECK: func.return %[[A]]
        func.func @f(%flag: !torch.bool, %a: !torch.tensor<[2,3],f32>) -> !torch.tensor<[2,3],f32> {
          %0 = torch.aten.t %a : !torch.tensor<[2,3],f32> -> !torch.tensor<[3,2],f32>
          %1 = torch.aten.relu_ %0 : !torch.tensor<[3,2],f32> -> !torch.tensor<[3,2],f32>
          torch.prim.If %flag -> () {
            %2 = torch.aten.neg_ %a : !torch.tensor<[2,3],f32> -> !torch.tensor<[2,3],f32>
            torch.prim.If.yield
          } else {
            torch.prim.If.yield
          }
          func.return %a : !torch.tensor<[2,3],f32>
        }
        """,
    )


def test_an_alias_that_nobody_can_tell_is_an_error() -> None:
    """The message names the two tensors and the write by their lines."""
    module = parse_module(
        """
        func.func @f(%x: !torch.vtensor<[2,3],f32>, %n: !torch.int) -> !torch.vtensor<[2,3],f32> {
          %int0 = torch.constant.int 0
          %a = torch.copy.to_tensor %x : !torch.tensor<[2,3],f32> loc("model.py":3:0)
          %sizes = torch.prim.ListConstruct %n : (!torch.int) -> !torch.list<int>
          %v = torch.aten.t %a : !torch.tensor<[2,3],f32> -> !torch.tensor<[3,2],f32> loc("model.py":4:0)
          %b = torch.aten.reshape %v, %sizes : !torch.tensor<[3,2],f32>, !torch.list<int> -> !torch.tensor<[?],f32>
            loc("model.py":5:0)
          %0 = torch.aten.relu_ %b : !torch.tensor<[?],f32> -> !torch.tensor<[?],f32> loc("model.py":6:0)
          %1 = torch.copy.to_vtensor %a : !torch.vtensor<[2,3],f32> loc("model.py":7:0)
          func.return %1 : !torch.vtensor<[2,3],f32>
        }
        """
    )
    with pytest.raises(CompileError) as error:
        run_pipeline(module, PASS)
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.line == 7
    assert "model.py:3 and model.py:5 may be the same, and model.py:6 writes to one of them" in diagnostic.reason
    assert diagnostic.hint == "clone() one of the two before writing."
