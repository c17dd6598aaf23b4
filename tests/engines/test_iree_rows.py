"""Products of one row with a matrix of unknown width: `engines/iree/rows.py`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import flambeau
from flambeau.engines.iree.prepare import for_iree

PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "row": lambda x, w: x[None] @ w.T,
    "vector": lambda x, w: F.linear(x, w),
    "attention": lambda x, w: F.scaled_dot_product_attention(x[None], w, w),
    "half": lambda x, w: (x.half() @ w.T.half()).float(),
    "sum": lambda x, w: torch.einsum("k,nk->n", x, w),
}


@pytest.mark.engine
@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo", "tosa"])
def test_what_is_summed_behind_the_product_has_no_padding(target: str) -> None:
    def sums(x: Tensor, w: Tensor) -> list[Tensor]:
        rows = [product(x, w) for product in PRODUCTS.values()]
        return [*rows, *(row.softmax(-1) for row in rows), *(row.tanh().exp().sum() for row in rows)]

    dims = ({}, {0: torch.export.Dim.DYNAMIC})
    module = flambeau.compile(sums, (torch.randn(8), torch.randn(5, 8)), dynamic_shapes=dims, output_type=target)
    run = flambeau.load(module)
    for width in (1, 2, 5, 15, 16, 17, 40):
        x, w = torch.randn(8), torch.randn(width, 8)
        for got, expected in zip(run(x, w), sums(x, w), strict=True):
            torch.testing.assert_close(got, expected, rtol=2e-3, atol=2e-3)


def test_rows_of_known_width_and_matrices_stay_as_they_are() -> None:
    def products(x: Tensor, w: Tensor, row: Tensor) -> tuple[Tensor, ...]:
        return x @ w, row @ w

    dims = ({0: torch.export.Dim.DYNAMIC}, {}, {})
    args = (torch.randn(4, 8), torch.randn(8, 5), torch.randn(1, 8))
    module = flambeau.compile(products, args, dynamic_shapes=dims).op
    assert for_iree(module) is module
