"""Strides of views, to know when PyTorch gives an alias and when a copy.

`reshape` and `contiguous` alias where the strides allow it. For a view of a contiguous storage with a static shape the
strides follow from the view ops.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.dialects.torch.types import static_shape
from flambeau.infer.builder import python_value
from flambeau.passes.evaluate.values import Step, View
from flambeau.passes.evaluate.views import RESHAPES, is_constant

Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides."""


def layout_of(view: View) -> Layout | None:
    """Find the strided layout of a tensor; None where it is not known."""
    shape = static_shape(view.storage.content.type)
    if not view.storage.is_contiguous or shape is None:
        return None
    layout: Layout | None = (shape, contiguous_strides(shape))
    for step in view.steps:
        layout = _through(layout, step) if layout is not None else None
    return layout


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for d in reversed(shape):
        strides.append(step)
        step *= max(d, 1)
    return tuple(reversed(strides))


def has_contiguous_strides(layout: Layout) -> bool:
    shape, strides = layout
    if 0 in shape:
        return True
    return all(d == 1 or s == c for d, s, c in zip(shape, strides, contiguous_strides(shape), strict=True))


def viewed(layout: Layout, shape: Sequence[int]) -> Layout | None:
    """Find the strides under another shape, or None where only a copy can have that shape.

    Neighbouring dims that lie densely in memory form a run; a new shape fits if each run is cut into whole dims.
    """
    if 0 in shape:
        return tuple(shape), contiguous_strides(shape)
    runs: list[list[int]] = []
    for d, s in zip(*layout, strict=True):
        if d == 1:
            continue
        if runs and runs[-1][1] == d * s:
            runs[-1][0] *= d
            runs[-1][1] = s
        else:
            runs.append([d, s])
    strides: list[int] = []
    at = len(runs) - 1
    left, stride = (runs[at][0], runs[at][1]) if runs else (1, 1)
    for d in reversed(shape):
        if d == 1:
            strides.append(stride)
            continue
        if left == 1:
            at -= 1
            left, stride = runs[at][0], runs[at][1]
        if left % d:
            return None
        strides.append(stride)
        left //= d
        stride *= d
    return tuple(shape), tuple(reversed(strides))


def _through(layout: Layout, step: Step) -> Layout | None:
    """Find the strided layout behind a view op."""
    shape, strides = list(layout[0]), list(layout[1])
    new = static_shape(step.type)
    arguments = [python_value(o) for o in step.operands]
    if new is None or not all(is_constant(arguments[i]) for i in _NEEDED.get(step.name, ())):
        return None
    match step.name:
        case "aten.select.int":
            dim = arguments[0] % len(shape)
            del shape[dim], strides[dim]
            return tuple(shape), tuple(strides)
        case "aten.slice.Tensor":
            strides[arguments[0] % len(shape)] *= arguments[3]
            return new, tuple(strides)
        case "aten.transpose.int" | "aten.swapaxes" | "aten.swapdims":
            if shape:
                i, j = arguments[0], arguments[1]
                strides[i], strides[j] = strides[j], strides[i]
            return new, tuple(strides)
        case "aten.t" | "aten.numpy_T":
            return new, tuple(reversed(strides))
        case "aten.permute":
            return new, tuple(strides[d] for d in arguments[0])
        case "aten.diagonal":
            first, second = arguments[1] % len(shape), arguments[2] % len(shape)
            kept = [s for i, s in enumerate(strides) if i not in (first, second)]
            return new, (*kept, strides[first] + strides[second])
        case "aten.expand" | "aten.broadcast_to":
            lead = len(new) - len(shape)
            wide = [0] * lead + [0 if o != n else s for o, n, s in zip(shape, new[lead:], strides, strict=True)]
            return new, tuple(wide)
        case name if name in RESHAPES:
            return viewed(layout, new)
    return None


_NEEDED = {
    "aten.select.int": (0,), "aten.slice.Tensor": (0, 3), "aten.transpose.int": (0, 1), "aten.swapaxes": (0, 1),
    "aten.swapdims": (0, 1), "aten.permute": (0,), "aten.diagonal": (1, 2),
}  # fmt: skip
"""The operands that a view's strides depend on, by position behind the tensor."""
