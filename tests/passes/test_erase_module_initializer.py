"""EraseModuleInitializer, IR in and IR out."""

from __future__ import annotations

from collections.abc import Callable

PASS = "torch-erase-module-initializer"
Check = Callable[[str, str], None]


def test_an_empty_initialiser_goes(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: builtin.module {
        // CHECK-NEXT: func.func @f
        torch.global_slot.module_initializer { torch.initialize.global_slots [] }
        func.func @f() { func.return }
        """,
    )


def test_one_with_slots_stays(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: torch.global_slot.module_initializer {
        // CHECK: @s(%{{.*}} : !torch.int)
        torch.global_slot.module_initializer {
          %0 = torch.constant.int 1
          torch.initialize.global_slots [ @s(%0 : !torch.int) ]
        }
        torch.global_slot @s : !torch.int
        """,
    )
