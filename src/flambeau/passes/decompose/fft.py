"""Fourier transforms as products with the matrix of a discrete Fourier transform, one dim after the other.

That is n² products and not n log n, all of them in one matmul: for the lengths in models a matmul is the faster of the
two, and every target has one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.emitter import dense
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.passes.decompose.rules import decomposition, least, minus, over, plus, require_size, times

BY_ROOT, BY_LENGTH = 1, 2
LARGEST_LITERAL = 1 << 16
"""How many elements of a matrix a program may carry."""

Pair = tuple[SSAValue, SSAValue]
"""The real and the imaginary part."""


@decomposition("aten._fft_c2c")
def c2c(t: TorchBuilder, x: SSAValue, dims: Sequence[int], normalization: int, forward: bool) -> SSAValue:
    parts = _parts(t, x)
    for dim in dims:
        parts = _transform(t, parts, dim, forward)
    return _scaled(t, parts, _lengths(t, x, dims), normalization)


@decomposition("aten._fft_r2c")
def r2c(t: TorchBuilder, x: SSAValue, dims: Sequence[int], normalization: int, onesided: bool) -> SSAValue:
    *others, last = dims
    [length] = _lengths(t, x, [last])
    parts = _transform(t, (x, None), last, True, _half(t, length) if onesided else length)
    for dim in others:
        parts = _transform(t, parts, dim, True)
    return _scaled(t, parts, _lengths(t, x, dims), normalization)


@decomposition("aten._fft_c2r")
def c2r(t: TorchBuilder, x: SSAValue, dims: Sequence[int], normalization: int, last_dim_size: Any) -> SSAValue:
    *others, last = dims
    parts = _parts(t, x)
    for dim in others:
        parts = _transform(t, parts, dim, False)
    # The half that is not given is the mirror image of the one that is, so each of its terms counts twice.
    given = _half(t, last_dim_size)
    require_size(t, t.shape(x)[last], "eq", given, "the last dimension does not have the size of half the result")
    cos, sin = _matrix(t, given, last_dim_size, last_dim_size, t.dtype(parts[0]), mirrored=True)
    real, imaginary = (t.transpose(p, last, -1) for p in parts)
    result = t.transpose(t.sub(t.matmul(real, cos), t.matmul(imaginary, sin)), last, -1)
    return _times_scale(t, result, [*_lengths(t, x, others), last_dim_size], normalization)


def _parts(t: TorchBuilder, x: SSAValue) -> Pair:
    both = t.view_as_real(x)
    return t.select(both, -1, 0), t.select(both, -1, 1)


def _lengths(t: TorchBuilder, x: SSAValue, dims: Sequence[int]) -> list[Any]:
    sizes = t.shape(x)
    return [sizes[d] for d in dims]


def _half(t: TorchBuilder, length: Any) -> Any:
    """Count the frequencies of a real signal that are not mirror images of others."""
    return plus(t, over(t, length, 2), 1)


def scale(lengths: Sequence[int], normalization: int) -> float:
    """Compute the factor of a transform over these lengths; `normalization` is PyTorch's number for it."""
    count = math.prod(lengths)
    return 1 / math.sqrt(count) if normalization == BY_ROOT else 1 / count if normalization == BY_LENGTH else 1.0


def _times_scale(t: TorchBuilder, x: SSAValue, lengths: Sequence[Any], normalization: int) -> SSAValue:
    """Multiply real numbers by the factor of a transform over lengths, which may be known only at run time."""
    if normalization not in (BY_ROOT, BY_LENGTH):
        return x
    if all(isinstance(n, int) for n in lengths):
        return t.mul(x, scale(lengths, normalization))
    count = t.full([], times(t, *lengths), dtype=t.dtype(x))
    return t.mul(x, t.rsqrt(count) if normalization == BY_ROOT else t.reciprocal(count))


def _scaled(t: TorchBuilder, parts: Pair, lengths: Sequence[Any], normalization: int) -> SSAValue:
    real, imaginary = (_times_scale(t, p, lengths, normalization) for p in parts)
    return t.complex(real, imaginary)


def _matrix(t: TorchBuilder, rows: Any, columns: Any, length: Any, dtype: DType, mirrored: bool = False) -> Pair:
    """Compute cos and sin of 2πjk/length; with `mirrored`, rows that stand for their mirror image too count twice.

    The product is taken modulo the length, or large angles would be inexact. A large matrix is computed when the
    program runs, so that programs stay small, as is one of a size that is not known before.
    """
    is_known = all(isinstance(n, int) for n in (rows, columns, length))
    if not is_known or rows * columns > LARGEST_LITERAL:
        j = t.unsqueeze(t.arange(rows, dtype=dtypes.int64), 1)
        k = t.unsqueeze(t.arange(columns, dtype=dtypes.int64), 0)
        angle = t.div(t.mul(t.to(t.remainder(t.mul(j, k), length), dtype), 2 * math.pi), length)
        cos, sin = t.cos(angle), t.sin(angle)
        if mirrored:
            is_alone = t.eq(t.remainder(t.mul(j, 2), length), 0)
            cos, sin = (t.where(is_alone, m, t.mul(m, 2.0)) for m in (cos, sin))
        return cos, sin
    j = np.arange(rows)[:, None]
    angle = j * np.arange(columns) % length * (2 * math.pi / length)
    count = np.where(2 * j % length, 2.0, 1.0) if mirrored else 1.0
    parts = ((count * f(angle)).astype(dtype.numpy) for f in (np.cos, np.sin))
    cos, sin = (t.literal(dense(m.tobytes(), dtype, m.shape), dtype, m.shape) for m in parts)
    return cos, sin


def _transform(
    t: TorchBuilder, parts: tuple[SSAValue, SSAValue | None], dim: int, forward: bool, kept: Any = None
) -> Pair:
    """Transform one dim; `kept` is how many frequencies are wanted, all by default."""
    real, imaginary = (p if p is None else t.transpose(p, dim, -1) for p in parts)
    assert real is not None
    [length] = _lengths(t, real, [-1])
    cos, sin = _matrix(t, length, length if kept is None else kept, length, t.dtype(real))
    if forward:
        sin = t.neg(sin)
    new = t.matmul(real, cos), t.matmul(real, sin)
    if imaginary is not None:
        new = t.sub(new[0], t.matmul(imaginary, sin)), t.add(new[1], t.matmul(imaginary, cos))
    return t.transpose(new[0], dim, -1), t.transpose(new[1], dim, -1)


# --- PyTorch's functions, which are these transforms of a signal brought to its length ---


def _normalization(norm: str | None, forward: bool) -> int:
    """Find PyTorch's number for what divides a transform: nothing, the length, or its root."""
    if norm == "ortho":
        return BY_ROOT
    return BY_LENGTH if forward == (norm == "forward") else 0


def _resized(t: TorchBuilder, x: SSAValue, dim: int, length: Any) -> SSAValue:
    """Cut a dim off at a length, or fill it up with zeros."""
    size = t.shape(x)[dim]
    if isinstance(size, int) and isinstance(length, int) and size == length:
        return x
    kept = least(t, size, length)
    x = t.slice(x, dim, 0, kept)
    missing = minus(t, length, kept)
    after = len(t.shape(x)) - 1 - dim
    return x if isinstance(missing, int) and missing == 0 else t.constant_pad_nd(x, [0] * (2 * after + 1) + [missing])


def _floating(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return t.to(x, dtypes.float32) if t.dtype(x).is_integral else x


def _complex(t: TorchBuilder, x: SSAValue) -> SSAValue:
    x = _floating(t, x)
    return x if t.dtype(x).is_complex else t.complex(x, t.zeros_like(x))


@dataclass(frozen=True)
class _Axes:
    """The dims of a transform, counted from the start, and the length that each is brought to, None for its own."""

    dims: list[int]
    lengths: list[Any]


def _axes(t: TorchBuilder, x: SSAValue, lengths: Any, dims: Any) -> _Axes:
    """Resolve `s` and `dim`: without dims, the last ones for which there are lengths, or else all."""
    rank = len(t.shape(x))
    if dims is None:
        dims = range(0 if lengths is None else rank - len(lengths), rank)
    given = [None] * len(dims) if lengths is None else [None if n == -1 else n for n in lengths]
    return _Axes([d % rank for d in dims], given)


def _fitted(t: TorchBuilder, x: SSAValue, axes: _Axes) -> SSAValue:
    for dim, length in zip(axes.dims, axes.lengths, strict=True):
        x = x if length is None else _resized(t, x, dim, length)
    return x


def _to_complex(t: TorchBuilder, x: SSAValue, axes: _Axes, norm: str | None, forward: bool) -> SSAValue:
    """Transform complex numbers; of real ones the transform is the mirror image of its half."""
    x = _fitted(t, _floating(t, x), axes)
    how = _normalization(norm, forward)
    if not axes.dims:
        return _complex(t, x)
    if t.dtype(x).is_complex:
        return t.call("aten._fft_c2c", x, axes.dims, how, forward)
    full = t.call("aten._fft_r2c", x, axes.dims, how, False)
    return full if forward else t.conj_physical(full)


def _to_half(t: TorchBuilder, x: SSAValue, axes: _Axes, norm: str | None, forward: bool) -> SSAValue:
    """Transform real numbers to the half of the frequencies that are not mirror images along the last dim."""
    x, how = _fitted(t, _floating(t, x), axes), _normalization(norm, forward)
    if forward:
        return t.call("aten._fft_r2c", x, axes.dims, how, True)
    *others, last = axes.dims
    half = t.conj_physical(t.call("aten._fft_r2c", x, [last], how, True))
    return t.call("aten._fft_c2c", half, others, how, False) if others else half


def _to_real(t: TorchBuilder, x: SSAValue, axes: _Axes, norm: str | None, forward: bool) -> SSAValue:
    """Transform the half of a spectrum to real numbers, of which there are twice as many less two if nobody says."""
    *others, last = axes.dims
    length = axes.lengths[-1]
    if length is None:
        length = times(t, 2, minus(t, t.shape(x)[last], 1))
    x = _fitted(t, _complex(t, x), _Axes(axes.dims, [*axes.lengths[:-1], _half(t, length)]))
    how = _normalization(norm, forward)
    if not forward:
        return t.call("aten._fft_c2r", x, axes.dims, how, length)
    if others:
        x = t.call("aten._fft_c2c", x, others, how, True)
    return t.call("aten._fft_c2r", t.conj_physical(x), [last], how, length)


Transform = Callable[[TorchBuilder, SSAValue, _Axes, str | None, bool], SSAValue]
FUNCTIONS: dict[str, tuple[Transform, bool]] = {
    "fft": (_to_complex, True), "ifft": (_to_complex, False), "rfft": (_to_half, True), "ihfft": (_to_half, False),
    "irfft": (_to_real, False), "hfft": (_to_real, True),
}  # fmt: skip
"""What each function transforms to what, and whether with the sign of the forward transform."""


def _along_one(f: Transform, forward: bool, t: TorchBuilder, x: SSAValue, n: Any, dim: int, norm: Any) -> SSAValue:
    return f(t, x, _Axes([dim % len(t.shape(x))], [n]), norm, forward)


def _along_all(f: Transform, forward: bool, t: TorchBuilder, x: SSAValue, s: Any, dims: Any, norm: Any) -> SSAValue:
    return f(t, x, _axes(t, x, s, dims), norm, forward)


for _name, _how in FUNCTIONS.items():
    decomposition(f"aten.fft_{_name}")(partial(_along_one, *_how))
    decomposition(f"aten.fft_{_name}2", f"aten.fft_{_name}n")(partial(_along_all, *_how))


# --- Short-time transforms ---


@decomposition("aten.stft")
def stft(
    t: TorchBuilder, x: SSAValue, length: int, hop: int | None, window_length: int | None, window: SSAValue | None,
    normalized: bool, onesided: bool | None, is_complex: bool | None, align: bool | None,
) -> SSAValue:  # fmt: skip
    """Transform overlapping pieces of a signal, each times the window: [..., frequencies, pieces]."""
    if align:
        raise Unsupported("a short-time Fourier transform of pieces as long as the window")
    pieces = t.unfold(x, -1, length, hop or length // 4)
    missing = length - (window_length or length)
    if missing and window is None:
        window = t.ones([length - missing], dtype=t.dtype(x).real)
    if window is not None:
        pieces = t.mul(pieces, t.constant_pad_nd(window, [missing // 2, missing - missing // 2]) if missing else window)
    how, last = BY_ROOT if normalized else 0, len(t.shape(pieces)) - 1
    if not t.dtype(pieces).is_complex:
        spectrum = t.call("aten._fft_r2c", pieces, [last], how, onesided is not False)
    elif onesided:
        raise Unsupported("half of the frequencies of a complex signal, which has them all")
    else:
        spectrum = t.call("aten._fft_c2c", pieces, [last], how, True)
    spectrum = t.transpose(spectrum, -1, -2)
    return spectrum if is_complex or t.dtype(x).is_complex else t.view_as_real(spectrum)


PADS = {"reflect": "aten.reflection_pad1d", "replicate": "aten.replication_pad1d", "constant": "aten.constant_pad_nd"}


@decomposition("aten.stft.center")
def stft_center(
    t: TorchBuilder, x: SSAValue, length: int, hop: Any, window_length: Any, window: Any, center: bool, mode: str,
    *rest: Any,
) -> SSAValue:  # fmt: skip
    """Continue the signal at both ends, so that pieces are centred at multiples of the hop."""
    if not center:
        return stft(t, x, length, hop, window_length, window, *rest)
    if mode not in PADS:
        raise Unsupported(f"a signal continued by {mode!r}")
    is_vector = len(t.shape(x)) == 1
    rows = t.call(PADS[mode], t.unsqueeze(x, 0) if is_vector else x, [length // 2, length // 2])
    return stft(t, t.squeeze(rows, 0) if is_vector else rows, length, hop, window_length, window, *rest)
