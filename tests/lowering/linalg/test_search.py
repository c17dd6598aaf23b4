"""Searching, counting, sampling, distances against eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import check, check_all

NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dynamic", [False, True])
def test_sorted_sequences(dynamic: bool) -> None:
    edges = torch.tensor([-1.0, 0.0, 0.0, 2.5, INF])
    x = torch.tensor([[-2.0, -1.0, 0.0, 1.0], [2.5, 3.0, INF, NAN]])
    rows = torch.tensor([[1, 3, 5, 7], [2, 2, 2, 9]])
    wanted = torch.tensor([[0, 3, 9], [2, 3, 9]])
    check_all(
        [
            (lambda e, x: torch.searchsorted(e, x), (edges, x)),
            (lambda e, x: torch.searchsorted(e, x, right=True, out_int32=True), (edges, x)),
            (lambda e, x: torch.searchsorted(e, x, side="left"), (rows, wanted)),
            (lambda e, x, s: torch.searchsorted(e, x, sorter=s), (rows.flip(1), wanted, rows.flip(1).argsort(1))),
            (lambda e: torch.searchsorted(e, 0.0), (edges,)),
            (lambda e, x: torch.bucketize(x, e, right=True), (edges, x)),
            (lambda e: torch.bucketize(2, e), (rows[0].clone(),)),
            (lambda a, b: torch.isin(a, b), (rows, wanted)),
        ],
        dynamic=dynamic,
    )


def test_empty_sequences() -> None:
    none = torch.zeros(0)
    check_all([(torch.searchsorted, (none, torch.ones(3))), (torch.searchsorted, (torch.ones(3), none))])


def test_positions_of_what_is_not_zero() -> None:
    x = torch.tensor([[0.0, 2.0, NAN], [0.0, 0.0, -1.0]])
    cases: list[Any] = [(lambda x, n=n: torch.nonzero_static(x, size=n), (x,)) for n in (0, 2, 3, 5)]
    check_all([*cases, (lambda x: torch.nonzero_static(x, size=4, fill_value=7), (x[0].bool(),))])


def test_repetitions_and_segments() -> None:
    x, lengths = torch.randn(6, 2), torch.tensor([2, 0, 3, 1])
    kinds = ("sum", "mean", "max", "min", "prod")
    cases: list[Any] = [
        (lambda x, n, k=k, i=i: torch.segment_reduce(x, k, lengths=n, unsafe=True, initial=i), (x, lengths))
        for k in kinds
        for i in (None, 0.5)
    ]
    check_all([*cases, (lambda n: torch.repeat_interleave(n, output_size=6), (lengths,))])


def test_histograms() -> None:
    x = torch.tensor([0.1, 0.5, 1.0, 2.0, 2.0, 3.9, 4.0, -1.0])
    weight, edges = torch.rand(8), torch.tensor([-1.0, 0.0, 0.5, 2.0])
    check_all(
        [
            (lambda x: torch.histogram(x, 5), (x,)),
            (lambda x: torch.histogram(x, 4, range=(0.0, 4.0), density=True), (x,)),
            (lambda x, w: torch.histogram(x, 3, weight=w), (x, weight)),
            (lambda x, e: torch.histogram(x, e), (x, edges)),
            (lambda x: torch.histogram(x, 2), (torch.ones(3),)),
        ]
    )


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 2.5, INF])
def test_distances(p: float) -> None:
    x, y = torch.randn(4, 3), torch.randn(2, 5, 3)
    check_all(
        [
            (lambda x, y: torch.cdist(x, y, p), (x, y)),
            (lambda x: F.pdist(x, p), (x,)),
            (lambda x, y: torch.cdist(x, y, p), (torch.randn(3, 0), torch.randn(2, 0))),
        ]
    )


def test_bilinear() -> None:
    x, y, w, bias = torch.randn(3, 4), torch.randn(3, 5), torch.randn(2, 4, 5), torch.randn(2)
    check(F.bilinear, x, y, w, bias)


@pytest.mark.parametrize("align", [False, True])
def test_volumes_are_sampled(align: bool) -> None:
    x, grid = torch.randn(2, 3, 4, 5, 3), torch.rand(2, 2, 3, 4, 3) * 3 - 1.5
    check_all(
        [
            (lambda x, g, m=m, p=p: F.grid_sample(x, g, m, p, align), (x, grid))
            for m in ("bilinear", "nearest")
            for p in ("zeros", "border", "reflection")
        ]
    )


def test_antialiasing() -> None:
    x = torch.randn(2, 3, 9, 7)
    check_all(
        [
            (lambda x, s=s, a=a: F.interpolate(x, s, mode="bilinear", antialias=True, align_corners=a), (x,))
            for s in ((4, 3), (12, 14), (9, 1))
            for a in (False, True)
        ]
    )


def test_rows_that_are_looked_up_get_shorter() -> None:
    weight, index = torch.randn(6, 4), torch.tensor([[1, 3], [3, 0]])
    check_all(
        [(lambda w, i, p=p: F.embedding(i, w.clone(), max_norm=0.7, norm_type=p), (weight, index)) for p in (1, 2)]
    )


def test_strided_writes_and_new_sizes() -> None:
    x, y = torch.randn(4, 4), torch.randn(2, 3)
    check_all(
        [
            (lambda x, y: torch.as_strided_scatter(x, y, (2, 3), (5, 1), 2), (x, y)),
            (lambda x: x.clone().resize_(2, 3), (x,)),
            (lambda x, y: x.clone().resize_as_(y), (x, y)),
            (lambda x: x.clone().transpose_(0, 1), (x,)),
        ]
    )
