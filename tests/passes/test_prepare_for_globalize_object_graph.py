"""PrepareForGlobalizeObjectGraph, IR in and IR out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
from flambeau.opt import run_pipeline

PASS = "torch-prepare-for-globalize-object-graph"
Check = Callable[[str, str], None]


def test_a_method_call_is_a_call_of_its_function(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: func.func private @A.forward(%[[SELF:.*]]: !torch.nn.Module<"A">, %[[X:.*]]: !torch.tensor)
        // CHECK-NEXT: %[[R:.*]] = func.call @A.inner(%[[SELF]], %[[X]])
        // CHECK-SAME: (!torch.nn.Module<"A">, !torch.tensor) -> !torch.tensor
        // CHECK-NEXT: func.return %[[R]]
        func.func private @A.forward(%self: !torch.nn.Module<"A">, %x: !torch.tensor) -> !torch.tensor {
          %0 = torch.prim.CallMethod %self["inner"] (%x) : !torch.nn.Module<"A">, (!torch.tensor) -> !torch.tensor
          func.return %0 : !torch.tensor
        }
        func.func private @A.inner(%self: !torch.nn.Module<"A">, %x: !torch.tensor) -> !torch.tensor {
          func.return %x : !torch.tensor
        }
        torch.class_type @A { torch.method "forward", @A.forward  torch.method "inner", @A.inner }
        %a = torch.nn_module {} : !torch.nn.Module<"A">
        """,
    )


def test_calls_inside_branches_and_with_wider_arguments(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: torch.prim.If
        // CHECK-NEXT: %[[W:.*]] = torch.derefine %{{.*}} : !torch.none to !torch.optional<int>
        // CHECK-NEXT: %[[T:.*]] = torch.tensor_static_info_cast %{{.*}} : !torch.tensor<[2],f32> to !torch.tensor
        // CHECK-NEXT: func.call @A.inner(%{{.*}}, %[[W]], %[[T]])
        // CHECK-NOT: CallMethod
        func.func private @A.forward(%self: !torch.nn.Module<"A">, %c: !torch.bool, %x: !torch.tensor<[2],f32>)
            -> !torch.tensor {
          %none = torch.constant.none
          %0 = torch.prim.If %c -> (!torch.tensor) {
            %1 = torch.prim.CallMethod %self["inner"] (%none, %x)
              : !torch.nn.Module<"A">, (!torch.none, !torch.tensor<[2],f32>) -> !torch.tensor
            torch.prim.If.yield %1 : !torch.tensor
          } else {
            %2 = torch.tensor_static_info_cast %x : !torch.tensor<[2],f32> to !torch.tensor
            torch.prim.If.yield %2 : !torch.tensor
          }
          func.return %0 : !torch.tensor
        }
        func.func private @A.inner(%self: !torch.nn.Module<"A">, %n: !torch.optional<int>, %x: !torch.tensor)
            -> !torch.tensor {
          func.return %x : !torch.tensor
        }
        torch.class_type @A { torch.method "forward", @A.forward  torch.method "inner", @A.inner }
        """,
    )


def test_unused_private_functions_go(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK-NOT: @unused
        // CHECK: func.func private @needed
        // CHECK: func.func private @A.forward
        // CHECK-NOT: @unused
        func.func private @unused_too() { func.call @unused() : () -> ()  func.return }
        func.func private @unused() { func.return }
        func.func private @needed() { func.return }
        func.func private @A.forward(%self: !torch.nn.Module<"A">) -> !torch.none {
          %none = torch.constant.none
          func.call @needed() : () -> ()
          func.return %none : !torch.none
        }
        torch.class_type @A { torch.method "forward", @A.forward }
        """,
    )


METHODS = """
func.func private @A.inner(%self: !torch.nn.Module<"A">, %n: !torch.int) -> !torch.int {
  func.return %n : !torch.int
}
torch.class_type @A { torch.method "inner", @A.inner }
"""


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (
            'torch.prim.CallMethod %a["outer"] (%n) : !torch.nn.Module<"A">, (!torch.int) -> !torch.int',
            "the class A has no method 'outer'; its methods: inner",
        ),
        (
            'torch.prim.CallMethod %b["f"] (%n) : !torch.nn.Module<"B">, (!torch.int) -> !torch.int',
            "the program does not declare the class B",
        ),
        (
            'torch.prim.CallMethod %a["inner"] () : !torch.nn.Module<"A">, () -> !torch.int',
            "the method 'inner' takes 1 arguments, got 0",
        ),
        (
            'torch.prim.CallMethod %a["inner"] (%a) : !torch.nn.Module<"A">, (!torch.nn.Module<"A">) -> !torch.int',
            "the method 'inner' takes a !torch.int, got !torch.nn.Module",
        ),
        (
            'torch.prim.CallMethod %a["inner"] (%n) : !torch.nn.Module<"A">, (!torch.int) -> !torch.float',
            r"the method 'inner' gives \(!torch.int\)",
        ),
    ],
)
def test_calls_that_cannot_be_resolved(call: str, reason: str) -> None:
    text = f"""
    func.func @f(%a: !torch.nn.Module<"A">, %b: !torch.nn.Module<"B">, %n: !torch.int) {{
      %0 = {call} loc("model.py":7:3)
      func.return
    }}
    {METHODS}
    """
    with pytest.raises(CompileError, match=reason) as caught:
        run_pipeline(parse_module(text), PASS)
    assert (caught.value.diagnostics[0].file, caught.value.diagnostics[0].line) == ("model.py", 7)
