"""A cut graph as an FX graph of ATen ops, which the importer takes."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule

from flambeau.frontends.lazy.graph import Place, Spec
from flambeau.frontends.lazy.structure import Line


def graph_module_of(
    lines: Sequence[Line],
    inputs: Sequence[int],
    outputs: Sequence[int],
    constants: Sequence[Any],
    groups: Mapping[int, Sequence[int]],
) -> GraphModule:
    """Make an FX graph whose placeholders are first the input slots, then one number for each of the groups."""
    graph, mode = Graph(), FakeTensorMode()
    specs = {
        slot: spec
        for line in lines
        for slot, spec in (*zip(line.operands, line.kind.specs), *zip(line.results, line.kind.results))
        if slot is not None and spec is not None
    }
    nodes: dict[int, Any] = {}
    for i, slot in enumerate(inputs):
        spec = specs[slot]
        nodes[slot] = graph.placeholder(f"input{i}")
        nodes[slot].meta["val"] = _fake(mode, Spec(spec.shape, spec.dtype, _in_order(spec.shape)))
    numbers = list(constants)
    for i, group in enumerate(groups.values()):
        node = graph.placeholder(f"number{i}")
        node.meta["val"] = constants[group[0]]
        for position in group:
            numbers[position] = node
    for line in lines:
        call = line.kind.call([nodes[slot] for slot in line.operands], [numbers[i] for i in line.numbers], _call(graph))
        call.meta["stack_trace"] = _stack_trace(line.place)
        fakes = [None if spec is None else _fake(mode, spec) for spec in line.kind.results]
        if line.kind.many is None:
            call.meta["val"] = fakes[0]
            if line.results[0] is not None:
                nodes[line.results[0]] = call
            continue
        call.meta["val"] = line.kind.many(fakes)
        for i, result in enumerate(line.results):
            if result is not None:
                nodes[result] = graph.call_function(operator.getitem, (call, i))
                nodes[result].meta["val"] = fakes[i]
    graph.output(tuple(nodes[slot] for slot in outputs))
    graph.eliminate_dead_code()
    return GraphModule(torch.nn.Module(), graph)


def _call(graph: Graph) -> Any:
    return lambda func, *args, **kwargs: graph.call_function(func, args, kwargs)


def _fake(mode: FakeTensorMode, spec: Spec) -> torch.Tensor:
    with mode:
        return spec.empty()


def _in_order(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(size, 1)
    return tuple(strides)


def _stack_trace(place: Place) -> str:
    if place is None:
        return ""
    file, line, function = place
    return f'  File "{file}", line {line}, in {function}\n'
