"""How the results of a captured graph lie in memory: their strides, and which of them share storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph

Sizes = Sequence[Any]


@dataclass(frozen=True)
class Layout:
    """Where a result lies: PyTorch's programs may rely on it, after a graph break or in their callers."""

    storage: int
    """Results with the same number share storage."""
    shape: Sizes
    strides: Sizes
    offset: Any


def layouts_of(graph: Graph) -> list[Layout | None]:
    """List the layout of each result of a graph; None for a result that is no tensor."""
    (results,) = next(reversed(graph.nodes)).args
    return [_layout(getattr(r, "meta", {}).get("val")) for r in results]


def _layout(meta: Any) -> Layout | None:
    if not isinstance(meta, torch.Tensor) or meta.layout is not torch.strided:
        return None
    return Layout(meta.untyped_storage()._cdata, meta.shape, meta.stride(), meta.storage_offset())


def sizes_at_run_time(graph: Graph) -> Callable[[Sequence[Any]], Callable[[Any], int]]:
    """Find where a graph's symbolic sizes come from; return a function from a call's arguments to their values."""
    places: dict[Any, tuple[int, int | None]] = {}
    for i, node in enumerate(n for n in graph.nodes if n.op == "placeholder"):
        meta = node.meta.get("val")
        dims = enumerate(meta.shape) if isinstance(meta, torch.Tensor) else [(None, meta)]
        for dim, size in dims:
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                places.setdefault(size.node.expr, (i, dim))

    def of_call(arguments: Sequence[Any]) -> Callable[[Any], int]:
        def number(size: Any) -> int:
            if isinstance(size, int):
                return size
            known = {s: _at(arguments, places[s]) for s in size.node.expr.free_symbols if s in places}
            return int(size.node.expr.xreplace(known))

        return number

    return of_call


def _at(arguments: Sequence[Any], place: tuple[int, int | None]) -> Any:
    import sympy

    position, dim = place
    return sympy.Integer(int(arguments[position] if dim is None else arguments[position].shape[dim]))


def laid_out(results: Sequence[Any], layouts: Sequence[Layout | None], number: Callable[[Any], int]) -> list[Any]:
    """Restride the results as their layouts say; results that shared a storage share one again."""
    laid = list(results)
    groups: dict[int, list[int]] = {}
    for i, layout in enumerate(layouts):
        if layout is not None and isinstance(results[i], torch.Tensor):
            groups.setdefault(layout.storage, []).append(i)
    for members in groups.values():
        found = {i: layout for i in members if (layout := layouts[i]) is not None}
        places = {
            i: (tuple(map(number, la.shape)), tuple(map(number, la.strides)), number(la.offset))
            for i, la in found.items()
        }
        if len(members) == 1 and _lies_there(laid[members[0]], places[members[0]]):
            continue
        bytes_needed = max(_end(results[i], *places[i]) for i in members)
        storage = torch.zeros(bytes_needed, dtype=torch.uint8).untyped_storage()
        for i in members:
            shape, strides, offset = places[i]
            view = torch.empty(0, dtype=results[i].dtype).set_(storage, offset, shape, strides)
            _fill(view, results[i])
            laid[i] = view
    return laid


def _lies_there(tensor: torch.Tensor, place: tuple[tuple[int, ...], tuple[int, ...], int]) -> bool:
    _, strides, offset = place
    return tensor.storage_offset() == offset and tensor.stride() == strides


def _end(tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int) -> int:
    if 0 in shape:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return (offset + last + 1) * tensor.element_size()


def _fill(view: torch.Tensor, value: torch.Tensor) -> None:
    """Write a value through a view of which several elements may be one in memory: they are equal then."""
    for dim, stride in enumerate(view.stride()):
        if stride == 0 and view.shape[dim] > 1:
            view, value = view.narrow(dim, 0, 1), value.narrow(dim, 0, 1)
    if not torch._debug_has_internal_overlap(view):
        view.copy_(value)
        return
    flat = torch.empty(0, dtype=view.dtype).set_(view.untyped_storage())
    at = torch.arange(flat.numel()).as_strided(view.shape, view.stride(), view.storage_offset())
    flat[at.reshape(-1)] = value.reshape(-1)
