"""Products that are summed over several dims: `engines/iree/products.py`."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

import flambeau
from flambeau.engines.iree.prepare import for_iree

SHAPES = [((3, 2, 5), (5,)), ((3, 2, 5), (2, 1)), ((3, 1, 5), (1, 2, 5)), ((33, 17, 5), (5,)), ((2, 1, 1), (1, 3, 4))]
DIMS = [d for n in (1, 2, 3) for d in combinations(range(3), n)]


@pytest.mark.engine
@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo", "tosa"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16], ids=str)
def test_products_that_broadcast_are_summed_over_any_dims(target: str, dtype: torch.dtype) -> None:
    def sums(*pairs: tuple[torch.Tensor, torch.Tensor]) -> list[torch.Tensor]:
        return [(x * y).sum(dims) for x, y in pairs for dims in DIMS]

    pairs = [tuple(torch.randint(-9, 9, shape).to(dtype) for shape in shapes) for shapes in SHAPES]
    run = flambeau.load(flambeau.compile(sums, tuple(pairs), output_type=target), profile="quick", device="local-sync")
    for got, expected in zip(run(*pairs), sums(*pairs), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-2, atol=0)


@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo"])
def test_sums_over_one_dim_and_products_of_sums_stay_as_they_are(target: str) -> None:
    def sums(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x * y).sum(0), x.sum() * y.sum()

    module = flambeau.compile(sums, (torch.ones(3, 2), torch.ones(2)), output_type=target).op
    assert for_iree(module) is module


@pytest.mark.engine
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rows_and_columns_with_matrices_that_are_arguments(dtype: torch.dtype, rows: int) -> None:
    def products(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> list[torch.Tensor]:
        return [x @ w, torch.nn.functional.linear(y, w, bias), w @ y[0], torch.addmm(bias[None], y, w.t(), alpha=2)]

    given = [torch.randn(size).to(dtype) for size in ((rows, 70), (rows, 131), (70, 131), (70,))]
    run = flambeau.load(flambeau.compile(products, tuple(given)), device="local-sync")
    tolerance = {torch.bfloat16: 3e-2, torch.float32: 1e-4}.get(dtype, 1e-10)
    for got, expected in zip(run(*given), products(*given), strict=True):
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=30 * tolerance)
