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
