"""MaximizeValueSemantics, IR in and IR out: tensors in tuples, lists and dictionaries."""

from __future__ import annotations

import pytest
from passes.value_semantics import PASS, Check
from xdsl.dialects.func import FuncOp

from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
from flambeau.ir.printing import pretty_text
from flambeau.opt import run_pipeline

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
    """Write the end of a traced OPT as its users saw it: 12 pairs of keys and values, all views, in nested tuples."""
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


def test_a_conversion_to_a_dtype_that_may_be_its_own_is_not_taken_for_an_alias() -> None:
    """`y.to(torch.float32)` is y itself or a copy: where y's dtype is not known, a write makes the other stale."""
    text = """
    func.func @f(%y: !torch.tensor) -> !torch.tensor {
      %int6 = torch.constant.int 6
      %false = torch.constant.bool false
      %none = torch.constant.none
      %int1 = torch.constant.int 1
      %0 = torch.aten.to.dtype %y, %int6, %false, %false, %none
        : !torch.tensor, !torch.int, !torch.bool, !torch.bool, !torch.none -> !torch.tensor
      %1 = torch.copy.to_vtensor %0 : !torch.vtensor
      %2 = torch.aten.add.Scalar %1, %int1, %int1 : !torch.vtensor, !torch.int, !torch.int -> !torch.vtensor
      torch.overwrite.tensor.contents %2 overwrites %0 : !torch.vtensor, !torch.tensor
      func.return %y : !torch.tensor
    }
    """
    with pytest.raises(CompileError, match="may have been written through an alias"):
        run_pipeline(parse_module(text.replace("\n        :", " :")), PASS)
