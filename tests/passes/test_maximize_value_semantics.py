"""MaximizeValueSemantics, IR in and IR out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdsl.dialects.func import FuncOp

from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
from flambeau.ir.printing import pretty_text
from flambeau.opt import run_pipeline

PASS = "torch-reduce-op-variants,torch-maximize-value-semantics,dce"
Check = Callable[[str, str], None]


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


# --- Tuples ---


def test_a_tuple_of_views_is_taken_apart(check: Check) -> None:
    """S15: view, TupleConstruct, TupleIndex: no mutable tensor is left."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[2,3],f32>)
        // CHECK-NEXT: %[[T:.*]] = torch.aten.t %[[X]] : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[3,2],f32>
        // CHECK-NEXT: func.return %[[T]]
        func.func @f(%x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[3,2],f32> {
          %int0 = torch.constant.int 0
          %0 = torch.copy.to_tensor %x : !torch.tensor<[2,3],f32>
          %1 = torch.aten.t %0 : !torch.tensor<[2,3],f32> -> !torch.tensor<[3,2],f32>
          %2 = torch.prim.TupleConstruct %1, %0 : !torch.tensor<[3,2],f32>, !torch.tensor<[2,3],f32>
            -> !torch.tuple<tensor<[3,2],f32>, tensor<[2,3],f32>>
          %3 = torch.prim.TupleIndex %2, %int0
            : !torch.tuple<tensor<[3,2],f32>, tensor<[2,3],f32>>, !torch.int -> !torch.tensor<[3,2],f32>
          %4 = torch.copy.to_vtensor %3 : !torch.vtensor<[3,2],f32>
          func.return %4 : !torch.vtensor<[3,2],f32>
        }
        """,
    )


def test_a_write_to_an_element_of_a_nested_tuple_reaches_the_base(check: Check) -> None:
    """S15, S16: an element keeps its identity through two tuples."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[2,3],f32>)
        // CHECK-NEXT: %[[T:.*]] = torch.aten.t %[[X]]
        // CHECK-NEXT: %[[R:.*]] = torch.aten.relu %[[T]]
        // CHECK-NEXT: %[[BACK:.*]] = torch.aten.t %[[R]]
        // CHECK-NEXT: func.return %[[BACK]]
        func.func @f(%x: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
          %0 = torch.copy.to_tensor %x : !torch.tensor<[2,3],f32>
          %1 = torch.aten.t %0 : !torch.tensor<[2,3],f32> -> !torch.tensor<[3,2],f32>
          %2 = torch.prim.TupleConstruct %1 : !torch.tensor<[3,2],f32> -> !torch.tuple<tensor<[3,2],f32>>
          %3 = torch.prim.TupleConstruct %0, %2 : !torch.tensor<[2,3],f32>, !torch.tuple<tensor<[3,2],f32>>
            -> !torch.tuple<tensor<[2,3],f32>, tuple<tensor<[3,2],f32>>>
          %4:2 = torch.prim.TupleUnpack %3 : !torch.tuple<tensor<[2,3],f32>, tuple<tensor<[3,2],f32>>>
            -> !torch.tensor<[2,3],f32>, !torch.tuple<tensor<[3,2],f32>>
          %5 = torch.prim.TupleUnpack %4#1 : !torch.tuple<tensor<[3,2],f32>> -> !torch.tensor<[3,2],f32>
          %6 = torch.aten.relu_ %5 : !torch.tensor<[3,2],f32> -> !torch.tensor<[3,2],f32>
          %7 = torch.copy.to_vtensor %4#0 : !torch.vtensor<[2,3],f32>
          func.return %7 : !torch.vtensor<[2,3],f32>
        }
        """,
    )


def test_tuples_are_added_indexed_and_sliced(check: Check) -> None:
    """S17: `outputs += (y,)`, `outputs[1:]`, as TorchScript writes them: unpacked and packed again."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[2],f32>)
        // CHECK-NEXT: %[[TANH:.*]] = torch.aten.tanh %[[X]]
        // CHECK-NEXT: %[[R:.*]] = torch.aten.relu %[[X]]
        // CHECK-NEXT: func.return %[[R]], %[[TANH]]
        func.func @f(%x: !torch.vtensor<[2],f32>) -> (!torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>) {
          %int_1 = torch.constant.int -1
          %0 = torch.copy.to_tensor %x : !torch.tensor<[2],f32>
          %outputs = torch.prim.TupleConstruct %0 : !torch.tensor<[2],f32> -> !torch.tuple<tensor<[2],f32>>
          %1 = torch.aten.tanh %0 : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
          %2 = torch.prim.TupleUnpack %outputs : !torch.tuple<tensor<[2],f32>> -> !torch.tensor<[2],f32>
          %more = torch.prim.TupleConstruct %2, %1, %0
            : !torch.tensor<[2],f32>, !torch.tensor<[2],f32>, !torch.tensor<[2],f32>
            -> !torch.tuple<tensor<[2],f32>, tensor<[2],f32>, tensor<[2],f32>>
          %3:3 = torch.prim.TupleUnpack %more : !torch.tuple<tensor<[2],f32>, tensor<[2],f32>, tensor<[2],f32>>
            -> !torch.tensor<[2],f32>, !torch.tensor<[2],f32>, !torch.tensor<[2],f32>
          %rest = torch.prim.TupleConstruct %3#1, %3#2 : !torch.tensor<[2],f32>, !torch.tensor<[2],f32>
            -> !torch.tuple<tensor<[2],f32>, tensor<[2],f32>>
          %4 = torch.prim.TupleIndex %rest, %int_1
            : !torch.tuple<tensor<[2],f32>, tensor<[2],f32>>, !torch.int -> !torch.tensor<[2],f32>
          %5 = torch.aten.relu_ %4 : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
          %6 = torch.copy.to_vtensor %2 : !torch.vtensor<[2],f32>
          %7 = torch.copy.to_vtensor %1 : !torch.vtensor<[2],f32>
          func.return %6, %7 : !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>
        }
        """,
    )


PAIR = "!torch.tuple<tensor<[1,12,7,64],f32>, tensor<[1,12,7,64],f32>>"
CACHE = f"!torch.tuple<{', '.join([PAIR] * 12)}>"
HEADS = "!torch.tensor<[1,12,7,64],f32>"


def opt_decoder() -> str:
    """The end of a traced OPT as its users saw it: 12 pairs of keys and values, all views, in a tuple in a tuple."""
    keys = [(134, 139), *((199 + 60 * i, 204 + 60 * i) for i in range(11))]
    lines = []
    for value in (v for pair in keys for v in pair):
        lines.append(f"""
    %v{value} = torch.aten.view %hidden, %sizes
      : !torch.tensor<[1,7,768],f32>, !torch.list<int> -> !torch.tensor<[1,7,12,64],f32>
    %{value} = torch.aten.transpose.int %v{value}, %int1, %int2
      : !torch.tensor<[1,7,12,64],f32>, !torch.int, !torch.int -> {HEADS}""")
    for i, (key, value) in enumerate(keys):
        lines.append(f"""
    %{852 + i} = torch.prim.TupleConstruct %{key}, %{value} : {HEADS}, {HEADS} -> {PAIR} loc(#loc0)""")
    parts = ", ".join(f"%{852 + i}" for i in range(12))
    return f"""
  func.func @f(%x: !torch.vtensor<[1,7,768],f32>, %logits: !torch.vtensor<[1,7,50272],f32>)
      -> !torch.tuple<tensor<[1,7,50272],f32>, {CACHE}> {{
    %hidden = torch.copy.to_tensor %x : !torch.tensor<[1,7,768],f32>
    %851 = torch.copy.to_tensor %logits : !torch.tensor<[1,7,50272],f32>
    %int1 = torch.constant.int 1
    %int2 = torch.constant.int 2
    %int7 = torch.constant.int 7
    %int12 = torch.constant.int 12
    %int64 = torch.constant.int 64
    %sizes = torch.prim.ListConstruct %int1, %int7, %int12, %int64
      : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>{"".join(lines)}
    %864 = torch.prim.TupleConstruct {parts} : {", ".join([PAIR] * 12)} -> {CACHE} loc(#loc0)
    %865 = torch.prim.TupleConstruct %851, %864 : !torch.tensor<[1,7,50272],f32>, {CACHE}
      -> !torch.tuple<tensor<[1,7,50272],f32>, {CACHE}> loc(#loc0)
    func.return %865 : !torch.tuple<tensor<[1,7,50272],f32>, {CACHE}>
  }}
#loc0 = loc(unknown)
"""


def test_the_cache_of_a_decoder_is_flat_values(same_numbers: Check) -> None:
    """S16: twelve pairs of views in a tuple in a tuple are read, printed, read again, and become 25 values."""
    module = parse_module(opt_decoder())
    module.verify()
    printed = pretty_text(module)
    assert pretty_text(parse_module(printed)) == printed
    flat = run_pipeline(module, "torch-function-to-torch-backend-pipeline")
    flat.verify()
    text = pretty_text(flat)
    assert "tuple" not in text
    assert "!torch.tensor" not in text
    (function,) = (op for op in flat.ops if isinstance(op, FuncOp))
    results = [str(t) for t in function.function_type.outputs.data]
    assert results == ["!torch.vtensor<[1,7,50272],f32>", *["!torch.vtensor<[1,12,7,64],f32>"] * 24]
    same_numbers("torch-function-to-torch-backend-pipeline", opt_decoder())


def test_the_cache_of_a_decoder_is_of_values_in_tuples_too() -> None:
    """S16: behind value semantics alone, the views are of values and only the border has tuples of tensors."""
    text = pretty_text(run_pipeline(parse_module(opt_decoder()), PASS))
    assert text.count("torch.aten.transpose.int") == 24
    assert text.count("-> !torch.vtensor<[1,12,7,64],f32>") == 24


# --- Lists and dictionaries ---


def test_lists_hold_tensors_not_copies(check: Check) -> None:
    """append, pop and set item move tensors around; a write to an element is a write to the tensor."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[2],f32>, %[[Y:.*]]: !torch.vtensor<[2],f32>)
        // CHECK-NEXT: %[[LENGTH:.*]] = torch.constant.int 2
        // CHECK-NEXT: %[[R:.*]] = torch.aten.relu %[[Y]]
        // CHECK-NEXT: %[[N:.*]] = torch.aten.neg %[[R]]
        // CHECK-NEXT: func.return %[[X]], %[[N]], %[[LENGTH]]
        func.func @f(%x: !torch.vtensor<[2],f32>, %y: !torch.vtensor<[2],f32>)
            -> (!torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.int) {
          %int0 = torch.constant.int 0
          %int_1 = torch.constant.int -1
          %a = torch.copy.to_tensor %x : !torch.tensor<[2],f32>
          %b = torch.copy.to_tensor %y : !torch.tensor<[2],f32>
          %list = torch.prim.ListConstruct %a, %a : (!torch.tensor<[2],f32>, !torch.tensor<[2],f32>)
            -> !torch.list<tensor<[2],f32>>
          %0 = torch.aten.append.t %list, %b
            : !torch.list<tensor<[2],f32>>, !torch.tensor<[2],f32> -> !torch.list<tensor<[2],f32>>
          %1 = torch.aten._set_item.t %list, %int0, %b
            : !torch.list<tensor<[2],f32>>, !torch.int, !torch.tensor<[2],f32> -> !torch.list<tensor<[2],f32>>
          %2 = torch.operator "torch.aten.pop.t"(%list, %int_1)
            : (!torch.list<tensor<[2],f32>>, !torch.int) -> !torch.tensor<[2],f32>
          %3 = torch.aten.__getitem__.t %list, %int0
            : !torch.list<tensor<[2],f32>>, !torch.int -> !torch.tensor<[2],f32>
          %4 = torch.aten.relu_ %3 : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
          %5 = torch.aten.neg_ %2 : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
          %length = torch.aten.len.t %list : !torch.list<tensor<[2],f32>> -> !torch.int
          %6 = torch.copy.to_vtensor %a : !torch.vtensor<[2],f32>
          %7 = torch.copy.to_vtensor %b : !torch.vtensor<[2],f32>
          func.return %6, %7, %length : !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>, !torch.int
        }
        """,
    )


def test_a_list_under_two_names_is_one_list(check: Check) -> None:
    """An append through one name of a list is seen through the other, and not in a copy."""
    check(
        PASS,
        """
        // CHECK: %[[TWO:.*]] = torch.constant.int 2
        // CHECK-NEXT: %[[ONE:.*]] = torch.constant.int 1
        // CHECK-NEXT: func.return %[[TWO]], %[[ONE]]
        func.func @f(%x: !torch.vtensor<[2],f32>) -> (!torch.int, !torch.int) {
          %a = torch.copy.to_tensor %x : !torch.tensor<[2],f32>
          %list = torch.prim.ListConstruct %a : (!torch.tensor<[2],f32>) -> !torch.list<tensor<[2],f32>>
          %copy = torch.aten.list.t %list : !torch.list<tensor<[2],f32>> -> !torch.list<tensor<[2],f32>>
          %pair = torch.prim.TupleConstruct %list, %copy
            : !torch.list<tensor<[2],f32>>, !torch.list<tensor<[2],f32>>
            -> !torch.tuple<list<tensor<[2],f32>>, list<tensor<[2],f32>>>
          %0:2 = torch.prim.TupleUnpack %pair : !torch.tuple<list<tensor<[2],f32>>, list<tensor<[2],f32>>>
            -> !torch.list<tensor<[2],f32>>, !torch.list<tensor<[2],f32>>
          %1 = torch.aten.append.t %0#0, %a
            : !torch.list<tensor<[2],f32>>, !torch.tensor<[2],f32> -> !torch.list<tensor<[2],f32>>
          %2 = torch.aten.len.t %list : !torch.list<tensor<[2],f32>> -> !torch.int
          %3 = torch.aten.len.t %copy : !torch.list<tensor<[2],f32>> -> !torch.int
          func.return %2, %3 : !torch.int, !torch.int
        }
        """,
    )


def test_dictionaries_hold_tensors_not_copies(check: Check) -> None:
    """Set and get by a key that is known."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[2],f32>, %[[Y:.*]]: !torch.vtensor<[2],f32>)
        // CHECK-NEXT: %[[N:.*]] = torch.aten.neg %[[X]]
        // CHECK-NEXT: %[[R:.*]] = torch.aten.relu %[[Y]]
        // CHECK-NEXT: func.return %[[N]], %[[R]]
        func.func @f(%x: !torch.vtensor<[2],f32>, %y: !torch.vtensor<[2],f32>)
            -> (!torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>) {
          %k = torch.constant.str "k"
          %l = torch.constant.str "l"
          %a = torch.copy.to_tensor %x : !torch.tensor<[2],f32>
          %b = torch.copy.to_tensor %y : !torch.tensor<[2],f32>
          %d = torch.prim.DictConstruct keys(%k : !torch.str) values(%a : !torch.tensor<[2],f32>)
            -> !torch.dict<str, tensor<[2],f32>>
          torch.aten._set_item.str %d, %l, %b : !torch.dict<str, tensor<[2],f32>>, !torch.str, !torch.tensor<[2],f32>
          %0 = torch.aten.__getitem__.Dict_str %d, %k
            : !torch.dict<str, tensor<[2],f32>>, !torch.str -> !torch.tensor<[2],f32>
          %1 = torch.aten.__getitem__.Dict_str %d, %l
            : !torch.dict<str, tensor<[2],f32>>, !torch.str -> !torch.tensor<[2],f32>
          %2 = torch.aten.neg_ %0 : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
          %3 = torch.aten.relu_ %1 : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
          %4 = torch.copy.to_vtensor %a : !torch.vtensor<[2],f32>
          %5 = torch.copy.to_vtensor %b : !torch.vtensor<[2],f32>
          func.return %4, %5 : !torch.vtensor<[2],f32>, !torch.vtensor<[2],f32>
        }
        """,
    )


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
