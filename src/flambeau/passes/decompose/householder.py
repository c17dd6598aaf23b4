"""Orthogonal factors by Householder's reflections H = I - τ v vᴴ, stored as LAPACK stores them.

v has zeros before its own position, 1 at it, and the rest below the diagonal of the packed matrix.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from flambeau.infer.builder import TorchBuilder
from flambeau.passes.decompose.elimination import conjugate, outer, positions, real_part
from flambeau.passes.decompose.rules import least, minus, repeat


def factor(t: TorchBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Reflect column after column onto the diagonal: R above and on it, the reflections below; and all τ."""
    *batch, rows, columns = t.shape(x)
    count = least(t, rows, columns)
    row, column, turn = positions(t, rows), positions(t, columns), positions(t, count)

    def body(i: SSAValue, a: SSAValue, taus: SSAValue) -> list[SSAValue]:
        beta, tau, vector = reflection(t, a, i, i, row)
        a = t.where(t.gt(column, i), reflect(t, a, vector, conjugate(t, tau)), a)
        below = t.where(t.gt(row, i), vector, t.select(a, -1, i))
        new = t.where(t.eq(row, i), t.unsqueeze(beta, -1), below)
        a = t.where(t.eq(column, i), t.unsqueeze(new, -1), a)
        return [a, t.where(t.eq(turn, i), t.unsqueeze(tau, -1), taus)]

    a, taus = repeat(t, count, [x, t.zeros([*batch, count], dtype=t.dtype(x))], body)
    return a, taus


def reflection(
    t: TorchBuilder, a: SSAValue, i: SSAValue, at: SSAValue, row: SSAValue
) -> tuple[SSAValue, SSAValue, SSAValue]:
    """Find the reflection of column i, from position `at` on, onto that position: what comes out there, τ and v.

    A column that is zero below it, with a real number there, stays: τ is 0.
    """
    column = t.select(a, -1, i)
    alpha = t.select(column, -1, at)
    rest = t.where(t.gt(row, at), column, t.zeros_like(column))
    tail = t.sum(_square(t, rest), [-1])
    real = real_part(t, alpha)
    norm = t.sqrt(t.add(tail, _square(t, alpha)))
    beta = t.where(t.ge(real, 0), t.neg(norm), norm)
    stays = t.logical_and(t.eq(tail, 0), t.eq(_square(t, alpha), t.mul(real, real)))
    dtype = t.dtype(a)
    wide = t.to(t.where(stays, t.ones_like(beta), beta), dtype)
    tau = t.where(stays, t.zeros_like(alpha), t.div(t.sub(wide, alpha), wide))
    scale = t.sub(alpha, wide)
    scale = t.where(t.logical_or(stays, t.eq(scale, 0)), t.ones_like(scale), scale)
    vector = t.where(t.eq(row, at), t.ones_like(column), t.div(rest, t.unsqueeze(scale, -1)))
    return t.where(stays, alpha, t.to(beta, dtype)), tau, vector


def _square(t: TorchBuilder, x: SSAValue) -> SSAValue:
    """Compute |x|²."""
    if not t.dtype(x).is_complex:
        return t.mul(x, x)
    parts = t.view_as_real(x)
    return t.sum(t.mul(parts, parts), [-1])


def reflect(t: TorchBuilder, x: SSAValue, vector: SSAValue, tau: SSAValue) -> SSAValue:
    """Compute x - τ v (vᴴ x)."""
    along = t.squeeze(t.matmul(t.unsqueeze(conjugate(t, vector), -2), x), -2)
    return t.sub(x, t.mul(outer(t, vector, along), t.unsqueeze(t.unsqueeze(tau, -1), -1)))


def multiply(t: TorchBuilder, packed: SSAValue, taus: SSAValue, x: SSAValue, is_adjoint: bool = False) -> SSAValue:
    """Multiply x from the left by Q, the product of the reflections in `packed`, or by its adjoint."""
    count: Any = t.shape(taus)[-1]
    row = positions(t, t.shape(packed)[-2])

    def body(i: SSAValue, x: SSAValue) -> list[SSAValue]:
        k = i if is_adjoint else minus(t, minus(t, count, 1), i)
        column, tau = t.select(packed, -1, k), t.select(taus, -1, k)
        below = t.where(t.gt(row, k), column, t.zeros_like(column))
        vector = t.where(t.eq(row, k), t.ones_like(column), below)
        return [reflect(t, x, vector, conjugate(t, tau) if is_adjoint else tau)]

    return repeat(t, count, [x], body)[0]


def identity(t: TorchBuilder, x: SSAValue, columns: Any) -> SSAValue:
    """Make the first columns of the identity, as many for each matrix of the batch of x."""
    *batch, rows, _ = t.shape(x)
    return t.clone(t.expand(t.eye(rows, columns, dtype=t.dtype(x)), [*batch, rows, columns]))


def qr(t: TorchBuilder, x: SSAValue, complete: bool = False) -> tuple[SSAValue, SSAValue]:
    """Factor x = Q R, with as many columns in Q as the smaller side of x, or in all as many as rows."""
    rows, columns = t.shape(x)[-2:]
    kept = rows if complete else least(t, rows, columns)
    packed, taus = factor(t, x)
    return multiply(t, packed, taus, identity(t, x, kept)), t.triu(t.slice(packed, -2, 0, kept))
