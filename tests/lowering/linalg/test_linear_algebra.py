"""Factors of matrices, and what is computed by them, against eager PyTorch: batched, real and complex."""

from __future__ import annotations

from typing import Any

import pytest
import support
import torch
from support import check_all
from torch import Tensor

import flambeau
from flambeau.diagnostics import CompileError
from flambeau.engines.errors import RunError

DTYPES = [torch.float32, torch.complex64]
REAL_FIRST = [torch.float32, pytest.param(torch.complex64, marks=pytest.mark.wide)]
"""For programs that take seconds to compile: complex numbers go the same way."""
CLOSE: dict[str, Any] = {"rtol": 1e-3, "atol": 2e-4}


def matrices(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Make two square matrices with a right-hand side, and a positive definite matrix of each."""
    if support.TARGET == "tosa" and dtype.is_complex:
        pytest.skip("TOSA has no complex numbers")
    a, b = torch.randn(2, 5, 5, dtype=dtype), torch.randn(2, 5, 3, dtype=dtype)
    return a, b, a @ a.mH + torch.eye(5, dtype=dtype)


def solved_from_the_right(a: Tensor, b: Tensor) -> Any:
    return torch.ops.aten._linalg_solve_ex(a, b.mT, left=False)


@pytest.mark.engine
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", REAL_FIRST, ids=str)
def test_elimination(dtype: torch.dtype, dynamic: bool) -> None:
    a, b, _ = matrices(dtype)
    check_all(
        [
            (torch.linalg.det, (a,)), (torch.linalg.slogdet, (a,)), (torch.linalg.inv, (a,)),
            (torch.linalg.solve, (a, b)), (lambda a, b: torch.linalg.solve(a, b.mT, left=False), (a, b)),
            (lambda a, b: torch.linalg.solve(a, b[..., 0]), (a, b)), (torch.linalg.lu_factor, (a,)),
            (torch.ops.aten._linalg_solve_ex, (a, b)), (solved_from_the_right, (a, b)),
            (lambda a: torch.lu_unpack(*torch.linalg.lu_factor(a)), (a,)), (torch.linalg.lu, (a,)),
            (lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b), (a, b)),
            (lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b, adjoint=True), (a, b)),
            (lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b.mT, left=False), (a, b)),
        ],
        dynamic=dynamic,
        **CLOSE,
    )  # fmt: skip


@pytest.mark.engine
def test_elimination_of_matrices_that_are_not_square() -> None:
    wide = torch.randn(3, 4, 6)
    check_all([(torch.linalg.lu, (wide,)), (torch.linalg.lu, (wide.mT.contiguous(),))], **CLOSE)


@pytest.mark.engine
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", REAL_FIRST, ids=str)
def test_triangles(dtype: torch.dtype, dynamic: bool) -> None:
    a, b, s = matrices(dtype)
    a = a + 4 * torch.eye(5)
    check_all(
        [
            (lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), (a, b)),
            (lambda a, b: torch.linalg.solve_triangular(a, b.mT, upper=False, left=False), (a, b)),
            (lambda a, b: torch.linalg.solve_triangular(a, b, upper=False, unitriangular=True), (a, b)),
            (lambda a, b: torch.triangular_solve(b, a, transpose=True)[0], (a, b)),
            (torch.linalg.cholesky, (s,)), (lambda s: torch.linalg.cholesky(s, upper=True), (s,)),
            (lambda s, b: torch.cholesky_solve(b, torch.linalg.cholesky(s)), (s, b)),
            (lambda s: torch.cholesky_inverse(torch.linalg.cholesky(s, upper=True), upper=True), (s,)),
        ],
        dynamic=dynamic,
        **CLOSE,
    )  # fmt: skip


@pytest.mark.engine
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reflections(dtype: torch.dtype) -> None:
    matrices(dtype)
    tall, other = torch.randn(2, 6, 4, dtype=dtype), torch.randn(2, 6, 3, dtype=dtype)
    check_all(
        [
            (torch.linalg.qr, (tall,)), (lambda x: torch.linalg.qr(x.mT), (tall,)), (torch.geqrf, (tall,)),
            (lambda x: torch.linalg.qr(x, "complete"), (tall,)), (lambda x: torch.linalg.qr(x, "r")[1], (tall,)),
            (lambda x: torch.linalg.householder_product(*torch.geqrf(x)), (tall,)),
            (lambda x, y: torch.ormqr(*torch.geqrf(x), y), (tall, other)),
            (lambda x, y: torch.ormqr(*torch.geqrf(x), y, transpose=True), (tall, other)),
            (lambda x, y: torch.ormqr(*torch.geqrf(x), y.mT, left=False), (tall, other)),
            (torch.linalg.qr, (torch.zeros(3, 2, dtype=dtype),)),
        ],
        **CLOSE,
    )  # fmt: skip


def eigen(x: Tensor) -> tuple[Tensor, ...]:
    values, vectors = torch.linalg.eigh(x)
    return values, vectors * values.unsqueeze(-2) @ vectors.mH, vectors.mH @ vectors


def singular(x: Tensor, full: bool) -> tuple[Tensor, ...]:
    u, values, vh = torch.linalg.svd(x, full_matrices=full)
    count = values.shape[-1]
    return values, u[..., :count] * values.unsqueeze(-2) @ vh[..., :count, :], u.mH @ u, vh @ vh.mH


@pytest.mark.engine
@pytest.mark.parametrize("dtype", REAL_FIRST, ids=str)
def test_rotations(dtype: torch.dtype) -> None:
    _, _, s = matrices(dtype)
    tall = torch.randn(6, 4, dtype=dtype)
    poor = tall[:, :1] @ torch.randn(1, 4, dtype=dtype)
    check_all(
        [
            (eigen, (s,)), (torch.linalg.eigvalsh, (s - 3 * torch.eye(5),)), (eigen, (torch.zeros(3, 3, dtype=dtype),)),
            (lambda x: singular(x, False), (tall,)), (lambda x: singular(x, True), (tall,)),
            (lambda x: singular(x.mT, True), (tall,)), (lambda x: singular(x, True), (poor,)),
            (torch.linalg.svdvals, (tall,)), (torch.linalg.pinv, (tall,)), (torch.linalg.pinv, (poor,)),
        ],
        **CLOSE,
    )  # fmt: skip


@pytest.mark.engine
@pytest.mark.parametrize("size", [1, 2, 3, 16, 33])
def test_eigenvalues_at_sizes_even_and_odd(size: int) -> None:
    x = torch.randn(size, size, dtype=torch.float64 if support.TARGET != "tosa" else torch.float32)
    check_all([(eigen, (x + x.T,)), (lambda x: singular(x, True), (x,))], **CLOSE)


@pytest.mark.engine
@pytest.mark.long
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", REAL_FIRST, ids=str)
def test_factors_of_symmetric_matrices(dtype: torch.dtype, hermitian: bool) -> None:
    """A diagonal of zeros makes blocks of two rows; zeros have no factors, which `info` says."""
    _, b, _ = matrices(dtype)
    a = torch.randn(2, 5, 5, dtype=dtype)
    a.diagonal(0, -2, -1).zero_()

    def solution(a: Tensor, b: Tensor) -> Tensor:
        return torch.linalg.ldl_solve(*torch.linalg.ldl_factor(a, hermitian=hermitian), b, hermitian=hermitian)

    def factors(a: Tensor) -> Any:
        return torch.linalg.ldl_factor_ex(a, hermitian=hermitian)

    check_all([(factors, (a,)), (solution, (a, b)), (factors, (0 * a,)), (factors, (a[..., :1, :1],))], **CLOSE)
    assert (torch.linalg.ldl_factor(a, hermitian=hermitian).pivots < 0).any()


EDGES = {
    "random": torch.randn(2, 5, 5), "complex": torch.randn(4, 4, dtype=torch.complex64), "zero": torch.zeros(3, 3),
    "cycle": torch.roll(torch.eye(6), 1, 0), "nilpotent": torch.diag(torch.ones(3), 1), "one": torch.randn(1, 1),
    "rotation": torch.tensor([[0.0, 1.0], [-1.0, 0.0]]), "small": 1e-6 * torch.randn(4, 4), "empty": torch.zeros(0, 0),
    "triangle": torch.triu(torch.randn(5, 5)),
}  # fmt: skip


@pytest.mark.engine
@pytest.mark.long
def test_eigenvalues_of_any_matrix() -> None:
    """A v = λ v for each pair that comes out, whatever their order, and each value of PyTorch's is among them."""
    given = list(EDGES.values())
    module = flambeau.compile(lambda *xs: [torch.linalg.eig(x) for x in xs], tuple(given), output_type=support.TARGET)
    run = flambeau.load(module, profile="quick")
    for x, (values, vectors) in zip(given, run(*given), strict=True):
        size = float(x.abs().amax()) if x.numel() else 0.0
        a, expected = x.to(vectors.dtype), torch.linalg.eigvals(x)
        torch.testing.assert_close(a @ vectors, vectors * values.unsqueeze(-2), rtol=0, atol=2e-5 * size)
        torch.testing.assert_close(vectors.abs().square().sum(-2), torch.ones(x.shape[:-1]))
        if x.numel():
            nearest = (values.unsqueeze(-1) - expected.unsqueeze(-2)).abs().amin(-2)
            assert nearest.max() <= 2e-5 * size


@pytest.mark.engine
@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3)], ids=str)
def test_empty_matrices(shape: tuple[int, ...]) -> None:
    x = torch.zeros(shape)
    functions = (
        torch.linalg.det, torch.linalg.slogdet, torch.linalg.inv, torch.linalg.cholesky, torch.linalg.eigh,
        torch.linalg.lu_factor, torch.linalg.qr, torch.linalg.svd, torch.linalg.pinv, torch.matrix_exp, torch.geqrf,
    )  # fmt: skip
    check_all([(f, (x,)) for f in functions])


@pytest.mark.engine
@pytest.mark.long
@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 3, 5)], ids=str)
def test_singular_values_of_matrices_of_unknown_size(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    check_all([(lambda x: singular(x, True), (x,)), (torch.linalg.pinv, (x,))], dynamic=True, **CLOSE)


@pytest.mark.engine
def test_exponentials() -> None:
    x = torch.randn(3, 4, 4) * torch.tensor([0.01, 1.0, 6.0]).reshape(3, 1, 1)
    check_all([(torch.linalg.matrix_exp, (x,)), (torch.linalg.matrix_exp, (x * 0,))], rtol=1e-3, atol=1e-2)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("function", "reason"),
    [(torch.linalg.inv, "singular"), (torch.linalg.cholesky, "not positive-definite")],
    ids=["inv", "cholesky"],
)
def test_matrices_that_have_no_factors(function: Any, reason: str) -> None:
    x = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    run = flambeau.load(flambeau.compile(function, (x,), output_type=support.TARGET), profile="quick")
    with pytest.raises(RunError, match=reason):
        run(torch.tensor([[1.0, 2.0], [2.0, 4.0]]) * -1)


@pytest.mark.engine
@pytest.mark.parametrize("dtype", REAL_FIRST, ids=str)
def test_factors_of_a_determinant_are_those_of_the_matrix_or_its_transpose(dtype: torch.dtype) -> None:
    a, _, _ = matrices(dtype)
    det, slogdet = torch.ops.aten._linalg_det, torch.ops.aten._linalg_slogdet
    turned = [(lambda x, f=f: f(x.mT), (a,)) for f in (det, slogdet)]
    check_all([(det, (a,)), (slogdet, (a,)), *turned], **CLOSE)


def test_factors_whose_layout_nobody_knows_are_refused() -> None:
    text = """
      func.func @main(%x: !torch.vtensor<[3,3],f32>) -> !torch.vtensor<[3,3],f32> {
        %0:3 = torch.operator "torch.aten._linalg_det"(%x) : (!torch.vtensor<[3,3],f32>) -> (
          !torch.vtensor<[],f32>, !torch.vtensor<[3,3],f32>, !torch.vtensor<[3],si32>)
        func.return %0#1 : !torch.vtensor<[3,3],f32>
      }
    """
    with pytest.raises(CompileError, match="the factors of a determinant"):
        flambeau.compile(text)
