"""Filled, counted and triangular tensors against eager PyTorch."""

from __future__ import annotations

import pytest
import torch
from support import check, check_all

X = torch.randn(3, 5)


def test_fills_in_every_dtype() -> None:
    """S2: full with a number and with a 0-d tensor, -inf exact."""
    dtypes = [
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.float64,
    ]
    check_all([(lambda x, d=d: torch.full((2, 3), 1, dtype=d) + x[0, 0].to(d), (X * 0,)) for d in dtypes])
    check_all(
        [
            (lambda x: torch.zeros(2, 3) + x[0, 0], (X,)), (lambda x: torch.ones_like(x) * x, (X,)),
            (lambda x: torch.full_like(x, float("-inf")), (X,)), (lambda x: x.new_full((2,), 3.5), (X,)),
            (lambda x: torch.full((2, 2), torch.tensor(float("-inf"))) + x[0, 0], (X,)),
            (lambda x: torch.full_like(x, 7, dtype=torch.int64), (X,)), (lambda x: x.fill_(2.0), (X.clone(),)),
        ]
    )  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
def test_arange_of_a_size(dynamic: bool) -> None:
    """S1: arange over x.size(-1)."""
    check(lambda x: torch.arange(x.size(-1)) + x[0].long(), X, dynamic=dynamic)
    check(lambda x: torch.arange(1, x.size(-1), 2), X, dynamic=dynamic)


def test_arange_and_linspace_of_floats() -> None:
    check_all(
        [
            (lambda x: torch.arange(0.5, 3.0, 0.3) + x[0, 0] * 0, (X,)),
            (lambda x: torch.arange(5, 0, -2) + x[0, 0] * 0, (X,)),
            (lambda x: torch.linspace(-1, 1, 7) + x[0, 0] * 0, (X,)),
            (lambda x: torch.linspace(0, 9, 1) + x[0, 0] * 0, (X,)),
            (lambda x: torch.eye(3) + x[0, 0] * 0, (X,)), (lambda x: torch.eye(2, 4) + x[0, 0] * 0, (X,)),
        ]
    )  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
def test_identity_matrices(dynamic: bool) -> None:
    check_all(
        [
            (lambda x: torch.eye(x.shape[0]), (X,)), (lambda x: torch.eye(x.shape[1], dtype=torch.int64), (X,)),
            (lambda x: torch.eye(x.shape[0], x.shape[1]) + x, (X,)), (lambda x: torch.eye(x.shape[1], 2), (X,)),
        ],
        dynamic=dynamic,
    )  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
def test_triangles(dynamic: bool) -> None:
    check_all(
        [(lambda x, d=d: torch.tril(x, d), (X,)) for d in (-1, 0, 2)]
        + [(lambda x, d=d: torch.triu(x, d), (X,)) for d in (-1, 0, 2)],
        dynamic=dynamic,
    )


def test_scalars_become_0d_tensors() -> None:
    check(lambda x: x * torch.scalar_tensor(2.0), X)
