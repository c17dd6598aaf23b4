"""The tensors of a model that a program writes: which of them are one memory, and how each is seen in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.fx import Node

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.frontends.tensors import identity


@dataclass(frozen=True)
class State:
    """A tensor that belongs to the model, at the node where the graph gets it."""

    node: Node
    tensor: torch.Tensor
    name: str
    inline: int
    """A tensor of at most this many bytes stands in the text, if nobody writes it."""


def sharing(states: Sequence[State]) -> list[list[State]]:
    """The states in groups of those whose memory overlaps; groups and their members in the order given."""
    order = {id(state): i for i, state in enumerate(states)}
    extents = {id(state): memory_of(state.tensor) for state in states}
    groups = [[state] for state in states if extents[id(state)] is None]
    end = -1
    for state in sorted((s for s in states if extents[id(s)] is not None), key=lambda s: extents[id(s)] or ()):
        start, stop = extents[id(state)] or (0, 0)
        if start >= end:
            groups.append([])
        groups[-1].append(state)
        end = max(end, stop)
    for group in groups:
        group.sort(key=lambda s: order[id(s)])
    return sorted(groups, key=lambda g: order[id(g[0])])


def memory_of(tensor: torch.Tensor) -> tuple[int, int] | None:
    """The first and the last address of a tensor; None for one that has no memory, or none of its own."""
    if tensor.layout is not torch.strided or tensor.device.type == "meta" or tensor.numel() == 0:
        return None
    try:
        start = tensor.data_ptr()
    except RuntimeError:
        return None
    if not start:
        return None
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()


def are_one(group: Sequence[State]) -> bool:
    """Whether all names are of one tensor, seen in one way."""
    return len({(identity(s.tensor), s.tensor.is_conj(), s.tensor.is_neg()) for s in group}) == 1


def whole_of(group: Sequence[State]) -> torch.Tensor:
    """The memory of a group as one tensor of one dimension; CompileError where it cannot be seen so."""
    tensors = [s.tensor.detach() for s in group]
    first = tensors[0]
    storages = {t.untyped_storage().data_ptr() for t in tensors}
    if len({t.dtype for t in tensors}) > 1 or len(storages) > 1 or any(t.is_conj() or t.is_neg() for t in tensors):
        raise refusal(group, "and see it as elements of different kinds")
    start = min(t.storage_offset() for t in tensors)
    stop = max(_end(t) for t in tensors)
    return first.as_strided((stop - start,), (1,), start)


def place_in(whole: torch.Tensor, tensor: torch.Tensor) -> tuple[list[int], list[int], int]:
    """Size, strides and offset of a tensor in the memory of its group."""
    return list(tensor.shape), list(tensor.stride()), int(tensor.storage_offset()) - int(whole.storage_offset())


def refusal(group: Sequence[Any], reason: str) -> CompileError:
    """The error for tensors that share memory in a way that the program cannot have."""
    names = " and ".join(repr(s.name) for s in group)
    return CompileError([
        Diagnostic(
            "import",
            f"the program writes memory that {names} share, {reason}",
            hint="Give each its own memory with clone(), or register one of them only.",
        )
    ])  # fmt: skip


def _end(tensor: torch.Tensor) -> int:
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset()) + int(last) + 1


@contextmanager
def untouched(program: Any) -> Iterator[list[str]]:
    """Put back what a trace does to the tensors that a program has: an op on real tensors alone runs for real.

    Gives the paths of those whose shape it changes, once it is over: the graph has them as they were at its end.
    """
    found = {id(t): (path, t) for _, path, t in reached(program) if isinstance(t, torch.Tensor)}
    kept = [
        (path, t, t._version, t.detach().clone(), (t.shape, t.stride(), t.storage_offset()))
        for path, t in found.values()
        if is_real(t) or _is_empty(t)
    ]
    reshaped: list[str] = []
    try:
        yield reshaped
    finally:
        with torch.no_grad():
            for path, tensor, version, contents, place in kept:
                if place != (tensor.shape, tensor.stride(), tensor.storage_offset()):
                    reshaped.append(path)
                    tensor.as_strided_(*place)
                if tensor._version != version:
                    tensor.copy_(contents)


def plain_tensors(program: Any) -> list[torch.Tensor]:
    """The tensors that a module or function reaches and that are neither parameters nor buffers."""
    found = {id(value): value for _, _, value in reached(program) if isinstance(value, torch.Tensor)}
    return [tensor for tensor in found.values() if is_real(tensor)]


def reached(program: Any) -> Iterator[tuple[Any, str, Any]]:
    """What a module or function reaches: the object that has it as an attribute, a path to it, and the value."""
    seen: set[int] = set()

    def walk(value: Any, path: str, depth: int, owner: Any = None) -> Iterator[tuple[Any, str, Any]]:
        yield owner, path, value
        if depth == 0 or id(value) in seen or isinstance(value, (*_LEAVES, torch.Tensor)):
            return
        seen.add(id(value))
        parts: list[tuple[str, Any, int, Any]] = []
        if isinstance(value, torch.nn.Module):
            parts = [
                (f".{n}", v, _DEPTH, value) for n, v in vars(value).items() if n not in ("_parameters", "_buffers")
            ]
        elif isinstance(value, dict):
            parts = [(f"[{k!r}]", v, depth - 1, None) for k, v in value.items()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            parts = [(f"[{i}]", v, depth - 1, None) for i, v in enumerate(value)]
        elif isinstance(value, MethodType):
            parts = [("", value.__self__, depth - 1, None), ("", value.__func__, depth - 1, None)]
        elif isinstance(value, partial):
            parts = [("", v, depth - 1, None) for v in (value.func, value.args, value.keywords)]
        elif isinstance(value, FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
            named = [value.__globals__.get(name) for name in value.__code__.co_names]
            parts = [("", v, depth - 1, None) for v in (*cells, *named)]
        elif hasattr(value, "__dict__") and not isinstance(value, type):
            parts = [(f".{n}", v, depth - 1, value) for n, v in vars(value).items()]
        for name, part, left, of in parts:
            yield from walk(part, path + name, left, of)

    return walk(program, "self", _DEPTH)


_DEPTH = 8
"""How many containers deep a tensor of the user's may lie."""

_LEAVES = (str, bytes, int, float, complex, type(None), type, ModuleType, torch.dtype, torch.device)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def is_real(value: Any) -> bool:
    """Whether a value is a tensor that has memory in this process."""
    is_plain = type(value) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    return is_plain and value.device.type == "cpu" and memory_of(value) is not None


def _is_empty(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no memory because it has no elements: `out=` gives it some."""
    is_plain = type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.layout is torch.strided
    return is_plain and tensor.numel() == 0
