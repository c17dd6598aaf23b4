"""InlineGlobalSlots, IR in and IR out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flambeau.dialects.context import parse_module
from flambeau.ir.printing import pretty_text
from flambeau.opt import run_pipeline

PASS = "torch-inline-global-slots"
Check = Callable[[str, str], None]


def test_initial_values_stand_in_the_functions_that_use_them(filecheck: Check) -> None:
    """S87: once in each function, at its start, and with the type that the function sees."""
    filecheck(
        PASS,
        """
        // CHECK: torch.global_slot.module_initializer {
        // CHECK-NEXT: torch.initialize.global_slots [
        // CHECK-NEXT: ]
        // CHECK-NOT: torch.global_slot "private"
        // CHECK: func.func @f(%[[C:.*]]: !torch.bool, %[[X:.*]]: !torch.tensor)
        // CHECK-NEXT: %[[W:.*]] = torch.tensor.literal(dense<1.000000e+00> : tensor<2xf32>) : !torch.tensor<[2],f32>
        // CHECK-NEXT: %[[T:.*]] = torch.tensor_static_info_cast %[[W]] : !torch.tensor<[2],f32> to !torch.tensor
        // CHECK-NEXT: torch.prim.If %[[C]]
        // CHECK-NEXT: torch.aten.mul.Tensor %[[X]], %[[T]]
        // CHECK: torch.aten.add.Tensor %[[X]], %[[T]]
        // CHECK: func.func @g
        // CHECK-NEXT: %[[V:.*]] = torch.tensor.literal
        // CHECK-NEXT: func.return %[[V]] : !torch.tensor<[2],f32>
        torch.global_slot.module_initializer {
          %0 = torch.tensor.literal(dense<1.0> : tensor<2xf32>) : !torch.tensor<[2],f32>
          torch.initialize.global_slots [ @w(%0 : !torch.tensor<[2],f32>) ]
        }
        torch.global_slot "private" @w : !torch.tensor
        func.func @f(%c: !torch.bool, %x: !torch.tensor) -> !torch.tensor {
          %0 = torch.prim.If %c -> (!torch.tensor) {
            %1 = torch.global_slot.get @w : !torch.tensor
            %2 = torch.aten.mul.Tensor %x, %1 : !torch.tensor, !torch.tensor -> !torch.tensor
            torch.prim.If.yield %2 : !torch.tensor
          } else {
            %1 = torch.global_slot.get @w : !torch.tensor
            %one = torch.constant.int 1
            %2 = torch.aten.add.Tensor %x, %1, %one : !torch.tensor, !torch.tensor, !torch.int -> !torch.tensor
            torch.prim.If.yield %2 : !torch.tensor
          }
          func.return %0 : !torch.tensor
        }
        func.func @g() -> !torch.tensor<[2],f32> {
          %0 = torch.global_slot.get @w : !torch.tensor<[2],f32>
          func.return %0 : !torch.tensor<[2],f32>
        }
        """,
    )


def test_only_what_is_needed_is_copied_and_shared_parts_once(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: func.func @f() -> (!torch.list<int>, !torch.optional<int>)
        // CHECK-NEXT: %[[A:.*]] = torch.constant.int 1
        // CHECK-NEXT: %[[B:.*]] = torch.constant.int 2
        // CHECK-NEXT: %[[L:.*]] = torch.prim.ListConstruct %[[A]], %[[B]]
        // CHECK-NEXT: %[[O:.*]] = torch.derefine %[[B]] : !torch.int to !torch.optional<int>
        // CHECK-NEXT: func.return %[[L]], %[[O]]
        torch.global_slot.module_initializer {
          %0 = torch.constant.int 1
          %1 = torch.constant.int 2
          %2 = torch.constant.int 3
          %3 = torch.prim.ListConstruct %0, %1 : (!torch.int, !torch.int) -> !torch.list<int>
          torch.initialize.global_slots [
            @list(%3 : !torch.list<int>)
            @maybe(%1 : !torch.int)
            @unused(%2 : !torch.int)
          ]
        }
        torch.global_slot "private" @list : !torch.list<int>
        torch.global_slot "private" @maybe : !torch.optional<int>
        torch.global_slot "private" @unused : !torch.int
        func.func @f() -> (!torch.list<int>, !torch.optional<int>) {
          %0 = torch.global_slot.get @list : !torch.list<int>
          %1 = torch.global_slot.get @maybe : !torch.optional<int>
          func.return %0, %1 : !torch.list<int>, !torch.optional<int>
        }
        """,
    )


HEAD = """
torch.global_slot.module_initializer {
  %one = torch.constant.int 1
  %w0 = torch.tensor.literal(dense<1.0> : tensor<2xf32>) : !torch.tensor<[2],f32>
  %v0 = torch.tensor.literal(dense<2.0> : tensor<2xf32>) : !torch.tensor<[2],f32>
  %l0 = torch.prim.ListConstruct %w0 : (!torch.tensor<[2],f32>) -> !torch.list<tensor<[2],f32>>
  %n0 = torch.prim.ListConstruct %one : (!torch.int) -> !torch.list<int>
  torch.initialize.global_slots [
    @w(%w0 : !torch.tensor<[2],f32>)
    @same(%w0 : !torch.tensor<[2],f32>)
    @list(%l0 : !torch.list<tensor<[2],f32>>)
    @other(%v0 : !torch.tensor<[2],f32>)
    @numbers(%n0 : !torch.list<int>)
    @count(%one : !torch.int)
  ]
}
torch.global_slot "private" @w : !torch.tensor<[2],f32>
torch.global_slot "private" @same : !torch.tensor<[2],f32>
torch.global_slot "private" @list : !torch.list<tensor<[2],f32>>
torch.global_slot "private" @other : !torch.tensor<[2],f32>
torch.global_slot "private" @numbers : !torch.list<int>
torch.global_slot "private" @count : !torch.int
func.func private @write(%t: !torch.tensor<[2],f32>) -> !torch.tensor<[2],f32> {
  %r = torch.aten.relu_ %t : !torch.tensor<[2],f32> -> !torch.tensor<[2],f32>
  func.return %t : !torch.tensor<[2],f32>
}
func.func private @same_one(%t: !torch.tensor<[2],f32>) -> !torch.tensor<[2],f32> {
  func.return %t : !torch.tensor<[2],f32>
}
func.func @f(%x: !torch.tensor<[2],f32>, %c: !torch.bool) -> !torch.int {
  %w = torch.global_slot.get @w : !torch.tensor<[2],f32>
  %s = torch.global_slot.get @same : !torch.tensor<[2],f32>
  %l = torch.global_slot.get @list : !torch.list<tensor<[2],f32>>
  %o = torch.global_slot.get @other : !torch.tensor<[2],f32>
  %n = torch.global_slot.get @numbers : !torch.list<int>
  %i = torch.global_slot.get @count : !torch.int
  %zero = torch.constant.int 0
"""
T = "!torch.tensor<[2],f32>"
WRITE = f"%z = torch.aten.relu_ %y : {T} -> {T}"


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("", ()),
        ("%y = torch.aten.neg.int %i : !torch.int -> !torch.int", ()),
        ("torch.global_slot.set @count = %zero : !torch.int", ("count",)),
        # A tensor that two slots and a list share is written through any of them.
        (f"%y = torch.aten.relu_ %w : {T} -> {T}", ("w", "same", "list")),
        (f"%y = torch.aten.relu_ %s : {T} -> {T}", ("w", "same", "list")),
        (f"%y = torch.prim.ListUnpack %l : !torch.list<tensor<[2],f32>> -> {T}\n{WRITE}", ("w", "same", "list")),
        (
            f"%y = torch.aten.__getitem__.t %l, %zero : !torch.list<tensor<[2],f32>>, !torch.int -> {T}\n{WRITE}",
            ("w", "same", "list"),
        ),
        (f"%y = torch.aten.detach %o : {T} -> {T}\n{WRITE}", ("other",)),
        (f"%y = torch.copy.to_vtensor %x : !torch.vtensor<[2],f32>\n"
         f"torch.overwrite.tensor.contents %y overwrites %o : !torch.vtensor<[2],f32>, {T}", ("other",)),
        # Changing a list does not change what is in it, nor what its elements are.
        (
            f"%y = torch.aten.append.t %l, %x : !torch.list<tensor<[2],f32>>, {T} -> !torch.list<tensor<[2],f32>>",
            ("list",),
        ),
        ("%y = torch.aten.append.t %n, %i : !torch.list<int>, !torch.int -> !torch.list<int>", ("numbers",)),
        # What is appended can be taken out and written.
        (
            f"""%e = torch.prim.ListConstruct %x : ({T}) -> !torch.list<tensor<[2],f32>>
            %a = torch.aten.append.t %e, %o : !torch.list<tensor<[2],f32>>, {T} -> !torch.list<tensor<[2],f32>>
            %y = torch.aten.__getitem__.t %e, %zero : !torch.list<tensor<[2],f32>>, !torch.int -> {T}
            {WRITE}""",
            ("other",),
        ),
        # A write to one operand is none to the other, and a fresh tensor is nobody's.
        (f"%y = torch.aten.add_.Tensor %x, %o, %zero : {T}, {T}, !torch.int -> {T}\n{WRITE}", ()),
        (f"%y = torch.aten.mul.Tensor %o, %x : {T}, {T} -> {T}\n{WRITE}", ()),
        (f"%y = torch.aten.clone %o, %none : {T}, !torch.none -> {T}\n{WRITE}", ()),
        (
            f"""%e = torch.prim.ListConstruct %o, %x : ({T}, {T}) -> !torch.list<tensor<[2],f32>>
            %y = torch.aten.cat %e, %zero : !torch.list<tensor<[2],f32>>, !torch.int -> {T}
            {WRITE}
            %u = torch.aten.relu_ %x : {T} -> {T}""",
            (),
        ),
        # Through branches, loops and calls.
        (
            f"""%y = torch.prim.If %c -> ({T}) {{
              torch.prim.If.yield %o : {T}
            }} else {{
              torch.prim.If.yield %x : {T}
            }}
            {WRITE}""",
            ("other",),
        ),
        (
            f"""%y = torch.prim.Loop %i, %c, init(%x) {{
            ^bb0(%k: !torch.int, %t: {T}):
              %u = torch.aten.relu_ %t : {T} -> {T}
              torch.prim.Loop.condition %c, iter(%o : {T})
            }} : (!torch.int, !torch.bool, {T}) -> {T}""",
            ("other",),
        ),
        (f"%y = func.call @write(%o) : ({T}) -> {T}", ("other",)),
        (f"%y = func.call @same_one(%o) : ({T}) -> {T}\n{WRITE}", ("other",)),
        (f"%y = func.call @same_one(%o) : ({T}) -> {T}", ()),
        # Whatever another slot gets is written through it.
        (
            f"""torch.global_slot.set @same = %o : {T}
            %y = torch.global_slot.get @same : {T}
            {WRITE}""",
            ("w", "same", "list", "other"),
        ),
        # Nobody knows what this does.
        (f'%y = torch.operator "torch.my.op"(%o) : ({T}) -> {T}', ("other",)),
    ],
)  # fmt: skip
def test_written_slots_stay(body: str, kept: tuple[str, ...]) -> None:
    text = f"{HEAD}\n%none = torch.constant.none\n{body}\nfunc.return %i : !torch.int\n}}"
    module = run_pipeline(parse_module(text), PASS)
    module.verify()
    slots = {
        name for name in ("w", "same", "list", "other", "numbers", "count") if _has_slot(pretty_text(module), name)
    }
    assert slots == set(kept)


def _has_slot(text: str, name: str) -> bool:
    return f'torch.global_slot "private" @{name} :' in text


def test_public_slots_stay_and_what_shares_their_tensors_too(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: torch.global_slot @seen
        // CHECK: torch.global_slot "private" @same
        // CHECK-NOT: @apart
        torch.global_slot.module_initializer {
          %0 = torch.tensor.literal(dense<1.0> : tensor<2xf32>) : !torch.tensor<[2],f32>
          %1 = torch.tensor.literal(dense<1.0> : tensor<2xf32>) : !torch.tensor<[2],f32>
          torch.initialize.global_slots [
            @seen(%0 : !torch.tensor<[2],f32>)
            @same(%0 : !torch.tensor<[2],f32>)
            @apart(%1 : !torch.tensor<[2],f32>)
          ]
        }
        torch.global_slot @seen : !torch.tensor
        torch.global_slot "private" @same : !torch.tensor
        torch.global_slot "private" @apart : !torch.tensor
        func.func @f() -> (!torch.tensor, !torch.tensor) {
          %0 = torch.global_slot.get @same : !torch.tensor
          %1 = torch.global_slot.get @apart : !torch.tensor
          func.return %0, %1 : !torch.tensor, !torch.tensor
        }
        """,
    )
