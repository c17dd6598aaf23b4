"""Eigenvalues and singular values by Jacobi's rotations, half as many at once as there are columns.

In each round every column has one partner, as in a tournament where each meets each: column i meets (r - i) mod M in
round r, for the odd M of n - 1 and n, and the one that would meet itself meets column n - 1 where n is even. The
rotations of a round touch disjoint pairs, so a round is a few ops on whole matrices. Sweeps over all rounds go on until
what is left to be rotated away is rounding.
"""

from __future__ import annotations

import math
from typing import Any

from xdsl.ir import SSAValue

from flambeau.dialects.torch.types import BOOL
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.elimination import adjoint, conjugate, positions, real_part, take_rows
from flambeau.passes.decompose.householder import identity
from flambeau.passes.decompose.rules import minus, over, plus, repeat, times

MOST_SWEEPS = 20
"""Jacobi's sweeps converge quadratically: some 6 to 12 are enough for matrices that anybody has."""


def eigh(t: TorchBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Diagonalise Hermitian matrices, of which only the lower triangle is read: eigenvalues ascend, vectors in columns.

    Twice a bound of the spectral radius on the diagonal makes the matrix positive definite and well conditioned, and
    its eigenvectors are then what makes its columns orthogonal. The eigenvalues are Rayleigh's quotients.
    """
    lower = t.tril(x, -1)
    diagonal = t.to(real_part(t, t.diagonal(x, 0, -2, -1)), t.dtype(x))
    a = t.add(t.add(lower, adjoint(t, lower)), t.diag_embed(diagonal))
    shift = t.mul(identity(t, x, t.shape(x)[-1]), t.mul(_radius(t, a), 2.0))
    _, _, v = orthogonal_columns(t, t.add(a, shift))
    quotients = real_part(t, t.sum(t.mul(conjugate(t, v), t.matmul(a, v)), [-2]))
    values, order = t.sort(quotients, -1)
    return values, adjoint(t, take_rows(t, adjoint(t, v), order))


def _radius(t: TorchBuilder, x: SSAValue) -> SSAValue:
    """Bound the spectral radius of Hermitian matrices by the Frobenius norm of the 8th power, [..., 1, 1]."""
    norm = _norm(t, x)
    safe = t.where(t.gt(norm, 0), norm, t.ones_like(norm))
    power = t.div(x, safe)
    for _ in range(3):
        power = t.matmul(power, power)
    return t.mul(t.pow(_norm(t, power), 1 / 8), safe)


def _norm(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return t.sqrt(t.sum(t.square(t.abs(x)), [-2, -1], True))


def orthogonal_columns(t: TorchBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
    """Rotate the columns of matrices, x V, until they are orthogonal: gives x V, the lengths of its columns, and V.

    Lengths descend. What is rotated are the rows of the adjoint, whose elements are neighbours.
    """
    rows, size = t.shape(x)[-2:]
    rounding = max(4.0, math.sqrt(rows)) if isinstance(rows, int) else 8.0

    def turn(r: SSAValue, a: SSAValue, vh: SSAValue) -> list[SSAValue]:
        partner = _partners(t, size, r)
        across = t.sum(t.mul(a, conjugate(t, t.index_select(a, -2, partner))), [-1])
        rotation = _rotations(t, partner, _squared_lengths(t, a), across)
        return [_rotate(t, a, partner, rotation), _rotate(t, vh, partner, rotation)]

    def is_left(a: SSAValue, vh: SSAValue) -> SSAValue:
        products = t.square(t.abs(t.matmul(a, adjoint(t, a))))
        lengths = t.diagonal(products, 0, -2, -1)
        scale = t.sqrt(t.mul(t.unsqueeze(lengths, -1), t.unsqueeze(lengths, -2)))
        bound = t.mul(scale, (rounding * _epsilon(t, x)) ** 2)
        least = t.mul(t.sum(lengths, [-1]), _epsilon(t, x) ** 4)
        beside = t.sub(products, t.diag_embed(lengths))
        return _any(t, t.gt(beside, t.add(bound, t.unsqueeze(t.unsqueeze(least, -1), -1))))

    square = t.new_zeros(x, [*t.shape(x)[:-2], size, size])
    _, vh = _sweep(t, size, [adjoint(t, x), identity(t, square, size)], turn, is_left)
    v = _orthonormal(t, adjoint(t, vh))
    a = adjoint(t, t.matmul(x, v))
    lengths, order = t.sort(t.sqrt(_squared_lengths(t, a)), -1, True)
    return adjoint(t, take_rows(t, a, order)), lengths, adjoint(t, take_rows(t, adjoint(t, v), order))


def _orthonormal(t: TorchBuilder, v: SSAValue) -> SSAValue:
    """Take the rounding of many rotations out of a matrix that is nearly unitary: V (3 - Vᴴ V) / 2."""
    unit = identity(t, v, t.shape(v)[-1])
    return t.matmul(v, t.sub(t.mul(unit, 1.5), t.mul(t.matmul(adjoint(t, v), v), 0.5)))


def _sweep(t: TorchBuilder, size: Any, carried: list[SSAValue], turn: Any, is_left: Any) -> list[SSAValue]:
    rounds = _rounds(t, size)
    return repeat(t, MOST_SWEEPS, carried, lambda _, *now: repeat(t, rounds, now, turn), is_left)


def _rounds(t: TorchBuilder, size: Any) -> Any:
    """Count the rounds of a sweep: n - 1 for an even n, else n."""
    return minus(t, times(t, 2, over(t, plus(t, size, 1), 2)), 1)


def _partners(t: TorchBuilder, size: Any, r: SSAValue) -> SSAValue:
    """Pair the columns in round r: for each column the other one, or itself if it has none."""
    rounds = _rounds(t, size)
    place = positions(t, size)
    nothing = t.zeros_like(place)
    other = t.remainder(t.add(t.neg(place), r), rounds)
    last = t.add(nothing, rounds)
    alone = t.where(t.lt(last, t.add(nothing, size)), last, place)
    half = over(t, plus(t, rounds, 1), 2)  # The inverse of 2 modulo the odd number of rounds.
    meets_last = t.remainder(t.mul(t.add(nothing, r), half), rounds)
    return t.where(t.eq(place, rounds), meets_last, t.where(t.eq(other, place), alone, other))


def _rotations(t: TorchBuilder, partner: SSAValue, own: SSAValue, across: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Find for each i with partner j, from a_ii and a_ij, the rotation that makes a_ij zero.

    It is cos and sin of: new row i = cos * row i - sin * row j.

    tan is the smaller root of tan² + 2τ tan = 1 for τ = (a_jj - a_ii) / (2 |a_ij|); sin has the phase of a_ij.
    """
    place = positions(t, t.shape(own)[-1])
    size = t.abs(across)
    is_still = t.logical_or(t.eq(size, 0), t.eq(partner, place))
    safe = t.where(is_still, t.ones_like(size), size)
    tau = t.div(t.sub(t.index_select(own, -1, partner), own), t.mul(safe, 2.0))
    one = t.ones_like(tau)
    sign = t.where(t.eq(tau, 0), t.where(t.lt(place, partner), one, t.neg(one)), t.sign(tau))
    tan = t.div(sign, t.add(t.abs(tau), t.sqrt(t.add(t.mul(tau, tau), 1.0))))
    tan = t.where(is_still, t.zeros_like(tan), tan)
    cos = t.div(one, t.sqrt(t.add(t.mul(tan, tan), 1.0)))
    phase = t.div(across, safe)
    return cos, t.mul(t.mul(tan, cos), phase)


def _rotate(t: TorchBuilder, x: SSAValue, partner: SSAValue, rotation: tuple[SSAValue, SSAValue]) -> SSAValue:
    """Replace each row i of x by cos_i * x_i - sin_i * (its partner)."""
    cos, sin = (t.unsqueeze(f, -1) for f in rotation)
    return t.sub(t.mul(x, cos), t.mul(t.index_select(x, -2, partner), sin))


def _squared_lengths(t: TorchBuilder, rows: SSAValue) -> SSAValue:
    return t.sum(t.square(t.abs(rows)), [-1])


def _any(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return t.op("aten.Bool.Tensor", (t.any(x),), (BOOL,))[0]


def _epsilon(t: TorchBuilder, x: SSAValue) -> float:
    return 2.0**-52 if t.dtype(x).real is dtypes.float64 else 2.0**-23
