"""Shapes of Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flambeau.infer.promotion import COMPLEX_OF
from flambeau.infer.rules import Dim, InferenceError, Meta, floating, infer_rule, normal_dim, replaced, same, size
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType

infer_rule("aten._fft_c2c")(same)


def _spectrum(dtype: DType) -> DType:
    real = floating(dtype)
    return COMPLEX_OF.get(real, real)


def _half(length: Dim) -> Dim:
    return None if length is None else length // 2 + 1


def _fitted(x: Meta, lengths: Any, dims: Any) -> tuple[list[Dim], list[int]]:
    """Bring dims to their lengths, None and -1 for their own; gives the sizes, and the dims counted from the start."""
    if dims is None:
        dims = range(0 if lengths is None else x.rank - len(lengths), x.rank)
    at = [normal_dim(d, x.rank) for d in dims]
    if len(set(at)) != len(at):
        raise InferenceError(f"the dims {list(dims)} are not distinct")
    shape = list(x.shape)
    for d, n in zip(at, [None] * len(at) if lengths is None else lengths, strict=True):
        if n is not None and n != -1:
            shape[d] = size(n)
    return shape, at


def _full(x: Meta, lengths: Any, dims: Any, norm: Any) -> Meta:
    return Meta(tuple(_fitted(x, lengths, dims)[0]), _spectrum(x.dtype))


def _halved(x: Meta, lengths: Any, dims: Any, norm: Any) -> Meta:
    shape, at = _fitted(x, lengths, dims)
    return Meta(replaced(shape, at[-1], _half(shape[at[-1]])), _spectrum(x.dtype))


def _doubled(x: Meta, lengths: Any, dims: Any, norm: Any) -> Meta:
    shape, at = _fitted(x, lengths, dims)
    own = lengths is None or lengths[-1] is None or lengths[-1] == -1
    last = shape[at[-1]]
    if own and last is not None:
        last = 2 * (last - 1)
    return Meta(replaced(shape, at[-1], last), _spectrum(x.dtype).real)


def _of_one(rule: Callable[..., Meta], x: Meta, length: Any, dim: int, norm: Any) -> Meta:
    return rule(x, [length], [dim], norm)


for _rule, _names in ((_full, ("fft", "ifft")), (_halved, ("rfft", "ihfft")), (_doubled, ("irfft", "hfft"))):
    for _name in _names:
        infer_rule(f"aten.fft_{_name}")(partial(_of_one, _rule))
        infer_rule(f"aten.fft_{_name}2", f"aten.fft_{_name}n")(_rule)


@infer_rule("aten.stft")
def stft(
    x: Meta, n_fft: int, hop: int | None, window_length: Any, window: Any, normalized: bool, onesided: bool | None,
    complex_: bool | None, align: bool | None,
) -> Meta:  # fmt: skip
    length = x.shape[-1]
    frames = None if length is None else (length - n_fft) // (hop or n_fft // 4) + 1
    is_complex = x.dtype.is_complex or (isinstance(window, Meta) and window.dtype.is_complex)
    half = not is_complex if onesided is None else onesided
    shape = (*x.shape[:-1], n_fft // 2 + 1 if half else n_fft, frames)
    spectrum = _spectrum(x.dtype)
    return (
        Meta(shape, spectrum)
        if complex_ or (complex_ is None and x.dtype.is_complex)
        else Meta((*shape, 2), spectrum.real)
    )


@infer_rule("aten.stft.center")
def stft_center(
    x: Meta, n_fft: int, hop: int | None, window_length: Any, window: Any, center: bool, pad_mode: str,
    normalized: bool, onesided: bool | None, complex_: bool | None, align: bool | None,
) -> Meta:  # fmt: skip
    length = x.shape[-1]
    if center and length is not None:
        x = Meta((*x.shape[:-1], length + n_fft // 2 * 2), x.dtype)
    return stft(x, n_fft, hop, window_length, window, normalized, onesided, complex_, align)


@infer_rule("aten._fft_r2c")
def fft_r2c(x: Meta, dims: Sequence[int], normalization: int, onesided: bool) -> Meta:
    shape = list(x.shape)
    size = shape[dims[-1]]
    if onesided and size is not None:
        shape[dims[-1]] = size // 2 + 1
    return Meta(tuple(shape), dtypes.complex128 if x.dtype is dtypes.float64 else dtypes.complex64)


@infer_rule("aten._fft_c2r")
def fft_c2r(x: Meta, dims: Sequence[int], normalization: int, last: int | None) -> Meta:
    shape = list(x.shape)
    shape[dims[-1]] = last if isinstance(last, int) else None
    return Meta(tuple(shape), x.dtype.real)
