"""Shapes of Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.infer.promotion import COMPLEX_OF
from flambeau.infer.rules import Dim, Meta, floating, infer_rule, normal_dim, replaced, same, size
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType

infer_rule("aten._fft_c2c")(same)


def _spectrum(dtype: DType) -> DType:
    real = floating(dtype)
    return COMPLEX_OF.get(real, real)


def _half(length: Dim) -> Dim:
    return None if length is None else length // 2 + 1


@infer_rule("aten.fft_fft", "aten.fft_ifft")
def fft(x: Meta, length: Any, dim: int, norm: Any) -> Meta:
    at = normal_dim(dim, x.rank)
    return Meta(replaced(x.shape, at, x.shape[at] if length is None else size(length)), _spectrum(x.dtype))


@infer_rule("aten.fft_rfft")
def rfft(x: Meta, length: Any, dim: int, norm: Any) -> Meta:
    at = normal_dim(dim, x.rank)
    full = fft(x, length, dim, norm)
    return Meta(replaced(full.shape, at, _half(full.shape[at])), full.dtype)


@infer_rule("aten.stft")
def stft(
    x: Meta, n_fft: int, hop: int | None, window_length: Any, window: Any, normalized: bool, onesided: bool | None,
    complex_: bool | None, align: bool | None,
) -> Meta:  # fmt: skip
    length = x.shape[-1]
    frames = None if length is None else (length - n_fft) // (hop or n_fft // 4) + 1
    half = not x.dtype.is_complex if onesided is None else onesided
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
