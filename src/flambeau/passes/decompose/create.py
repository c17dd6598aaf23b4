"""Tensors made of numbers alone: windows, frequencies, ranges and lists, computed here and carried as constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.emitter import dense
from flambeau.dialects.torch.types import BOOL, FLOAT, INT
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.ir.dtypes import BY_CODE
from flambeau.passes.decompose.rules import decomposition

Values = Any
"""An array of f64."""


def _constant(t: TorchBuilder, values: Values, code: int | None) -> SSAValue:
    """Make a tensor of known values, of the dtype with this number in PyTorch, which is f32 if there is none."""
    dtype = dtypes.float32 if code is None else BY_CODE[code]
    given = dtypes.int64 if dtype.is_integral else dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    array = np.asarray(values).astype(given.numpy)
    return t.to(t.literal(dense(array.tobytes(), given, array.shape), given, array.shape), dtype)


def _known(*numbers: Any) -> None:
    if not all(isinstance(n, (int, float)) for n in numbers):
        raise Unsupported("its numbers are not known at compile time")


# --- Windows ---


def bartlett(n: Values, last: float) -> Values:
    return 1 - np.abs(2 * n / last - 1)


def blackman(n: Values, last: float) -> Values:
    return 0.42 - 0.5 * np.cos(2 * math.pi * n / last) + 0.08 * np.cos(4 * math.pi * n / last)


def hamming(n: Values, last: float, alpha: float = 0.54, beta: float = 0.46) -> Values:
    return alpha - beta * np.cos(2 * math.pi * n / last)


def kaiser(n: Values, last: float, beta: float = 12.0) -> Values:
    return np.i0(beta * np.sqrt(np.maximum(1 - (2 * n / last - 1) ** 2, 0))) / np.i0(beta)


def _window(shape: Callable[..., Values], t: TorchBuilder, length: Any, *rest: Any) -> SSAValue:
    """Evaluate a window at 0 to `length` - 1; a periodic one, as they are by default, ends one place behind."""
    *settings, code, _layout, _device, _pinned = rest
    periodic, *factors = settings or [True]
    _known(length, *factors)
    if length <= 1:
        return _constant(t, np.ones(length), code)
    return _constant(t, shape(np.arange(length), length if periodic else length - 1, *factors), code)


for _shape, _overloads in (
    (bartlett, ("", ".periodic")),
    (blackman, ("", ".periodic")),
    (hamming, ("", ".periodic", ".periodic_alpha", ".periodic_alpha_beta")),
    (kaiser, ("", ".periodic", ".beta")),
):
    for _overload in _overloads:
        decomposition(f"aten.{_shape.__name__}_window{_overload}")(partial(_window, _shape))


# --- Frequencies and ranges ---


@decomposition("aten.fft_fftfreq")
def fftfreq(t: TorchBuilder, n: Any, d: float, code: int | None, *_: Any) -> SSAValue:
    _known(n, d)
    return _constant(t, np.fft.fftfreq(n, d), code)


@decomposition("aten.fft_rfftfreq")
def rfftfreq(t: TorchBuilder, n: Any, d: float, code: int | None, *_: Any) -> SSAValue:
    _known(n, d)
    return _constant(t, np.fft.rfftfreq(n, d), code)


@decomposition("aten.range")
def range_(t: TorchBuilder, start: Any, end: Any, code: int | None, *_: Any) -> SSAValue:
    return range_by_steps(t, start, end, 1, code)


@decomposition("aten.range.step")
def range_by_steps(t: TorchBuilder, start: Any, end: Any, step: Any, code: int | None, *_: Any) -> SSAValue:
    """Count from `start` to `end`, which is included."""
    _known(start, end, step)
    if step == 0 or (end - start) * step < 0:
        raise Unsupported(f"a range from {start} to {end} by steps of {step}, which do not lead there")
    return _constant(t, start + step * np.arange(math.floor((end - start) / step) + 1), code)


# --- Numbers of the program ---


@decomposition("aten.tensor")
def tensor_of_list(t: TorchBuilder, data: list[Any], code: int | None, *_: Any) -> SSAValue:
    """Make a tensor of numbers in nested lists: a constant, or a stack of those that only the run time knows."""
    shape, numbers = _flat(data)
    if code is None:
        code = {float: dtypes.float32, int: dtypes.int64, bool: dtypes.bool_}[_kind(numbers)].code
    if not any(isinstance(n, SSAValue) for n in numbers):
        return _constant(t, np.array(numbers).reshape(shape), code)
    parts = [t.scalar_tensor(n, dtype=BY_CODE[code]) for n in numbers]
    return t.view(t.stack(parts), shape)


def _flat(data: Any) -> tuple[list[int], list[Any]]:
    """List the numbers in nested lists, with the sizes of the lists."""
    if not isinstance(data, list):
        return [], [data]
    parts = [_flat(d) for d in data]
    if any(shape != parts[0][0] for shape, _ in parts):
        raise Unsupported("a tensor of nested lists that have other lengths than their neighbours")
    return [len(parts), *(parts[0][0] if parts else ())], [n for _, numbers in parts for n in numbers]


def _kind(numbers: list[Any]) -> type:
    """Find the type of the first number, which decides as in TorchScript; a list without any is one of floats."""
    if not numbers:
        return float
    first = numbers[0]
    return {FLOAT: float, INT: int, BOOL: bool}[first.type] if isinstance(first, SSAValue) else type(first)
