"""Python numbers that `forward` changes: `self.calls += 1`. A compiled program has them as they were at its trace.

Most are only counted, or say what is there already. Whether the program computes with one is found by exporting the
model once more, with the numbers that its first call has left.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from flambeau.frontends.fx.state import reached


@dataclass
class NumberChange:
    """A Python number that `forward` changes."""

    owner: Any
    path: str
    before: float
    after: float

    def set(self, value: float) -> None:
        vars(self.owner)[self.path.rpartition(".")[2]] = value

    def __str__(self) -> str:
        return f"{self.path} ({self.before} to {self.after})"


@contextmanager
def noted_numbers(model: torch.nn.Module) -> Iterator[list[NumberChange]]:
    """Note which Python numbers `forward` changes, and put them back."""
    before = [(owner, path, value) for owner, path, value in reached(model) if type(value) in (int, float)]
    changed: list[NumberChange] = []

    def compare(*_: Any) -> None:
        for owner, path, value in before:
            now = vars(owner).get(path.rpartition(".")[2]) if owner is not None else value
            if type(now) in (int, float) and now != value:
                changed.append(NumberChange(owner, path, value, now))
                changed[-1].set(value)

    hook = model.register_forward_hook(compare)
    try:
        yield changed
    finally:
        hook.remove()


def depends_on(
    changes: Sequence[NumberChange], program: Any, model: torch.nn.Module, args: Any, kwargs: Any, shapes: Any
) -> bool:
    """Tell whether a model exported as `program` computes something else when called again with changed numbers."""
    for change in changes:
        change.set(change.after)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            again = torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False)
        finally:
            for change in changes:
                change.set(change.before)
        if program.graph_module.code == again.graph_module.code and _are_equal(program.constants, again.constants):
            return False
        return not _are_equal(*(_second_result(program, p, args, kwargs) for p in (program, again)))


def _second_result(first: Any, second: Any, args: Any, kwargs: Any) -> Any:
    """Run `first`, then `second` on the buffers that it leaves; return the second's results. Inputs are copied."""
    before, after = (copy.deepcopy(program).module() for program in (first, second))
    states = dict(after.named_buffers())
    with torch.no_grad():
        before(*copy.deepcopy(args), **copy.deepcopy(kwargs))
        for name, state in before.named_buffers():
            if name in states:
                states[name].copy_(state)
        return after(*copy.deepcopy(args), **copy.deepcopy(kwargs))


def _are_equal(x: Any, y: Any) -> bool:
    """Tell whether two values have the same structure and equal tensors and numbers; NaN equals NaN."""
    (left, structure), (right, other) = pytree.tree_flatten(x), pytree.tree_flatten(y)
    return structure == other and all(_is_same(a, b) for a, b in zip(left, right, strict=True))


def _is_same(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return bool(a == b or (a != a and b != b))
    return a.dtype is b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
