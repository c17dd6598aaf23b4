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
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.frontends.tensors import identity
from flambeau.ir.arrays import overlapping, span_of


@dataclass(frozen=True)
class State:
    """A tensor that belongs to the model, at the node where the graph gets it."""

    node: Node
    tensor: torch.Tensor
    name: str
    inline: int
    """A tensor of at most this many bytes stands in the text, if nobody writes it."""


def is_made_of_others(tensor: Any) -> bool:
    """Tell whether a tensor only stands for others, such as numbers and scales of a quantised weight."""
    return bool(is_traceable_wrapper_subclass(tensor))


def sharing(states: Sequence[State]) -> list[list[State]]:
    """Group the states whose memory overlaps; groups and their members are in the order given."""
    spans = [(*memory, i) for i, s in enumerate(states) if (memory := memory_of(s.tensor)) is not None]
    groups = [sorted(i for _, _, i in group) for group in overlapping(spans)]
    shared = {i for group in groups for i in group}
    groups += [[i] for i in range(len(states)) if i not in shared]
    return [[states[i] for i in group] for group in sorted(groups)]


def memory_of(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return the half-open range of a tensor's addresses; None for a tensor without memory of its own."""
    if tensor.layout is not torch.strided or tensor.device.type == "meta" or tensor.numel() == 0:
        return None
    try:
        return span_of(tensor) if tensor.data_ptr() else None
    except RuntimeError:
        return None


def are_one(group: Sequence[State]) -> bool:
    """Tell whether all states of a group are one tensor, seen in one way."""
    return len({(identity(s.tensor), s.tensor.is_conj(), s.tensor.is_neg()) for s in group}) == 1


def whole_of(group: Sequence[State]) -> torch.Tensor:
    """View the memory of a group as one 1-d tensor; CompileError where dtypes or storages differ."""
    tensors = [s.tensor.detach() for s in group]
    first = tensors[0]
    storages = {t.untyped_storage().data_ptr() for t in tensors}
    if len({t.dtype for t in tensors}) > 1 or len(storages) > 1 or any(t.is_conj() or t.is_neg() for t in tensors):
        raise refusal(group, "and see it as elements of different kinds")
    start = min(t.storage_offset() for t in tensors)
    stop = max(_end(t) for t in tensors)
    return first.as_strided((stop - start,), (1,), start)


def place_in(whole: torch.Tensor, tensor: torch.Tensor) -> tuple[list[int], list[int], int]:
    """Return sizes, strides and offset of a tensor in the memory of its group."""
    return list(tensor.shape), list(tensor.stride()), int(tensor.storage_offset()) - int(whole.storage_offset())


def refusal(group: Sequence[Any], reason: str) -> CompileError:
    """Make the error for states that share memory in a way that the program cannot express."""
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
    """List the tensors that a module or function reaches and that are neither parameters nor buffers."""
    found = {id(value): value for _, _, value in reached(program) if isinstance(value, torch.Tensor)}
    return [tensor for tensor in found.values() if is_real(tensor)]


def reached(program: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield what a module or function reaches: the object that has it as an attribute, a path to it, and the value."""
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
    """Tell whether a value is a plain tensor with memory on this process's CPU."""
    is_plain = type(value) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    return is_plain and value.device.type == "cpu" and memory_of(value) is not None


def _is_empty(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor has no memory because it has no elements: `out=` resizes it."""
    is_plain = type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.layout is torch.strided
    return is_plain and tensor.numel() == 0
