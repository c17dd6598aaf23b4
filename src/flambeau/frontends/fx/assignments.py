"""Buffers that `forward` assigns: `self.total = self.total + x`. The new tensor is the buffer from then on.

`torch.export` writes it into the old one at the end, for buffers of the outermost module alone; others it forgets. So
the nodes whose values are assigned are marked here while a model is traced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.frontends.fx.state import plain_tensors
from flambeau.ir.arrays import shares_memory

_MARK = "flambeau_assigned"


@contextmanager
def noted_assignments(model: torch.nn.Module) -> Iterator[set[str]]:
    """Mark the nodes whose values are assigned to buffers; gives the names of those buffers."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
    from torch.nn.modules.module import register_module_buffer_registration_hook

    prefixes = {id(module): f"{path}." if path else "" for path, module in model.named_modules()}
    nodes: dict[str, Node] = {}

    def note(module: torch.nn.Module, name: str, buffer: Any) -> None:
        mode = get_proxy_mode()
        if mode is None or id(module) not in prefixes or not isinstance(buffer, torch.Tensor):
            return
        slot: Any = get_proxy_slot(buffer, mode.tracer, None)
        path = prefixes[id(module)] + name
        if path in nodes:
            nodes[path].meta["custom"][_MARK].remove(path)
        if slot is None:
            nodes.pop(path, None)
            found.add(path)
            return
        node = nodes[path] = slot.proxy.node
        node.meta["custom"] = dict(node.meta.get("custom") or {})
        node.meta["custom"].setdefault(_MARK, []).append(path)
        found.add(path)

    found: set[str] = set()
    hook = register_module_buffer_registration_hook(note)
    try:
        yield found
    finally:
        hook.remove()


def assigned_buffers(graph: Graph) -> dict[str, Node]:
    """Map the name of each buffer that `forward` assigns to the node of its new value."""
    found: dict[str, Node] = {}
    for node in graph.nodes:
        for path in (node.meta.get("custom") or {}).get(_MARK, ()):
            # PyTorch gives a check of a tensor the notes of the tensor.
            if not isinstance(node.meta.get("val"), torch.Tensor) or "assert" in str(node.target):
                continue
            if _is_copy_into_buffer(node):
                continue
            if path in found:
                reason = f"forward() assigns the buffer {path!r}, and the graph has two values for it"
                raise CompileError([Diagnostic("import", reason, hint="Write it in place: copy_().")])
            found[path] = node
    return found


def copies_into_buffers(program: ExportedProgram) -> dict[Node, tuple[str, Node]]:
    """Map each `copy_` at a graph's end that stands for an assignment to the buffer's name and new value."""
    buffers = program.graph_signature.inputs_to_buffers
    found: dict[Node, tuple[str, Node]] = {}
    for node in program.graph.nodes:
        if _is_copy_into_buffer(node):
            old, new = node.args
            if old.name in buffers and not node.users and isinstance(new, Node):
                found[node] = (buffers[old.name], new)
    return found


def _is_copy_into_buffer(node: Node) -> bool:
    """Tell whether PyTorch added this `copy_` for an assignment to a buffer, going by the node's name."""
    return node.target is torch.ops.aten.copy_.default and bool(re.fullmatch(r"copy__default(_\d+)?", node.name))


def refuse_lost_assignments(model: torch.nn.Module, program: ExportedProgram, assigned: set[str]) -> None:
    """Raise if a buffer is assigned a value that is not in the graph: a constant, or one that nobody else uses.

    Raise too if others share the memory of a buffer that is assigned: they would get the new value as well.
    """
    others = {id(t): t for t in (*model.parameters(), *model.buffers(), *plain_tensors(model))} if assigned else {}
    for name in sorted(assigned):
        buffer = dict(model.named_buffers(remove_duplicate=False)).get(name)
        if buffer is not None and any(t is not buffer and shares_memory(t, buffer) for t in others.values()):
            reason = f"forward() assigns the buffer {name!r}, whose memory another tensor of the model shares"
            raise CompileError([Diagnostic("export", reason, hint="Give each its own memory with clone().")])
    kept = {name for name, _ in copies_into_buffers(program).values()} | _marked(program.graph_module)
    lost = sorted(assigned - kept)
    if lost:
        reason = f"forward() assigns the buffer {', '.join(lost)}, and torch.export does not keep the new value"
        raise CompileError([Diagnostic("export", reason, hint="Write it in place: copy_().")])


def _marked(module: Any) -> set[str]:
    parts = [m for m in module.modules() if isinstance(m, torch.fx.GraphModule)]
    return {name for part in parts for name in assigned_buffers(part.graph)}
