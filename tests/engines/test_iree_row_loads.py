"""Rows that are copied from computed places, or backwards: `engines/iree/row_loads.py`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import flambeau
from flambeau.engines.iree.prepare import for_iree

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32,
    torch.int64, torch.complex64, torch.complex128,
)  # fmt: skip

OF_EACH_SIZE = (torch.int8, torch.bfloat16, torch.float32, torch.int64, torch.complex128)
"""One of each number of bytes."""

ROWS = torch.tensor([2, 0, 2, 1])


def copies(x: Tensor, at: Tensor) -> list[Tensor]:
    """Rows of a tensor of three dims, which has at least 3 of each."""
    return [
        x.flip(-1),
        x.flip(0),
        x.flip(0, 2),
        x.index_select(0, at),
        x.index_select(1, at),
        x.index_select(-1, at),
        x[at],
        x[:, at - 3],
        x[at, at],
        x[:, None, at],
        x[at][:, :, 1:2].flip(-1),
    ]


@pytest.mark.engine
@pytest.mark.parametrize("dynamic", [False, True])
def test_copied_rows_of_each_dtype(dynamic: bool) -> None:
    """All dtypes where sizes are known; where they are not, one of each size."""
    chosen = OF_EACH_SIZE if dynamic else DTYPES
    tensors = [(torch.randn(3, 4, 5) * 10).to(dtype) for dtype in chosen]

    def program(tensors: list[Tensor], at: Tensor) -> list[Tensor]:
        return [copy for x in tensors for copy in copies(x, at)]

    dims = (
        [{1: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC} for _ in tensors],
        {0: torch.export.Dim.DYNAMIC},
    )
    module = flambeau.compile(program, (tensors, ROWS), dynamic_shapes=dims if dynamic else None)
    run = flambeau.load(module, profile="quick")
    others = [(tensors, ROWS)]
    if dynamic:
        others += [([torch.ones(3, 3, 17).to(d) for d in chosen], ROWS[:1]), ([x[:, :, :3] for x in tensors], ROWS[:0])]
    for args in others:
        for got, expected in zip(run(*args), program(*args), strict=True):
            assert torch.equal(got, expected)


@pytest.mark.engine
def test_rows_without_elements() -> None:
    def program(x: Tensor, at: Tensor) -> list[Tensor]:
        return [x.flip(1), x.index_select(0, at)]

    dims = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}, {0: torch.export.Dim.DYNAMIC})
    run = flambeau.load(flambeau.compile(program, (torch.randn(3, 4), ROWS), dynamic_shapes=dims), profile="quick")
    for shape, at in (((3, 0), ROWS), ((0, 4), ROWS[:0]), ((0, 0), ROWS[:0])):
        x = torch.zeros(shape)
        for got, expected in zip(run(x, at), program(x, at), strict=True):
            assert got.shape == expected.shape


@pytest.mark.engine
def test_a_row_that_there_is_not() -> None:
    run = flambeau.load(flambeau.compile(lambda x, i: x.index_select(0, i), (torch.randn(3, 4), ROWS)), profile="quick")
    for row in (3, -1, 1 << 40):
        with pytest.raises(Exception, match="index out of range"):
            run(torch.randn(3, 4), torch.tensor([0, row, 1, 2]))


def test_other_loads_stay_as_they_are() -> None:
    def program(x: Tensor, at: Tensor) -> list[Tensor]:
        return [x.gather(1, at), x.unfold(1, 2, 1), torch.diagonal(x), (x > 0).flip(1)]

    module = flambeau.compile(program, (torch.randn(4, 5), torch.ones(4, 2, dtype=torch.int64))).op
    assert not any(op.name == "flow.dispatch.region" for op in for_iree(module).walk())


def test_what_rows_have_in_common_is_loaded_once() -> None:
    module = flambeau.compile(lambda x, i: x.index_select(0, i), (torch.randn(3, 4), ROWS)).op
    loops = [op for op in for_iree(module).walk() if op.name == "scf.for"]
    loads = [[op.name for op in loop.body.block.ops].count("tensor.extract") for loop in loops]
    assert loads == [1, 1]
