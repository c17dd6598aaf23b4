"""Symmetric and Hermitian matrices as L D Lᵀ or L D Lᴴ, with the pivots of Bunch and Kaufman, stored as LAPACK does.

D has blocks of one or two rows. A pivot p > 0 says that its row was exchanged with row p - 1; of a block of two rows
both have -p, and it was the second that was exchanged. Columns of L that are finished are not exchanged.
"""

from __future__ import annotations

import math
from typing import Any

from xdsl.ir import SSAValue

from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.elimination import adjoint, element, measure, outer, positions, real_part, take_rows
from flambeau.passes.decompose.rules import least, minus, plus, repeat

ALPHA = (1 + math.sqrt(17)) / 8
"""How small an element may be, next to others, to be a pivot: it makes the growth of blocks of both sizes equal."""


def _flipped(t: TorchBuilder, x: SSAValue, hermitian: bool) -> SSAValue:
    return adjoint(t, x) if hermitian else t.transpose(x, -2, -1)


def _wide(t: TorchBuilder, flag: SSAValue) -> SSAValue:
    """Give a flag of each matrix the dims of a matrix."""
    return t.unsqueeze(t.unsqueeze(flag, -1), -1)


def _exchange(t: TorchBuilder, place: SSAValue, one: SSAValue, other: SSAValue) -> SSAValue:
    """Make the order of rows in which two are exchanged, of each matrix its own."""
    one, other = t.unsqueeze(one, -1), t.unsqueeze(other, -1)
    return t.where(t.eq(place, one), other, t.where(t.eq(place, other), one, place))


def factor(t: TorchBuilder, x: SSAValue, hermitian: bool) -> tuple[SSAValue, SSAValue, SSAValue]:
    """Factor matrices, of which the lower triangle is read: the factors, the pivots, and the first zero pivot or 0."""
    *batch, size, _ = t.shape(x)
    place, low = positions(t, size), t.tril(x, -1)
    diagonal = t.diagonal(x, 0, -2, -1)
    diagonal = t.to(real_part(t, diagonal), t.dtype(x)) if hermitian else diagonal
    a = t.add(t.add(low, _flipped(t, low, hermitian)), t.diag_embed(diagonal))
    nothing = t.zeros(batch, dtype=dtypes.int32)

    def body(k: SSAValue, a: SSAValue, pivots: SSAValue, second: SSAValue, info: SSAValue) -> list[SSAValue]:
        is_second = t.ne(second, 0)
        is_zero, pivot, is_pair = _choose(t, a, k, place, t.logical_not(is_second))
        pivot = t.where(is_second, t.add(t.zeros_like(pivot), k), pivot)
        order = _exchange(t, place, t.add(t.to(is_pair, dtypes.int64), k), pivot)
        is_open = t.ge(place, k)
        a = t.where(is_open, take_rows(t, a, order), a)
        columns = t.transpose(take_rows(t, t.transpose(a, -2, -1), order), -2, -1)
        a = t.where(t.unsqueeze(is_open, -1), columns, a)
        single, double = _eliminated(t, a, k, place)
        done = t.logical_or(is_second, is_zero)
        a = t.where(_wide(t, done), a, t.where(_wide(t, is_pair), double, single))
        pair = t.unsqueeze(is_pair, -1)
        here = t.logical_or(t.eq(place, k), t.logical_and(pair, t.eq(place, plus(t, k, 1))))
        number = t.add(pivot, 1)
        number = t.to(t.unsqueeze(t.where(is_pair, t.neg(number), number), -1), dtypes.int32)
        pivots = t.where(t.logical_and(here, t.logical_not(t.unsqueeze(is_second, -1))), number, pivots)
        fails = t.logical_and(t.logical_and(is_zero, t.logical_not(is_second)), t.eq(info, 0))
        info = t.where(fails, t.to(t.add(t.zeros_like(info), plus(t, k, 1)), dtypes.int32), info)
        return [a, pivots, t.to(is_pair, dtypes.int32), info]

    start = t.zeros([*batch, size], dtype=dtypes.int32)
    a, pivots, _, info = repeat(t, size, [a, start, nothing, nothing], body)
    if hermitian and t.dtype(x).is_complex:
        real = t.to(real_part(t, t.diagonal(a, 0, -2, -1)), t.dtype(x))
        return t.add(t.tril(a, -1), t.diag_embed(real)), pivots, info
    return t.tril(a), pivots, info


def _choose(
    t: TorchBuilder, a: SSAValue, k: SSAValue, place: SSAValue, is_free: SSAValue
) -> tuple[SSAValue, SSAValue, SSAValue]:
    """Choose what to eliminate column k with: is it zero, the row that comes here, and are two rows taken at once?"""
    column = measure(t, t.select(a, -1, k))
    below = t.where(t.gt(place, k), column, t.full_like(column, -1.0))
    largest, own = t.clamp(t.amax(below, [-1]), 0.0), t.select(column, -1, k)
    other = t.argmax(below, -1, True)
    row = measure(t, t.squeeze(t.gather(a, -2, _as_row(t, other, a)), -2))
    is_other = t.eq(place, other)
    rest = t.where(t.logical_and(t.ge(place, k), t.logical_not(is_other)), row, t.full_like(row, -1.0))
    beside, opposite = t.clamp(t.amax(rest, [-1]), 0.0), t.sum(t.where(is_other, row, t.zeros_like(row)), [-1])
    is_zero = t.logical_and(t.eq(own, 0), t.eq(largest, 0))
    ratio = t.div(largest, t.where(t.eq(beside, 0), t.ones_like(beside), beside))
    bound = t.mul(largest, ALPHA)
    stays = t.logical_or(is_zero, t.logical_or(t.ge(own, bound), t.ge(own, t.mul(bound, ratio))))
    is_pair = t.logical_not(t.logical_or(stays, t.ge(opposite, t.mul(beside, ALPHA))))
    other = t.squeeze(other, -1)
    return is_zero, t.where(stays, t.add(t.zeros_like(other), k), other), t.logical_and(is_pair, is_free)


def _as_row(t: TorchBuilder, number: SSAValue, a: SSAValue) -> SSAValue:
    *batch, _, columns = t.shape(a)
    return t.expand(t.unsqueeze(number, -1), [*batch, 1, columns])


def _safe(t: TorchBuilder, divisor: SSAValue) -> SSAValue:
    return t.unsqueeze(t.where(t.eq(divisor, 0), t.ones_like(divisor), divisor), -1)


def _eliminated(t: TorchBuilder, a: SSAValue, k: SSAValue, place: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Eliminate with row k alone, and with rows k and k + 1 together."""
    size = t.shape(a)[-1]
    following = least(t, plus(t, k, 1), minus(t, size, 1))
    here, then = t.eq(place, k), t.eq(place, plus(t, k, 1))
    below, beyond = t.gt(place, k), t.gt(place, plus(t, k, 1))
    first, second = t.select(a, -1, k), t.select(a, -1, following)
    factors = t.div(first, _safe(t, element(t, a, k)))
    single = t.where(_both(t, below), t.sub(a, outer(t, factors, t.select(a, -2, k))), a)
    single = t.where(_both(t, below, here), t.unsqueeze(factors, -1), single)
    p, s = t.unsqueeze(element(t, a, k), -1), t.unsqueeze(element(t, a, following), -1)
    q, r = (t.unsqueeze(t.select(t.select(a, -2, i), -1, j), -1) for i, j in ((k, following), (following, k)))
    determinant = _safe(t, t.squeeze(t.sub(t.mul(p, s), t.mul(q, r)), -1))
    one = t.div(t.sub(t.mul(first, s), t.mul(second, r)), determinant)
    two = t.div(t.sub(t.mul(second, p), t.mul(first, q)), determinant)
    update = t.add(outer(t, one, t.select(a, -2, k)), outer(t, two, t.select(a, -2, following)))
    double = t.where(_both(t, beyond), t.sub(a, update), a)
    double = t.where(_both(t, beyond, here), t.unsqueeze(one, -1), double)
    return single, t.where(_both(t, beyond, then), t.unsqueeze(two, -1), double)


def _both(t: TorchBuilder, rows: SSAValue, columns: SSAValue | None = None) -> SSAValue:
    return t.logical_and(t.unsqueeze(rows, -1), t.unsqueeze(rows if columns is None else columns, -2))


def solve(t: TorchBuilder, packed: SSAValue, pivots: SSAValue, b: SSAValue, hermitian: bool) -> SSAValue:
    """Solve a x = b, given the factors of a: substitution forwards, by the blocks of D, and backwards."""
    size: Any = t.shape(packed)[-1]
    place, in_pair = positions(t, size), t.lt(pivots, 0)
    is_odd = t.eq(t.remainder(t.cumsum(t.to(in_pair, dtypes.int64), -1), 2), 1)
    first = t.to(t.logical_and(in_pair, is_odd), dtypes.int64)
    second = t.to(t.logical_and(in_pair, t.logical_not(is_odd)), dtypes.int64)
    number = t.where(t.ne(second, 0), place, t.sub(t.abs(t.to(pivots, dtypes.int64)), 1))

    def exchanged(x: SSAValue, k: Any) -> SSAValue:
        one = t.add(t.select(first, -1, k), k)
        return take_rows(t, x, _exchange(t, place, one, t.select(number, -1, k)))

    def column(k: Any) -> SSAValue:
        """Take column k of L below its block."""
        values = t.select(packed, -1, k)
        return t.where(t.gt(place, t.unsqueeze(t.add(t.select(first, -1, k), k), -1)), values, t.zeros_like(values))

    def forwards(k: SSAValue, x: SSAValue) -> list[SSAValue]:
        x = exchanged(x, k)
        return [t.sub(x, outer(t, column(k), t.select(x, -2, k)))]

    def backwards(i: SSAValue, x: SSAValue) -> list[SSAValue]:
        k = minus(t, minus(t, size, 1), i)
        row = _flipped(t, t.unsqueeze(column(k), -1), hermitian)
        here = t.unsqueeze(t.eq(place, k), -1)
        return [exchanged(t.where(here, t.sub(x, t.matmul(row, x)), x), k)]

    x = repeat(t, size, [b], forwards)[0]
    partner = t.sub(t.add(place, first), second)
    diagonal = t.diagonal(packed, 0, -2, -1)
    beside = t.constant_pad_nd(t.diagonal(packed, -1, -2, -1), [0, 1])
    beside = t.where(in_pair, t.gather(beside, -1, t.sub(place, second)), t.zeros_like(diagonal))
    turned = t.conj_physical(beside) if hermitian and t.dtype(packed).is_complex else beside
    opposite = t.where(in_pair, t.gather(diagonal, -1, partner), t.ones_like(diagonal))
    determinant = t.sub(t.mul(diagonal, opposite), t.mul(beside, turned))
    own = t.where(t.ne(first, 0), turned, beside)
    mixed = t.sub(t.mul(t.unsqueeze(opposite, -1), x), t.mul(t.unsqueeze(own, -1), take_rows(t, x, partner)))
    return repeat(t, size, [t.div(mixed, t.unsqueeze(determinant, -1))], backwards)[0]
