"""Fourier transforms as `stablehlo.fft`, one dim after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flambeau.diagnostics import Unsupported
from flambeau.dialects import stablehlo
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor, i64_array, static, tensor_type
from flambeau.lowering.stablehlo.ops import StablehloBuilder
from flambeau.lowering.stablehlo.rules import stablehlo_rule
from flambeau.passes.decompose.fft import scale


@stablehlo_rule("aten._fft_c2c")
def c2c(b: StablehloBuilder, x: Tensor, dims: Sequence[int], normalization: int, forward: bool) -> Tensor:
    lengths = [_length(b.size(x, dim)) for dim in dims]
    result = x
    for dim, length in zip(dims, lengths, strict=True):
        result = _transform(b, result, dim, "FFT" if forward else "IFFT", length, x.dtype)
    # The inverse divides by the lengths already.
    return _scaled(b, result, scale(lengths, normalization) * (1 if forward else math.prod(lengths)))


@stablehlo_rule("aten._fft_r2c")
def r2c(b: StablehloBuilder, x: Tensor, dims: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    dtype = b.out_dtype
    if not onesided:
        return c2c(b, b.to(x, dtype), dims, normalization, True)
    lengths = [_length(b.size(x, dim)) for dim in dims]
    result = _transform(b, x, dims[-1], "RFFT", lengths[-1], dtype)
    for dim, length in zip(dims[:-1], lengths, strict=False):
        result = _transform(b, result, dim, "FFT", length, dtype)
    return _scaled(b, result, scale(lengths, normalization))


@stablehlo_rule("aten._fft_c2r")
def c2r(b: StablehloBuilder, x: Tensor, dims: Sequence[int], normalization: int, last_dim_size: Any) -> Tensor:
    *others, last = dims
    lengths = [*(_length(b.size(x, dim)) for dim in others), _length(last_dim_size)]
    given = lengths[-1] // 2 + 1
    b.same_size(b.size(x, last), given, "the last dimension does not have the size of half the result")
    result = x
    for dim, length in zip(others, lengths, strict=False):
        result = _transform(b, result, dim, "IFFT", length, x.dtype)
    result = _transform(b, result, last, "IRFFT", lengths[-1], x.dtype.real)
    return _scaled(b, result, scale(lengths, normalization) * math.prod(lengths))


def _length(size: Size) -> int:
    if not isinstance(size, int):
        raise Unsupported("a Fourier transform whose length is not known at compile time")
    return size


def _scaled(b: StablehloBuilder, x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else b.elementwise([x], lambda e: e * factor, x.dtype)


def _transform(b: StablehloBuilder, x: Tensor, dim: int, kind: str, length: int, dtype: DType) -> Tensor:
    """Transform one dim, which is made the last: that is where the op transforms."""
    order = [i for i in range(x.rank) if i != dim % x.rank] + [dim % x.rank]
    last = b.transpose(x, order)
    sizes = [*b.sizes(last)[:-1], length // 2 + 1 if kind == "RFFT" else length]
    type_ = tensor_type(tuple(map(static, sizes)), dtype.builtin)
    properties = {"fft_type": stablehlo.fft_type(kind), "fft_length": i64_array((length,))}
    done = Tensor(b.target.make("fft", (last.value,), type_, properties), dtype, sizes)
    return b.transpose(done, [order.index(i) for i in range(x.rank)])
