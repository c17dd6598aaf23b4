"""Eigenvalues of matrices that need not be Hermitian, from Schur's form x = Z T Zᴴ with T upper triangular.

A Hessenberg matrix, zero below the first subdiagonal, is made triangular by the QR algorithm. Of each matrix of a batch
the rows and columns up to `last` are at work. A turn factors them, less a shift near an eigenvalue, and multiplies
the factors in the other order, which makes the last subdiagonal element smaller, quadratically. When it is nothing but
rounding, `last` moves up. All arithmetic is complex; matrices of a batch that are done wait for the others.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from flambeau.dialects.torch.types import BOOL
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose import householder
from flambeau.passes.decompose.elimination import adjoint, conjugate, positions
from flambeau.passes.decompose.rules import minus, plus, repeat, require_element, times

TURNS, STUCK = 30, 10
"""Turns for each eigenvalue, as LAPACK allows, of which every tenth has a shift out of turn."""


def hessenberg(t: TorchBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Reflect matrices to x = Q H Qᴴ with H zero below the first subdiagonal: gives H and Q."""
    size = t.shape(x)[-1]
    row = positions(t, size)

    def body(i: SSAValue, a: SSAValue, q: SSAValue) -> list[SSAValue]:
        _, tau, vector = householder.reflection(t, a, i, plus(t, i, 1), row)
        turned = conjugate(t, tau)
        a = householder.reflect(t, a, vector, turned)
        return [adjoint(t, householder.reflect(t, adjoint(t, m), vector, turned)) for m in (a, q)]

    h, q = repeat(t, minus(t, size, 1), [x, householder.identity(t, x, size)], body)
    return h, q


def schur(t: TorchBuilder, x: SSAValue, name: str) -> tuple[SSAValue, SSAValue]:
    """Find T and Z of complex matrices; the program fails, with the name of the op, where they are not found."""
    h, q = hessenberg(t, x)
    *batch, size, _ = t.shape(x)
    last = t.full(batch, minus(t, size, 1), dtype=dtypes.int64)
    place, norm = positions(t, size), t.sqrt(_sums(t, t.square(t.abs(x))))
    epsilon = epsilon_of(t, x)

    def body(_: SSAValue, a: SSAValue, z: SSAValue, last: SSAValue, tries: SSAValue) -> list[SSAValue]:
        bottom = t.eq(place, t.unsqueeze(last, -1))
        above = t.eq(t.add(place, 1), t.unsqueeze(last, -1))
        corner = [[_at(t, a, r, c) for c in (above, bottom)] for r in (above, bottom)]
        sizes = t.add(t.abs(corner[0][0]), t.abs(corner[1][1]))
        bound = t.mul(t.where(t.eq(sizes, 0), norm, sizes), epsilon)
        is_open, is_small = t.gt(last, 0), t.le(t.abs(corner[1][0]), bound)
        moves, turns = t.logical_and(is_open, is_small), t.logical_and(is_open, t.logical_not(is_small))
        done = t.logical_and(_pairs(t, bottom, above), _everywhere(t, moves))
        a = t.where(done, t.zeros_like(a), a)
        shift = _shift(t, corner, t.eq(t.remainder(tries, STUCK), STUCK - 1))
        is_turned = t.logical_and(t.lt(place, t.unsqueeze(last, -1)), t.unsqueeze(turns, -1))
        unit = householder.identity(t, a, size)
        q = _rotation(t, *_rotations(t, t.sub(a, t.mul(unit, _everywhere(t, shift))), is_turned))
        tries = t.where(moves, t.zeros_like(tries), t.add(tries, 1))
        a = t.triu(t.matmul(adjoint(t, q), t.matmul(a, q)), -1)
        return [a, t.matmul(z, q), t.sub(last, t.to(moves, dtypes.int64)), tries]

    def is_left(a: SSAValue, z: SSAValue, last: SSAValue, tries: SSAValue) -> SSAValue:
        return t.op("aten.Bool.Tensor", (t.any(t.gt(last, 0)),), (BOOL,))[0]

    a, z, last, _ = repeat(t, times(t, TURNS, size), [h, q, last, t.zeros_like(last)], body, is_left)
    require_element(t, t.all(t.le(last, 0)), f"{name}: the eigenvalues of a matrix were not found")
    return t.triu(a), z


def _rotations(t: TorchBuilder, h: SSAValue, is_turned: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Find the rotations that make a Hessenberg matrix triangular, from the first row down: gives their c and s.

    Rotation i maps the rows x and y, i and i + 1, to c x + s y and c y - s̄ x, which is 0 in column i; the rotations
    that `is_turned` leaves out are c = 1, s = 0. What a rotation makes of row i + 1 is all that the next one needs, so
    that a rotation costs a row and no matrix.
    """
    size = t.shape(h)[-1]
    place = positions(t, size)

    def body(i: SSAValue, row: SSAValue, c: SSAValue, s: SSAValue) -> list[SSAValue]:
        after = t.select(h, -2, plus(t, i, 1))
        x, y = t.select(row, -1, i), t.select(after, -1, i)
        y = t.where(t.select(is_turned, -1, i), y, t.zeros_like(y))
        of_x, of_y = t.abs(x), t.abs(y)
        length = t.hypot(of_x, of_y)
        is_zero, is_length_zero = t.eq(of_x, 0), t.eq(length, 0)
        divisor = t.where(is_length_zero, t.ones_like(length), length)
        cosine = t.where(is_length_zero, t.ones_like(length), t.div(of_x, divisor))
        phase = t.where(is_zero, t.ones_like(x), t.div(x, t.where(is_zero, t.ones_like(of_x), of_x)))
        sine = t.mul(phase, t.div(conjugate(t, y), divisor))
        is_here = t.eq(place, i)
        c, s = (t.where(is_here, t.unsqueeze(v, -1), old) for v, old in ((cosine, c), (sine, s)))
        cosine, sine = t.unsqueeze(cosine, -1), t.unsqueeze(sine, -1)
        return [t.sub(t.mul(after, cosine), t.mul(row, conjugate(t, sine))), c, s]

    row = t.select(h, -2, 0)
    start = [row, t.ones_like(t.abs(row)), t.zeros_like(row)]
    return tuple(repeat(t, minus(t, size, 1), start, body)[1:])  # type: ignore[return-value]


def _rotation(t: TorchBuilder, c: SSAValue, s: SSAValue) -> SSAValue:
    """Multiply the adjoints of rotations, first to last: the Q of Q R.

    Column j has s̄_j below the diagonal, and in row i up to it c_(i-1) c_j times the product of all -s_k, i <= k < j.
    """
    size = t.shape(c)[-1]
    place = positions(t, size)
    row = t.unsqueeze(place, -1)
    before = t.constant_pad_nd(t.slice(c, -1, 0, minus(t, size, 1)), [1, 0], 1.0)
    earlier = t.unsqueeze(t.constant_pad_nd(t.slice(s, -1, 0, minus(t, size, 1)), [1, 0], 0.0), -2)
    factors = t.where(t.gt(place, row), t.neg(earlier), t.ones_like(earlier))
    upper = t.mul(t.cumprod(factors, -1), t.mul(t.unsqueeze(before, -1), t.unsqueeze(c, -2)))
    below = t.where(t.eq(row, t.add(place, 1)), t.unsqueeze(conjugate(t, s), -2), t.zeros_like(upper))
    return t.where(t.le(row, place), upper, below)


def _shift(t: TorchBuilder, corner: list[list[SSAValue]], is_stuck: SSAValue) -> SSAValue:
    """Choose Wilkinson's shift: the eigenvalue of the last 2 x 2 block that is nearer to its last element."""
    (p, q), (r, s) = corner
    half, beside = t.mul(t.sub(p, s), 0.5), t.mul(q, r)
    root = t.sqrt(t.add(t.mul(half, half), beside))
    one, other = t.add(half, root), t.sub(half, root)
    divisor = t.where(t.ge(t.abs(one), t.abs(other)), one, other)
    is_zero = t.eq(divisor, 0)
    step = t.div(beside, t.where(is_zero, t.ones_like(divisor), divisor))
    usual = t.sub(s, t.where(is_zero, t.zeros_like(step), step))
    return t.where(is_stuck, t.add(s, t.abs(r)), usual)


def eigenvectors(t: TorchBuilder, x: SSAValue, z: SSAValue) -> SSAValue:
    """Solve T v = λ v for each λ on the diagonal of a triangular T, from the last row up; gives Z v of length 1."""
    size = t.shape(x)[-1]
    place, values = positions(t, size), t.diagonal(x, 0, -2, -1)
    least = t.clamp(t.mul(t.sqrt(_sums(t, t.square(t.abs(x)))), epsilon_of(t, x)), 1e-18)  # its square is a number too

    def body(k: SSAValue, v: SSAValue) -> list[SSAValue]:
        i = minus(t, minus(t, size, 1), k)
        sums = t.squeeze(t.matmul(t.unsqueeze(t.select(x, -2, i), -2), v), -2)
        gap = t.sub(values, t.unsqueeze(t.select(values, -1, i), -1))
        is_near = t.lt(t.abs(gap), t.unsqueeze(least, -1))
        gap = t.where(is_near, t.mul(t.ones_like(gap), t.unsqueeze(least, -1)), gap)
        new = t.where(t.gt(place, i), t.div(sums, gap), t.to(t.eq(place, i), t.dtype(x)))
        v = t.where(t.unsqueeze(t.eq(place, i), -1), t.unsqueeze(new, -2), v)
        # Nearly equal eigenvalues make large numbers; only the direction counts.
        return [t.div(v, t.clamp(t.amax(t.abs(v), [-2], True), 1.0))]

    vectors = t.matmul(z, repeat(t, size, [t.zeros_like(x)], body)[0])
    return t.div(vectors, t.sqrt(t.sum(t.square(t.abs(vectors)), [-2], True)))


def _at(t: TorchBuilder, a: SSAValue, row: SSAValue, column: SSAValue) -> SSAValue:
    """Take the element at the one row and column that are marked, 0 where there is none."""
    return _sums(t, t.where(_pairs(t, row, column), a, t.zeros_like(a)))


def _sums(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return t.sum(x, [-2, -1])


def _pairs(t: TorchBuilder, rows: SSAValue, columns: SSAValue) -> SSAValue:
    return t.logical_and(t.unsqueeze(rows, -1), t.unsqueeze(columns, -2))


def _everywhere(t: TorchBuilder, x: SSAValue) -> SSAValue:
    """Give a number of each matrix the dims of a matrix."""
    return t.unsqueeze(t.unsqueeze(x, -1), -1)


def epsilon_of(t: TorchBuilder, x: SSAValue) -> float:
    """Return the distance from 1 to the next number."""
    return 2.0**-52 if t.dtype(x).real is dtypes.float64 else 2.0**-23


def as_complex(t: TorchBuilder, x: SSAValue) -> Any:
    return x if t.dtype(x).is_complex else t.complex(x, t.zeros_like(x))
