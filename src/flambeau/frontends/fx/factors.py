"""Determinants whose LU factors are used, as their gradients use them.

PyTorch factors the transpose of a real matrix whose rows are contiguous, and the gradient counts on that. Strides are
known here, and not behind the import.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

aten = torch.ops.aten


def uses_factors(name: str, node: Node) -> bool:
    """Tell whether a call is of an op that also gives LU factors, and somebody uses these."""
    if name not in WITH_FACTORS:
        return False
    beside = _BESIDE_FACTORS[name]
    return any(user.target is not operator.getitem or user.args[1] not in beside for user in node.users)


def _is_transposed(x: Tensor) -> bool:
    """Tell whether PyTorch factors the transpose of x."""
    return x.is_contiguous() and not x.is_complex()


def _factored(x: Tensor) -> tuple[Tensor, Tensor]:
    """Give L and U in one matrix, and the pivots, of x or of its transpose."""
    packed, pivots, _ = aten.linalg_lu_factor_ex(x.mT if _is_transposed(x) else x)
    return packed, pivots


def _sign(pivots: Tensor, like: Tensor) -> Tensor:
    """Give the sign of the order of rows: -1 for an odd number of exchanges."""
    moved = pivots != torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype)
    return (1 - 2 * (moved.sum(-1) % 2)).to(like.dtype)


def _det(x: Tensor) -> tuple[Tensor, ...]:
    """Compute `_linalg_det`: the product of U's diagonal, with the sign of the order of rows."""
    packed, pivots = _factored(x)
    diagonal = packed.diagonal(0, -2, -1)
    return diagonal.prod(-1) * _sign(pivots, packed), packed, pivots


def _slogdet(x: Tensor) -> tuple[Tensor, ...]:
    """Compute `_linalg_slogdet`: the sign of the determinant and the logarithm of its absolute value."""
    packed, pivots = _factored(x)
    diagonal = packed.diagonal(0, -2, -1)
    return diagonal.sgn().prod(-1) * _sign(pivots, packed), diagonal.abs().log().sum(-1), packed, pivots


WITH_FACTORS: Mapping[str, Callable[..., Any]] = {"aten._linalg_det": _det, "aten._linalg_slogdet": _slogdet}
"""What the ops that also give LU factors compute, by their name."""

_BESIDE_FACTORS = {"aten._linalg_det": (0,), "aten._linalg_slogdet": (0, 1)}
"""The results of these ops that are no factors."""
