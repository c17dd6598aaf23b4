"""What the TorchScript frontend promises: scripted and traced programs as graphs of objects that torch-mlir reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Optional, Tuple  # noqa: UP035

import pytest
import torch
import torch.nn.functional as F
from frontends.script_import import (
    Accumulator,
    Holder,
    TestModule,
    failure,
    has,
    imported,
    ops_of,
    text_of,
    upstream_accepts,
)
from torch import Tensor, nn
from xdsl.dialects import func

from flambeau.dialects.torch import types
from flambeau.frontends.script.annotations import (
    ExampleArgs,
    TensorPlaceholder,
    annotate_args,
    annotated_bounds,
    export,
    exported_members,
    tensor_bound,
)
from flambeau.frontends.script.compile import import_script_module, script_module
from flambeau.ir.locations import user_frame
from flambeau.ir.printing import pretty_text

# ruff: noqa: UP006, UP045
# TorchScript wants the names of `typing`.


# --- The object graph ---


def test_a_module_is_a_class_its_methods_and_an_object() -> None:
    """S85: the program of the deck, in today's spelling."""
    # TorchScript marks the name where the process has another class that is called so.
    text = re.sub(r"___torch_mangle_\d+\.", "", text_of(TestModule(), exported=None))
    assert text == (
        """builtin.module {
  func.func private @__torch__.TestModule.forward(%self: !torch.nn.Module<"__torch__.TestModule">, %x: !torch.tensor) -> !torch.tensor {
    %0 = torch.prim.GetAttr %self["arange"] : !torch.nn.Module<"__torch__.TestModule"> -> !torch.tensor
    %1 = torch.aten.mul.Tensor %x, %0 : !torch.tensor, !torch.tensor -> !torch.tensor
    func.return %1 : !torch.tensor
  }
  torch.class_type @__torch__.TestModule {
    torch.attr "arange" : !torch.tensor
    torch.method "forward", @__torch__.TestModule.forward
  }
  %0 = torch.tensor.literal(dense<[0, 1, 2, 3]> : tensor<4xsi64>) : !torch.tensor<[4],si64>
  %1 = torch.nn_module {
    torch.slot "arange", %0 : !torch.tensor<[4],si64>
  } : !torch.nn.Module<"__torch__.TestModule">
}
"""  # noqa: E501
    )


def test_members_are_private_unless_exported() -> None:
    text = text_of(TestModule())
    has(text, 'torch.attr private "arange"', 'torch.method "forward"')
    has(text_of(TestModule(), exported=("forward", "arange")), 'torch.attr "arange"', 'torch.method "forward"')
    assert "no such member" in str(failure(TestModule(), exported=("backward",)))


def test_forward_goes_by_the_name_that_is_asked_for() -> None:
    has(text_of(TestModule(), name="main"), 'torch.method "main", @')


class Attributes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = {"a": 1, "b": 2}
        self.tensors = [torch.ones(2), torch.zeros(1)]
        self.pair = (1, 2.5)
        self.nothing = torch.jit.Attribute(None, Optional[Tensor])
        self.maybe = torch.jit.Attribute(3, Optional[int])
        self.word = 'say "hi"'
        self.flag = True
        self.large = torch.ones(100)
        self.weight = nn.Parameter(torch.ones(1))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        if self.nothing is None and self.training:
            self.maybe = None
            self.flag = False
        return x + self.table["a"] + self.pair[1] + self.tensors[0] * self.weight + self.large.sum() + self.steps


def test_attributes_of_every_kind() -> None:
    """S81: lists, dictionaries, tuples, None and tensors as attributes."""
    module, weights = import_script_module(script_module(Attributes()))
    text = pretty_text(module)
    upstream_accepts(text)
    has(
        text,
        'torch.attr private "flag" : !torch.bool',
        'torch.attr private "maybe" : !torch.optional<int>',
        'torch.attr private "nothing" : !torch.optional<tensor>',
        'torch.attr private "pair" : !torch.tuple<int, float>',
        'torch.attr private "table" : !torch.dict<str, int>',
        'torch.attr private "tensors" : !torch.list<tensor>',
        'torch.attr private "training" : !torch.bool',
        'torch.attr private "word" : !torch.str',
        'torch.slot "flag", %true : !torch.bool',
        'torch.slot "maybe", %int3 : !torch.int',
        'torch.slot "nothing", %none : !torch.none',
    )
    has(text, 'torch.constant.str "say \\22hi\\22"')
    has(text, "torch.prim.DictConstruct keys(", "-> !torch.dict<str, int>")
    assert text.count("dense_resource<") == 3
    # Parameters and buffers are weights, however small; other tensors are if they are large.
    assert {name: w.numel() for name, w in weights.items()} == {"weight": 1, "steps": 1, "large": 100}
    assert "_is_full_backward_hook" not in text


@pytest.mark.parametrize("model", [TestModule, Attributes], ids=lambda m: m.__name__)
def test_the_passes_of_torch_mlir_take_the_objects_apart(model: Callable[[], nn.Module]) -> None:
    torch_mlir = pytest.importorskip("torch_mlir")
    passes = "torch-prepare-for-globalize-object-graph,torch-globalize-object-graph,symbol-dce,inline"
    from torch_mlir.dialects import torch as torch_dialect
    from torch_mlir.passmanager import PassManager

    with torch_mlir.ir.Context() as context:
        torch_dialect.register_dialect(context)
        module = torch_mlir.ir.Module.parse(text_of(model()))
        PassManager.parse(f"builtin.module({passes})").run(module.operation)
    text = str(module)
    has(text, "torch.global_slot", "func.func @forward(%arg0: !torch.tensor) -> !torch.tensor")
    assert "nn_module" not in text


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


def test_shared_tensors_are_one_literal() -> None:
    module, weights = import_script_module(script_module(Shared()))
    assert list(weights) == ["first.weight", "first.bias"]
    assert len(ops_of(module, "torch.tensor.literal")) == 2


def test_shared_modules_are_one_object(tmp_path: Path) -> None:
    """S81: submodules that are shared stay one."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Sequential(nn.ReLU())
            self.b = nn.Sequential(nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            return self.a(self.b(x))

    script = script_module(Twice())
    # TorchScript makes two modules where Python has one under two names, unless they are set by hand.
    assert len(ops_of(imported(script), "torch.nn_module")) == 5
    script._c.setattr("b", script._c.getattr("a"))
    assert len(ops_of(imported(script), "torch.nn_module")) == 3


def test_classes_with_one_name_keep_the_names_of_torchscript() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False))
    assert "___torch_mangle_" in text_of(model)


def test_functions_are_imported_once() -> None:
    @torch.jit.script
    def inner(x: Tensor, n: int) -> Tensor:
        return x * n

    def outer(x: Tensor) -> Tensor:
        return inner(inner(x, 1), 2) + inner(x, 3)

    module = imported(outer)
    (called,) = [f for f in ops_of(module, "func.func") if "inner" in str(f.sym_name)]  # type: ignore[attr-defined]
    assert isinstance(called, func.FuncOp)
    assert called.sym_visibility is not None
    assert called.sym_visibility.data == "private"
    assert len(ops_of(module, "func.call")) == 3


def uses_a_class(x: Tensor) -> Tuple[Tensor, int]:
    held = Accumulator(3)
    held.add(x)
    return held.items[0], held.add(x)


def test_objects_that_the_program_creates() -> None:
    has(
        text_of(uses_a_class),
        "= torch.prim.CreateObject !torch.nn.Module<",
        '["__init__"] (%int3)',
        '["add"] (%x)',
        'torch.prim.SetAttr %self["start"] = %start',
        'torch.attr private "start" : !torch.int',
        'torch.attr private "items" : !torch.list<tensor>',
        'torch.attr private "name" : !torch.optional<str>',
        'torch.method private "add"',
    )


def test_objects_that_a_module_holds() -> None:
    has(text_of(Holder()), 'torch.slot "start", %int7', 'torch.slot "held", %')


# --- Annotations ---


class Annotated(nn.Module):
    @export
    @annotate_args([None, ([-1, 3], torch.float32, True), ([2], torch.int64, False), None])
    def forward(self, x: Tensor, y: Tensor, n: int) -> Tensor:
        return x + y + n

    @export
    def other(self, x: Tensor) -> Tensor:
        return x

    def hidden(self, x: Tensor) -> Tensor:
        return x


def test_annotations_become_type_bounds_and_visible_methods() -> None:
    model = Annotated()
    bounds = annotated_bounds(model)
    assert bounds is not None
    text = text_of(model, bounds=bounds, exported=exported_members(model))
    has(
        text,
        "%x: !torch.tensor {torch.type_bound = !torch.vtensor<[?,3],f32>}",
        "%y: !torch.tensor {torch.type_bound = !torch.tensor<[2],si64>}",
        "%n: !torch.int)",
        'torch.method "forward"',
        'torch.method "other"',
    )
    assert "hidden" not in text
    assert annotated_bounds(nn.ReLU()) is None
    assert exported_members(nn.ReLU()) == ("forward",)
    with pytest.raises(TypeError, match="has_value_semantics"):
        annotate_args([([2], "float32", True)])


def test_bounds_of_examples() -> None:
    x = torch.ones(2, 3)
    placeholder = TensorPlaceholder([-1, 4], torch.float16)
    like = TensorPlaceholder.like(x, dynamic_axes=[0])
    args = ExampleArgs.of((x, placeholder, like, 1, 2.0, True, None, [x, {"k": like}], (placeholder, "s")))
    f16, f32 = torch.float16, torch.float32
    any_by_3, any_by_4 = tensor_bound([None, 3], f32), tensor_bound([-1, 4], f16)
    assert args.bounds == (
        tensor_bound([2, 3], f32),
        any_by_4,
        any_by_3,
        types.INT,
        types.FLOAT,
        types.BOOL,
        types.NONE,
        [tensor_bound([2, 3], f32), {"k": any_by_3}],
        (any_by_4, types.STR),
    )
    assert str(any_by_3) == "!torch.vtensor<[?,3],f32>"
    assert args.values[1].shape == (7, 4)
    assert args.values[1].dtype == f16
    assert args.values[2] is x
    assert ExampleArgs.of(x).bounds == (tensor_bound([2, 3], f32),)
    with pytest.raises(ValueError, match="no axis 2"):
        TensorPlaceholder.like(x, dynamic_axes=[2])
    with pytest.raises(TypeError, match="not object"):
        ExampleArgs.of((object(),))


def test_a_bound_for_each_argument() -> None:
    has(text_of(F.relu, bounds=[tensor_bound([2], torch.float32), None]), "torch.type_bound = !torch.vtensor<[2],f32>")
    assert "takes 1 arguments, but 2" in str(failure(TestModule(), bounds=[None, None]))


# --- Models ---


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout())

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x + self.layers(x), (1, 1))


def test_a_scripted_residual_network() -> None:
    module = imported(nn.Sequential(Residual(), Residual()).eval())
    assert len(ops_of(module, "torch.nn_module")) == 13
    # The two blocks have one class, and its methods are imported once.
    assert len(ops_of(module, "torch.aten.batch_norm")) == 1


def test_a_traced_language_model() -> None:
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=50, hidden_size=16, ffn_dim=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=32, word_embed_proj_dim=16, use_cache=False,
    )  # fmt: skip
    model = OPTForCausalLM(config).eval()
    example = TensorPlaceholder.like(torch.arange(5)[None], dynamic_axes=[1])
    bounds = ExampleArgs.of(example).bounds
    module = imported(model, example, tracing=True, bounds=bounds)
    has(pretty_text(module), "torch.type_bound = !torch.vtensor<[1,?],si64>", "torch.aten.embedding")
    linears = ops_of(module, "torch.aten.linear")
    assert len(linears) >= 1
    frame = user_frame(linears[0].location)
    assert frame is not None
    assert frame.line > 0
