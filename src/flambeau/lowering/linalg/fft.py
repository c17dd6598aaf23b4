"""Fourier transforms in n log n, row by row.

The length is a product of small factors r. One stage for each takes sub-transforms of length m apart (in Stockham's
order: the result needs no sorting). With stride s, the product of the factors before, and n = r m s,

    y[q + s (r p + j)] = w^(j p s) * sum over k of  x[q + s (p + m k)] * e^(-2 pi i j k / r),    w = e^(-2 pi i / n)

The inner sums are straight-line code. Lengths with large prime factors become a circular convolution of a length that
is a power of 2, or three or five times one (Bluestein). Real input of even length is taken as complex numbers, two by
two, in half the length.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import BytesAttr, DenseIntOrFPElementsAttr
from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor, tensor_type
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.rules import loop_rule
from flambeau.lowering.verbs import RuleBuilder
from flambeau.passes.decompose.fft import scale

FACTORS = (4, 2, 3, 5, 7, 11, 13)
"""The lengths of straight-line transforms; larger ones would read more rows at once than a cache has ways."""

LARGEST_LITERAL = 1 << 14
"""How many numbers of a table a program may carry."""

Number = tuple[Element, Element]
"""A complex number as its real and imaginary part."""
Read = Callable[[Size], Number]
Rooms = list[Tensor]
"""Working memory: two pairs of real and imaginary parts."""


def factors(n: int) -> list[int] | None:
    """Factor a transform's length into those of its stages; None where a prime factor is too large."""
    found: list[int] = []
    for f in FACTORS:
        while n % f == 0 and n > 1:
            found.append(f)
            n //= f
    return found if n == 1 else None


def convolution_length(n: int) -> int:
    """Choose the least length with fast stages of a circular convolution that gives a transform of length n."""
    return min(f << max(0, -(-(2 * n - 1) // f) - 1).bit_length() for f in (1, 3, 5))


def times(x: Number, w: complex) -> Number:
    """Multiply by a constant, leaving out products with 0 and 1."""
    c, d = (0.0 if abs(v) < 1e-15 else v for v in (w.real, w.imag))
    if d == 0:
        return x if c == 1 else (-x[0], -x[1]) if c == -1 else (x[0] * c, x[1] * c)
    if c == 0:
        return (-x[1], x[0]) if d == 1 else (x[1], -x[0]) if d == -1 else (x[1] * -d, x[0] * d)
    return x[0] * c - x[1] * d, x[0] * d + x[1] * c


def product(x: Number, w: Number) -> Number:
    return x[0] * w[0] - x[1] * w[1], x[0] * w[1] + x[1] * w[0]


def swapped(x: Number) -> Number:
    return x[1], x[0]


def plus(x: Number, y: Number) -> Number:
    return x[0] + y[0], x[1] + y[1]


def minus(x: Number, y: Number) -> Number:
    return x[0] - y[0], x[1] - y[1]


def short(x: Sequence[Number], sign: int) -> list[Number]:
    """Transform by straight-line code, halving as long as the length is even: y_j = Σ_k x_k e^(sign 2πi jk/n)."""
    n = len(x)
    if n == 1:
        return list(x)
    if n % 2:
        sums = []
        for j in range(n):
            total = x[0]
            for k in range(1, n):
                total = plus(total, times(x[k], cmath.exp(sign * 2j * math.pi * (j * k % n) / n)))
            sums.append(total)
        return sums
    even, odd = short(x[::2], sign), short(x[1::2], sign)
    odd = [times(v, cmath.exp(sign * 2j * math.pi * j / n)) for j, v in enumerate(odd)]
    return [
        *(plus(e, o) for e, o in zip(even, odd, strict=True)),
        *(minus(e, o) for e, o in zip(even, odd, strict=True)),
    ]


class Transform:
    """The transform of one row of a given length, with the constants that it needs."""

    def __init__(self, b: RuleBuilder, n: int, dtype: DType, sign: int) -> None:
        self.b, self.n, self.dtype, self.sign = b, n, dtype, sign
        self.stages = factors(n)
        if self.stages is None:
            self.inner = Transform(b, convolution_length(n), dtype, -1)
            k = np.arange(n)
            chirp = np.exp(sign * 1j * np.pi * (k * k % (2 * n)) / n)
            around = np.zeros(self.inner.n, np.complex128)
            around[:n] = chirp.conj()
            around[self.inner.n - n + 1 :] = chirp[:0:-1].conj()
            self.chirp = self._table(chirp)
            self.kernel = self._table(np.fft.fft(around) / self.inner.n)
        elif len(self.stages) > 1:
            self.roots = self.unit_roots(n, n)

    @property
    def room(self) -> int:
        """How long the working memory is."""
        return self.n if self.stages is not None else self.inner.n

    def unit_roots(self, n: int, count: int) -> tuple[Tensor, Tensor]:
        """Compute the first powers of e^(sign 2πi/n); many at run time, so that programs stay small."""
        if count <= LARGEST_LITERAL:
            return self._table(np.exp(self.sign * 2j * np.pi * np.arange(count) / n))

        def turn(part: Callable[[Element], Element], sign: int) -> Tensor:
            return self.b.generate(
                [count], self.dtype, lambda i: part(self.b.scalar(i).to(dtypes.float64) * (2 * math.pi / n)) * sign
            )

        return turn(Element.cos, 1), turn(Element.sin, self.sign)

    def _table(self, values: Any) -> tuple[Tensor, Tensor]:
        type_ = tensor_type(values.shape, self.dtype.builtin)
        real, imaginary = (v.astype(self.dtype.numpy).tobytes() for v in (values.real, values.imag))
        return Tensor(self._dense(real, type_), self.dtype), Tensor(self._dense(imaginary, type_), self.dtype)

    def _dense(self, data: bytes, type_: Any) -> SSAValue:
        return self.b.dense(DenseIntOrFPElementsAttr(type_, BytesAttr(data)), type_)

    def _read(self, table: Sequence[Tensor], i: Size) -> Number:
        real, imaginary = (self.b.load(t, [i]) for t in table)
        return real, imaginary

    def _write(self, room: Sequence[Tensor], i: Size, value: Number) -> list[Tensor]:
        return [self.b.store(t, [i], v) for t, v in zip(room, value, strict=True)]

    def run(self, read: Read, rooms: Rooms, to: int = 0) -> Rooms:
        """Transform what `read` gives; what `result` reads is in the pair of rooms from `to` on.

        If `read` reads rooms, they are the other pair, or with an even number of stages the same one.
        """
        if self.stages is None:
            return self._convolve(read, rooms)
        done = 1
        for i, r in enumerate(self.stages):
            # The last stage ends in that pair.
            here = to if (len(self.stages) - i) % 2 else 2 - to
            source = read if i == 0 else self._reader(rooms[2 - here : 4 - here])
            rooms[here : here + 2] = self._stage(source, rooms[here : here + 2], r, done)
            done *= r
        if not self.stages:
            rooms[to : to + 2] = self._write(rooms[to : to + 2], 0, read(0))
        return rooms

    def _reader(self, room: Sequence[Tensor]) -> Read:
        return lambda i: self._read(room, i)

    def _stage(self, read: Read, room: Sequence[Tensor], r: int, s: int) -> list[Tensor]:
        b, m = self.b, self.n // s // r

        def turn(p: Size, q: Size, roots: Sequence[Number], room: Sequence[Tensor]) -> Sequence[Tensor]:
            first = b.add(q, b.mul(p, s))
            sums = short([read(b.add(first, s * m * k)) for k in range(r)], self.sign)
            start = b.add(q, b.mul(p, s * r))
            for j, value in enumerate(sums):
                room = self._write(room, b.add(start, s * j), product(value, roots[j - 1]) if j and roots else value)
            return room

        def column(p: Size, room: Sequence[Tensor]) -> Sequence[Tensor]:
            roots = [self._read(self.roots, b.mul(p, j * s)) for j in range(1, r)] if m > 1 else []
            if s == 1:
                return turn(p, 0, roots, room)
            return b.loop(0, s, room, lambda q, *room: turn(p, q, roots, room))

        return list(column(0, room) if m == 1 else b.loop(0, m, room, lambda p, *room: column(p, room)))

    def _convolve(self, read: Read, rooms: Rooms) -> Rooms:
        """Multiply with a chirp, and convolve with another by two transforms.

        The way back is the same transform with real and imaginary parts swapped, before it and in its result.
        """
        b, n, inner = self.b, self.n, self.inner
        assert inner.stages is not None

        def chirped(i: Size) -> Number:
            inside = b.scalar_bool(b.compare("slt", i, n))
            at = b.minimum(i, n - 1)
            value = product(read(at), self._read(self.chirp, at))
            return inside.select(value[0], 0), inside.select(value[1], 0)

        # The first stage of the way back reads what it does not write.
        between = 2 if len(inner.stages) % 2 else 0
        rooms = inner.run(chirped, rooms, between)
        spectrum = self._reader(rooms[between : between + 2])
        return inner.run(lambda i: swapped(product(spectrum(i), self._read(self.kernel, i))), rooms)

    def result(self, rooms: Rooms) -> Read:
        """Read a result of `run`."""
        given = self._reader(rooms[:2])
        if self.stages is not None:
            return given
        return lambda i: product(swapped(given(i)), self._read(self.chirp, i))


def transform_rows(
    b: RuleBuilder,
    rows: Size,
    transform: Transform,
    read: Callable[[Size, Size], Number],
    out: Tensor,
    count: int,
    finish: Callable[[Size, Read], Any],
) -> Tensor:
    """Transform rows of what `read(row, i)` gives; `finish(i, result)` is element i of `count` in a row of `out`."""

    def turn(row: SSAValue, out: Tensor, *rooms: Tensor) -> list[Tensor]:
        done = transform.run(lambda i: read(row, i), list(rooms))
        result = transform.result(done)
        written = b.loop(0, count, [out], lambda i, out: [b.store(out, [row, i], finish(i, result))])
        return [*written, *done]

    rooms = [b.empty([transform.room], transform.dtype) for _ in range(4)]
    return b.loop(0, rows, [out, *rooms], turn)[0]


def _length(size: Size) -> int:
    if not isinstance(size, int):
        raise Unsupported("a Fourier transform whose length is not known at compile time")
    return size


def _as_rows(b: RuleBuilder, x: Tensor, dim: int) -> Tensor:
    """Reshape to a matrix whose rows run along a dim."""
    order = [*(d for d in range(x.rank) if d != dim), dim]
    sizes = b.sizes(x)
    return b.reshape(b.transpose(x, order), [b.product([sizes[d] for d in order[:-1]]), sizes[dim]])


def _from_rows(b: RuleBuilder, rows: Tensor, like: Sequence[Size], dim: int) -> Tensor:
    """Invert `_as_rows`; the sizes of the tensor are `like`, but for the dim."""
    order = [*(d for d in range(len(like)) if d != dim), dim]
    sizes = [*(like[d] for d in order[:-1]), b.size(rows, 1)]
    return b.transpose(b.reshape(rows, sizes), [order.index(d) for d in range(len(like))])


def _parts(e: Element) -> Number:
    return e.real, e.imag


def _complex(x: Number, dtype: DType, factor: float = 1) -> Element:
    real, imaginary = x if factor == 1 else (x[0] * factor, x[1] * factor)
    return real.with_imag(imaginary, dtype)


def _along(b: RuleBuilder, x: Tensor, dim: int, forward: bool, factor: float) -> Tensor:
    """Transform complex numbers along a dim, and multiply them by a factor."""
    rows = _as_rows(b, x, dim)
    n = _length(b.size(rows, 1))
    transform = Transform(b, n, x.dtype.real, -1 if forward else 1)
    out = b.empty(b.sizes(rows), x.dtype)
    result = transform_rows(
        b, b.size(rows, 0), transform, lambda r, i: _parts(b.load(rows, [r, i])), out, n,
        lambda i, read: _complex(read(i), x.dtype, factor),
    )  # fmt: skip
    return _from_rows(b, result, b.sizes(x), dim)


def _all_along(b: RuleBuilder, x: Tensor, dims: Sequence[int], forward: bool, factor: float) -> Tensor:
    for i, dim in enumerate(dims):
        x = _along(b, x, b.dim(dim, x.rank), forward, factor if i == len(dims) - 1 else 1)
    return x


@loop_rule("aten._fft_c2c")
def c2c(b: RuleBuilder, x: Tensor, dims: Sequence[int], normalization: int, forward: bool) -> Tensor:
    if 0 in x.shape or not dims:
        return x
    return _all_along(b, x, dims, forward, scale([_length(b.size(x, d)) for d in dims], normalization))


@loop_rule("aten._fft_r2c")
def r2c(b: RuleBuilder, x: Tensor, dims: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    dtype = b.out_dtype
    lengths = [_length(b.size(x, d)) for d in dims]
    factor = scale(lengths, normalization)
    *others, last = (b.dim(d, x.rank) for d in dims)
    own = 1 if others else factor
    rows, n = _as_rows(b, x, last), lengths[-1]
    half, zero = n // 2, b.element(0, x.dtype)
    by_pairs = n % 2 == 0 and n >= 4
    transform = Transform(b, half if by_pairs else n, x.dtype, -1)
    roots = transform.unit_roots(n, half + 1)

    def read(row: Size, i: Size) -> Number:
        if not by_pairs:
            return b.load(rows, [row, i]), zero
        return b.load(rows, [row, b.mul(i, 2)]), b.load(rows, [row, b.add(b.mul(i, 2), 1)])

    def given(i: Size, result: Read) -> Number:
        """Compute a frequency up to half the length from the transforms of even and odd elements, packed in one."""
        if not by_pairs:
            return result(i)
        z = result(b.select(b.compare("eq", i, half), 0, i))
        mirrored = result(b.select(b.compare("eq", i, 0), 0, b.sub(half, i)))
        even = z[0] + mirrored[0], z[1] - mirrored[1]
        odd = z[1] + mirrored[1], mirrored[0] - z[0]
        real, imaginary = plus(even, product(odd, transform._read(roots, i)))
        return real * 0.5, imaginary * 0.5

    def finish(i: Size, result: Read) -> Element:
        if onesided or not by_pairs:
            return _complex(given(i, result), dtype, own)
        # The upper half is the mirror image of the lower one.
        is_low = b.scalar_bool(b.compare("sle", i, half))
        real, imaginary = given(b.select(is_low.value, i, b.sub(n, i)), result)
        return _complex((real, is_low.select(imaginary, -imaginary)), dtype, own)

    count = half + 1 if onesided else n
    out = b.empty([b.size(rows, 0), count], dtype)
    result = transform_rows(b, b.size(rows, 0), transform, read, out, count, finish)
    return _all_along(b, _from_rows(b, result, b.sizes(x), last), others, True, factor)


@loop_rule("aten._fft_c2r")
def c2r(b: RuleBuilder, x: Tensor, dims: Sequence[int], normalization: int, last_dim_size: Any) -> Tensor:
    n = _length(last_dim_size)
    *others, last = (b.dim(d, x.rank) for d in dims)
    factor = scale([*(_length(b.size(x, d)) for d in others), n], normalization)
    x = _all_along(b, x, others, False, 1)
    b.same_size(b.size(x, last), n // 2 + 1, "the last dimension does not have the size of half the result")
    rows, real = _as_rows(b, x, last), x.dtype.real
    out, half = b.empty([b.size(rows, 0), n], real), n // 2
    by_pairs = n % 2 == 0 and n >= 4
    transform = Transform(b, half if by_pairs else n, real, 1)
    roots = transform.unit_roots(n, half + 1)

    def mirrored(row: Size, i: Size) -> Number:
        """Load a frequency; behind the half it is conj(x[n - i]), and real where it is its own mirror image."""
        is_given = b.scalar_bool(b.compare("sle", i, half))
        z = _parts(b.load(rows, [row, b.select(is_given.value, i, b.sub(n, i))]))
        alone = b.scalar_bool(b.compare("eq", b.mod(b.mul(i, 2), n), 0))
        return z[0], alone.select(0, is_given.select(z[1], -z[1]))

    def paired(row: Size, i: Size) -> Number:
        """Pack the transforms of even and odd elements into one of complex numbers; the first and the last are real."""
        is_first = b.scalar_bool(b.compare("eq", i, 0))
        z, m = (_parts(b.load(rows, [row, k])) for k in (i, b.sub(half, i)))
        z, m = ((v[0], is_first.select(0, v[1])) for v in (z, m))
        even = z[0] + m[0], z[1] - m[1]
        odd = product((z[0] - m[0], z[1] + m[1]), transform._read(roots, i))
        return even[0] - odd[1], even[1] + odd[0]

    def finish(i: Size, result: Read) -> Element:
        if not by_pairs:
            return result(i)[0] * factor
        z = result(b.floordiv(i, 2))
        return b.scalar_bool(b.compare("eq", b.mod(i, 2), 0)).select(z[0], z[1]) * factor

    read = paired if by_pairs else mirrored
    return _from_rows(b, transform_rows(b, b.size(rows, 0), transform, read, out, n, finish), b.sizes(x), last)
