"""Eigenvalues and singular values by Jacobi's rotations, half as many at once as there are columns.

In each round every column has one partner, as in a tournament where each meets each: column i meets (r - i) mod M in
round r, for the odd M of n - 1 and n, and the one that would meet itself meets column n - 1 where n is even. The rotations
of a round touch disjoint pairs, so a round is a few ops on whole matrices. Sweeps over all rounds go on until what is left
to be rotated away is rounding.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from flambeau.dialects.torch.types import BOOL
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.elimination import adjoint, conjugate, positions, real_part
from flambeau.passes.decompose.householder import identity
from flambeau.passes.decompose.rules import minus, over, plus, repeat, times

MOST_SWEEPS = 20
"""Jacobi's sweeps converge quadratically: some 6 to 12 are enough for matrices that anybody has."""


def eigh(t: TorchBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Diagonalise Hermitian matrices, of which only the lower triangle is read: eigenvalues ascend, vectors in columns."""
    size = t.shape(x)[-1]
    lower = t.tril(x, -1)
    diagonal = t.to(real_part(t, t.diagonal(x, 0, -2, -1)), t.dtype(x))
    start = t.add(t.add(lower, adjoint(t, lower)), t.diag_embed(diagonal))

    def turn(r: SSAValue, a: SSAValue, v: SSAValue) -> list[SSAValue]:
        partner = _partners(t, size, r)
        along = _spread(t, partner, a)
        own = real_part(t, t.diagonal(a, 0, -2, -1))
        across = t.diagonal(t.gather(a, -1, along), 0, -2, -1)
        cos, sin = _rotations(t, partner, own, t.index_select(own, -1, partner), across)
        a = _rotate(t, a, along, cos, conjugate(t, sin))
        a = adjoint(t, _rotate(t, adjoint(t, a), along, cos, conjugate(t, sin)))
        return [a, _rotate(t, v, _spread(t, partner, v), cos, conjugate(t, sin))]

    def is_left(a: SSAValue, v: SSAValue) -> SSAValue:
        squares = t.square(t.abs(a))
        on = t.diagonal(squares, 0, -2, -1)
        beside = t.sum(t.sub(squares, t.diag_embed(on)), [-2, -1])
        return _any(t, t.gt(beside, t.mul(t.sum(squares, [-2, -1]), _epsilon(t, x) ** 2)))

    a, v = _sweep(t, size, [start, identity(t, x, size)], turn, is_left)
    values, order = t.sort(real_part(t, t.diagonal(a, 0, -2, -1)), -1)
    return values, t.gather(v, -1, t.expand(t.unsqueeze(order, -2), t.shape(v)))


def orthogonal_columns(t: TorchBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
    """Rotate the columns of matrices, x V, until they are orthogonal: those, their lengths in descending order, and V."""
    size = t.shape(x)[-1]

    def turn(r: SSAValue, a: SSAValue, v: SSAValue) -> list[SSAValue]:
        partner = _partners(t, size, r)
        along = _spread(t, partner, a)
        own, across = _products(t, a, along)
        cos, sin = _rotations(t, partner, own, t.index_select(own, -1, partner), across)
        sin = conjugate(t, sin)
        return [_rotate(t, a, along, cos, sin), _rotate(t, v, _spread(t, partner, v), cos, sin)]

    def is_left(a: SSAValue, v: SSAValue) -> SSAValue:
        products = t.square(t.abs(t.matmul(adjoint(t, a), a)))
        lengths = t.diagonal(products, 0, -2, -1)
        bound = t.mul(t.sqrt(t.mul(t.unsqueeze(lengths, -1), t.unsqueeze(lengths, -2))), (4 * _epsilon(t, x)) ** 2)
        least = t.mul(t.amax(lengths, [-1]), _epsilon(t, x) ** 4)
        beside = t.sub(products, t.diag_embed(lengths))
        return _any(t, t.gt(beside, t.add(bound, t.unsqueeze(t.unsqueeze(least, -1), -1))))

    square = t.new_zeros(x, [*t.shape(x)[:-2], size, size])
    a, v = _sweep(t, size, [x, identity(t, square, size)], turn, is_left)
    own, _ = _products(t, a, None)
    lengths, order = t.sort(t.sqrt(own), -1, True)
    a, v = (t.gather(y, -1, t.expand(t.unsqueeze(order, -2), t.shape(y))) for y in (a, v))
    return a, lengths, v


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


def _rotations(
    t: TorchBuilder, partner: SSAValue, own: SSAValue, others: SSAValue, across: SSAValue
) -> tuple[SSAValue, SSAValue]:
    """Find for each column i with partner j the rotation that makes a_ij zero: new row i = cos * row i - sin * row j.

    tan is the smaller root of tan² + 2τ tan = 1 for τ = (a_jj - a_ii) / (2 |a_ij|); sin has the phase of a_ij.
    """
    place = positions(t, t.shape(own)[-1])
    size = t.abs(across)
    is_still = t.logical_or(t.eq(size, 0), t.eq(partner, place))
    safe = t.where(is_still, t.ones_like(size), size)
    tau = t.div(t.sub(others, own), t.mul(safe, 2.0))
    one = t.ones_like(tau)
    sign = t.where(t.eq(tau, 0), t.where(t.lt(place, partner), one, t.neg(one)), t.sign(tau))
    tan = t.div(sign, t.add(t.abs(tau), t.sqrt(t.add(t.mul(tau, tau), 1.0))))
    tan = t.where(is_still, t.zeros_like(tan), tan)
    cos = t.div(one, t.sqrt(t.add(t.mul(tan, tan), 1.0)))
    phase = t.div(across, safe)
    return cos, t.mul(t.mul(tan, cos), phase)


def _rotate(t: TorchBuilder, x: SSAValue, along: SSAValue, cos: SSAValue, sin: SSAValue) -> SSAValue:
    """Replace each column i of x by cos_i * x_i - sin_i * (its partner)."""
    others = t.gather(x, -1, along)
    return t.sub(t.mul(x, t.unsqueeze(cos, -2)), t.mul(others, t.unsqueeze(sin, -2)))


def _products(t: TorchBuilder, x: SSAValue, along: SSAValue | None) -> Any:
    """Multiply each column by itself, and by its partner: xᵢᴴ xᵢ and xᵢᴴ xⱼ."""
    turned = conjugate(t, x)
    own = real_part(t, t.sum(t.mul(turned, x), [-2]))
    return own, None if along is None else t.sum(t.mul(turned, t.gather(x, -1, along)), [-2])


def _spread(t: TorchBuilder, partner: SSAValue, x: SSAValue) -> SSAValue:
    return t.expand(partner, t.shape(x))


def _any(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return t.op("aten.Bool.Tensor", (t.any(x),), (BOOL,))[0]


def _epsilon(t: TorchBuilder, x: SSAValue) -> float:
    return 2.0**-52 if t.dtype(x).real is dtypes.float64 else 2.0**-23
