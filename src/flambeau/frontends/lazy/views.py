"""Writes through views: new contents of the whole from new contents of a part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flambeau.frontends.lazy.graph import Value
from flambeau.frontends.lazy.overloads import aten
from flambeau.frontends.lazy.tensor import LazyTensor, Storage, View
from flambeau.frontends.lazy.trace import current_trace, data_of, emit, read_view

Inverse = Callable[[Value, Value, int, tuple[Any, ...]], Value]
"""From the contents of what was viewed, the new contents of the view, which of several views it is, and the
arguments after the tensor: the new contents of what was viewed."""


def write(tensor: LazyTensor, value: Value) -> bool:
    """Give a tensor new contents, which all views of its storage see. False if it is a view of an unknown kind."""
    view, storage = tensor.view_, tensor.storage_
    if view is not None:
        whole = _merged(view, storage, value)
        if whole is None:
            return False
        value = whole
    current_trace().set(storage, value)
    return True


def _merged(view: View | None, storage: Storage, value: Value) -> Value | None:
    while view is not None:
        inverse = INVERSES.get(view.kind.func)
        if inverse is None:
            return None
        parent = storage.value if view.parent is None else read_view(view.parent, storage)
        value = inverse(parent, value, view.index, view.kind.args[1:])
        view = view.parent
    return value


def write_in_pytorch(tensor: LazyTensor, value: Value) -> str:
    """Give a tensor new contents by PyTorch's own views; gives the name of the view that was the reason."""
    part, storage = data_of(value), tensor.storage_
    whole = data_of(storage.value).clone(memory_format=torch.contiguous_format)
    views = []
    view = tensor.view_
    while view is not None:
        views.append(view)
        view = view.parent
    seen = whole
    for view in reversed(views):
        seen = view.kind.flat(view.kind.in_memory(seen))[view.index]
    seen.copy_(part)
    storage.value = Value(storage.value.spec, whole)
    return next(str(v.kind.func) for v in views if v.kind.func not in INVERSES)


def _reshaped(whole: Value, part: Value, index: int, args: tuple[Any, ...]) -> Value:
    return _one(aten.reshape.default, part, list(whole.spec.shape))


def _transposed(whole: Value, part: Value, index: int, args: tuple[Any, ...]) -> Value:
    return _one(aten.transpose.int, part, *(args or (0, 1))) if len(whole.spec.shape) > 1 else part


def _permuted(whole: Value, part: Value, index: int, args: tuple[Any, ...]) -> Value:
    rank = len(whole.spec.shape)
    places = [d % rank for d in args[0]]
    return _one(aten.permute.default, part, [places.index(d) for d in range(rank)])


def _selected(whole: Value, part: Value, index: int, args: tuple[Any, ...]) -> Value:
    return _one(aten.select_scatter.default, whole, part, *args)


def _sliced(whole: Value, part: Value, index: int, args: tuple[Any, ...]) -> Value:
    return _one(aten.slice_scatter.default, whole, part, *args)


def _diagonal(whole: Value, part: Value, index: int, args: tuple[Any, ...]) -> Value:
    return _one(aten.diagonal_scatter.default, whole, part, *args)


def _strided(whole: Value, part: Value, index: int, args: tuple[Any, ...]) -> Value:
    return _one(aten.as_strided_scatter.default, whole, part, *args)


def _unbound(whole: Value, part: Value, index: int, args: tuple[Any, ...]) -> Value:
    return _one(aten.select_scatter.default, whole, part, args[0] if args else 0, index)


def _split(whole: Value, part: Value, index: int, args: tuple[Any, ...]) -> Value:
    sizes, dim = args[0], args[1] if len(args) > 1 else 0
    start = sizes * index if isinstance(sizes, int) else sum(sizes[:index])
    return _one(aten.slice_scatter.default, whole, part, dim, start, start + part.spec.shape[dim])


def _conjugated(whole: Value, part: Value, index: int, args: tuple[Any, ...]) -> Value:
    return _one(aten.conj_physical.default, part)


def _negated(whole: Value, part: Value, index: int, args: tuple[Any, ...]) -> Value:
    return _one(aten.neg.default, part)


def _same(whole: Value, part: Value, index: int, args: tuple[Any, ...]) -> Value:
    return part


def _one(func: Any, *args: Any) -> Value:
    found: Value = emit(func, *args)[0]
    return found


INVERSES: dict[Any, Inverse] = {
    aten.view.default: _reshaped,
    aten.squeeze.default: _reshaped,
    aten.squeeze.dim: _reshaped,
    aten.squeeze.dims: _reshaped,
    aten.unsqueeze.default: _reshaped,
    aten.t.default: _transposed,
    aten.transpose.int: _transposed,
    aten.permute.default: _permuted,
    aten.select.int: _selected,
    aten.slice.Tensor: _sliced,
    aten.diagonal.default: _diagonal,
    aten.unbind.int: _unbound,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split,
    aten.as_strided.default: _strided,
    aten.alias.default: _same,
    aten.conj_physical.default: _conjugated,
    aten.neg.default: _negated,
}
"""Views that can be written through within the graph."""
