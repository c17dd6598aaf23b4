"""Scans of any input, against eager PyTorch, to the last bit where it goes through the dim in order."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lowering.linalg.properties import INTS, assert_identical, compiled, examples, filled, lowered, seeds
from support import Together
from torch import Tensor

counts = st.one_of(st.integers(0, 20), st.sampled_from([31, 33, 64, 100]))


def values(shape: tuple[int, ...], dtype: torch.dtype, kind: str, seed: int) -> Tensor:
    """Make a tensor to scan; without denormals, which the engine takes for zeros."""
    if not dtype.is_floating_point:
        return filled(shape, dtype, kind, seed)
    if kind == "hard":
        x = filled(shape, dtype, kind, seed)
        return x.where((x.abs() >= torch.finfo(dtype).tiny) | x.isnan(), 0)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def exact(x: Tensor) -> list[Tensor]:
    sums = [f(x, d) for f in (torch.cumsum, torch.cumprod) for d in (0, 1)]
    return [*sums, *(t for f in (torch.cummax, torch.cummin) for d in (0, 1) for t in f(x, d))]


DTYPES = (torch.float32, torch.float64, *INTS, torch.bool)
SCANNING = Together({str(d): partial(lowered, exact, torch.zeros(4, 5, dtype=d)) for d in DTYPES})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scans_of_any_input_are_exact(dtype: torch.dtype) -> None:
    """f32 is accumulated in f64 and then rounded, as eager does; integers wrap around."""
    run = SCANNING[str(dtype)]

    @examples
    @given(rows=st.integers(0, 4), count=counts, kind=st.sampled_from(["hard", "bits", "few"]), seed=seeds)
    def check(rows: int, count: int, kind: str, seed: int) -> None:
        x = values((rows, count), dtype, kind, seed)
        for actual, expected in zip(run(x), exact(x), strict=True):
            assert_identical(actual, expected)

    check()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_logarithms_of_running_sums(dtype: torch.dtype) -> None:
    """Not to the last bit: the exponential and the logarithm are others than those of eager's vectors."""

    def sums(x: Tensor) -> list[Tensor]:
        return [torch.logcumsumexp(x, d) for d in (0, 1)]

    run = compiled(sums, torch.zeros(4, 5, dtype=dtype))
    tolerance = 1e-6 if dtype is torch.float32 else 1e-12

    @examples
    @given(rows=st.integers(0, 4), count=counts, kind=st.sampled_from(["hard", "few"]), seed=seeds)
    def check(rows: int, count: int, kind: str, seed: int) -> None:
        x = values((rows, count), dtype, kind, seed)
        for actual, expected in zip(run(x), sums(x), strict=True):
            torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)

    check()
