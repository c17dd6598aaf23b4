"""Graphs that AOTAutograd gives a compiler: what in them is worth compiling, and how much work they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg


@dataclass(frozen=True)
class Outputs:
    """What a graph gives: values that it computes, arguments as they are, and constants."""

    computed: tuple[Node, ...]
    """Each value that it computes, once."""
    sources: tuple[tuple[str, Any], ...]
    """For each output `computed` or `argument` with a position, or `constant` with a value."""

    @staticmethod
    def of(graph: Graph) -> Outputs:
        """List the outputs of a graph. A graph that is trained gives many of its arguments, for the backward pass."""
        places = {node: i for i, node in enumerate(n for n in graph.nodes if n.op == "placeholder")}
        computed: dict[Node, int] = {}
        sources: list[tuple[str, Any]] = []
        (results,) = next(reversed(graph.nodes)).args
        assert isinstance(results, (list, tuple))
        for result in results:
            if not isinstance(result, Node):
                sources.append(("constant", result))
            elif result in places:
                sources.append(("argument", places[result]))
            else:
                sources.append(("computed", computed.setdefault(result, len(computed))))
        return Outputs(tuple(computed), tuple(sources))

    def gathered(self, computed: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """Put the outputs of a call together."""
        return [
            computed[what] if kind == "computed" else arguments[what] if kind == "argument" else what
            for kind, what in self.sources
        ]


def giving(graph_module: GraphModule, outputs: Sequence[Node], fixed: Mapping[int, int]) -> GraphModule:
    """Copy a graph so that it gives these values alone, a single one bare, and takes no `fixed` arguments.

    Those have a value already, by their position.
    """
    graph, copied = Graph(), dict[Node, Node]()
    graph.graph_copy(graph_module.graph, copied)
    results = tuple(copied[node] for node in outputs)
    graph.output(results[0] if len(results) == 1 else results)
    placeholders = [n for n in graph_module.graph.nodes if n.op == "placeholder"]
    for i, value in fixed.items():
        _replace(copied[placeholders[i]], value)
    made = GraphModule(graph_module, graph)
    made.recompile()
    return made


def _replace(node: Node, value: int) -> None:
    """Put a number in the place of a node and its uses."""
    for user in list(node.users):
        user.args = map_arg(user.args, lambda n: value if n is node else n)
        user.kwargs = map_arg(user.kwargs, lambda n: value if n is node else n)
    node.graph.erase_node(node)


def size_arguments(graph: Graph) -> list[int]:
    """List the positions of the integer arguments that are used, and are part of some tensor's size."""
    used: set[Any] = set()
    for node in graph.nodes:
        if node.op == "call_function":
            for meta in tensors_of(node):
                for size in (*meta.shape, *meta.stride()):
                    used |= _symbols(size)
    arguments = [node for node in graph.nodes if node.op == "placeholder"]
    return [i for i, node in enumerate(arguments) if _is_computed_with(node) and _symbols(node.meta.get("val")) & used]


def _is_computed_with(node: Node) -> bool:
    return any(user.op != "output" for user in node.users)


def _symbols(size: Any) -> set[Any]:
    return set(size.node.expr.free_symbols) if isinstance(size, torch.SymInt) else set()


def tensors_of(node: Node) -> list[torch.Tensor]:
    """List the fake tensors that a node gives."""
    meta = node.meta.get("val")
    return [m for m in (meta if isinstance(meta, (list, tuple)) else [meta]) if isinstance(m, torch.Tensor)]


def devices_of(graph: Graph) -> set[torch.device]:
    """Collect the devices on which a graph has tensors."""
    return {meta.device for node in graph.nodes for meta in tensors_of(node)}


def computes(graph: Graph) -> bool:
    """Tell whether a graph computes a tensor: views, and arithmetic on sizes, are done before a program is called."""
    return any(node.op == "call_function" and tensors_of(node) and not _is_view(node.target) for node in graph.nodes)


def _is_view(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    if schema is None:
        return False
    aliases = [result.alias_info for result in schema.returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)


def work_of(graph: Graph) -> int | None:
    """Estimate how much a graph computes, in additions and multiplications; None if a size is not known."""
    total = 0
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        tensors = tensors_of(node)
        taken = [t for n in node.all_input_nodes for t in tensors_of(n)]
        if not all(isinstance(size, int) for t in (*tensors, *taken) for size in t.shape):
            return None
        given, read = (max((t.numel() for t in group), default=0) for group in (tensors, taken))
        name = getattr(node.target, "__name__", "")
        if any(product in name for product in _PRODUCTS):
            # A product reads each of its operands several times: m*k, k*n and m*n make m*k*n.
            total += math.isqrt(math.prod(sorted((t.numel() for t in taken), reverse=True)[:2]) * given)
        else:
            total += _PER_ELEMENT * max(given, read)
    return total


_PRODUCTS = ("mm", "matmul", "linear", "convolution", "attention", "bilinear", "lstm", "gru", "rnn", "cdist")
_PER_ELEMENT = 4
"""What a pointwise op or a reduction counts for each element that it reads."""
