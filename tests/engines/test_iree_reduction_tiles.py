"""Reductions of matrices with tiles of our own: `engines/iree/reduction_tiles.py`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support import check_all
from torch import Tensor

import flambeau
from flambeau.engines.iree.prepare import for_iree
from flambeau.ir.printing import generic_text

DYNAMIC = torch.export.Dim.DYNAMIC


def tiles(function: object, *args: Tensor, dims: object = None) -> int:
    """How many reductions have tiles of our own."""
    module = flambeau.compile(function, args, dynamic_shapes=dims)
    return generic_text(for_iree(module.op)).count("#iree_codegen.compilation_info<lowering_config")


def some(dtype: torch.dtype, *shape: int) -> Tensor:
    x = torch.randint(0, 2, shape) if dtype.is_floating_point is False else torch.randn(shape)
    return x.to(dtype)


@pytest.mark.engine
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.bool]
)
def test_rows_and_columns_of_all_lengths(dtype: torch.dtype) -> None:
    width = 512 // dtype.itemsize
    shapes = [(3, width), (33, width + 1), (2, 3 * width - 1), (5, 4 * width + 7), (70, 2 * width)]
    tensors = [some(dtype, *shape) for shape in shapes]
    cases: list[object] = [(lambda x, d=d: x.sum(d), (x,)) for x in tensors for d in (0, 1)]
    if dtype is not torch.bool:
        cases += [(f, (x,)) for x in tensors for d in (0, 1) for f in (lambda x, d=d: (x.amax(d), x.argmin(d)),)]
        cases += [(lambda x, d=d: (-x).amin(d), (x,)) for x in tensors for d in (0, 1)]
    # Sums are in another order than PyTorch's: what they lose is relative to what is added, not to what is left.
    check_all(cases, atol=1e-4 if dtype is torch.float32 else None)


@pytest.mark.engine
@pytest.mark.parametrize("profile", ["model", "quick", "host"])
def test_nan_is_the_largest_wherever_it_is(profile: str) -> None:
    x = torch.full((300, 700), -torch.inf)
    x[torch.arange(300), torch.arange(300) * 2] = torch.nan
    x[7] = -torch.inf
    run = flambeau.load(flambeau.compile(lambda x, y: (x.amax(1), y.amin(0)), (x, x)), profile=profile)
    assert run.profile == profile
    for got, expected in zip(run(x, x), (x.amax(1), x.amin(0)), strict=True):
        assert torch.equal(got.isnan(), expected.isnan())
        assert torch.equal(got.nan_to_num(), expected.nan_to_num())


@pytest.mark.engine
def test_any_number_of_rows() -> None:
    x = torch.randn(40, 1000)
    module = flambeau.compile(lambda x, y: (x.amax(1), y.sum(0)), (x, x), dynamic_shapes=({0: DYNAMIC}, {0: DYNAMIC}))
    run = flambeau.load(module)
    for rows in (2, 31, 32, 33, 100):
        x = torch.randn(rows, 1000)
        torch.testing.assert_close(run(x, x), [x.amax(1), x.sum(0)], rtol=1e-5, atol=1e-4)


@pytest.mark.engine
def test_reductions_among_others() -> None:
    long, x, y = torch.randn(4, 50_257), torch.randn(40, 1000), torch.randn(40, 1000)
    cases: list[tuple[Any, tuple[Tensor, ...]]] = [
        (lambda x: x.log_softmax(-1), (long,)),
        (lambda x: x.sum(-1), (long,)),
        (lambda x: (x.logsumexp(-1), x.var(0)), (x,)),
        (lambda x, y: y - x.amax(1, keepdim=True), (x, y)),
        (lambda x, y: y / x.sum(0), (x, y)),
        (lambda x, y: (x.mean(1)[:, None] * y).softmax(-1), (x, y)),
        (lambda x, y: x.amax(1) @ y, (x, y)),
        (lambda x, y: x.amin(0) @ y.T, (x, y)),
        (lambda x: x.sum(1).cumsum(0), (x,)),
        (lambda x: x.amax(1).amax(0), (x,)),
        (lambda x: x.reshape(20, 2, 1000).sum(1).sum(1), (x,)),
        (lambda x: x[:, 10:700].sum(1).argsort(), (x,)),
        (lambda x: x.cumsum(1).amax(1), (x,)),
    ]
    for function, args in cases:
        run = flambeau.load(flambeau.compile(function, args))
        assert run.profile == "model"
        torch.testing.assert_close(run(*args), function(*args), rtol=1e-3, atol=1e-3)


def test_which_reductions_are_found() -> None:
    x = torch.randn(40, 1000)
    assert tiles(lambda x: x.amax(1), x) == tiles(lambda x: x.amax(0), x) == 1
    assert tiles(lambda x: x.amax(1), x, dims=({0: DYNAMIC},)) == 1
    assert tiles(lambda x: x.mean(1), x) == 1
    assert tiles(lambda x: x.amax(1), x, dims=({1: DYNAMIC},)) == 0  # of unknown length
    assert tiles(lambda x: x.amax(1), x[:, :100]) == tiles(lambda x: x.amax(0), x[:, :400]) == 0  # too short
    assert tiles(lambda x: x.softmax(1), x) == 0  # the rows are read again
    assert tiles(lambda x: x.t().amax(1), torch.randn(1000, 40)) == 0
    assert tiles(lambda x: x.amax((0, 1)), x) == 0
    assert tiles(lambda x: (x * 2).amax(1), x) == 0  # computed in the same loops
    assert tiles(lambda x: (x.amax(1), x.view(10, -1).sum(1)), x) == 0
