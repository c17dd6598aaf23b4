"""The eager engine: every stage of the torch dialect, run by PyTorch with PyTorch's own aliasing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import flambeau
from flambeau.dialects.context import parse_module
from flambeau.engines import Engine, EngineError, Executable, RunError, get_engine
from flambeau.engines.eager import EagerEngine, interpret
from flambeau.engines.eager.interpreter import Interpreter
from flambeau.testing.models import MODELS


def run(text: str, *args: Any, function: str = "main", **weights: Any) -> list[Any]:
    module = parse_module(text)
    module.verify()
    return interpret(module, weights, function, args)


def run_body(arguments: str, body: str, results: str, *args: Any) -> list[Any]:
    """Run ops between a function's arguments and its return: `results` are `%a, %b : T, U`."""
    types = results.split(" : ", 1)[1]
    return run(f"func.func @main({arguments}) -> ({types}) {{ {body}\n func.return {results} }}", *args)


# Whole programs


@pytest.mark.parametrize("name", MODELS)
def test_a_model_under_the_backend_contract_is_eager_pytorch(name: str) -> None:
    zoo = MODELS[name]
    model, inputs = zoo.build(small=True), zoo.inputs(2, 8, small=True)
    program = flambeau.load(flambeau.compile(model, (), inputs, output_type="torch"), engine="eager")
    with torch.no_grad():
        expected = model(**inputs)
    actual_leaves, actual_tree = pytree.tree_flatten(program(**inputs))
    expected_leaves, expected_tree = pytree.tree_flatten(expected)
    assert actual_tree == expected_tree
    for a, e in zip(actual_leaves, expected_leaves, strict=True):
        torch.testing.assert_close(a, e)


class Running(torch.nn.Module):
    """Writes a buffer, an argument and a view of a local."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(4.0))
        self.total = torch.nn.Buffer(torch.zeros(4))

    def forward(self, x: torch.Tensor, *, out: torch.Tensor) -> dict[str, torch.Tensor]:
        y = x * self.weight
        y[0].add_(1)
        self.total.add_(y.sum(0))
        out.copy_(y)
        return {"y": y, "total": self.total + 0}


@pytest.mark.parametrize("output_type", ["raw", "torch"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_writes_reach_the_caller_at_both_stages(output_type: str, dynamic: bool) -> None:
    def inputs(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(rows, 4), torch.zeros(rows, 4)

    x, out = inputs(3)
    rows = torch.export.Dim("rows", min=2, max=9)
    shapes = {"x": {0: rows}, "out": {0: rows}} if dynamic else None
    module = flambeau.compile(Running(), (x,), {"out": out}, output_type=output_type, dynamic_shapes=shapes)
    program, model = flambeau.load(module, engine="eager"), Running()
    for count in (3, 5, 2) if dynamic else (3, 3):
        x, out = inputs(count)
        again = out.clone()
        expected = model(x, out=again)
        torch.testing.assert_close(program(x, out=out), expected)
        torch.testing.assert_close(out, again)


def test_the_engine_has_the_interface_of_engines() -> None:
    engine = get_engine("eager")
    assert isinstance(engine, Engine)
    assert isinstance(engine, EagerEngine)
    module = flambeau.compile(torch.nn.Linear(2, 3), (torch.ones(1, 2),), output_type="torch")
    program = engine.compile(module)
    assert isinstance(program, Executable)
    assert program.timings["load"] >= 0
    with pytest.raises(TypeError, match="called with"):
        program()
    with pytest.raises(ValueError, match=r"expected a tensor 1x2xfloat32, got 5x2xfloat32"):
        program(torch.ones(5, 2))
    with pytest.raises(ValueError, match="no function 'other'; it has main"):
        program.function("other")
    assert torch.equal(program.function("main")(torch.ones(1, 2)), program(torch.ones(1, 2)))


def test_arrays_are_answered_with_arrays() -> None:
    module = flambeau.compile(torch.nn.ReLU(), (torch.ones(2, 2),), output_type="torch")
    answer = flambeau.load(module, engine="eager")(np.array([[1, -1], [2, -2]], np.float32))
    assert isinstance(answer, np.ndarray)
    assert np.array_equal(answer, [[1, 0], [2, 0]])


def test_other_dialects_are_refused() -> None:
    module = flambeau.compile(torch.nn.ReLU(), (torch.ones(2),))
    with pytest.raises(
        EngineError, match=r"runs the torch dialect, and the program has .*output_type='raw' or 'torch'"
    ):
        flambeau.load(module, engine="eager")


# Objects and slots

COUNTER = """
func.func private @Counter.bump(%self: !torch.nn.Module<"Counter">, %by: !torch.int) -> !torch.int {
  %0 = torch.prim.GetAttr %self["count"] : !torch.nn.Module<"Counter"> -> !torch.int
  %1 = torch.aten.add.int %0, %by : !torch.int, !torch.int -> !torch.int
  torch.prim.SetAttr %self["count"] = %1 : !torch.nn.Module<"Counter">, !torch.int
  func.return %1 : !torch.int
}
torch.class_type @Counter { torch.attr "count" : !torch.int  torch.method "bump", @Counter.bump }
func.func private @M.forward(%self: !torch.nn.Module<"M">, %n: !torch.int) -> !torch.tuple<int, int> {
  %a = torch.prim.GetAttr %self["a"] : !torch.nn.Module<"M"> -> !torch.nn.Module<"Counter">
  %b = torch.prim.GetAttr %self["b"] : !torch.nn.Module<"M"> -> !torch.nn.Module<"Counter">
  %2 = torch.prim.CallMethod %a["bump"] (%n) : !torch.nn.Module<"Counter">, (!torch.int) -> !torch.int
  %3 = torch.prim.CallMethod %b["bump"] (%n) : !torch.nn.Module<"Counter">, (!torch.int) -> !torch.int
  %4 = torch.prim.TupleConstruct %2, %3 : !torch.int, !torch.int -> !torch.tuple<int, int>
  func.return %4 : !torch.tuple<int, int>
}
func.func private @M.fresh(%self: !torch.nn.Module<"M">, %n: !torch.int) -> !torch.int {
  %c = torch.prim.CreateObject !torch.nn.Module<"Counter">
  torch.prim.SetAttr %c["count"] = %n : !torch.nn.Module<"Counter">, !torch.int
  %2 = torch.prim.CallMethod %c["bump"] (%n) : !torch.nn.Module<"Counter">, (!torch.int) -> !torch.int
  func.return %2 : !torch.int
}
func.func private @M.unset(%self: !torch.nn.Module<"M">) -> !torch.int {
  %c = torch.prim.CreateObject !torch.nn.Module<"Counter">
  %2 = torch.prim.GetAttr %c["count"] : !torch.nn.Module<"Counter"> -> !torch.int
  func.return %2 : !torch.int
}
torch.class_type @M {
  torch.attr "a" : !torch.nn.Module<"Counter">
  torch.attr "b" : !torch.nn.Module<"Counter">
  torch.method "forward", @M.forward
  torch.method "fresh", @M.fresh
  torch.method "unset", @M.unset
}
%zero = torch.constant.int 0
%one = torch.nn_module { torch.slot "count", %zero : !torch.int } : !torch.nn.Module<"Counter">
"""


@pytest.mark.parametrize("shared", [True, False])
def test_objects_keep_their_state_and_may_be_shared(shared: bool) -> None:
    text = f"""{COUNTER}
    %two = torch.nn_module {{ torch.slot "count", %zero : !torch.int }} : !torch.nn.Module<"Counter">
    %root = torch.nn_module {{
      torch.slot "a", %one : !torch.nn.Module<"Counter">
      torch.slot "b", {"%one" if shared else "%two"} : !torch.nn.Module<"Counter">
    }} : !torch.nn.Module<"M">
    """
    program = Interpreter(parse_module(text), {})
    if shared:
        assert [program.call("forward", [n]) for n in (1, 10)] == [[(1, 2)], [(12, 22)]]
    else:
        assert [program.call("forward", [n]) for n in (1, 10)] == [[(1, 1)], [(11, 11)]]
        assert program.call("fresh", [4]) == [8]
        with pytest.raises(RunError, match="the attribute 'count' of a Counter is not set"):
            program.call("unset", [])
        with pytest.raises(ValueError, match=r"no function 'backward'; it has .*forward, fresh, unset"):
            program.call("backward", [])


SLOTS = """
torch.global_slot.module_initializer {
  %w0 = torch.tensor.literal(dense_resource<w> : tensor<2xf32>) : !torch.tensor<[2],f32>
  %c0 = torch.constant.int 0
  torch.initialize.global_slots [
    @w(%w0 : !torch.tensor<[2],f32>)
    @same(%w0 : !torch.tensor<[2],f32>)
    @count(%c0 : !torch.int)
  ]
}
torch.global_slot "private" @w : !torch.tensor
torch.global_slot "private" @same : !torch.tensor
torch.global_slot "private" @count : !torch.int
func.func @main() -> (!torch.tensor, !torch.int) {
  %one = torch.constant.int 1
  %0 = torch.global_slot.get @w : !torch.tensor
  %1 = torch.aten.add_.Scalar %0, %one, %one : !torch.tensor, !torch.int, !torch.int -> !torch.tensor
  %2 = torch.global_slot.get @same : !torch.tensor
  %3 = torch.global_slot.get @count : !torch.int
  %4 = torch.aten.add.int %3, %one : !torch.int, !torch.int -> !torch.int
  torch.global_slot.set @count = %4 : !torch.int
  func.return %2, %4 : !torch.tensor, !torch.int
}
"""


def test_slots_keep_their_state_and_weights_keep_theirs() -> None:
    """Two slots with one initial value are one tensor; the weight that it was made from is not written."""
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    program = Interpreter(parse_module(SLOTS), {"w": weight})
    assert program.call("main", [])[1] == 1
    tensor, count = program.call("main", [])
    assert count == 2
    assert tensor.tolist() == [3.0, 4.0]
    assert weight.tolist() == [1.0, 2.0]
    assert not tensor.requires_grad


# Aliases and values

T, V = "!torch.tensor<[2,2],f32>", "!torch.vtensor<[2,2],f32>"


def test_mutable_tensors_alias_as_in_pytorch() -> None:
    x = torch.arange(4.0).reshape(2, 2)
    body = f"""
    %int0 = torch.constant.int 0
    %int1 = torch.constant.int 1
    %row = torch.aten.select.int %x, %int0, %int1 : {T}, !torch.int, !torch.int -> !torch.tensor<[2],f32>
    %before = torch.copy.to_vtensor %x : {V}
    %row1 = torch.aten.add_.Scalar %row, %int1, %int1 : !torch.tensor<[2],f32>, !torch.int, !torch.int
      -> !torch.tensor<[2],f32>
    %after = torch.copy.to_vtensor %x : {V}
    """
    results = f"%row1, %x, %before, %after : !torch.tensor<[2],f32>, {T}, {V}, {V}"
    row, whole, before, after = run_body(f"%x: {T}", body, results, x)
    assert whole is x
    assert row.data_ptr() == x[1].data_ptr()
    assert before.tolist() == [[0, 1], [2, 3]]
    assert x.tolist() == after.tolist() == [[0, 1], [3, 4]]


def test_overwriting_writes_into_every_alias() -> None:
    x, v = torch.zeros(2, 2), torch.ones(2, 2)
    body = f"""
    %t = torch.aten.t %x : {T} -> {T}
    torch.overwrite.tensor.contents %v overwrites %t : {V}, {T}
    """
    (result,) = run_body(f"%x: {T}, %v: {V}", body, f"%x : {T}", x, v)
    assert result is x
    assert torch.equal(x, v)


def test_a_value_cannot_be_overwritten_with_another_shape() -> None:
    body = """
    torch.overwrite.tensor.contents %v overwrites %x : !torch.vtensor, !torch.tensor
    """
    with pytest.raises(RunError, match=r"a tensor of shape \(1,\) does not fit over one of \(2,\)"):
        run_body("%x: !torch.tensor, %v: !torch.vtensor", body, "%x : !torch.tensor", torch.ones(2), torch.ones(1))


def test_copies_of_values_can_be_written_and_values_stay() -> None:
    """An expanded value has one element in memory, its copy has all."""
    x = torch.ones(1).expand(2, 2)
    body = f"""
    %int1 = torch.constant.int 1
    %t = torch.copy.to_tensor %x : {T}
    %y = torch.aten.add_.Scalar %t, %int1, %int1 : {T}, !torch.int, !torch.int -> {T}
    %v = torch.copy.to_vtensor %y : {V}
    """
    (result,) = run_body(f"%x: {V}", body, f"%v : {V}", x)
    assert result.tolist() == [[2, 2], [2, 2]]
    assert x.tolist() == [[1, 1], [1, 1]]


def test_results_that_are_values_share_memory_with_nothing() -> None:
    text = f"""
    func.func @main(%x: {V}) -> ({V}, {V}, {V}, {V}) {{
      %w = torch.vtensor.literal(dense_resource<w> : tensor<2x2xf32>) : {V}
      %t = torch.aten.t %x : {V} -> {V}
      %y = torch.aten.relu %x : {V} -> {V}
      func.return %w, %t, %y, %y : {V}, {V}, {V}, {V}
    }}
    """
    x, w = torch.randn(2, 2), torch.randn(2, 2)
    before = [t.clone() for t in (x, w)]
    results = run(text, x, w=w)
    assert [torch.equal(a, b) for a, b in zip(results, (w, x.t(), x.relu(), x.relu()), strict=True)] == [True] * 4
    for i, result in enumerate(results):
        result.fill_(i)
    assert [r[0, 0].item() for r in results] == [0, 1, 2, 3]
    assert all(torch.equal(a, b) for a, b in zip((x, w), before, strict=True))


def test_values_lie_nowhere_in_particular_in_memory() -> None:
    """PyTorch refuses to view a transposed tensor; of a value only the contents count."""
    body = f"""
    %int4 = torch.constant.int 4
    %size = torch.prim.ListConstruct %int4 : (!torch.int) -> !torch.list<int>
    %t = torch.aten.t %x : {V} -> {V}
    %y = torch.aten.view %t, %size : {V}, !torch.list<int> -> !torch.vtensor<[4],f32>
    """
    x = torch.arange(4.0).reshape(2, 2)
    assert run_body(f"%x: {V}", body, "%y : !torch.vtensor<[4],f32>", x)[0].tolist() == [0, 2, 1, 3]
    mutable = body.replace("vtensor", "tensor")
    with pytest.raises(RunError, match=r"aten.view: view size is not compatible"):
        run_body(f"%x: {T}", mutable, "%y : !torch.tensor<[4],f32>", x)


BATCH_NORM = """
%none = torch.constant.none
%true = torch.constant.bool true
%false = torch.constant.bool false
%momentum = torch.constant.float 5.000000e-01
%eps = torch.constant.float 1.000000e-05
%y = torch.aten.batch_norm %x, %none, %none, %mean, %var, %true, %momentum, %eps, %false
  : KIND<[3,2],f32>, !torch.none, !torch.none, KIND<[2],f32>, KIND<[2],f32>, !torch.bool, !torch.float, !torch.float,
  !torch.bool -> KIND<[3,2],f32>
"""


@pytest.mark.parametrize("kind", ["!torch.vtensor", "!torch.tensor"])
def test_hidden_writes_reach_tensors_and_not_values(kind: str) -> None:
    """A batch norm that trains writes its running statistics, though its schema does not say so."""
    x, mean, var = torch.randn(3, 2), torch.zeros(2), torch.ones(2)
    arguments = f"%x: {kind}<[3,2],f32>, %mean: {kind}<[2],f32>, %var: {kind}<[2],f32>"
    (y,) = run_body(arguments, BATCH_NORM.replace("KIND", kind), f"%y : {kind}<[3,2],f32>", x, mean, var)
    torch.testing.assert_close(y, torch.nn.functional.batch_norm(x, None, None, training=True))
    is_written = not torch.equal(mean, torch.zeros(2))
    assert is_written == (kind == "!torch.tensor")


# Constants


@pytest.mark.parametrize(
    ("contents", "type_", "expected"),
    [
        ("dense<[1, -2]> : tensor<2xsi64>", "[2],si64", torch.tensor([1, -2])),
        ("dense<[1, 255]> : tensor<2xui8>", "[2],ui8", torch.tensor([1, 255], dtype=torch.uint8)),
        ("dense<[true, false]> : tensor<2xi1>", "[2],i1", torch.tensor([True, False])),
        ("dense<true> : tensor<2xi1>", "[2],i1", torch.tensor([True, True])),
        ("dense<1.5> : tensor<2x2xf32>", "[2,2],f32", torch.full((2, 2), 1.5)),
        ("dense<[1.5, 0x7F800000]> : tensor<2xf32>", "[2],f32", torch.tensor([1.5, float("inf")])),
        ("dense<[1.5, -2.0]> : tensor<2xf16>", "[2],f16", torch.tensor([1.5, -2.0], dtype=torch.float16)),
        ("dense<[1.5, -2.0]> : tensor<2xf64>", "[2],f64", torch.tensor([1.5, -2.0], dtype=torch.float64)),
        ("dense<[(1.0, 2.0)]> : tensor<1xcomplex<f32>>", "[1],complex<f32>", torch.tensor([1 + 2j])),
        ("dense<3> : tensor<si64>", "[],si64", torch.tensor(3)),
        ("dense<[[], []]> : tensor<2x0xf32>", "[2,0],f32", torch.empty(2, 0)),
    ],
)
def test_literals(contents: str, type_: str, expected: torch.Tensor) -> None:
    text = f"""
    func.func @main() -> (!torch.vtensor<{type_}>, !torch.tensor<{type_}>) {{
      %0 = torch.vtensor.literal({contents}) : !torch.vtensor<{type_}>
      %1 = torch.tensor.literal({contents}) : !torch.tensor<{type_}>
      func.return %0, %1 : !torch.vtensor<{type_}>, !torch.tensor<{type_}>
    }}
    """
    for result in run(text):
        assert result.dtype == expected.dtype
        assert torch.equal(result, expected)


def test_a_mutable_literal_is_fresh_in_every_run() -> None:
    body = """
    %int1 = torch.constant.int 1
    %t = torch.tensor.literal(dense<1.0> : tensor<2xf32>) : !torch.tensor
    %y = torch.aten.add_.Scalar %t, %int1, %int1 : !torch.tensor, !torch.int, !torch.int -> !torch.tensor
    """
    program = Interpreter(
        parse_module(f"func.func @main() -> !torch.tensor {{ {body} return %y : !torch.tensor }}"), {}
    )
    assert [program.call("main", [])[0].tolist() for _ in range(2)] == [[2, 2], [2, 2]]


def test_weights_that_are_missing_or_different() -> None:
    text = """
    func.func @main() -> !torch.vtensor<[2],f32> {
      %0 = torch.vtensor.literal(dense_resource<w> : tensor<2xf32>) : !torch.vtensor<[2],f32>
      func.return %0 : !torch.vtensor<[2],f32>
    }
    """
    with pytest.raises(RunError, match="the weight 'w' is missing"):
        run(text)
    with pytest.raises(
        RunError, match=r"the weight 'w' is \(3,\) float32, and the program was made for \(2,\) float32"
    ):
        run(text, w=torch.ones(3))
    assert run(text, w=np.array([1, 2], np.float32))[0].tolist() == [1, 2]


# Python values

N, F, B, S, L = "!torch.int", "!torch.float", "!torch.bool", "!torch.str", "!torch.list<int>"
D = "!torch.dict<str, int>"


@pytest.mark.parametrize(
    ("op", "operands", "result", "args", "expected"),
    [
        ("aten.add.int", (N, N), N, (2, 3), 5),
        ("aten.floordiv.int", (N, N), N, (7, -2), -4),
        ("aten.remainder.int", (N, N), N, (-7, 3), 2),
        ("aten.div.int", (N, N), F, (7, 2), 3.5),
        ("aten.mul.float", (F, F), F, (1.5, 2.0), 3.0),
        ("aten.gt.float_int", (F, N), B, (1.5, 1), True),
        ("aten.__and__.bool", (B, B), B, (True, False), False),
        ("aten.__not__", (B,), B, (True,), False),
        ("aten.__is__", ("!torch.optional<int>", "!torch.none"), B, (None, None), True),
        ("aten.__isnot__", ("!torch.optional<int>", "!torch.none"), B, (3, None), True),
        ("aten.Int.float", (F,), N, (2.9,), 2),
        ("aten.Float.Scalar", ("!torch.number",), F, (2,), 2.0),
        ("aten.Int.Tensor", ("!torch.vtensor<[],si64>",), N, (torch.tensor(4),), 4),
        ("aten.Bool.Tensor", ("!torch.vtensor<[],i1>",), B, (torch.tensor(True),), True),
        ("aten.ceil.float", (F,), N, (1.2,), 2),
        ("aten.size", ("!torch.vtensor",), L, (torch.ones(2, 3),), [2, 3]),
        ("aten.size.int", ("!torch.vtensor", N), N, (torch.ones(2, 3), 1), 3),
        ("aten.dim", ("!torch.vtensor",), N, (torch.ones(2, 3),), 2),
        ("aten.eq.str", (S, S), B, ("a", "a"), True),
        ("aten.eq.int_list", (L, L), B, ([1, 2], [1, 2]), True),
        ("aten.len.t", (L,), N, ([1, 2],), 2),
        ("aten.add.t", (L, L), L, ([1], [2]), [1, 2]),
        ("aten.mul.left_t", (L, N), L, ([1, 2], 2), [1, 2, 1, 2]),
        ("aten.slice.t", (L, N, N, N), L, ([1, 2, 3, 4], 1, 4, 2), [2, 4]),
        ("aten.__getitem__.t", (L, N), N, ([1, 2], -1), 2),
        ("aten.append.t", (L, N), L, ([1], 2), [1, 2]),
        ("aten._set_item.t", (L, N, N), L, ([1, 2], 0, 5), [5, 2]),
        ("aten.list.t", (L,), L, ([1],), [1]),
        ("aten.__contains__.int_list", (L, N), B, ([1, 2], 2), True),
        ("aten.__contains__.str", (D, S), B, ({"a": 1}, "a"), True),
        ("aten.__getitem__.Dict_str", (D, S), N, ({"a": 1}, "a"), 1),
        ("aten.keys.str", (D,), "!torch.list<str>", ({"a": 1},), ["a"]),
        ("aten.get.default_str", (D, S, N), N, ({}, "a", 7), 7),
        ("aten.join", (S, "!torch.list<str>"), S, ("-", ["a", "b"]), "a-b"),
        ("aten.str", (N,), S, (3,), "3"),
        ("prim.TupleIndex", ("!torch.tuple<int, float>", N), F, ((1, 2.5), 1), 2.5),
        ("prim.unchecked_cast", ("!torch.optional<int>",), N, (3,), 3),
        ("prim.min.self_int", (L,), N, ([3, 1],), 1),
        ("prim.dtype", ("!torch.vtensor",), N, (torch.ones(1),), 6),
        ("prim.device", ("!torch.vtensor",), "!torch.Device", (torch.ones(1),), torch.device("cpu")),
        ("aten.__range_length", (N, N, N), N, (0, 5, 2), 3),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value and "!" not in value else "",
)
def test_ops_on_python_values(op: str, operands: tuple[str, ...], result: str, args: Any, expected: Any) -> None:
    names = [f"%a{i}" for i in range(len(operands))]
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, operands, strict=True))
    body = f"%r = torch.{op} {', '.join(names)} : {', '.join(operands)} -> {result}"
    (actual,) = run_body(arguments, body, f"%r : {result}", *args)
    assert actual == expected
    assert type(actual) is type(expected)


def test_containers_are_shared_and_change_for_all_who_hold_them() -> None:
    body = """
    %int0 = torch.constant.int 0
    %int9 = torch.constant.int 9
    %key = torch.constant.str "k"
    %outer = torch.prim.ListConstruct %l : (!torch.list<int>) -> !torch.list<list<int>>
    %inner = torch.aten.__getitem__.t %outer, %int0 : !torch.list<list<int>>, !torch.int -> !torch.list<int>
    torch.aten.insert.t %inner, %int0, %int9 : !torch.list<int>, !torch.int, !torch.int
    %p = torch.operator "torch.aten.pop.t"(%l, %int0) : (!torch.list<int>, !torch.int) -> !torch.int
    %0 = torch.aten.append.t %inner, %p : !torch.list<int>, !torch.int -> !torch.list<int>
    torch.aten._set_item.str %d, %key, %p : !torch.dict<str, int>, !torch.str, !torch.int
    torch.operator "torch.aten.sort.int"(%l, %true) : (!torch.list<int>, !torch.bool) -> ()
    """
    numbers, table = [1, 2], {"a": 0}
    (result,) = run_body(f"%l: {L}, %d: {D}, %true: {B}", body, f"%inner : {L}", numbers, table, True)
    assert result is numbers
    assert numbers == [9, 2, 1]
    assert table == {"a": 0, "k": 9}


def test_building_and_taking_apart() -> None:
    body = """
    %a = torch.constant.str "a"
    %half = torch.constant.float 5.000000e-01
    %none = torch.constant.none
    %cpu = torch.constant.device "cpu"
    %number = "torch.constant.number"() <{value = 3 : i64}> : () -> !torch.number
    %d = torch.prim.DictConstruct keys(%a : !torch.str) values(%n : !torch.int) -> !torch.dict<str, int>
    %t = torch.prim.TupleConstruct %n, %half, %d : !torch.int, !torch.float, !torch.dict<str, int>
      -> !torch.tuple<int, float, dict<str, int>>
    %x, %y, %z = torch.prim.TupleUnpack %t : !torch.tuple<int, float, dict<str, int>>
      -> !torch.int, !torch.float, !torch.dict<str, int>
    %l = torch.prim.ListConstruct %x, %n : (!torch.int, !torch.int) -> !torch.list<int>
    %u, %v = torch.prim.ListUnpack %l : !torch.list<int> -> !torch.int, !torch.int
    %o = torch.derefine %u : !torch.int to !torch.optional<int>
    """
    results = f"%y, %z, %v, %o, %none, %cpu, %number : {F}, {D}, {N}, !torch.optional<int>, !torch.none, "
    results += "!torch.Device, !torch.number"
    assert run_body(f"%n: {N}", body, results, 4) == [0.5, {"a": 4}, 4, 4, None, torch.device("cpu"), 3]
    with pytest.raises(RunError, match=r"prim.ListUnpack: 3 elements where 1 are expected"):
        run_body(f"%l: {L}", f"%a = torch.prim.ListUnpack %l : {L} -> {N}", f"%a : {N}", [1, 2, 3])


# Control flow


CONTROL = """
func.func private @double(%n: !torch.int) -> (!torch.int, !torch.int) {
  %0 = torch.aten.add.int %n, %n : !torch.int, !torch.int -> !torch.int
  func.return %0, %n : !torch.int, !torch.int
}
func.func @main(%n: !torch.int, %limit: !torch.int) -> (!torch.int, !torch.list<int>) {
  %true = torch.constant.bool true
  %one = torch.constant.int 1
  %l = torch.prim.ListConstruct : () -> !torch.list<int>
  %r = torch.prim.Loop %n, %true, init(%one) {
  ^bb0(%i: !torch.int, %k: !torch.int):
    %0 = torch.aten.append.t %l, %i : !torch.list<int>, !torch.int -> !torch.list<int>
    %1, %2 = func.call @double(%k) : (!torch.int) -> (!torch.int, !torch.int)
    %3 = torch.aten.lt.int %1, %limit : !torch.int, !torch.int -> !torch.bool
    %4 = torch.prim.If %3 -> (!torch.int) {
      torch.prim.If.yield %1 : !torch.int
    } else {
      torch.prim.If.yield %2 : !torch.int
    }
    torch.prim.Loop.condition %3, iter(%4 : !torch.int)
  } : (!torch.int, !torch.bool, !torch.int) -> !torch.int
  func.return %r, %l : !torch.int, !torch.list<int>
}
"""


@pytest.mark.parametrize(
    ("count", "limit", "expected"), [(0, 99, [1, []]), (3, 99, [8, [0, 1, 2]]), (9, 10, [8, [0, 1, 2, 3]])]
)
def test_branches_loops_and_calls(count: int, limit: int, expected: list[Any]) -> None:
    assert run(CONTROL, count, limit) == expected


def test_calculations_give_what_they_compute() -> None:
    body = f"""
    %y = torch.shape.calculate {{
      %z = torch.aten.relu %x : {V} -> {V}
      torch.shape.calculate.yield %z : {V}
    }} shapes {{
      %l = torch.prim.ListConstruct : () -> !torch.list<int>
      torch.shape.calculate.yield.shapes %l : !torch.list<int>
    }} : {V}
    """
    x = torch.randn(2, 2)
    assert torch.equal(run_body(f"%x: {V}", body, f"%y : {V}", x)[0], x.relu())


def test_symbolic_sizes_come_from_shapes() -> None:
    body = """
    %s = torch.symbolic_int "s0" {min_val = 0, max_val = 9} : !torch.int
    torch.bind_symbolic_shape %x, [%s], affine_map<()[s0] -> (s0, s0 * 2)> : !torch.vtensor<[?,?],f32>
    %r = torch.aten.add.int %s, %s : !torch.int, !torch.int -> !torch.int
    """
    assert run_body("%x: !torch.vtensor<[?,?],f32>", body, f"%r : {N}", torch.ones(3, 6)) == [6]


def test_variables() -> None:
    body = f"""
    torch.prim.Store "v", %n : {N}
    %r = torch.prim.Load "v" : {N}
    """
    assert run_body(f"%n: {N}", body, f"%r : {N}", 5) == [5]


# Errors


def test_an_error_names_the_op_its_types_and_the_line() -> None:
    body = f"""
    %y = torch.aten.mm %x, %w : {V}, !torch.vtensor -> {V} loc("model.py":12:3)
    """
    with pytest.raises(RunError) as caught:
        run_body(f"%x: {V}, %w: !torch.vtensor", body, f"%y : {V}", torch.ones(2, 2), torch.ones(3, 2))
    text = str(caught.value)
    assert text.startswith("aten.mm: mat1 and mat2 shapes cannot be multiplied (2x2 and 3x2)")
    assert "called with (vtensor<[2,2],f32>, vtensor) -> (vtensor<[2,2],f32>)" in text
    assert "at model.py:12" in text
    assert caught.value.__cause__ is not None


def test_an_error_in_a_callee_is_told_once() -> None:
    text = """
    func.func private @f(%l: !torch.list<int>) -> !torch.int {
      %5 = torch.constant.int 5
      %0 = torch.aten.__getitem__.t %l, %5 : !torch.list<int>, !torch.int -> !torch.int loc("model.py":3:1)
      func.return %0 : !torch.int
    }
    func.func @main(%l: !torch.list<int>) -> !torch.int {
      %0 = func.call @f(%l) : (!torch.list<int>) -> !torch.int loc("model.py":8:1)
      func.return %0 : !torch.int
    }
    """
    with pytest.raises(RunError, match=r"^aten.__getitem__.t: list index out of range") as caught:
        run(text, [1])
    assert "model.py:8" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('torch.runtime.assert %c, "x must be positive"', "^x must be positive$"),
        (
            """%m = torch.constant.str "no such mode"
            %none = torch.constant.none
            torch.prim.RaiseException %m, %none : !torch.str, !torch.none""",
            "no such mode",
        ),
        (
            '%y = torch.operator "torch.my.op"(%c) : (!torch.bool) -> !torch.int',
            "my.op: PyTorch has no operator my::op",
        ),
        (
            "%y = torch.linear_params.create %x : !torch.vtensor",
            "linear_params.create: the eager engine has no rule for this op",
        ),
        ('%s = torch.symbolic_int "s0" {min_val = 0, max_val = 9} : !torch.int\n'
         "%r = torch.aten.neg.int %s : !torch.int -> !torch.int", "the size s0, which no tensor"),
    ],
    ids=["assert", "raise", "unknown", "no rule", "size"],
)  # fmt: skip
def test_programs_that_stop(body: str, reason: str) -> None:
    with pytest.raises(RunError, match=reason):
        run_body("%c: !torch.bool, %x: !torch.vtensor", body, "%c : !torch.bool", False, torch.ones(1))


def test_wrong_calls() -> None:
    text = "func.func @main(%n: !torch.int) -> !torch.int { func.return %n : !torch.int }\nfunc.func private @outside()"
    with pytest.raises(RunError, match="'main' takes 1 arguments, got 2"):
        run(text, 1, 2)
    with pytest.raises(ValueError, match="no function 'f'; it has main, outside"):
        run(text, function="f")
    with pytest.raises(RunError, match="@outside has 0 blocks"):
        run(text, function="outside")


def test_custom_operators_run_by_their_names() -> None:
    with torch.library._scoped_library("flambeau_eager_test", "DEF") as library:
        library.define("shift(Tensor x, *, int by=1) -> Tensor")
        library.impl("shift", lambda x, *, by=1: x + by, "CompositeExplicitAutograd")
        body = f"""
        %by = torch.constant.int 3
        %y = torch.operator "torch.flambeau_eager_test.shift"(%x, %by) : ({V}, !torch.int) -> {V}
        """
        assert torch.equal(run_body(f"%x: {V}", body, f"%y : {V}", torch.zeros(2, 2))[0], torch.full((2, 2), 3.0))
