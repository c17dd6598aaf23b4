"""Shapes of matrix functions."""

from __future__ import annotations

from typing import Any

from flambeau.infer.promotion import COMPLEX_OF
from flambeau.infer.rules import Dim, InferenceError, Meta, arithmetic, broadcast, infer_rule
from flambeau.ir import dtypes


def _matrices(*operands: Meta) -> None:
    """Refuse what are no matrices of one dtype that factors can be of."""
    for x in operands:
        _of_rank_two(x)
        if x.dtype not in (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128):
            raise InferenceError(f"it takes matrices of float32, float64, complex64 or complex128, not of {x.dtype}")
        if x.dtype != operands[0].dtype:
            raise InferenceError(f"it takes matrices of one dtype, not of {operands[0].dtype} and {x.dtype}")


def _of_rank_two(x: Meta) -> None:
    if x.rank < 2:
        raise InferenceError(f"it takes matrices, which have at least 2 dims, not a tensor of shape {list(x.shape)}")


def _square(*operands: Meta) -> None:
    _matrices(*operands)
    for x in operands:
        if None not in x.shape[-2:] and x.shape[-1] != x.shape[-2]:
            raise InferenceError(f"it takes square matrices, and these are {x.shape[-2]} by {x.shape[-1]}")


def _system(a: Meta, b: Meta, left: bool = True) -> None:
    """Refuse a x = b, or x a = b, if the sizes of a and b do not agree."""
    _square(a)
    _matrices(a, b)
    size, other = a.shape[-1], b.shape[-2 if left else -1]
    if None not in (size, other) and size != other:
        side = "rows" if left else "columns"
        raise InferenceError(f"the right-hand side has {other} {side}, and the matrix is {size} by {size}")


def _numbers_of(x: Meta, given: Meta, shape: tuple[Dim, ...], what: str) -> None:
    """Refuse what comes beside factors, if it has another shape than theirs says."""
    if given.rank != len(shape) or any(None not in (m, n) and m != n for m, n in zip(given.shape, shape, strict=True)):
        raise InferenceError(
            f"{what} of matrices of shape {list(x.shape)} have shape {list(shape)}, not {list(given.shape)}"
        )


@infer_rule("aten.linalg_det")
def det(x: Meta) -> Meta:
    _square(x)
    return Meta(x.shape[:-2], x.dtype)


@infer_rule("aten._linalg_det")
def det_with_factors(x: Meta) -> tuple[Meta, Meta, Meta]:
    return det(x), x, Meta(x.shape[:-1], dtypes.int32)


@infer_rule("aten.linalg_slogdet")
def slogdet(x: Meta) -> tuple[Meta, Meta]:
    _square(x)
    return det(x), Meta(x.shape[:-2], x.dtype.real)


@infer_rule("aten.linalg_qr")
def qr(x: Meta, mode: str) -> tuple[Meta, Meta]:
    _matrices(x)
    rows, columns = x.shape[-2:]
    least: Dim = None if rows is None or columns is None else min(rows, columns)
    inner = rows if mode == "complete" else least
    q = Meta((0,) if mode == "r" else (*x.shape[:-1], inner), x.dtype)
    return q, Meta((*x.shape[:-2], inner, columns), x.dtype)


def _nothing(x: Meta) -> Meta:
    """Describe the empty tensor that stands for a result which was not asked for."""
    return Meta((0,), x.dtype)


def _info(x: Meta) -> Meta:
    return Meta(x.shape[:-2], dtypes.int32)


def _least(x: Meta) -> Dim:
    rows, columns = x.shape[-2:]
    return None if rows is None or columns is None else min(rows, columns)


def _batch(*matrices: Meta) -> tuple[Dim, ...]:
    return broadcast(*(m.shape[:-2] for m in matrices))


@infer_rule("aten._linalg_slogdet")
def slogdet_with_factors(x: Meta) -> tuple[Meta, Meta, Meta, Meta]:
    return *slogdet(x), x, Meta(x.shape[:-1], dtypes.int32)


@infer_rule("aten._linalg_check_errors")
def check_errors(info: Meta, name: str, is_matrix: bool) -> tuple[()]:
    return ()


@infer_rule("aten.linalg_lu_factor_ex")
def lu_factor_ex(x: Meta, pivot: bool, check: bool) -> tuple[Meta, Meta, Meta]:
    _matrices(x)
    return x, Meta((*x.shape[:-2], _least(x)), dtypes.int32), _info(x)


def _halves(x: Meta) -> tuple[Meta, Meta]:
    return (
        Meta((*x.shape[:-1], _least(x)), x.dtype),
        Meta((*x.shape[:-2], _least(x), x.shape[-1]), x.dtype),
    )


@infer_rule("aten.linalg_lu")
def lu(x: Meta, pivot: bool) -> tuple[Meta, Meta, Meta]:
    _matrices(x)
    return (Meta((*x.shape[:-1], x.shape[-2]), x.dtype) if pivot else _nothing(x)), *_halves(x)


@infer_rule("aten.lu_unpack")
def lu_unpack(x: Meta, pivots: Meta, with_data: bool, with_pivots: bool) -> tuple[Meta, Meta, Meta]:
    _of_rank_two(x)
    if with_pivots:
        _numbers_of(x, pivots, (*x.shape[:-2], _least(x)), "pivots")
        if pivots.dtype != dtypes.int32:
            raise InferenceError(f"pivots are int32, not {pivots.dtype}")
    permutation = Meta((*x.shape[:-1], x.shape[-2]), x.dtype) if with_pivots else _nothing(x)
    return permutation, *(_halves(x) if with_data else (_nothing(x), _nothing(x)))


@infer_rule("aten.linalg_inv_ex")
def inv_ex(x: Meta, check: bool) -> tuple[Meta, Meta]:
    _square(x)
    return x, _info(x)


@infer_rule("aten._linalg_solve_ex")
def solve_ex(a: Meta, b: Meta, left: bool, check: bool) -> tuple[Meta, Meta, Meta, Meta]:
    is_vector = b.rank == 1 or (
        b.rank == a.rank - 1 and all(m in (n, None) or n is None for m, n in zip(a.shape, b.shape, strict=False))
    )
    _square(a)
    if is_vector and not left:
        raise InferenceError("a right-hand side on the right is a matrix, not a vector")
    if not is_vector:
        _system(a, b, left)
    elif b.dtype != a.dtype:
        raise InferenceError(f"it takes tensors of one dtype, not of {a.dtype} and {b.dtype}")
    shape = broadcast(a.shape[:-1], b.shape) if is_vector else (*_batch(a, b), *b.shape[-2:])
    return Meta(shape, b.dtype), a, Meta(a.shape[:-1], dtypes.int32), _info(a)


@infer_rule("aten.linalg_lu_solve")
def lu_solve(packed: Meta, pivots: Meta, b: Meta, left: bool, adjoint: bool) -> Meta:
    _system(packed, b, left)
    _numbers_of(packed, pivots, packed.shape[:-1], "pivots")
    if pivots.dtype != dtypes.int32:
        raise InferenceError(f"pivots are int32, not {pivots.dtype}")
    return Meta((*_batch(packed, b), *b.shape[-2:]), b.dtype)


@infer_rule("aten.linalg_ldl_factor_ex")
def ldl_factor_ex(x: Meta, hermitian: bool, check: bool) -> tuple[Meta, Meta, Meta]:
    _square(x)
    return x, Meta(x.shape[:-1], dtypes.int32), _info(x)


@infer_rule("aten.linalg_ldl_solve")
def ldl_solve(packed: Meta, pivots: Meta, b: Meta, hermitian: bool) -> Meta:
    _system(packed, b)
    _numbers_of(packed, pivots, packed.shape[:-1], "pivots")
    return Meta((*_batch(packed, b), *b.shape[-2:]), b.dtype)


@infer_rule("aten.linalg_solve_triangular")
def solve_triangular(a: Meta, b: Meta, upper: bool, left: bool, unit: bool) -> Meta:
    _system(a, b, left)
    return Meta((*_batch(a, b), *b.shape[-2:]), b.dtype)


@infer_rule("aten.triangular_solve")
def triangular_solve(b: Meta, a: Meta, upper: bool, transposed: bool, unit: bool) -> tuple[Meta, Meta]:
    _system(a, b)
    batch = _batch(a, b)
    return Meta((*batch, *b.shape[-2:]), b.dtype), Meta((*batch, *a.shape[-2:]), a.dtype)


@infer_rule("aten.linalg_cholesky_ex")
def cholesky_ex(x: Meta, upper: bool, check: bool) -> tuple[Meta, Meta]:
    _square(x)
    return x, _info(x)


@infer_rule("aten.cholesky_solve")
def cholesky_solve(b: Meta, factor: Meta, upper: bool) -> Meta:
    _system(factor, b)
    return Meta((*_batch(factor, b), *b.shape[-2:]), b.dtype)


@infer_rule("aten.geqrf")
def geqrf(x: Meta) -> tuple[Meta, Meta]:
    _matrices(x)
    return x, Meta((*x.shape[:-2], _least(x)), x.dtype)


@infer_rule("aten.ormqr")
def ormqr(packed: Meta, taus: Meta, x: Meta, left: bool, transposed: bool) -> Meta:
    _matrices(packed, x)
    _reflections(packed, taus)
    size, count = x.shape[-2 if left else -1], taus.shape[-1]
    if None not in (size, packed.shape[-2]) and packed.shape[-2] != size:
        raise InferenceError(f"reflections of {packed.shape[-2]} rows do not fit matrices of shape {list(x.shape)}")
    if None not in (size, count, packed.shape[-1]) and count != min(size, packed.shape[-1]):  # type: ignore[type-var]
        raise InferenceError(f"{count} factors tau do not fit reflections of shape {list(packed.shape)}")
    return x


@infer_rule("aten._linalg_eigh")
def eigh(x: Meta, triangle: str, with_vectors: bool) -> tuple[Meta, Meta]:
    _square(x)
    if triangle.upper() not in ("L", "U"):
        raise InferenceError(f"the triangle that is read is 'L' or 'U', not {triangle!r}")
    return Meta(x.shape[:-1], x.dtype.real), x if with_vectors else _nothing(x)


@infer_rule("aten.linalg_eigvals")
def eigvals(x: Meta) -> Meta:
    _square(x)
    return Meta(x.shape[:-1], COMPLEX_OF.get(x.dtype, x.dtype))


@infer_rule("aten.linalg_eig")
def eig(x: Meta) -> tuple[Meta, Meta]:
    values = eigvals(x)
    return values, Meta(x.shape, values.dtype)


@infer_rule("aten._linalg_svd")
def svd(x: Meta, full: bool, with_vectors: bool, driver: str | None) -> tuple[Meta, Meta, Meta]:
    _matrices(x)
    *batch, rows, columns = x.shape
    least = _least(x)
    values = Meta((*batch, least), x.dtype.real)
    if not with_vectors:
        return _nothing(x), values, _nothing(x)
    u = Meta((*batch, rows, rows if full else least), x.dtype)
    return u, values, Meta((*batch, columns if full else least, columns), x.dtype)


@infer_rule("aten.linalg_pinv.atol_rtol_tensor")
def pinv(x: Meta, atol: Meta | None, rtol: Meta | None, hermitian: bool) -> Meta:
    _square(x) if hermitian else _matrices(x)
    if 0 in x.shape[-2:]:
        return Meta((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype)
    batch = broadcast(x.shape[:-2], *(tolerance.shape for tolerance in (atol, rtol) if tolerance is not None))
    return Meta((*batch, x.shape[-1], x.shape[-2]), x.dtype)


@infer_rule("aten.linalg_householder_product")
def householder_product(x: Meta, taus: Meta) -> Meta:
    _matrices(x)
    _reflections(x, taus)
    if None not in x.shape[-2:] and x.shape[-2] < x.shape[-1]:  # type: ignore[operator]
        raise InferenceError(f"it takes at least as many rows as columns, and these are {x.shape[-2]} by {x.shape[-1]}")
    return x


def _reflections(x: Meta, taus: Meta) -> None:
    count, least = taus.shape[-1] if taus.rank else None, _least(x)
    _numbers_of(x, taus, (*x.shape[:-2], count), "the factors tau")
    if taus.dtype != x.dtype:
        raise InferenceError(f"the factors tau are {x.dtype} as the matrices, not {taus.dtype}")
    if None not in (count, least) and count > least:  # type: ignore[operator]
        raise InferenceError(f"matrices of shape {list(x.shape)} hold at most {least} reflections, not {count}")


@infer_rule("aten.cholesky", "aten.cholesky_inverse", "aten.linalg_matrix_exp", "aten.linalg_inv")
def same_square(x: Meta, *_: Any) -> Meta:
    _square(x)
    return x


infer_rule("aten.linalg_cross")(lambda x, y, *_: arithmetic(x, y))
