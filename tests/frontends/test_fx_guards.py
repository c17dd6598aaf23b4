"""Sizes that a program was not compiled for: a call says so, and answers nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support import assert_same
from torch import Tensor

import flambeau
from flambeau.engines.errors import RunError

AUTO = torch.export.Dim.AUTO


def last_two(x: Tensor) -> Tensor:
    part = x[-2:]
    return part.sum(0) / part.shape[0]


def first(x: Tensor) -> Tensor:
    part = x[:1]
    return part.sum(0) + part.shape[0]


def last_of_twice(x: Tensor) -> Tensor:
    part = torch.cat([x, x])[-2:]
    return part.sum(0) / len(part)


def written(x: Tensor) -> Tensor:
    part = x[-2:, 0]
    torch.atleast_2d(part).mul_(2)
    return part + 0


@pytest.mark.parametrize(
    "function, fits, does_not_fit",
    [
        (last_two, (2, 3, 5), (0, 1)),
        (first, (1, 2, 5), (0,)),
        (last_of_twice, (1, 2, 5), (0,)),
        (written, (2, 5), (1,)),
    ],
)
@pytest.mark.parametrize("output_type", ["raw", "torch"])
def test_a_slice_that_would_be_shorter_is_refused_at_run_time(
    function: Callable[..., Tensor], fits: tuple[int, ...], does_not_fit: tuple[int, ...], output_type: str
) -> None:
    shapes = ({0: AUTO},)
    program = flambeau.compile(function, (torch.ones(4, 3),), dynamic_shapes=shapes, output_type=output_type)
    run = flambeau.load(program, engine="eager")
    for n in fits:
        x = torch.arange(3.0 * n).reshape(n, 3)
        assert_same(run(x.clone()), function(x.clone()))
    for n in does_not_fit:
        with pytest.raises(RunError, match="a size is not one that the program was compiled for"):
            run(torch.ones(n, 3))


def test_slices_of_one_size_are_checked_once() -> None:
    program = flambeau.compile(
        lambda x: (x[-2:], x[:1], x[:2], x[1:]), (torch.ones(4),), dynamic_shapes=({0: AUTO},), output_type="raw"
    )
    assert program.text().count("a size is not one that the program was compiled for") == 1
