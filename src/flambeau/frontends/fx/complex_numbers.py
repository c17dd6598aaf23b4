"""Ops with a complex number as an argument, in terms of others that take a tensor instead.

The torch dialect has no complex numbers but in tensors. PyTorch's own decompositions cover most ops; these are those
that it has none for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def full(size: Any, value: complex, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """Fill a tensor of that size."""
    wanted = dtype or (torch.complex128 if torch.get_default_dtype() is torch.float64 else torch.complex64)
    return torch.tensor(value, dtype=wanted).expand(size).clone()


def full_like(x: Tensor, value: complex, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    return full(x.shape, value, dtype or x.dtype)


def new_full(x: Tensor, size: Any, value: complex, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    return full(size, value, dtype or x.dtype)


def constant_pad_nd(x: Tensor, pad: Any, value: complex) -> Tensor:
    """Pad with 0, and choose the number where the padding is."""
    inside = aten.constant_pad_nd(torch.ones(x.shape, dtype=torch.bool), pad, 0)
    return torch.where(inside, aten.constant_pad_nd(x, pad, 0), torch.tensor(value, dtype=x.dtype))


def index_fill(x: Tensor, dim: int, index: Tensor, value: complex) -> Tensor:
    return aten.index_fill(x, dim, index, torch.tensor(value, dtype=x.dtype))


def masked_index(x: Tensor, mask: Tensor, indices: Any, fill: complex) -> Tensor:
    return torch.where(mask, aten._unsafe_masked_index(x, mask, indices, 0), torch.tensor(fill, dtype=x.dtype))


def scaled(product: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make a function of `beta * x + alpha * product(a, b)`."""

    def function(x: Tensor, a: Tensor, b: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
        result = torch.mul(product(a, b), alpha)
        return result if beta == 0 else torch.mul(x, beta) + result

    return function


WITH_NUMBERS: dict[Any, Callable[..., Tensor]] = {
    aten.full.default: full,
    aten.full_like.default: full_like,
    aten.new_full.default: new_full,
    aten.fill.Scalar: full_like,
    aten.scalar_tensor.default: lambda value, **options: full((), value, **options),
    aten.constant_pad_nd.default: constant_pad_nd,
    aten.index_fill.int_Scalar: index_fill,
    aten._unsafe_masked_index.default: masked_index,
    aten.addbmm.default: scaled(lambda a, b: torch.bmm(a, b).sum(0)),
    aten.addmm.default: scaled(torch.mm),
    aten.addmv.default: scaled(torch.mv),
    aten.addr.default: scaled(torch.outer),
    aten.baddbmm.default: scaled(torch.bmm),
}
"""What ops compute that are given a complex number."""
