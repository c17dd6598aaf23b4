"""Fourier transforms as products with the matrix of a discrete Fourier transform, one dim after the other.

That is n² products and not n log n, all of them in one matmul: for the lengths in models a matmul is the faster of the
two, and every target has one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.emitter import dense
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.passes.decompose.rules import decomposition, require_size

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
    parts = _transform(t, (x, None), last, True, length // 2 + 1 if onesided else length)
    for dim in others:
        parts = _transform(t, parts, dim, True)
    return _scaled(t, parts, _lengths(t, x, dims), normalization)


@decomposition("aten._fft_c2r")
def c2r(t: TorchBuilder, x: SSAValue, dims: Sequence[int], normalization: int, last_dim_size: Any) -> SSAValue:
    if not isinstance(last_dim_size, int):
        raise Unsupported("a Fourier transform whose length is not known at compile time")
    *others, last = dims
    parts = _parts(t, x)
    for dim in others:
        parts = _transform(t, parts, dim, False)
    # The half that is not given is the mirror image of the one that is, so each of its terms counts twice.
    given = last_dim_size // 2 + 1
    require_size(t, t.shape(x)[last], "eq", given, "the last dimension does not have the size of half the result")
    cos, sin = _matrix(t, given, last_dim_size, last_dim_size, t.dtype(parts[0]), mirrored=True)
    real, imaginary = (t.transpose(p, last, -1) for p in parts)
    result = t.transpose(t.sub(t.matmul(real, cos), t.matmul(imaginary, sin)), last, -1)
    return t.mul(result, scale([*_lengths(t, x, others), last_dim_size], normalization))


def _parts(t: TorchBuilder, x: SSAValue) -> Pair:
    both = t.view_as_real(x)
    return t.select(both, -1, 0), t.select(both, -1, 1)


def _lengths(t: TorchBuilder, x: SSAValue, dims: Sequence[int]) -> list[int]:
    lengths = [t.shape(x)[d] for d in dims]
    if not all(isinstance(n, int) for n in lengths):
        raise Unsupported("a Fourier transform whose length is not known at compile time")
    return lengths


def scale(lengths: Sequence[int], normalization: int) -> float:
    """Compute the factor of a transform over these lengths; `normalization` is PyTorch's number for it."""
    count = math.prod(lengths)
    return 1 / math.sqrt(count) if normalization == BY_ROOT else 1 / count if normalization == BY_LENGTH else 1.0


def _scaled(t: TorchBuilder, parts: Pair, lengths: Sequence[int], normalization: int) -> SSAValue:
    factor = scale(lengths, normalization)
    return t.complex(*(parts if factor == 1 else (t.mul(p, factor) for p in parts)))


def _matrix(t: TorchBuilder, rows: int, columns: int, length: int, dtype: DType, mirrored: bool = False) -> Pair:
    """Compute cos and sin of 2πjk/length; with `mirrored`, rows that stand for their mirror image too count twice.

    The product is taken modulo the length, or large angles would be inexact. A large matrix is computed when the
    program runs, so that programs stay small.
    """
    if rows * columns > LARGEST_LITERAL:
        j = t.unsqueeze(t.arange(rows, dtype=dtypes.int64), 1)
        k = t.unsqueeze(t.arange(columns, dtype=dtypes.int64), 0)
        angle = t.mul(t.to(t.remainder(t.mul(j, k), length), dtype), 2 * math.pi / length)
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
    t: TorchBuilder, parts: tuple[SSAValue, SSAValue | None], dim: int, forward: bool, kept: int | None = None
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
