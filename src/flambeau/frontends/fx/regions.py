"""Regions of a graph that are graphs of their own (`torch.no_grad()`, `torch.autocast()`), put where they are called.

In one graph, a write inside of a region is a write like any other: whoever looks for what is written sees it.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from flambeau.frontends.fx.autocast import BOUNDS, ENTER, EXIT, Autocast, apply_autocast, entered

_INLINED = frozenset({
    "wrap_with_set_grad_enabled", "wrap_with_autocast", "wrap", "checkpoint", "tag_activation_checkpoint",
    "invoke_subgraph",
})  # fmt: skip


def without_regions(graph: Graph, owner: Any, autocast: Autocast = None) -> Graph:
    """Inline the regions that are entered exactly once; return the same graph if there are none."""
    return flattened(graph, owner, autocast)[0]


def flattened(
    graph: Graph, owner: Any, autocast: Autocast = None, dropped: Collection[Node] = ()
) -> tuple[Graph, dict[Node, Any]]:
    """Inline regions and drop the given nodes; return the graph and what each old node became.

    It is the same graph if there is nothing to do.
    """
    if not autocast and not dropped and not any(_is_region(n) or n.target in BOUNDS for n in graph.nodes):
        return graph, {node: node for node in graph.nodes}
    flat, values = Graph(), dict.fromkeys(dropped)
    flat.output(_copy_nodes(flat, graph, owner, "", values, autocast))
    return flat, values


def _is_region(node: Node) -> bool:
    if node.op != "call_function" or hasattr(node.target, "_schema"):
        return False
    names = (getattr(node.target, "__name__", ""), type(node.target).__name__.lower())
    return any(name in _INLINED for name in names)


def _copy_nodes(flat: Graph, graph: Graph, owner: Any, path: str, values: dict[Node, Any], autocast: Autocast) -> Any:
    """Copy a graph's nodes behind those of `flat`; gives what the graph's output is there."""

    def value_of(node: Node) -> Any:
        return values[node]

    around: list[Autocast] = []
    for node in graph.nodes:
        if node.op == "output":
            return map_arg(node.args[0], value_of)
        if node in values:  # an input, or dropped
            continue
        if node.target is ENTER:
            around.append(autocast)
            autocast = entered(node.args, autocast)
        elif node.target is EXIT:
            autocast = around.pop()
        elif _is_region(node):
            values[node] = _copy_region(flat, node, owner, path, values, autocast)
        elif node.target is operator.getitem and isinstance(found := values[node.args[0]], (list, tuple)):
            values[node] = found[node.args[1]]
        elif node.op == "get_attr":
            values[node] = copy = flat.node_copy(node)
            copy.target = path + str(node.target)
        else:
            values[node] = copy = flat.node_copy(node, value_of)
            if autocast and node.op == "call_function":
                apply_autocast(flat, copy, autocast)
    return None


def _copy_region(flat: Graph, node: Node, owner: Any, path: str, values: dict[Node, Any], autocast: Autocast) -> Any:
    at = next(i for i, a in enumerate(node.args) if isinstance(a, Node) and a.op == "get_attr")
    target = str(node.args[at].target)  # type: ignore[union-attr]
    body = attribute_of(owner, target)
    assert isinstance(body, GraphModule)
    if getattr(node.target, "__name__", "") == "wrap_with_autocast":
        autocast = entered(node.args[:at], autocast)
    operands = [a for a in node.args[at + 1 :] if not isinstance(a, str)]  # a string is a region's own name
    inner = [n for n in body.graph.nodes if n.op == "placeholder"]
    bound: dict[Node, Any] = {
        placeholder: map_arg(operand, lambda n: values[n]) for placeholder, operand in zip(inner, operands, strict=True)
    }
    return _copy_nodes(flat, body.graph, body, f"{path}{target}.", bound, autocast)


def attribute_of(owner: Any, target: str) -> Any:
    """Look up a dotted name, `layers.0.weight`, from `owner`."""
    for part in target.split("."):
        owner = getattr(owner, part)
    return owner
