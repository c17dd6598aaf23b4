"""The passes from an object graph to flat functions, one behind the other, on whole programs.

Behind every pass the program is one that torch-mlir accepts, and PyTorch gets the same numbers out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from flambeau.dialects.context import parse_module
from flambeau.engines.eager.interpreter import Interpreter
from flambeau.ir.printing import pretty_text
from flambeau.opt import get_pass

STAGES = (
    "torch-prepare-for-globalize-object-graph", "torch-globalize-object-graph", "symbol-dce", "inline",
    "torch-adjust-calling-conventions", "torch-inline-global-slots", "torch-erase-module-initializer",
    "torch-refine-public-return",
)  # fmt: skip

LINEAR = """
func.func private @Linear.forward(%self: !torch.nn.Module<"Linear">, %x: !torch.tensor) -> !torch.tensor {
  %w = torch.prim.GetAttr %self["weight"] : !torch.nn.Module<"Linear"> -> !torch.tensor
  %b = torch.prim.GetAttr %self["bias"] : !torch.nn.Module<"Linear"> -> !torch.tensor
  %0 = torch.aten.linear %x, %w, %b : !torch.tensor, !torch.tensor, !torch.tensor -> !torch.tensor
  func.return %0 : !torch.tensor
}
torch.class_type @Linear {
  torch.attr private "weight" : !torch.tensor
  torch.attr private "bias" : !torch.tensor
  torch.method private "forward", @Linear.forward
}
"""

MODEL = (
    LINEAR
    + """
func.func private @scaled(%x: !torch.tensor, %by: !torch.float) -> !torch.tensor {
  %0 = torch.aten.mul.Scalar %x, %by : !torch.tensor, !torch.float -> !torch.tensor
  func.return %0 : !torch.tensor
}
func.func private @Model.forward(%self: !torch.nn.Module<"Model">,
    %x: !torch.tensor {torch.type_bound = !torch.vtensor<[?,2],f32>})
    -> !torch.tuple<tensor, tuple<int, tensor>, none> {
  %one = torch.constant.int 1
  %none = torch.constant.none
  %half = torch.constant.float 5.000000e-01
  %first = torch.prim.GetAttr %self["first"] : !torch.nn.Module<"Model"> -> !torch.nn.Module<"Linear">
  %second = torch.prim.GetAttr %self["second"] : !torch.nn.Module<"Model"> -> !torch.nn.Module<"Linear">
  %steps = torch.prim.GetAttr %self["steps"] : !torch.nn.Module<"Model"> -> !torch.tensor
  %steps1 = torch.aten.add_.Scalar %steps, %one, %one : !torch.tensor, !torch.int, !torch.int -> !torch.tensor
  %count = torch.prim.GetAttr %self["count"] : !torch.nn.Module<"Model"> -> !torch.int
  %count1 = torch.aten.add.int %count, %one : !torch.int, !torch.int -> !torch.int
  torch.prim.SetAttr %self["count"] = %count1 : !torch.nn.Module<"Model">, !torch.int
  %0 = torch.prim.CallMethod %first["forward"] (%x) : !torch.nn.Module<"Linear">, (!torch.tensor) -> !torch.tensor
  %1 = torch.prim.CallMethod %second["forward"] (%0) : !torch.nn.Module<"Linear">, (!torch.tensor) -> !torch.tensor
  %2 = torch.prim.CallMethod %first["forward"] (%1) : !torch.nn.Module<"Linear">, (!torch.tensor) -> !torch.tensor
  %3 = func.call @scaled(%2, %half) : (!torch.tensor, !torch.float) -> !torch.tensor
  %4 = torch.aten.relu_ %3 : !torch.tensor -> !torch.tensor
  %5 = torch.prim.TupleConstruct %count1, %steps : !torch.int, !torch.tensor -> !torch.tuple<int, tensor>
  %6 = torch.prim.TupleConstruct %3, %5, %none : !torch.tensor, !torch.tuple<int, tensor>, !torch.none
    -> !torch.tuple<tensor, tuple<int, tensor>, none>
  func.return %6 : !torch.tuple<tensor, tuple<int, tensor>, none>
}
torch.class_type @Model {
  torch.attr "first" : !torch.nn.Module<"Linear">
  torch.attr "second" : !torch.nn.Module<"Linear">
  torch.attr "steps" : !torch.tensor
  torch.attr "count" : !torch.int
  torch.method "forward", @Model.forward
}
%w = torch.tensor.literal(dense_resource<w> : tensor<2x2xf32>) : !torch.tensor<[2,2],f32>
%a = torch.tensor.literal(dense<[0.5, -1.0]> : tensor<2xf32>) : !torch.tensor<[2],f32>
%b = torch.tensor.literal(dense<2.0> : tensor<2xf32>) : !torch.tensor<[2],f32>
%s = torch.tensor.literal(dense<0> : tensor<si64>) : !torch.tensor<[],si64>
%c = torch.constant.int 0
%first = torch.nn_module {
  torch.slot "weight", %w : !torch.tensor<[2,2],f32>
  torch.slot "bias", %a : !torch.tensor<[2],f32>
} : !torch.nn.Module<"Linear">
%second = torch.nn_module {
  torch.slot "weight", %w : !torch.tensor<[2,2],f32>
  torch.slot "bias", %b : !torch.tensor<[2],f32>
} : !torch.nn.Module<"Linear">
%model = torch.nn_module {
  torch.slot "first", %first : !torch.nn.Module<"Linear">
  torch.slot "second", %second : !torch.nn.Module<"Linear">
  torch.slot "steps", %s : !torch.tensor<[],si64>
  torch.slot "count", %c : !torch.int
} : !torch.nn.Module<"Model">
"""
)


SMALL = """
func.func private @Model.forward(%self: !torch.nn.Module<"Model">,
    %x: !torch.tensor {torch.type_bound = !torch.vtensor<[?,2],f32>}) -> !torch.tensor {
  %a = torch.prim.GetAttr %self["a"] : !torch.nn.Module<"Model"> -> !torch.nn.Module<"Linear">
  %0 = torch.prim.CallMethod %a["forward"] (%x) : !torch.nn.Module<"Linear">, (!torch.tensor) -> !torch.tensor
  %1 = torch.prim.CallMethod %a["forward"] (%0) : !torch.nn.Module<"Linear">, (!torch.tensor) -> !torch.tensor
  func.return %1 : !torch.tensor
}
torch.class_type @Model { torch.attr private "a" : !torch.nn.Module<"Linear">  torch.method "forward", @Model.forward }
%w = torch.tensor.literal(dense<1.0> : tensor<2x2xf32>) : !torch.tensor<[2,2],f32>
%b = torch.tensor.literal(dense<2.0> : tensor<2xf32>) : !torch.tensor<[2],f32>
%a = torch.nn_module {
  torch.slot "weight", %w : !torch.tensor<[2,2],f32>
  torch.slot "bias", %b : !torch.tensor<[2],f32>
} : !torch.nn.Module<"Linear">
%model = torch.nn_module { torch.slot "a", %a : !torch.nn.Module<"Linear"> } : !torch.nn.Module<"Model">
"""


class Linear(torch.nn.Module):
    def __init__(self, weight: torch.Tensor, bias: list[float]) -> None:
        super().__init__()
        self.weight, self.bias = weight, torch.tensor(bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.weight, self.bias)


class Model(torch.nn.Module):
    """What the program above says, in Python."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.first, self.second = Linear(weight, [0.5, -1.0]), Linear(weight, [2.0, 2.0])
        self.steps, self.count = torch.tensor(0), 0

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, tuple[int, torch.Tensor], None]:
        self.steps += 1
        self.count += 1
        y = self.first(self.second(self.first(x))) * 0.5
        return y.relu_(), (self.count, self.steps.clone()), None


def flat(value: Any) -> list[Any]:
    """List the leaves of nested tuples, without None."""
    if isinstance(value, tuple | list):
        return [leaf for part in value for leaf in flat(part)]
    return [] if value is None else [value]


def parses_in_torch_mlir(text: str) -> bool:
    ir = pytest.importorskip("torch_mlir.ir")
    from torch_mlir.dialects import torch as torch_dialect

    with ir.Context() as context:
        torch_dialect.register_dialect(context)
        return bool(ir.Module.parse(text).operation.verify())


def test_every_stage_gives_the_same_numbers_and_is_real_mlir() -> None:
    """S76, S82, S87: state that is written stays, the rest is inlined."""
    weight = torch.tensor([[1.0, -0.5], [0.25, 2.0]])
    before = weight.clone()
    module = parse_module(MODEL)
    for stage in ("", *STAGES):
        if stage:
            module = get_pass(stage)().run(module)
        module.verify()
        assert parses_in_torch_mlir(pretty_text(module)), stage
        program, model = Interpreter(module, {"w": weight}), Model(weight)
        for rows in (1, 3):
            x = torch.randn(rows, 2)
            actual, expected = flat(program.call("forward", [x])), flat(model(x))
            assert len(actual) == len(expected)
            for a, e in zip(actual, expected, strict=True):
                torch.testing.assert_close(a, e)
    assert torch.equal(weight, before)
    text = pretty_text(module)
    assert text.count("func.func") == 1
    assert "func.func @forward(%x: !torch.vtensor<[?,2],f32>) -> (!torch.vtensor, !torch.int, !torch.vtensor" in text
    assert [name for name in ("steps", "count", "first.weight") if f"@{name} :" in text] == ["steps", "count"]


def upstream(text: str, passes: Sequence[str]) -> str:
    """Run torch-mlir's own passes on a program."""
    ir = pytest.importorskip("torch_mlir.ir")
    from torch_mlir.dialects import torch as torch_dialect
    from torch_mlir.passmanager import PassManager

    with ir.Context() as context:
        torch_dialect.register_dialect(context)
        module = ir.Module.parse(text)
        PassManager.parse(f"builtin.module({','.join(passes)})").run(module.operation)
        return str(module)


def test_upstream_takes_over_behind_any_stage() -> None:
    """torch-mlir's own passes carry on from each of our stages up to the calling conventions."""
    program = LINEAR + SMALL
    for done in range(6):
        module = parse_module(program)
        for stage in STAGES[:done]:
            module = get_pass(stage)().run(module)
        finished = upstream(pretty_text(module), [*STAGES[done:6]])
        assert finished.count("func.func") == 1
        assert "func.func @forward(%arg0: !torch.vtensor<[?,2],f32>) -> !torch.tensor" in finished
        assert "torch.global_slot.get" not in finished
