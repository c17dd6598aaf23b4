"""The graph that a thread is recording, until it is cut."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from flambeau.frontends.lazy.graph import Kind, Recorded, Spec, Value
from flambeau.frontends.lazy.kinds import Call, kind_of
from flambeau.frontends.lazy.overloads import overload_of
from flambeau.frontends.lazy.programs import run_graph
from flambeau.frontends.lazy.randomness import Draws
from flambeau.frontends.lazy.session import current_session
from flambeau.frontends.lazy.tensor import LazyTensor, Storage, View, tensor_on

LOCK = threading.RLock()
"""Held while an op is recorded and while a graph runs. Each thread has a graph of its own, and may read tensors of
another's, which cuts that graph."""

MAX_OPS = 20_000
"""A graph is cut where it has as many ops: somebody has forgotten a step mark."""


class Trace:
    """Ops in the order in which they were recorded, and whose contents they may be."""

    def __init__(self) -> None:
        self.ops: list[Recorded] = []
        self.draws: Draws | None = None
        """Where its random ops draw from; None before the first."""
        self.touched: list[weakref.ref[Storage]] = []
        """Storages whose contents an op of this graph computes, or did."""

    def record(self, kind: Kind, tensors: Sequence[LazyTensor | Value], numbers: list[Any]) -> Recorded:
        """Record an op on what the tensors hold now."""
        if len(self.ops) >= MAX_OPS:
            self.cut()
        if kind.is_random:
            self._draw()
        operands = [t if isinstance(t, Value) else value_of(t) for t in tensors]
        for value in operands:
            if value.error is not None:
                raise lost(value)
            if value.op is not None and value.op.trace is not self:
                value.op.trace.cut()
                if value.data is None:
                    raise lost(value)
        op = Recorded(kind, operands, numbers, self)
        self.ops.append(op)
        return op

    def _draw(self) -> None:
        """See to it that the graph has a seed, which is PyTorch's at this place."""
        with torch._C.DisableTorchFunction():
            if self.draws is not None and not self.draws.goes_on():
                self.cut()
            if self.draws is None:
                self.draws = Draws()

    def set(self, storage: Storage, value: Value) -> None:
        """Give a storage new contents."""
        storage.value = value
        if value.op is not None:
            self.touched.append(weakref.ref(storage))

    def live(self) -> list[Value]:
        """List the values to be computed that somebody still holds."""
        found: dict[Value, None] = {}
        for reference in self.touched:
            storage = reference()
            if storage is not None and storage.value.op is not None and storage.value.op.trace is self:
                found[storage.value] = None
        return list(found)

    def cut(self) -> None:
        """Compute what somebody holds, and start a new graph. Raises what an op of the graph raises."""
        with LOCK:
            ops, live, draws = self.ops, self.live(), self.draws
            self.ops, self.touched, self.draws = [], [], None
            failure: BaseException | None = None
            try:
                if live:
                    with torch.no_grad(), torch._C.DisableTorchFunction():
                        run_graph(current_session(), ops, live, draws)
            except BaseException as error:
                failure = error
                raise
            finally:
                for op in ops:
                    for value in op.results:
                        if value is not None:
                            value.op = None
                for value in live:
                    if value.data is None and value.error is None:
                        value.error = failure


_THREAD = threading.local()


def current_trace() -> Trace:
    """Return the graph that this thread is recording."""
    found: Trace | None = getattr(_THREAD, "trace", None)
    if found is None:
        found = _THREAD.trace = Trace()
    return found


def lost(value: Value) -> RuntimeError:
    """Make the error for a tensor that has no contents, since computing them has failed."""
    error = RuntimeError(f"this tensor was never computed, because an op before it failed: {value.error}")
    error.__cause__ = value.error
    return error


# --- Contents of tensors ---


def value_of(tensor: LazyTensor) -> Value:
    """Return what a tensor holds now."""
    return tensor.storage_.value if tensor.view_ is None else read_view(tensor.view_, tensor.storage_)


def read_view(view: View, storage: Storage) -> Value:
    """Return what is seen of a storage through a view: recorded anew only if the storage was written since."""
    base = storage.value
    if view.base is base and view.value is not None and view.value.is_usable:
        return view.value
    source = base if view.parent is None else read_view(view.parent, storage)
    op = current_trace().record(view.kind, [source], [])
    view.base = base
    view.value = op.results[view.index]
    assert view.value is not None
    return view.value


def emit(func: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """Record an op; gives its results as values."""
    call = Call(overload_of(func), args, kwargs)
    kind = kind_of(call, args, kwargs)
    if kind is None:
        raise NotImplementedError(f"{func} gives tensors whose shapes depend on contents")
    return current_trace().record(kind, call.tensors, call.numbers).results


def wrap(value: Value, spec: Spec | None = None) -> LazyTensor:
    """Make a tensor that holds a value."""
    storage = Storage(value)
    if value.op is not None:
        current_trace().touched.append(weakref.ref(storage))
    return tensor_on(storage, spec or value.spec)


# --- Contents in memory ---


def materialized(tensor: LazyTensor) -> torch.Tensor:
    """Compute what a tensor holds. What is given back is the graph's own: it is read and never written."""
    with LOCK:
        data = data_of(tensor.storage_.value)
        views = []
        view = tensor.view_
        while view is not None:
            views.append(view)
            view = view.parent
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for view in reversed(views):
                data = view.kind.flat(view.kind.eagerly([data], []))[view.index]
        return data


def data_of(value: Value) -> torch.Tensor:
    """Compute a value: the whole graph that it is in is cut."""
    if value.data is None and value.error is None and value.op is not None:
        held = Storage(value)
        value.op.trace.set(held, value)
        value.op.trace.cut()
    if value.error is not None:
        raise lost(value)
    assert value.data is not None
    return value.data
