"""Linear algebra: factors of matrices, and what is computed by them."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.types import INT
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose import bunch_kaufman, elimination, householder, jacobi, schur
from flambeau.passes.decompose.elimination import adjoint
from flambeau.passes.decompose.rules import (
    broadcast_sizes,
    decomposition,
    least,
    minus,
    most,
    repeat,
    require_element,
)

Values = tuple[SSAValue, ...]


def _nothing(t: TorchBuilder, x: SSAValue, dtype: Any = None) -> SSAValue:
    """Make the empty tensor that stands for a result which was not asked for."""
    return t.zeros([0], dtype=dtype or t.dtype(x))


def _check(t: TorchBuilder, info: SSAValue, name: str, reason: str) -> None:
    require_element(t, t.all(t.eq(info, 0)), f"{name}: {reason}")


_LOOK_AT_SIZES = ("torch.bind_symbolic_shape", "torch.aten.size.int")


def _refuse_factors(t: TorchBuilder, *numbers: int) -> None:
    """Refuse a program that uses these results: PyTorch factors x or its transpose, by how x lies in memory."""
    assert t.before is not None
    users = [use.operation for i in numbers for use in t.before.results[i].uses]
    if any(user.name not in _LOOK_AT_SIZES for user in users):
        raise Unsupported("the factors of a determinant, as its gradient uses them")


# --- Elimination ---


@decomposition("aten._linalg_check_errors")
def check_errors(t: TorchBuilder, info: SSAValue, name: str, is_matrix: bool) -> Values:
    """Raise when the program runs, where eager PyTorch raises: at a singular or not positive-definite matrix."""
    _check(t, info, name, "a matrix is singular, or not positive-definite")
    return ()


@decomposition("aten.linalg_lu_factor_ex")
def lu_factor_ex(t: TorchBuilder, x: SSAValue, pivot: bool, check: bool) -> Values:
    packed, pivots, _, info = elimination.lu(t, x, pivot)
    if check:
        _check(t, info, "linalg.lu_factor_ex", "a diagonal element of U is zero")
    return packed, pivots, info


@decomposition("aten.linalg_lu")
def lu(t: TorchBuilder, x: SSAValue, pivot: bool) -> Values:
    packed, _, order, _ = elimination.lu(t, x, pivot)
    return (_permutation(t, order, t.dtype(x)) if pivot else _nothing(t, x)), *_halves(t, packed)


def _permutation(t: TorchBuilder, order: SSAValue, dtype: dtypes.DType) -> SSAValue:
    """Make the matrix P with x = P L U, whose column j has a 1 in row `order[j]`."""
    row = elimination.positions(t, t.shape(order)[-1])
    return t.to(t.eq(t.unsqueeze(row, -1), t.unsqueeze(order, -2)), dtype)


def _halves(t: TorchBuilder, packed: SSAValue) -> tuple[SSAValue, SSAValue]:
    rows, columns = t.shape(packed)[-2:]
    count = least(t, rows, columns)
    low = t.tril(t.slice(packed, -1, 0, count), -1)
    return t.add(low, t.eye(rows, count, dtype=t.dtype(packed))), t.triu(t.slice(packed, -2, 0, count))


@decomposition("aten.lu_unpack")
def lu_unpack(t: TorchBuilder, packed: SSAValue, pivots: SSAValue, with_data: bool, with_pivots: bool) -> Values:
    nothing = _nothing(t, packed)
    order = elimination.order_of(t, pivots, t.shape(packed)[-2]) if with_pivots else None
    permutation = nothing if order is None else _permutation(t, order, t.dtype(packed))
    return permutation, *(_halves(t, packed) if with_data else (nothing, nothing))


@decomposition("aten._linalg_det")
def det_with_factors(t: TorchBuilder, x: SSAValue) -> Values:
    _refuse_factors(t, 1, 2)
    packed, pivots, _, _ = elimination.lu(t, x)
    diagonal, sign = _diagonal_and_sign(t, packed, pivots)
    return t.mul(t.prod(diagonal, -1), sign), packed, pivots


@decomposition("aten._linalg_slogdet")
def slogdet_with_factors(t: TorchBuilder, x: SSAValue) -> Values:
    _refuse_factors(t, 2, 3)
    packed, pivots, _, _ = elimination.lu(t, x)
    diagonal, sign = _diagonal_and_sign(t, packed, pivots)
    return t.mul(t.prod(t.sgn(diagonal), -1), sign), t.sum(t.log(t.abs(diagonal)), [-1]), packed, pivots


def _diagonal_and_sign(t: TorchBuilder, packed: SSAValue, pivots: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Give U's diagonal, and the sign of the order of rows: -1 for an odd number of exchanges."""
    place = elimination.positions(t, t.shape(pivots)[-1])
    moved = t.to(t.ne(pivots, t.add(place, 1)), dtypes.int64)
    sign = t.add(t.mul(t.remainder(t.sum(moved, [-1]), 2), -2), 1)
    return t.diagonal(packed, 0, -2, -1), t.to(sign, t.dtype(packed))


@decomposition("aten.linalg_det")
def det(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return t.call("aten._linalg_det", x)[0]


@decomposition("aten.linalg_slogdet")
def slogdet(t: TorchBuilder, x: SSAValue) -> Values:
    return t.call("aten._linalg_slogdet", x)[:2]


@decomposition("aten.linalg_inv_ex")
def inv_ex(t: TorchBuilder, x: SSAValue, check: bool) -> Values:
    packed, _, order, info = elimination.lu(t, x)
    if check:
        _check(t, info, "linalg.inv_ex", "a matrix is singular")
    return elimination.lu_solve(t, packed, order, householder.identity(t, x, t.shape(x)[-1])), info


@decomposition("aten.linalg_inv")
def inv(t: TorchBuilder, x: SSAValue) -> SSAValue:
    result, info = inv_ex(t, x, False)
    _check(t, info, "linalg.inv", "a matrix is singular")
    return result


@decomposition("aten._linalg_solve_ex")
def solve_ex(t: TorchBuilder, a: SSAValue, b: SSAValue, left: bool, check: bool) -> Values:
    is_vector = len(t.shape(b)) == 1 or (len(t.shape(b)) == len(t.shape(a)) - 1 and _fits(t, a, b))
    b = t.unsqueeze(b, -1) if is_vector else b
    packed, pivots, order, info = elimination.lu(t, a)
    if check:
        _check(t, info, "linalg.solve_ex", "a matrix is singular")
    x = _solve_by_factors(t, packed, order, b, left, False)
    return t.squeeze(x, -1) if is_vector else x, packed, pivots, info


def _fits(t: TorchBuilder, a: SSAValue, b: SSAValue) -> bool:
    """Tell whether b is a batch of vectors for the matrices a; sizes of the run time are taken to fit."""
    pairs = zip(t.shape(a)[:-1], t.shape(b), strict=True)
    return all(m == n for m, n in pairs if isinstance(m, int) and isinstance(n, int))


def _same_batch(t: TorchBuilder, a: SSAValue, b: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Broadcast the batch dims of two stacks of matrices."""
    first, second = t.shape(a)[:-2], t.shape(b)[:-2]
    rank = max(len(first), len(second))
    batch = broadcast_sizes([1] * (rank - len(first)) + first, [1] * (rank - len(second)) + second)
    grown = (t.clone(t.expand(x, [*batch, *t.shape(x)[-2:]])) if batch else x for x in (a, b))
    one, other = grown
    return one, other


@decomposition("aten.linalg_lu_solve")
def lu_solve(
    t: TorchBuilder, packed: SSAValue, pivots: SSAValue, b: SSAValue, left: bool, is_adjoint: bool
) -> SSAValue:
    return _solve_by_factors(t, packed, elimination.order_of(t, pivots, t.shape(packed)[-2]), b, left, is_adjoint)


def _solve_by_factors(
    t: TorchBuilder, packed: SSAValue, order: SSAValue, b: SSAValue, left: bool, is_adjoint: bool
) -> SSAValue:
    """Solve A X = b, or X A = b, by the LU factors of A and the order of its rows; of A's adjoint if asked for."""
    b = b if left else adjoint(t, b)
    packed, b = _same_batch(t, packed, b)
    if 0 not in t.shape(b):
        b = elimination.lu_solve(t, packed, t.expand(order, t.shape(packed)[:-1]), b, is_adjoint == left)
    return b if left else adjoint(t, b)


@decomposition("aten.linalg_solve_triangular")
def solve_triangular(t: TorchBuilder, a: SSAValue, b: SSAValue, upper: bool, left: bool, unit: bool) -> SSAValue:
    if not left:
        a, b, upper = t.transpose(a, -2, -1), t.transpose(b, -2, -1), not upper
    a, b = _same_batch(t, a, b)
    x = elimination.substitute(t, a, b, upper, unit)
    return x if left else t.transpose(x, -2, -1)


@decomposition("aten.triangular_solve")
def triangular_solve(t: TorchBuilder, b: SSAValue, a: SSAValue, upper: bool, transposed: bool, unit: bool) -> Values:
    a, b = _same_batch(t, a, b)
    turned = t.transpose(a, -2, -1) if transposed else a
    return elimination.substitute(t, turned, b, upper != transposed, unit), a


@decomposition("aten.linalg_cholesky_ex")
def cholesky_ex(t: TorchBuilder, x: SSAValue, upper: bool, check: bool) -> Values:
    factor, info = elimination.cholesky(t, adjoint(t, x) if upper else x)
    if check:
        _check(t, info, "linalg.cholesky_ex", "a matrix is not positive-definite")
    return adjoint(t, factor) if upper else factor, info


@decomposition("aten.cholesky")
def cholesky(t: TorchBuilder, x: SSAValue, upper: bool) -> SSAValue:
    factor, info = cholesky_ex(t, x, upper, False)
    _check(t, info, "cholesky", "a matrix is not positive-definite")
    return factor


@decomposition("aten.cholesky_solve")
def cholesky_solve(t: TorchBuilder, b: SSAValue, factor: SSAValue, upper: bool) -> SSAValue:
    factor, b = _same_batch(t, factor, b)
    turned = adjoint(t, factor)
    low, high = (turned, factor) if upper else (factor, turned)
    return elimination.substitute(t, high, elimination.substitute(t, low, b, False), True)


@decomposition("aten.cholesky_inverse")
def cholesky_inverse(t: TorchBuilder, factor: SSAValue, upper: bool) -> SSAValue:
    return cholesky_solve(t, householder.identity(t, factor, t.shape(factor)[-1]), factor, upper)


@decomposition("aten.linalg_ldl_factor_ex")
def ldl_factor_ex(t: TorchBuilder, x: SSAValue, hermitian: bool, check: bool) -> Values:
    packed, pivots, info = bunch_kaufman.factor(t, x, hermitian)
    if check:
        _check(t, info, "linalg.ldl_factor_ex", "a diagonal block of D is zero")
    return packed, pivots, info


@decomposition("aten.linalg_ldl_solve")
def ldl_solve(t: TorchBuilder, packed: SSAValue, pivots: SSAValue, b: SSAValue, hermitian: bool) -> SSAValue:
    packed, b = _same_batch(t, packed, b)
    if 0 in t.shape(b):
        return b
    return bunch_kaufman.solve(t, packed, t.expand(pivots, t.shape(packed)[:-1]), b, hermitian)


# --- Reflections ---


@decomposition("aten.geqrf")
def geqrf(t: TorchBuilder, x: SSAValue) -> Values:
    return householder.factor(t, x)


@decomposition("aten.linalg_householder_product")
def householder_product(t: TorchBuilder, packed: SSAValue, taus: SSAValue) -> SSAValue:
    return householder.multiply(t, packed, taus, householder.identity(t, packed, t.shape(packed)[-1]))


@decomposition("aten.ormqr")
def ormqr(t: TorchBuilder, packed: SSAValue, taus: SSAValue, x: SSAValue, left: bool, transposed: bool) -> SSAValue:
    if left:
        return householder.multiply(t, packed, taus, x, transposed)
    return adjoint(t, householder.multiply(t, packed, taus, adjoint(t, x), not transposed))


@decomposition("aten.linalg_qr")
def qr(t: TorchBuilder, x: SSAValue, mode: str) -> Values:
    if mode == "r":
        rows, columns = t.shape(x)[-2:]
        packed, _ = householder.factor(t, x)
        return _nothing(t, x), t.triu(t.slice(packed, -2, 0, least(t, rows, columns)))
    return householder.qr(t, x, mode == "complete")


# --- Rotations ---


@decomposition("aten._linalg_eigh")
def eigh(t: TorchBuilder, x: SSAValue, triangle: str, with_vectors: bool) -> Values:
    values, vectors = jacobi.eigh(t, adjoint(t, x) if triangle.upper() == "U" else x)
    return values, vectors if with_vectors else _nothing(t, x)


@decomposition("aten.linalg_eig")
def eig(t: TorchBuilder, x: SSAValue) -> Values:
    form, z = schur.schur(t, schur.as_complex(t, x), "linalg.eig")
    return t.diagonal(form, 0, -2, -1), schur.eigenvectors(t, form, z)


@decomposition("aten.linalg_eigvals")
def eigvals(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return t.diagonal(schur.schur(t, schur.as_complex(t, x), "linalg.eigvals")[0], 0, -2, -1)


@decomposition("aten._linalg_svd")
def svd(t: TorchBuilder, x: SSAValue, full: bool, with_vectors: bool, driver: Any) -> Values:
    """Rotate the columns of the taller of x and xᴴ; a QR factorisation makes what is orthogonal orthonormal.

    That gives vectors also where singular values are zero, and as many as a full decomposition has. Where it is not
    known which one is taller, it is x: of more columns than rows, those that are too many become zero.
    """
    rows, columns = t.shape(x)[-2:]
    is_wide = isinstance(rows, int) and isinstance(columns, int) and rows < columns
    if is_wide:
        x, rows, columns = adjoint(t, x), columns, rows
    count = least(t, rows, columns)
    a, lengths, v = jacobi.orthogonal_columns(t, x)
    lengths = t.slice(lengths, -1, 0, count)
    if not with_vectors:
        return _nothing(t, x), lengths, _nothing(t, x)
    q, r = householder.qr(t, a, full)
    diagonal = t.diagonal(r, 0, -2, -1)
    turn = t.where(t.eq(diagonal, 0), t.ones_like(diagonal), t.sgn(diagonal))
    if full:
        missing = t.ones([*t.shape(turn)[:-1], minus(t, rows, count)], dtype=t.dtype(turn))
        turn = t.cat([turn, missing], -1)
    else:
        v = t.slice(v, -1, 0, count)
    u = t.mul(q, t.unsqueeze(turn, -2))
    return (v, lengths, adjoint(t, u)) if is_wide else (u, lengths, adjoint(t, v))


@decomposition("aten.linalg_pinv.atol_rtol_tensor")
def pinv(t: TorchBuilder, x: SSAValue, atol: SSAValue | None, rtol: SSAValue | None, hermitian: bool) -> SSAValue:
    """Invert what is not zero within a tolerance: singular values, or eigenvalues of a Hermitian matrix."""
    if hermitian:
        values, u = jacobi.eigh(t, x)
        size, vh = t.abs(values), adjoint(t, u)
    else:
        u, size, vh = svd(t, x, False, True, None)
        values = size
    if 0 in t.shape(size):
        return t.matmul(adjoint(t, vh), adjoint(t, u))
    largest = t.amax(size, [-1], True)
    epsilon = 2.0**-52 if t.dtype(size) is dtypes.float64 else 2.0**-23
    usual = t.mul(t.full_like(largest, most(t, *t.shape(x)[-2:])), epsilon)
    absolute = None if atol is None else t.unsqueeze(t.to(atol, t.dtype(size)), -1)
    if rtol is not None:
        relative = t.unsqueeze(t.to(rtol, t.dtype(size)), -1)
    elif absolute is not None:
        relative = t.where(t.gt(absolute, 0), t.zeros_like(usual), usual)
    else:
        relative = usual
    bound = t.mul(largest, relative)
    bound = bound if absolute is None else t.maximum(bound, absolute)
    counts = t.gt(size, bound)
    inverse = t.where(counts, t.reciprocal(t.where(counts, values, t.ones_like(values))), t.zeros_like(values))
    return t.matmul(t.mul(adjoint(t, vh), t.unsqueeze(inverse, -2)), adjoint(t, u))


# --- Functions of matrices ---

TERMS = 18
"""How many terms of the series of exp are summed: enough for matrices of a norm of at most 3 in f32, and 1 in f64."""


@decomposition("aten.linalg_matrix_exp")
def matrix_exp(t: TorchBuilder, x: SSAValue) -> SSAValue:
    """Sum the series for x / 2ˢ, small enough for each matrix, and square the result s times.

    What is squared is y = exp - 1, by y² + 2y: the squares of small differences from 1 lose no digits.
    """
    if 0 in t.shape(x):
        return t.clone(x)
    norm = t.amax(t.sum(t.abs(x), [-2]), [-1])
    largest = 1.0 if t.dtype(x).real is dtypes.float64 else 3.0
    powers = t.clamp(t.ceil(t.log2(t.clamp(t.div(norm, largest), 1.0))), 0, 64)
    powers = t.where(t.eq(powers, powers), powers, t.zeros_like(powers))
    each = t.unsqueeze(t.unsqueeze(powers, -1), -1)
    scaled = t.mul(x, t.exp2(t.neg(each)))
    unit = householder.identity(t, x, t.shape(x)[-1])
    series = unit
    for k in range(TERMS, 1, -1):
        series = t.add(unit, t.mul(t.matmul(scaled, series), 1 / k))
    squarings = t.to(each, dtypes.int64)
    times = t.op("aten.Int.Tensor", (t.amax(squarings),), (INT,))[0]

    def body(i: SSAValue, y: SSAValue) -> list[SSAValue]:
        return [t.where(t.gt(squarings, i), t.add(t.matmul(y, y), t.mul(y, 2.0)), y)]

    return t.add(repeat(t, times, [t.matmul(scaled, series)], body)[0], unit)
