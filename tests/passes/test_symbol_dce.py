"""Removing symbols that nobody uses, IR in and IR out."""

from __future__ import annotations

from collections.abc import Callable

Check = Callable[[str, str], None]


def test_private_functions_that_nothing_public_reaches_go(filecheck: Check) -> None:
    filecheck(
        "symbol-dce",
        """
        // CHECK-NOT: @dead
        // CHECK: func.func @main
        // CHECK: func.func private @used
        // CHECK: func.func private @used_by_used
        // CHECK-NOT: @dead
        func.func private @dead() { func.call @dead_too() : () -> ()  func.return }
        func.func @main() { func.call @used() : () -> ()  func.return }
        func.func private @used() { func.call @used_by_used() : () -> ()  func.return }
        func.func private @used_by_used() { func.return }
        func.func private @dead_too() { func.call @dead() : () -> ()  func.return }
        """,
    )


def test_slots_go_with_their_initial_values(filecheck: Check) -> None:
    filecheck(
        "symbol-dce",
        """
        // CHECK: torch.global_slot.module_initializer {
        // CHECK-NEXT: %[[A:.*]] = torch.constant.int 1
        // CHECK-NEXT: %[[B:.*]] = torch.constant.int 2
        // CHECK-NEXT: torch.initialize.global_slots [
        // CHECK-NEXT: @read(%[[A]] : !torch.int)
        // CHECK-NEXT: @set(%[[A]] : !torch.int)
        // CHECK-NEXT: @public(%[[B]] : !torch.int)
        // CHECK-NEXT: ]
        // CHECK: torch.global_slot "private" @read
        // CHECK-NEXT: torch.global_slot "private" @set
        // CHECK-NEXT: torch.global_slot @public
        // CHECK-NEXT: func.func @main
        // CHECK-NOT: @dead
        torch.global_slot.module_initializer {
          %0 = torch.constant.int 1
          %1 = torch.constant.int 2
          %2 = torch.constant.int 3
          %3 = torch.prim.ListConstruct %0, %2 : (!torch.int, !torch.int) -> !torch.list<int>
          torch.initialize.global_slots [
            @read(%0 : !torch.int)
            @set(%0 : !torch.int)
            @dead(%3 : !torch.list<int>)
            @public(%1 : !torch.int)
          ]
        }
        torch.global_slot "private" @read : !torch.int
        torch.global_slot "private" @set : !torch.int
        torch.global_slot "private" @dead : !torch.list<int>
        torch.global_slot @public : !torch.int
        func.func @main() {
          %0 = torch.global_slot.get @read : !torch.int
          torch.global_slot.set @set = %0 : !torch.int
          func.return
        }
        func.func private @dead_function() {
          %0 = torch.global_slot.get @dead : !torch.list<int>
          func.return
        }
        """,
    )


def test_an_initialiser_may_end_up_empty(filecheck: Check) -> None:
    filecheck(
        "symbol-dce",
        """
        // CHECK: torch.global_slot.module_initializer {
        // CHECK-NEXT: torch.initialize.global_slots [
        // CHECK-NEXT: ]
        // CHECK-NEXT: }
        // CHECK-NOT: torch.global_slot
        torch.global_slot.module_initializer {
          %0 = torch.constant.int 1
          torch.initialize.global_slots [ @dead(%0 : !torch.int) ]
        }
        torch.global_slot "private" @dead : !torch.int
        """,
    )


def test_classes_are_there_for_their_objects(filecheck: Check) -> None:
    """An object keeps its class, the class its methods, and a type inside a container the class that it names."""
    filecheck(
        "symbol-dce",
        """
        // CHECK: func.func private @A.f
        // CHECK: torch.class_type @A
        // CHECK: torch.class_type @B
        // CHECK-NOT: @C
        // CHECK: torch.nn_module
        func.func private @A.f(%self: !torch.nn.Module<"A">, %b: !torch.optional<list<nn.Module<"B">>>) { func.return }
        func.func private @C.f(%self: !torch.nn.Module<"C">) { func.return }
        torch.class_type @A { torch.method "f", @A.f }
        torch.class_type @B {}
        torch.class_type @C { torch.method "f", @C.f }
        %0 = torch.nn_module {} : !torch.nn.Module<"A">
        """,
    )
