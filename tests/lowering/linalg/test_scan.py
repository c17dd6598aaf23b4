"""Scans against eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support import check, check_all

import flambeau

NAN, INF = float("nan"), float("inf")
SCANS = (torch.cumsum, torch.cumprod, torch.cummax, torch.cummin, torch.logcumsumexp)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dynamic", [False, True])
def test_scans_along_any_dim(dynamic: bool) -> None:
    x = torch.randn(3, 4, 9)
    cases: list[Any] = [(lambda x, f=f, d=d: f(x, dim=d), (x,)) for f in SCANS for d in (0, 1, -1)]
    check_all(cases, dynamic=dynamic)


def test_dynamic_scans_of_tensors_that_are_computed_together() -> None:
    """IREE puts such tensors into one allocation, and must not lose where each begins."""
    x, y = torch.randn(3, 4, 9), torch.randint(-9, 9, (3, 4, 9))
    check_all(
        [
            (lambda x: (x + 1).cumsum(0), (x,)),
            (lambda x: (x * 2).cumsum(1), (x,)),
            (lambda y: (y - 1).cumsum(0), (y,)),
            (lambda y: (y * y).cumsum(2) + y.cumsum(1).cumsum(1), (y,)),
        ],
        dynamic=True,
    )


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 8, 33])
def test_scans_of_any_length(length: int) -> None:
    check_all([(lambda x, f=f: f(x, dim=0), (torch.randn(length, 2),)) for f in SCANS])


def test_a_compiled_scan_takes_every_dynamic_length() -> None:
    class Sums(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.cumsum(0)

    n = torch.export.Dim("n", min=0)
    program = torch.export.export(Sums(), (torch.arange(5),), dynamic_shapes={"x": {0: n}})
    run = flambeau.load(flambeau.compile(program), engine="iree", profile="quick", device="local-sync")
    for length in (0, 1, 2, 3, 4, 5, 16, 17, 100):
        x = torch.arange(length)
        assert run(x).tolist() == x.cumsum(0).tolist()


def test_scans_of_scalars_integers_and_bools() -> None:
    flags = torch.tensor([True, False, True])
    check_all(
        [
            *((lambda x, f=f: f(x, dim=-1), (torch.tensor(-2.5),)) for f in SCANS),
            (lambda x: x.cumsum(0), (flags,)),
            (lambda x: x.cumprod(0), (flags,)),
            (lambda x: x.cumsum(0), (torch.full((9,), 255, dtype=torch.uint8),)),
            (lambda x: x.cumprod(0), (torch.full((70,), 2, dtype=torch.int32),)),
            (lambda x: x.cummax(0), (torch.tensor([3, 250, 250, 1], dtype=torch.uint8),)),
            (lambda x: x.cummin(0), (torch.tensor([3, -128, 127, -128], dtype=torch.int8),)),
            (lambda x: x.cumsum(0, dtype=torch.float32), (torch.arange(5),)),
            (lambda x: x.cumsum(0, dtype=torch.int8), (torch.full((3,), 100),)),
        ]
    )


def test_running_extremes_take_the_last_of_equals_and_keep_nan() -> None:
    x = torch.tensor([1.0, 3.0, 3.0, -INF, NAN, INF, NAN, 5.0])
    check_all([(lambda x, f=f: f(x, 0), (t,)) for f in (torch.cummax, torch.cummin) for t in (x, x[:4], x.flip(0))])


def test_infinities_and_nan_spread_forwards_only() -> None:
    inputs = [
        torch.tensor(v) for v in ([1.0, INF, 2.0, -INF, 3.0], [1.0, 2.0, NAN, 3.0], [-INF, -INF, 1.0], [-0.0, 0.0])
    ]
    check_all(
        [(lambda x, f=f: f(x, 0), (t,)) for f in (torch.cumsum, torch.cumprod, torch.logcumsumexp) for t in inputs]
    )


def test_logcumsumexp_does_not_overflow() -> None:
    check(lambda x: x.logcumsumexp(0), torch.tensor([1000.0, 1000.0, 999.0, -1000.0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_floats_accumulate_in_float32(dtype: torch.dtype) -> None:
    check_all(
        [
            (lambda x: x.cumsum(0), (torch.ones(4000, dtype=dtype),)),
            (lambda x: x.cumprod(0), (torch.full((64,), 1.1).to(dtype),)),
        ]
    )


def test_long_sums_keep_their_digits() -> None:
    check(lambda x: x.cumsum(0), torch.rand(100_000), rtol=1e-5)
