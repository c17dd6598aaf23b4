"""The kind of an op that is being recorded: types of its results from PyTorch's fake tensors, once for each form."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)

from flambeau.frontends.lazy.graph import Kind, NumberSlot, Spec, TensorSlot, Value, spec_of
from flambeau.frontends.lazy.overloads import Overload
from flambeau.frontends.lazy.tensor import DEVICE, LazyTensor

_KINDS: dict[tuple[Any, ...], Kind | None] = {}
_UNKNOWN = object()
MAX_KINDS = 100_000
"""All are forgotten where there are as many: indices that change in each step make new ones."""
_CPU = torch.device("cpu")
_OTHER = "a tensor on {} meets lazy ones: bring it to the CPU, or to flambeau.lazy.device()"


class Call:
    """The arguments of an op, taken apart: its tensors, its numbers, and a key of all else."""

    __slots__ = ("key", "numbers", "overload", "tensors")

    def __init__(self, overload: Overload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.overload = overload
        self.tensors: list[LazyTensor | Value] = []
        self.numbers: list[Any] = []
        self.key: list[Any] = [overload]
        for i, argument in enumerate(args):
            self._add(argument, overload.numbers.get(i, False))
        for name, argument in kwargs.items():
            self.key.append(name)
            self._add(argument, overload.numbers.get(name, False))

    def _add(self, value: Any, may_change: bool) -> None:
        kind = type(value)
        key = self.key
        if kind is LazyTensor:
            self.tensors.append(value)
            key.append(value.spec_)
        elif kind is Value:
            self.tensors.append(value)
            key.append(value.spec)
        elif kind is float or kind is int:
            if may_change:
                self.numbers.append(value)
                key.append(kind)
            else:
                key.append((kind, value.hex() if kind is float else value))
        elif kind is list or kind is tuple:
            key.append((kind, len(value)))
            for element in value:
                self._add(element, may_change)
        elif isinstance(value, torch.Tensor):
            held = snapshot(value)
            self.tensors.append(held)
            key.append(held.spec)
        elif isinstance(value, torch.device):
            key.append(torch.device)
        else:
            key.append((kind, value))


def snapshot(tensor: torch.Tensor) -> Value:
    """Copy what a tensor of PyTorch's holds now: it may be written before the graph runs."""
    if tensor.layout is not torch.strided or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        what = f"layout {tensor.layout}" if tensor.layout is not torch.strided else f"class {type(tensor).__name__}"
        raise TypeError(f"lazy tensors compute with plain dense tensors, not with one of {what}")
    if tensor.device.type != "cpu":
        raise RuntimeError(_OTHER.format(tensor.device))
    data = torch.clone(tensor.detach(), memory_format=torch.contiguous_format)
    return Value(spec_of(data), data)


def specs_of(tensors: Sequence[LazyTensor | Value]) -> tuple[Spec, ...]:
    return tuple(t.spec if isinstance(t, Value) else t.spec_ for t in tensors)


def kind_of(call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Kind | None:
    """Return the kind of a call; None if its results cannot be foretold without the contents of tensors."""
    key = tuple(call.key)
    kind = _KINDS.get(key, _UNKNOWN)
    if kind is _UNKNOWN:
        if len(_KINDS) >= MAX_KINDS:
            _KINDS.clear()
        kind = _KINDS[key] = _inferred(call, args, kwargs)
    return kind  # type: ignore[return-value]


def _inferred(call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Kind | None:
    """Run the op on tensors without contents, as if on the CPU. What it raises is what it would raise for this call."""
    overload, counts = call.overload, _Counts()
    template = tuple(_slots(a, overload.numbers.get(i, False), counts) for i, a in enumerate(args))
    named = {k: _slots(a, overload.numbers.get(k, False), counts) for k, a in kwargs.items()}
    specs = specs_of(call.tensors)
    kind = Kind(overload.func, template, named, specs, (), None, overload.lifts)
    try:
        with torch.no_grad(), _silent(), FakeTensorMode():
            returned = kind.call([spec.empty() for spec in specs], call.numbers)
        if overload.is_random and overload.written and not overload.outs:
            _check_distribution(kind, call.numbers)
    except _UNFORETOLD:
        return None
    except Exception as error:
        raise _in_words_of_kernels(kind, call.numbers, error) from None
    results = returned if isinstance(returned, (list, tuple)) else [returned]
    if not all(r is None or isinstance(r, torch.Tensor) for r in results):
        return None
    kind.results = tuple(None if r is None else spec_of(r) for r in results)
    kind.many = type(returned) if isinstance(returned, (list, tuple)) else None
    if kind.many is not None and kind.many is not list:
        kind.many = tuple
    return kind


_UNFORETOLD = (
    NotImplementedError, DynamicOutputShapeException, DataDependentOutputException, UnsupportedFakeTensorException,
)  # fmt: skip
_SMALL = 1 << 20


def _in_words_of_kernels(kind: Kind, numbers: Sequence[Any], error: Exception) -> Exception:
    """Return what the op's own kernel raises for tensors like these, which is what users know; else this error."""
    if sum(math.prod(spec.shape) for spec in kind.specs) > _SMALL:
        return error
    try:
        with torch.no_grad():
            kind.call([spec.empty().zero_() for spec in kind.specs], numbers)
    except Exception as own:
        return own.with_traceback(None)
    return error


def _check_distribution(kind: Kind, numbers: Sequence[Any]) -> None:
    """Raise what the op's own kernel raises for parameters that make no distribution, which fake tensors let pass."""
    state = torch.get_rng_state()
    try:
        kind.call([torch.zeros(1, dtype=spec.dtype, device="cpu") for spec in kind.specs], numbers)
    finally:
        torch.set_rng_state(state)


@contextmanager
def _silent() -> Iterator[None]:
    """Keep PyTorch from logging what is raised anyway."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Counts:
    """How many tensors and numbers have been met."""

    def __init__(self) -> None:
        self.tensors = self.numbers = 0


def _slots(value: Any, may_change: bool, counts: _Counts) -> Any:
    """Put slots for tensors and numbers, in the order in which a `Call` lists them."""
    kind = type(value)
    if isinstance(value, (torch.Tensor, Value)):
        counts.tensors += 1
        return TensorSlot(counts.tensors - 1)
    if may_change and (kind is float or kind is int):
        counts.numbers += 1
        return NumberSlot(counts.numbers - 1)
    if isinstance(value, (list, tuple)):
        return kind(_slots(v, may_change, counts) for v in value)
    return _CPU if isinstance(value, torch.device) else value


def lazy_tensors(value: Any) -> Iterator[LazyTensor]:
    """Find the lazy tensors among arguments."""
    if isinstance(value, LazyTensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from lazy_tensors(element)


def is_here(device: Any) -> bool:
    """Tell whether a device that an op was given is that of lazy tensors; so does none at all."""
    return device is None or torch.device(device).type == DEVICE.type
