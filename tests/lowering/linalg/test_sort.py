"""Sorting and its kin against eager PyTorch."""

from __future__ import annotations

import pytest
import torch
from support import assert_same, check_all
from torch import nn

import flambeau
from flambeau import torchscript

NAN, INF = float("nan"), float("inf")
ROWS = torch.tensor([[3.0, NAN, -1.0, INF, 3.5], [-INF, 0.0, 2.0, -INF, NAN], [1.0, 2.0, 3.0, 4.0, 5.0]])
INTS = torch.tensor([[5, 1, 4, 2, 3], [-7, 9, 0, 8, -8]])


def test_sort() -> None:
    check_all(
        [
            (lambda x: x.sort(), (ROWS,)),
            (lambda x: x.sort(descending=True), (ROWS,)),
            (lambda x: x.sort(dim=0), (INTS,)),
            (lambda x: torch.sort(x, stable=True, descending=True), (torch.tensor([1, 0, 1, 0, 1]),)),
            (lambda x: x.argsort(), (INTS,)),
            (lambda x: x.sort(), (torch.tensor(3.0),)),
            (lambda x: x.sort(), (torch.tensor([True, False, True]),)),
            (lambda x: x.kthvalue(2), (INTS,)),
            (lambda x: x.kthvalue(4, 1, True), (INTS,)),
        ]
    )


@pytest.mark.parametrize("k", [1, 3, 5])
def test_topk(k: int) -> None:
    distinct = torch.tensor([[3.0, NAN, -1.0, INF, 3.5], [-INF, 0.0, 2.0, 1.0, 7.0]])
    check_all(
        [
            (lambda x: torch.topk(x, k), (distinct,)),
            (lambda x: torch.topk(x, k, largest=False), (distinct,)),
            (lambda x: torch.topk(x, k), (INTS,)),
            (lambda x: torch.topk(x, k, 1, False), (INTS,)),
            (lambda x: torch.topk(x, k).values, (torch.full((5,), -INF),)),
        ]
    )


def test_many_greatest() -> None:
    torch.manual_seed(0)
    x = torch.randperm(60).float().reshape(2, 30)
    check_all([(lambda x: torch.topk(x, 20), (x,)), (lambda x: torch.topk(x, 20, 1, False), (x,))])


def test_dynamic() -> None:
    check_all([(lambda x: x.sort(), (INTS.float(),)), (lambda x: torch.topk(x, 2), (INTS.float(),))], dynamic=True)


def test_medians_and_modes() -> None:
    frequent = torch.tensor([[1, 3, 3, 2, 2], [4, 4, 0, 4, 0], [5, 1, 2, 3, 4]])
    distinct = torch.tensor([[3.0, NAN, -1.0, INF, 3.5], [NAN, 0.0, 2.0, -INF, NAN], [1.0, 2.0, 3.0, 4.0, 5.0]])
    check_all(
        [
            (lambda x: x.median(), (ROWS,)),
            (lambda x: x.nanmedian(), (ROWS,)),
            (lambda x: x.median(), (INTS,)),
            (lambda x: x.median(1), (INTS,)),
            (lambda x: x.median(-1, True), (distinct[2:].clone(),)),
            (lambda x: x.median(1).values, (distinct,)),
            (lambda x: x.nanmedian(1).values, (distinct,)),
            (lambda x: x.nanmedian(0, True).values, (distinct,)),
            (lambda x: x.median(), (torch.tensor(4.0),)),
            (lambda x: x.mode(), (frequent,)),
            (lambda x: x.mode(0, True), (frequent,)),
            (lambda x: x.mode(), (distinct[2:].clone(),)),
            (lambda x: x.mode(), (torch.tensor([True, False, True]),)),
            (lambda x: torch.quantile(x, torch.tensor([0.0, 0.3, 1.0]), dim=1), (ROWS,)),
            (lambda x: torch.nanquantile(x, 0.6, dim=0, keepdim=True), (ROWS,)),
        ]
    )


def test_distinct_elements() -> None:
    x = torch.tensor([[3, 1, 1], [2, 3, 3]])
    run = {"return_inverse": True, "return_counts": True}
    check_all(
        [
            (lambda x: torch.unique(x, **run), (x,)),
            (lambda x: torch.unique(x), (x.float(),)),
            (lambda x: torch.unique_consecutive(x, **run), (x,)),
            (lambda x: torch.unique_consecutive(x, return_counts=True), (torch.tensor([1.0, 1.0, NAN, NAN]),)),
        ]
    )


class Medians(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x.median(), x.nanmedian(), y.median()


def test_medians_of_as_many_elements_as_the_run_time_says() -> None:
    """None at all has a median too."""
    places = [torchscript.TensorPlaceholder([-1, -1], dtype) for dtype in (torch.float32, torch.int64)]
    program = torchscript.compile(torch.jit.script(Medians()), places, output_type="linalg-on-tensors")
    run = flambeau.load(program, profile="quick")
    some = torch.tensor([[3.0, 1.0, float("nan")], [2.0, -4.0, 5.0]])
    for x in (some, some[:, :2], some[:1, 2:], torch.zeros(0, 3), torch.zeros(2, 0)):
        y = x.nan_to_num().to(torch.int64)
        assert_same(list(run(x, y)), list(Medians()(x, y)))
