"""Regions of a graph that are graphs of their own (`torch.no_grad()`, `torch.autocast()`), put where they are called.

In one graph, a write inside of a region is a write like any other: whoever looks for what is written sees it.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode

from flambeau.frontends.fx.expansion import TRACING, fake_mode_of
from flambeau.ir import dtypes

_INLINED = frozenset({
    "wrap_with_set_grad_enabled", "wrap_with_autocast", "wrap", "checkpoint", "tag_activation_checkpoint",
    "invoke_subgraph",
})  # fmt: skip

Autocast = tuple[Any, ...] | None
"""Device, dtype and whether it is on: what `torch.autocast` is called with. None outside of such a region."""


def without_regions(graph: Graph, owner: Any, autocast: Autocast = None) -> Graph:
    """The graph with the regions that are always entered once written out; the same graph if there are none."""
    return flattened(graph, owner, autocast)[0]


def flattened(
    graph: Graph, owner: Any, autocast: Autocast = None, dropped: Collection[Node] = ()
) -> tuple[Graph, dict[Node, Any]]:
    """The graph without regions and some nodes that nobody uses, and what became of each node.

    It is the same graph if there is nothing to do.
    """
    if not autocast and not dropped and not any(_is_region(node) for node in graph.nodes):
        return graph, {node: node for node in graph.nodes}
    flat, values = Graph(), dict.fromkeys(dropped)
    flat.output(_copy_nodes(flat, graph, owner, "", values, autocast))
    return flat, values


def ambient_autocast() -> Autocast:
    """The autocast region in which the caller stands."""
    if not torch.is_autocast_enabled("cpu"):
        return None
    return ("cpu", torch.get_autocast_dtype("cpu"), True)


def _is_region(node: Node) -> bool:
    if node.op != "call_function" or hasattr(node.target, "_schema"):
        return False
    names = (getattr(node.target, "__name__", ""), type(node.target).__name__.lower())
    return any(name in _INLINED for name in names)


def _copy_nodes(flat: Graph, graph: Graph, owner: Any, path: str, values: dict[Node, Any], autocast: Autocast) -> Any:
    """Copy a graph's nodes behind those of `flat`; gives what the graph's output is there."""

    def value_of(node: Node) -> Any:
        return values[node]

    for node in graph.nodes:
        if node.op == "output":
            return map_arg(node.args[0], value_of)
        if node in values:  # an input, or dropped
            continue
        if _is_region(node):
            values[node] = _copy_region(flat, node, owner, path, values, autocast)
        elif node.target is operator.getitem and isinstance(found := values[node.args[0]], (list, tuple)):
            values[node] = found[node.args[1]]
        elif node.op == "get_attr":
            values[node] = copy = flat.node_copy(node)
            copy.target = path + str(node.target)
        else:
            values[node] = copy = flat.node_copy(node, value_of)
            if autocast and hasattr(node.target, "_schema"):
                _insert_casts(flat, copy, autocast)
    return None


def _copy_region(flat: Graph, node: Node, owner: Any, path: str, values: dict[Node, Any], autocast: Autocast) -> Any:
    at = next(i for i, a in enumerate(node.args) if isinstance(a, Node) and a.op == "get_attr")
    target = str(node.args[at].target)  # type: ignore[union-attr]
    body = attribute_of(owner, target)
    assert isinstance(body, GraphModule)
    if getattr(node.target, "__name__", "") == "wrap_with_autocast":
        device, dtype, enabled = (*node.args[:at], None, None)[:3]
        autocast = (device, dtype, enabled) if device == "cpu" and enabled else None
    operands = [a for a in node.args[at + 1 :] if not isinstance(a, str)]  # a string is a region's own name
    inner = [n for n in body.graph.nodes if n.op == "placeholder"]
    bound: dict[Node, Any] = {
        placeholder: map_arg(operand, lambda n: values[n]) for placeholder, operand in zip(inner, operands, strict=True)
    }
    return _copy_nodes(flat, body.graph, body, f"{path}{target}.", bound, autocast)


def attribute_of(owner: Any, target: str) -> Any:
    """What a dotted name stands for."""
    for part in target.split("."):
        owner = getattr(owner, part)
    return owner


# Autocast. PyTorch records the ops of such a region without the casts that it makes of their operands.


class _Casts(TorchDispatchMode):
    """Records which of some tensors are cast before an op's kernel is reached."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[Any, torch.dtype]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default and kwargs.get("dtype") is not None:
            self.seen.append((args[0], kwargs["dtype"]))
        return func(*args, **kwargs)


def _insert_casts(flat: Graph, node: Node, autocast: tuple[Any, ...]) -> None:
    """Cast the operands of an op as autocast does."""
    schema: Any = node.target._schema  # type: ignore[union-attr]
    if schema.is_mutable or schema.name in ("aten::to", "aten::_to_copy", "aten::type_as"):
        return
    metas: dict[Node, Any] = {n: n.meta.get("val") for n in node.all_input_nodes}
    if not any(isinstance(m, torch.Tensor) and m.is_floating_point() for m in metas.values()):
        return
    casts = _casts(node, metas, (*autocast[:2], True))
    if any(isinstance(a, torch.dtype) for a in (*node.args, *node.kwargs.values())):
        own = _casts(node, metas, (*autocast[:2], False))  # the op casts by itself
        casts = {key: dtype for key, dtype in casts.items() if own.get(key) is not dtype}
    if not casts:
        return
    replaced: dict[Node, Node] = {}
    with flat.inserting_before(node):
        for source, meta in metas.items():
            if id(meta) in casts:
                dtype = casts[id(meta)]
                cast = flat.call_function(torch.ops.aten.to.dtype, (source, dtype))
                cast.meta = {**node.meta, "val": meta.to(dtype)}
                replaced[source] = cast
    node.args = map_arg(node.args, lambda n: replaced.get(n, n))
    node.kwargs = map_arg(node.kwargs, lambda n: replaced.get(n, n))


def _casts(node: Node, metas: dict[Node, Any], autocast: Sequence[Any]) -> dict[int, torch.dtype]:
    device, dtype, enabled = autocast
    args, kwargs = map_arg((node.args, node.kwargs), lambda n: metas[n])
    region = torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=False)
    with TRACING, torch.no_grad(), fake_mode_of(list(metas.values()), node), _Casts() as casts, region:
        node.target(*args, **kwargs)  # type: ignore[operator]
    return {id(tensor): to for tensor, to in casts.seen if dtypes.from_torch(to) is not None}
