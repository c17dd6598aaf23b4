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


class Layouts:
    """The layouts of the results of a graph, and how the sizes in them follow from a call."""

    def __init__(self, graph: Graph) -> None:
        (results,) = next(reversed(graph.nodes)).args
        metas = [getattr(r, "meta", {}).get("val", r) for r in results]
        self._layouts = [_layout(meta) for meta in metas]
        inputs = [node.meta.get("val") for node in graph.nodes if node.op == "placeholder"]
        # A size may depend on what tensors contain: then only the results say what it is.
        self._inputs, self._outputs = _places(inputs), _places(metas)
        self._usual = [None if la is None else _usual(la) for la in self._layouts]
        storages = [la.storage for la in self._layouts if la is not None]
        self._are_usual = len({*storages}) == len(storages) and all(
            strides is not None or la is None for strides, la in zip(self._usual, self._layouts, strict=True)
        )
        """Whether each result has a storage of its own, with known strides: then a look at the strides will do."""

    def laid_out(self, results: list[Any], arguments: Sequence[Any]) -> list[Any]:
        """Restride the results of a call as they are to lie; results that shared a storage share one again."""
        if self._are_usual:
            for result, strides in zip(results, self._usual, strict=True):
                if strides is None:
                    continue
                is_there = result.is_contiguous() if strides is CONTIGUOUS else result.stride() == strides
                if not is_there or result.storage_offset():
                    break
            else:
                return results
        return laid_out(results, self._layouts, self._number(arguments, results))

    def _number(self, arguments: Sequence[Any], results: Sequence[Any]) -> Callable[[Any], int]:
        """Make the function that gives the value of a size in one call."""

        def number(size: Any) -> int:
            if isinstance(size, int):
                return size
            known = {}
            for symbol in size.node.expr.free_symbols:
                if symbol in self._inputs:
                    known[symbol] = _at(arguments, self._inputs[symbol])
                elif symbol in self._outputs:
                    known[symbol] = _at(results, self._outputs[symbol])
            return int(size.node.expr.xreplace(known))

        return number


Place = tuple[int, int | None]
"""Which value, and which of its dims; None for the value itself, a number."""


def _places(metas: Sequence[Any]) -> dict[Any, Place]:
    """Find where symbols are a size of a tensor, or a number, themselves."""
    places: dict[Any, Place] = {}
    for i, meta in enumerate(metas):
        dims = enumerate(meta.shape) if isinstance(meta, torch.Tensor) else [(None, meta)]
        for dim, size in dims:
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                places.setdefault(size.node.expr, (i, dim))
    return places


CONTIGUOUS = ("contiguous",)


def _usual(layout: Layout) -> tuple[Any, ...] | None:
    """Return the strides of a layout that starts its storage, or `CONTIGUOUS` if they follow from the sizes; else None.

    No size may be 1 then: PyTorch says what its stride is.
    """
    if not isinstance(layout.offset, int) or layout.offset != 0:
        return None
    if all(isinstance(n, int) for n in (*layout.shape, *layout.strides)):
        return tuple(layout.strides)
    expected: Any = 1
    for size, stride in zip(reversed(layout.shape), reversed(layout.strides), strict=True):
        if _formula(stride) != expected or size_may_be_one(size):
            return None
        expected = expected * _formula(size)
    return CONTIGUOUS


def _formula(size: Any) -> Any:
    import sympy

    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def size_may_be_one(size: Any) -> bool:
    """Tell whether a size is, or may turn out to be, 1."""
    if isinstance(size, int):
        return size == 1
    lowest = size.node.shape_env.bound_sympy(size.node.expr).lower
    return not (lowest.is_Integer and int(lowest) > 1)


def _layout(meta: Any) -> Layout | None:
    if not isinstance(meta, torch.Tensor) or meta.layout is not torch.strided:
        return None
    return Layout(meta.untyped_storage()._cdata, meta.shape, meta.stride(), meta.storage_offset())


def _at(values: Sequence[Any], place: Place) -> Any:
    import sympy

    position, dim = place
    return sympy.Integer(int(values[position] if dim is None else values[position].shape[dim]))


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
        device = results[members[0]].device
        storage = torch.zeros(bytes_needed, dtype=torch.uint8, device=device).untyped_storage()
        for i in members:
            shape, strides, offset = places[i]
            view = torch.empty(0, dtype=results[i].dtype, device=device).set_(storage, offset, shape, strides)
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
    flat = torch.empty(0, dtype=view.dtype, device=view.device).set_(view.untyped_storage())
    at = torch.arange(flat.numel(), device=view.device).as_strided(view.shape, view.stride(), view.storage_offset())
    flat[at.reshape(-1)] = value.reshape(-1)
