"""Nodes and types of TorchScript, imported one by one, and what has no type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union  # noqa: UP035

import pytest
import torch
from frontends.script_import import failure, has, imported, line_of, loops, text_of
from torch import Tensor, nn

from flambeau.diagnostics import CompileError
from flambeau.frontends.script.compile import import_script_module, script_module
from flambeau.frontends.script.types import type_of
from flambeau.ir.printing import pretty_text

# ruff: noqa: UP006, UP007, UP045
# TorchScript wants the names of `typing`.


# --- Nodes ---


class Sum(NamedTuple):
    total: Tensor
    count: int


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


def turned(x: Tensor, by: complex) -> Tensor:
    return x * abs(by)


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
    class Turned(nn.Module):
        def forward(self, x: Tensor, by: complex) -> Tensor:
            return x * abs(by)

    error = failure(Turned())
    assert "complex" in str(error)
    assert "Keep complex numbers in tensors" in str(error)
    with pytest.raises(CompileError, match="complex"):
        imported(turned)


def test_a_tensor_without_a_type_is_reported_by_its_path() -> None:
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Identity()
            self.inner.table = torch.eye(3).to_sparse()  # type: ignore[assignment]

        def forward(self, x: Tensor) -> Tensor:
            return x + self.inner.table

    assert "attribute 'inner.table'" in str(failure(Sparse()))
