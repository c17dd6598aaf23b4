"""What decompositions give, against eager PyTorch, without an engine: the eager interpreter runs the contract."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import assert_same
from torch import Tensor
from torch.nn import functional as F

import flambeau

aten = torch.ops.aten


def check(function: Callable[..., Any], *args: Tensor) -> None:
    run = flambeau.load(flambeau.compile(function, args, output_type="torch"), engine="eager")
    assert_same(run(*args), function(*args))


@pytest.mark.parametrize(
    ("first", "second", "dim"),
    [((3, 1), (1, 4), 1), ((3, 4), (4,), 0), ((1,), (5,), 0), ((2, 1, 3), (4, 1), -2), ((3, 4), (3, 4), 0)],
)
def test_cosine_similarity_takes_norms_of_what_is_broadcast(first: Any, second: Any, dim: int) -> None:
    check(lambda x, y: F.cosine_similarity(x, y, dim=dim), torch.randn(first), torch.randn(second))


@pytest.mark.parametrize("op", [aten._embedding_bag.default, aten._embedding_bag_forward_only.default])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_all_four_results_of_an_embedding_bag(op: Any, mode: int) -> None:
    weight, indices = torch.randn(6, 3), torch.tensor([1, 2, 4, 5, 4, 3, 2, 0, 1])
    for include_last, padding, offsets in itertools.product((False, True), (-1, 2), ([0, 4, 4, 9], [0, 0, 2, 9])):
        check(
            lambda w, i, o, p=padding, last=include_last: op(w, i, o, False, mode, False, None, last, p),
            weight,
            indices,
            torch.tensor(offsets),
        )


INF, NAN = float("inf"), float("nan")


def test_pixels_that_do_not_count_may_be_infinite() -> None:
    x = torch.tensor([[0.0, INF, 1.5], [INF, INF, 1.6], [2.0, NAN, 0.5]]).reshape(1, 1, 3, 3)
    for size in ([5, 4], [2, 3], [3, 2]):
        check(lambda x, size=size: aten._upsample_bilinear2d_aa(x, size, False), x)


def test_numbers_with_a_fraction_lie_between_integers() -> None:
    ascending = torch.tensor([-2, -1, 0, 1])
    check(lambda x: torch.searchsorted(x, 0.5), ascending)
    check(lambda x: torch.bucketize(-1.5, x), ascending)


def test_operands_of_other_dtypes_are_converted_first() -> None:
    flags, halves = torch.tensor([True, False]), torch.tensor([1.5, -2.0]).half()
    check(torch.logaddexp, flags, halves)
    check(torch.logaddexp2, halves, flags)
    check(lambda x, y: torch.isclose(x, y), flags, flags)


def test_what_is_made_of_nothing() -> None:
    empty = torch.zeros(0, 3)
    check(lambda x: torch.histc(x, 3), empty)
    check(lambda x: list(aten.histogram.bin_ct(x, 2)), empty)
    check(lambda x: x.bool().median(), empty)
    check(lambda x: aten.nonzero_static(x, size=2), empty)
