"""Factors of matrices by elimination, column after column: LU with row exchanges, Cholesky, and substitution.

Each turn of a loop is a few ops on the whole batch of matrices: a rank-1 update is n² work that vectorises, so an
n x n matrix takes n turns and n³ work in all. Rows and columns that a turn must leave alone are masked by position,
so that no size depends on the turn.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import least, minus, plus, repeat


def adjoint(t: TorchBuilder, x: SSAValue) -> SSAValue:
    """Transpose matrices, and conjugate them where they are complex."""
    return t.transpose(conjugate(t, x), -2, -1)


def conjugate(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return t.conj_physical(x) if t.dtype(x).is_complex else x


def real_part(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return t.select(t.view_as_real(x), -1, 0) if t.dtype(x).is_complex else x


def positions(t: TorchBuilder, count: Any) -> SSAValue:
    """Count from 0 along a dim, as i64."""
    return t.arange(count, dtype=dtypes.int64)


def element(t: TorchBuilder, x: SSAValue, i: Any) -> SSAValue:
    """Take the i-th element of the diagonal of each matrix."""
    return t.select(t.select(x, -2, i), -1, i)


def outer(t: TorchBuilder, column: SSAValue, row: SSAValue) -> SSAValue:
    return t.mul(t.unsqueeze(column, -1), t.unsqueeze(row, -2))


def lu(t: TorchBuilder, x: SSAValue, pivot: bool = True) -> tuple[SSAValue, SSAValue, SSAValue, SSAValue]:
    """Factor matrices into L and U, packed in one matrix, with the rows in an order that keeps multipliers small.

    Gives the packed factors; LAPACK's pivots, from 1; the order of rows, so that row i of LU is row `order[i]` of x;
    and for each matrix the number, from 1, of the first zero on U's diagonal, else 0. Of equally large candidates the
    first becomes the pivot; complex ones are measured by |re| + |im|, as LAPACK does.
    """
    *batch, rows, columns = t.shape(x)
    count = least(t, rows, columns)
    row, column, turn = positions(t, rows), positions(t, columns), positions(t, count)
    pivots = t.to(t.expand(t.add(turn, 1), [*batch, count]), dtypes.int32)
    order = t.clone(t.expand(row, [*batch, rows]))

    def body(i: SSAValue, a: SSAValue, pivots: SSAValue, order: SSAValue) -> list[SSAValue]:
        if pivot:
            size = measure(t, t.select(a, -1, i))
            size = t.where(t.ge(row, i), size, t.full_like(size, -1.0))
            best = t.argmax(size, -1, True)
            pivots = t.where(t.eq(turn, i), t.to(t.add(best, 1), dtypes.int32), pivots)
            a = _exchange(t, a, i, best, row)
            order = t.squeeze(_exchange(t, t.unsqueeze(order, -1), i, best, row), -1)
        return [_eliminate(t, a, i, row, column), pivots, order]

    packed, pivots, order = repeat(t, count, [x, pivots, order], body)
    return packed, pivots, order, _first(t, t.eq(t.diagonal(packed, 0, -2, -1), 0))


def _first(t: TorchBuilder, is_bad: SSAValue) -> SSAValue:
    """Find the first true element of the last dim: its number from 1 as i32, and 0 where there is none."""
    count = t.shape(is_bad)[-1]
    left = t.mul(is_bad, t.rsub(positions(t, count), count))
    most = t.amax(t.constant_pad_nd(left, [0, 1]), [-1])  # the element added makes it right for no elements at all
    return t.to(t.where(t.gt(most, 0), t.rsub(most, plus(t, count, 1)), most), dtypes.int32)


def _exchange(t: TorchBuilder, a: SSAValue, i: Any, other: SSAValue, row: SSAValue) -> SSAValue:
    """Exchange row i of each matrix with another one, whose number `other` has in its last dim, of size 1."""
    *batch, _, columns = t.shape(a)
    theirs = t.gather(a, -2, t.expand(t.unsqueeze(other, -1), [*batch, 1, columns]))
    is_here, is_there = t.unsqueeze(t.eq(row, i), -1), t.unsqueeze(t.eq(row, other), -1)
    return t.where(is_here, theirs, t.where(is_there, t.unsqueeze(t.select(a, -2, i), -2), a))


def measure(t: TorchBuilder, x: SSAValue) -> SSAValue:
    """Measure elements as LAPACK does when it chooses pivots: |x|, or |re| + |im|."""
    if not t.dtype(x).is_complex:
        return t.abs(x)
    return t.sum(t.abs(t.view_as_real(x)), [-1])


def _eliminate(t: TorchBuilder, a: SSAValue, i: SSAValue, row: SSAValue, column: SSAValue) -> SSAValue:
    """Subtract multiples of row i from those below it. Where its pivot is zero, so are they in its column."""
    pivot = element(t, a, i)
    divisor = t.unsqueeze(t.where(t.eq(pivot, 0), t.ones_like(pivot), pivot), -1)
    factors = t.div(t.select(a, -1, i), divisor)
    below = t.unsqueeze(t.gt(row, i), -1)
    updated = t.sub(a, outer(t, factors, t.select(a, -2, i)))
    a = t.where(t.logical_and(below, t.gt(column, i)), updated, a)
    return t.where(t.logical_and(below, t.eq(column, i)), t.unsqueeze(factors, -1), a)


def order_of(t: TorchBuilder, pivots: SSAValue, rows: Any) -> SSAValue:
    """Find the order of rows that LAPACK's row exchanges make, one after the other."""
    *batch, count = t.shape(pivots)
    row = positions(t, rows)

    def body(i: SSAValue, order: SSAValue) -> list[SSAValue]:
        other = t.unsqueeze(t.sub(t.to(t.select(pivots, -1, i), dtypes.int64), 1), -1)
        return [_exchange(t, order, i, other, row)]

    start = t.unsqueeze(t.expand(row, [*batch, rows]), -1)
    return t.squeeze(repeat(t, count, [t.clone(start)], body)[0], -1)


def inverse_order(t: TorchBuilder, order: SSAValue) -> SSAValue:
    """Invert a permutation: where in `order` is i?"""
    places = positions(t, t.shape(order)[-1])
    is_here = t.eq(t.unsqueeze(order, -2), t.unsqueeze(places, -1))
    return t.sum(t.mul(t.to(is_here, dtypes.int64), places), [-1])


def take_rows(t: TorchBuilder, x: SSAValue, order: SSAValue) -> SSAValue:
    """Take the rows of matrices in an order, each matrix in its own."""
    return t.gather(x, -2, t.expand(t.unsqueeze(order, -1), t.shape(x)))


def substitute(t: TorchBuilder, a: SSAValue, b: SSAValue, upper: bool, unit: bool = False) -> SSAValue:
    """Solve a x = b for triangular matrices; `unit` says that the diagonal is 1, whatever stands there."""
    count = t.shape(b)[-2]
    row = positions(t, count)

    def body(i: SSAValue, x: SSAValue) -> list[SSAValue]:
        k = minus(t, minus(t, count, 1), i) if upper else i
        solved = t.select(x, -2, k)
        if not unit:
            solved = t.div(solved, t.unsqueeze(element(t, a, k), -1))
        is_open = t.unsqueeze(t.lt(row, k) if upper else t.gt(row, k), -1)
        x = t.where(is_open, t.sub(x, outer(t, t.select(a, -1, k), solved)), x)
        return [t.where(t.unsqueeze(t.eq(row, k), -1), t.unsqueeze(solved, -2), x)]

    return repeat(t, count, [b], body)[0]


def lu_solve(t: TorchBuilder, packed: SSAValue, order: SSAValue, b: SSAValue, is_adjoint: bool = False) -> SSAValue:
    """Solve a x = b, or with the adjoint of a, given the factors of a and the order of its rows."""
    if not is_adjoint:
        return substitute(t, packed, substitute(t, packed, take_rows(t, b, order), False, True), True)
    turned = adjoint(t, packed)
    solved = substitute(t, turned, substitute(t, turned, b, False), True, True)
    return take_rows(t, solved, inverse_order(t, order))


def cholesky(t: TorchBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Factor x = L Lᴴ, of which only the lower triangle is read.

    Gives L, and for each matrix the number, from 1, of the first leading minor that is not positive, else 0.
    """
    size = t.shape(x)[-1]
    place = positions(t, size)

    def body(i: SSAValue, a: SSAValue) -> list[SSAValue]:
        root = t.to(t.unsqueeze(t.sqrt(real_part(t, element(t, a, i))), -1), t.dtype(x))
        factors = t.where(t.eq(place, i), root, t.div(t.select(a, -1, i), root))
        below = t.unsqueeze(t.gt(place, i), -1)
        updated = t.sub(a, outer(t, factors, conjugate(t, factors)))
        a = t.where(t.logical_and(below, t.gt(place, i)), updated, a)
        return [t.where(t.eq(place, i), t.unsqueeze(factors, -1), a)]

    factor = repeat(t, size, [x], body)[0]
    is_good = t.gt(real_part(t, t.diagonal(factor, 0, -2, -1)), 0)
    return t.tril(factor), _first(t, t.logical_not(is_good))
