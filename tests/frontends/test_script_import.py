"""What the TorchScript frontend promises: scripted and traced programs as graphs of objects that torch-mlir reads."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union  # noqa: UP035

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
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
from flambeau.frontends.script.compile import import_script_module, load_archive, script_module
from flambeau.frontends.script.types import type_of
from flambeau.ir.locations import frames_of, user_frame
from flambeau.ir.printing import pretty_text

# ruff: noqa: UP006, UP007, UP045
# TorchScript wants the names of `typing`.


def upstream_accepts(text: str) -> None:
    """The real torch-mlir parses and verifies the program."""
    pytest.importorskip("torch_mlir")
    from torch_mlir.dialects import torch as torch_dialect
    from torch_mlir.ir import Context, Module

    with Context() as context:
        torch_dialect.register_dialect(context)
        Module.parse(text)


def imported(model: Any, *args: Any, tracing: bool = False, **options: Any) -> ModuleOp:
    """Import a model; both implementations of the dialect must accept what comes out."""
    module, _ = import_script_module(script_module(model, args, tracing), **options)
    module.verify()
    text = pretty_text(module)
    assert pretty_text(parse_module(text)) == text
    upstream_accepts(text)
    upstream_accepts(pretty_text(module, locations=True))
    return module


def text_of(model: Any, *args: Any, **options: Any) -> str:
    return pretty_text(imported(model, *args, **options))


def has(text: str, *lines: str) -> None:
    """Each line is in the text, in this order."""
    at = 0
    for line in lines:
        assert line in text[at:], f"{line!r} is not behind {lines[: lines.index(line)]} in\n{text}"
        at = text.index(line, at) + len(line)


def ops_of(module: ModuleOp, name: str) -> list[Operation]:
    return [op for op in module.walk() if op.name == name]


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, start = inspect.getsourcelines(function)
    return start + next(i for i, line in enumerate(lines) if text in line)


def failure(model: Any, *args: Any, **options: Any) -> CompileError:
    with pytest.raises(CompileError) as caught:
        imported(model, *args, **options)
    return caught.value


# --- The object graph ---


class TestModule(nn.Module):
    __module__ = "__main__"
    __test__ = False

    def __init__(self) -> None:
        super().__init__()
        self.arange = torch.arange(4)

    def forward(self, x):  # type: ignore[no-untyped-def]
        return x * self.arange


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


class Sum(NamedTuple):
    total: Tensor
    count: int


@torch.jit.script
class Accumulator:
    def __init__(self, start: int) -> None:
        self.start = start
        self.items: List[Tensor] = []
        self.name = torch.jit.annotate(Optional[str], None)

    def add(self, x: Tensor) -> int:
        self.items.append(x)
        if x.dim() > 3:
            self.name = "big"
        return len(self.items) + self.start


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


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.held = Accumulator(7)

    def forward(self, x: Tensor) -> int:
        return self.held.add(x)


def test_objects_that_a_module_holds() -> None:
    has(text_of(Holder()), 'torch.slot "start", %int7', 'torch.slot "held", %')


# --- Nodes ---


def branches(x: Tensor, y: Optional[Tensor], n: int) -> Tuple[Tensor, Optional[int], Union[int, float]]:
    if y is None:
        z: Optional[int] = None
        u: Union[int, float] = 1
    else:
        z = n
        x = y
        u = 2.5
    return x, z, u


def early_return(x: Tensor, n: int) -> Tensor:
    if n > 3:
        return x
    for i in range(n):
        if i == 5:
            return x + i
    assert n > 0, "too small"
    return x * n


def loops(n: int) -> int:
    while n < 10:
        n += 1
        if n == 4:
            continue
        if n == 7:
            break
    return n


def grows(n: int) -> Optional[int]:
    last: Optional[int] = None
    for i in range(n):
        last = i
    return last


def strings(s: str, n: int) -> List[str]:
    print(s, n)
    return [f"{s} {n}", s.upper(), "x" + s, s[1:3], s.split(",")[0]]


def containers(d: Dict[str, Tensor], t: Tuple[int, float, str]) -> Tuple[List[int], Tuple[float, str], Dict[str, int]]:
    d["c"] = d["a"]
    made = {"one": 1, "two": 2}
    first, _second, _third = t
    return [first * i for i in range(len(d))], t[1:], made


def checks(x: Union[int, float], y: Any, z: Sum) -> Tensor:
    k = x + 1 if isinstance(x, int) else 3
    return y + k if isinstance(y, Tensor) else z.total + z.count


def numbers(x: Tensor) -> float:
    return float(x.item()) + min([1, 2]) + max(1.5, float(x.size(0)))


def views(x: Tensor) -> Tuple[Tensor, Tensor, List[int], int]:
    y = torch.zeros([2, 3], device=x.device)
    y[0] = 1.0
    y += x[:, 1:2]
    a, b = torch.split(y, 1)
    with torch.no_grad():
        a = a + b
    return torch.cat([a, x[x > 0]]), x.to(torch.device("cpu")), x.shape, x.dtype


def number_in(x: Tensor) -> Tensor:
    return x + torch.tensor([[1, 2], [3, 4]]) + torch.full([2], 2.0)


NODES: dict[Callable[..., Any], tuple[str, ...]] = {
    branches: (
        "torch.aten.__is__ %y, %none",
        "torch.prim.If %",
        "torch.derefine %none : !torch.none to !torch.optional<int>",
        "torch.prim.If.yield",
        "torch.prim.unchecked_cast %y : !torch.optional<tensor> -> !torch.tensor",
        "torch.derefine %n : !torch.int to !torch.optional<int>",
    ),
    early_return: (
        "torch.prim.Uninitialized : !torch.tensor",
        "torch.prim.If",
        "torch.prim.Loop %",
        "torch.prim.RaiseException %",
    ),
    loops: (
        "torch.prim.Loop %int9223372036854775807, %",
        "torch.aten.add.int",
        "torch.prim.Loop.condition %",
    ),
    grows: ("torch.derefine %none : !torch.none to !torch.optional<int>", "torch.prim.Loop", "torch.derefine %"),
    strings: (
        "torch.prim.Print(%s, %n) : !torch.str, !torch.int",
        "torch.aten.format(",
        'torch.operator "torch.aten.upper"(%s) : (!torch.str) -> !torch.str',
        "torch.aten.add.str",
        'torch.operator "torch.aten.slice.str"',
        'torch.operator "torch.aten.split.str"',
    ),
    containers: (
        "torch.aten.__getitem__.Dict_str %d",
        "torch.aten._set_item.str %d",
        "torch.prim.DictConstruct keys(%",
        "values(%int1, %int2 : !torch.int, !torch.int)",
        "torch.prim.TupleUnpack %t",
        "torch.aten.append.t",
    ),
    checks: (
        'torch.operator "torch.prim.isinstance"(%x) {types = [!torch.int]} : (!torch.union<float, int>) -> !torch.bool',
        'torch.operator "torch.prim.isinstance"(%y) {types = [!torch.tensor]} : (!torch.any) -> !torch.bool',
        "torch.prim.TupleIndex %z, %int0 : !torch.tuple<tensor, int>, !torch.int -> !torch.tensor",
    ),
    numbers: ("torch.aten.item %x", "torch.aten.Float.Scalar", "torch.prim.min.self_int", "torch.prim.max.float"),
    views: (
        "torch.prim.device %x",
        "torch.aten.copy_",
        "torch.aten.add_.Tensor",
        "torch.prim.ListUnpack %",
        "torch.prim.Enter %",
        "torch.prim.Exit %",
        "-> !torch.list<optional<tensor>>",
        "torch.aten.index.Tensor",
        "torch.aten.to.prim_Device %x, %device",
        "torch.prim.dtype %x",
    ),
    number_in: ("torch.aten.tensor %", "torch.aten.full %"),
}


@pytest.mark.parametrize("function", NODES, ids=lambda f: f.__name__)
def test_nodes(function: Callable[..., Any]) -> None:
    has(text_of(function), *NODES[function])


def test_constants_without_dimensions_stay_tensors() -> None:
    text = text_of(lambda x: x + 1, torch.ones(2), tracing=True)
    has(text, "torch.tensor.literal(dense<1> : tensor<si64>) : !torch.tensor<[],si64>", "torch.aten.add.Tensor %x, %")


def test_large_constants_are_weights() -> None:
    table = torch.arange(1000.0)
    module, weights = import_script_module(script_module(lambda x: x + table, (torch.ones(1000),), use_tracing=True))
    assert "dense_resource<constant> : tensor<1000xf32>" in pretty_text(module)
    torch.testing.assert_close(weights["constant"], table)


def test_a_literal_that_leaves_a_branch_has_the_type_of_the_branch() -> None:
    graph = torch._C.parse_ir(
        """graph(%b : bool, %y : Tensor):
          %r : Tensor = prim::If(%b)
            block0():
              -> (%y)
            block1():
              -> (%y)
          return (%r)"""
    )
    branch = graph.findNode("prim::If")
    graph.setInsertPoint(branch)
    next(branch.blocks()).returnNode().replaceInput(0, graph.insertConstant(torch.tensor(3)))
    function = torch._C._create_function_from_graph("chosen", graph)
    has(
        text_of(function),
        "torch.tensor.literal(dense<3> : tensor<si64>)",
        "torch.prim.If",
        "torch.tensor_static_info_cast %",
        "to !torch.tensor",
    )


def test_a_custom_op_is_an_operator() -> None:
    library = torch.library.Library("script_import_test", "DEF")
    library.define("twice.int(Tensor x, int n=2) -> Tensor")

    def call(x: Tensor) -> Tensor:
        return torch.ops.script_import_test.twice(x)

    has(text_of(call), 'torch.operator "torch.script_import_test.twice.int"(%x, %int2)')


# --- Types ---


@pytest.mark.parametrize(
    ("annotation", "spelling"),
    [
        ("int", "!torch.int"),
        ("float", "!torch.float"),
        ("bool", "!torch.bool"),
        ("str", "!torch.str"),
        ("Scalar", "!torch.number"),
        ("Tensor", "!torch.tensor"),
        ("Device", "!torch.Device"),
        ("NoneType", "!torch.none"),
        ("Any", "!torch.any"),
        ("Generator", "!torch.Generator"),
        ("int[]", "!torch.list<int>"),
        ("Tensor?[]", "!torch.list<optional<tensor>>"),
        ("(int, Tensor, str[])", "!torch.tuple<int, tensor, list<str>>"),
        ("Dict(str, Tensor)", "!torch.dict<str, tensor>"),
        ("Float(2, 3)", "!torch.tensor"),
    ],
)
def test_types(annotation: str, spelling: str) -> None:
    graph = torch._C.parse_ir(f"graph(%x : {annotation}):\n  return (%x)")
    assert str(type_of(next(graph.inputs()).type())) == spelling


class Color(Enum):
    RED = 1


def uses_an_enum(x: Tensor, color: Color) -> bool:
    return color == Color.RED


def uses_a_complex_number(x: Tensor) -> Tensor:
    return x * 3j


def uses_a_fork(x: Tensor) -> Tensor:
    future = torch.jit.fork(loops, 3)
    return x + torch.jit.wait(future)


def test_what_has_no_type_is_reported_at_its_line() -> None:
    error = failure(uses_a_complex_number)
    (diagnostic,) = error.diagnostics
    assert "complex" in diagnostic.reason
    assert (diagnostic.file, diagnostic.line) == (__file__, line_of(uses_a_complex_number, "3j"))


def test_all_problems_are_reported_at_once() -> None:
    error = failure(uses_a_fork)
    assert [d.op for d in error.diagnostics] == ["prim.fork", "aten.wait"]
    assert error.diagnostics[0].line == line_of(uses_a_fork, "jit.fork(")
    assert "directly" in error.diagnostics[0].hint


def test_an_argument_without_a_type_is_reported() -> None:
    class Enumerated(nn.Module):
        def forward(self, x: Tensor, color: Color) -> bool:
            return color == Color.RED

    error = failure(Enumerated())
    assert "Color" in str(error)
    assert "instead of the enum" in str(error)
    with pytest.raises(CompileError, match="Color"):
        imported(uses_an_enum)


def test_a_tensor_without_a_type_is_reported_by_its_path() -> None:
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Identity()
            self.inner.table = torch.eye(3).to_sparse()  # type: ignore[assignment]

        def forward(self, x: Tensor) -> Tensor:
            return x + self.inner.table

    assert "attribute 'inner.table'" in str(failure(Sparse()))


# --- Locations ---


def convert(x: Tensor) -> Tensor:
    y = x + 1
    return y.to(torch.float64)


class Converts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return convert(x)


class Calls(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Converts()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def test_scripted_ops_have_the_line_and_column_of_the_user() -> None:
    """S4: the call is known exactly, and so is each call that leads to it."""
    module = imported(Calls())
    (to,) = ops_of(module, "torch.aten.to.dtype")
    frame = user_frame(to.location)
    assert frame is not None
    line = line_of(convert, ".to(")
    assert (frame.file, frame.line, frame.function) == (__file__, line, "convert")
    assert frame.source[frame.column - 4 :].startswith("y.to(")
    (call,) = ops_of(module, "func.call")
    assert next(frames_of(call.location)).line == line_of(Converts, "convert(x)")
    (method,) = ops_of(module, "torch.prim.CallMethod")
    assert next(frames_of(method.location)).line == line_of(Calls, "self.inner(x)")


def test_traced_ops_have_the_whole_stack_of_the_user() -> None:
    """S4: a trace knows its callers, without PyTorch's own frames."""
    module = imported(Calls(), torch.ones(2), tracing=True)
    (to,) = ops_of(module, "torch.aten.to.dtype")
    assert [(f.file, f.line, f.function) for f in frames_of(to.location)] == [
        (__file__, line_of(convert, ".to("), "convert"),
        (__file__, line_of(Converts, "convert(x)"), "forward"),
        (__file__, line_of(Calls, "self.inner(x)"), "forward"),
    ]


def test_nodes_without_a_line_have_that_of_the_loop_around_them() -> None:
    def leaves(n: int) -> int:
        total = 0
        for i in range(n):
            if i == 3:
                break
            total += i
        return total

    module = imported(leaves)
    (loop,) = ops_of(module, "torch.prim.Loop")
    counts = [op for op in ops_of(module, "torch.aten.lt.int") if op.parent_op() is loop]
    assert [next(frames_of(op.location)).line for op in counts] == [line_of(leaves, "for i")]


# --- Archives ---


def helper(x: Tensor, y: Optional[Tensor]) -> Tensor:
    return x if y is None else x + y


class Archived(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0))
        self.held = Accumulator(2)

    def forward(self, x: Tensor) -> Tuple[Tensor, int]:
        made = Accumulator(3)
        made.add(x)
        y = helper(helper(x, None), self.weight)
        return convert(y + made.items[0] + helper(x, x)), self.held.add(x)


def test_an_archive_is_imported_without_its_python_code(tmp_path: Path) -> None:
    """Functions of an archive are imported for the types that they are called with, from the archive's own code."""
    path = tmp_path / "model.pt"
    script_module(Archived()).save(str(path))
    module, weights = import_script_module(load_archive(path))
    module.verify()
    text = pretty_text(module)
    upstream_accepts(text)
    torch.testing.assert_close(weights["weight"].detach(), torch.arange(6.0))
    calls = [op for op in ops_of(module, "func.call") if "helper" in str(op.properties["callee"])]
    assert len(calls) == 3
    assert len({str(op.properties["callee"]) for op in calls}) == 2
    has(text, 'torch.slot "start", %int2')
    (to,) = ops_of(module, "torch.aten.to.dtype")
    frame = user_frame(to.location)
    assert frame is not None
    assert (frame.file, frame.line) == (__file__, line_of(convert, ".to("))


def test_objects_whose_class_is_not_defined_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    script_module(Holder()).save(str(path))
    code = f"""
import sys
from flambeau.diagnostics import CompileError
from flambeau.frontends.script.compile import import_script_module, load_archive
try:
    import_script_module(load_archive({str(path)!r}))
except CompileError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "attribute 'held': PyTorch shows an object only where its class is defined" in done.stdout


def test_a_traced_archive(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    script_module(Calls(), (torch.ones(2),), use_tracing=True).save(str(path))
    (to,) = ops_of(imported(load_archive(path)), "torch.aten.to.dtype")
    assert next(frames_of(to.location)).line == line_of(convert, ".to(")


@pytest.mark.parametrize("contents", ["weights", "text", "nothing"])
def test_files_that_are_no_archives(contents: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    if contents == "weights":
        torch.save(nn.Linear(2, 2).state_dict(), path)
    elif contents == "text":
        path.write_text("hello")
    with pytest.raises(CompileError, match="no file" if contents == "nothing" else "not a TorchScript archive"):
        load_archive(path)


# --- Making TorchScript ---


class Unscriptable(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.missing


def test_what_cannot_be_scripted_is_reported_at_its_line() -> None:
    with pytest.raises(CompileError) as caught:
        script_module(Unscriptable())
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.file, diagnostic.line) == (__file__, line_of(Unscriptable, "self.missing"))
    assert diagnostic.stage == "script"


def test_what_cannot_be_traced_is_reported_at_its_line() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(77)

    with pytest.raises(CompileError) as caught:
        script_module(Broken(), (torch.ones(2),), use_tracing=True)
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.file, diagnostic.line) == (__file__, line_of(Broken, "x.view(77)"))
    with pytest.raises(CompileError, match="script the model"):
        script_module(loops, (3,), use_tracing=True)
    with pytest.raises(TypeError, match="example arguments"):
        script_module(loops, use_tracing=True)
    with pytest.raises(TypeError, match="not int"):
        script_module(3)


def test_torchscript_stays_as_it_is_and_nobody_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = nn.Dropout().eval()
        script = script_module(model)
        assert script_module(script) is script
        assert not script.training
        import_script_module(script)
        script_module(lambda x: x if x.sum() > 0 else -x, (torch.ones(2),), use_tracing=True)


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
