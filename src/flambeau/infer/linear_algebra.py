"""Shapes of matrix functions."""

from __future__ import annotations

from flambeau.infer.rules import Dim, Meta, arithmetic, broadcast, infer_rule, same
from flambeau.ir import dtypes


@infer_rule("aten.linalg_det")
def det(x: Meta) -> Meta:
    return Meta(x.shape[:-2], x.dtype)


@infer_rule("aten._linalg_det")
def det_with_factors(x: Meta) -> tuple[Meta, Meta, Meta]:
    return det(x), x, Meta(x.shape[:-1], dtypes.int32)


@infer_rule("aten.linalg_slogdet")
def slogdet(x: Meta) -> tuple[Meta, Meta]:
    return det(x), Meta(x.shape[:-2], x.dtype.real)


@infer_rule("aten.linalg_qr")
def qr(x: Meta, mode: str) -> tuple[Meta, Meta]:
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
    return x, Meta((*x.shape[:-2], _least(x)), dtypes.int32), _info(x)


def _halves(x: Meta) -> tuple[Meta, Meta]:
    return (
        Meta((*x.shape[:-1], _least(x)), x.dtype),
        Meta((*x.shape[:-2], _least(x), x.shape[-1]), x.dtype),
    )


@infer_rule("aten.linalg_lu")
def lu(x: Meta, pivot: bool) -> tuple[Meta, Meta, Meta]:
    return (Meta((*x.shape[:-1], x.shape[-2]), x.dtype) if pivot else _nothing(x)), *_halves(x)


@infer_rule("aten.lu_unpack")
def lu_unpack(x: Meta, pivots: Meta, with_data: bool, with_pivots: bool) -> tuple[Meta, Meta, Meta]:
    permutation = Meta((*x.shape[:-1], x.shape[-2]), x.dtype) if with_pivots else _nothing(x)
    return permutation, *(_halves(x) if with_data else (_nothing(x), _nothing(x)))


@infer_rule("aten.linalg_inv_ex")
def inv_ex(x: Meta, check: bool) -> tuple[Meta, Meta]:
    return x, _info(x)


@infer_rule("aten._linalg_solve_ex")
def solve_ex(a: Meta, b: Meta, left: bool, check: bool) -> tuple[Meta, Meta, Meta, Meta]:
    is_vector = b.rank == 1 or (
        b.rank == a.rank - 1 and all(m in (n, None) or n is None for m, n in zip(a.shape, b.shape, strict=False))
    )
    shape = broadcast(a.shape[:-1], b.shape) if is_vector else (*_batch(a, b), *b.shape[-2:])
    return Meta(shape, b.dtype), a, Meta(a.shape[:-1], dtypes.int32), _info(a)


@infer_rule("aten.linalg_lu_solve")
def lu_solve(packed: Meta, pivots: Meta, b: Meta, left: bool, adjoint: bool) -> Meta:
    return Meta((*_batch(packed, b), *b.shape[-2:]), b.dtype)


@infer_rule("aten.linalg_solve_triangular")
def solve_triangular(a: Meta, b: Meta, upper: bool, left: bool, unit: bool) -> Meta:
    return Meta((*_batch(a, b), *b.shape[-2:]), b.dtype)


@infer_rule("aten.triangular_solve")
def triangular_solve(b: Meta, a: Meta, upper: bool, transposed: bool, unit: bool) -> tuple[Meta, Meta]:
    batch = _batch(a, b)
    return Meta((*batch, *b.shape[-2:]), b.dtype), Meta((*batch, *a.shape[-2:]), a.dtype)


@infer_rule("aten.linalg_cholesky_ex")
def cholesky_ex(x: Meta, upper: bool, check: bool) -> tuple[Meta, Meta]:
    return x, _info(x)


@infer_rule("aten.cholesky_solve")
def cholesky_solve(b: Meta, factor: Meta, upper: bool) -> Meta:
    return Meta((*_batch(factor, b), *b.shape[-2:]), b.dtype)


@infer_rule("aten.geqrf")
def geqrf(x: Meta) -> tuple[Meta, Meta]:
    return x, Meta((*x.shape[:-2], _least(x)), x.dtype)


@infer_rule("aten.ormqr")
def ormqr(packed: Meta, taus: Meta, x: Meta, left: bool, transposed: bool) -> Meta:
    return x


@infer_rule("aten._linalg_eigh")
def eigh(x: Meta, triangle: str, with_vectors: bool) -> tuple[Meta, Meta]:
    return Meta(x.shape[:-1], x.dtype.real), x if with_vectors else _nothing(x)


@infer_rule("aten._linalg_svd")
def svd(x: Meta, full: bool, with_vectors: bool, driver: str | None) -> tuple[Meta, Meta, Meta]:
    *batch, rows, columns = x.shape
    least = _least(x)
    values = Meta((*batch, least), x.dtype.real)
    if not with_vectors:
        return _nothing(x), values, _nothing(x)
    u = Meta((*batch, rows, rows if full else least), x.dtype)
    return u, values, Meta((*batch, columns if full else least, columns), x.dtype)


@infer_rule("aten.linalg_pinv.atol_rtol_tensor")
def pinv(x: Meta, atol: Meta | None, rtol: Meta | None, hermitian: bool) -> Meta:
    return Meta((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype)


infer_rule("aten.cholesky", "aten.cholesky_inverse", "aten.linalg_householder_product", "aten.linalg_matrix_exp")(
    lambda x, *_: x
)
infer_rule("aten.linalg_inv")(same)
infer_rule("aten.linalg_cross")(lambda x, y, *_: arithmetic(x, y))
