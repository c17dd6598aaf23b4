"""Scatters with repeated indices, against eager PyTorch on one thread, to the last bit: updates are taken in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lowering.linalg.properties import Program, assert_identical, compiled, examples, filled, seeds
from torch import Tensor
from xdsl.dialects import arith, scf

import flambeau

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")
DTYPES = (torch.float32, torch.int8, torch.int64)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def scatters(x: Tensor, index: Tensor, source: Tensor) -> list[Tensor]:
    """Scatter with an index for each element."""
    return [
        *(torch.scatter_add(x, d, index, source) for d in (0, 1)),
        torch.scatter(x, 0, index, 3),
        *(
            torch.scatter_reduce(x, d, index, source, reduce, include_self=own)
            for d, reduce in zip((0, 1, 0, 1, 0), REDUCTIONS, strict=True)
            for own in (True, False)
        ),
    ]


def index_ops(x: Tensor, index: Tensor, source: Tensor) -> list[Tensor]:
    """Scatter with an index for each row."""
    return [
        torch.index_add(x, 0, index, source),
        torch.index_add(x, 0, index, source, alpha=2),
        *(
            torch.index_reduce(x, 0, index, source, reduce, include_self=own)
            for reduce in ("prod", "mean", "amax", "amin")
            for own in (True, False)
        ),
        torch.index_put(x, (index,), source, accumulate=True),
        torch.index_put(x, (index,), source),
        torch.index_copy(x, 0, index, source),
        torch.index_fill(x, 0, index, 2),
    ]


def numbers(shape: tuple[int, ...], dtype: torch.dtype, kind: str, seed: int) -> Tensor:
    """Values to write, whose means are no denormals: the engine takes those for zeros."""
    if not dtype.is_floating_point or kind == "few":
        return filled(shape, dtype, kind, seed)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    if kind == "hard":
        hard = filled(shape, dtype, kind, seed)
        x = hard.where((hard.abs() >= 1) | hard.isnan(), 0)
    return x


kinds = st.sampled_from(["hard", "bits", "few"])


def positions(shape: tuple[int, ...], size: int, seed: int) -> Tensor:
    return torch.randint(size, shape, generator=torch.Generator().manual_seed(seed))


def assert_all_identical(run: Callable[..., Any], function: Callable[..., Any], *tensors: Tensor) -> None:
    for actual, expected in zip(run(*tensors), function(*tensors), strict=True):
        assert_identical(actual, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_index_for_each_element(dtype: torch.dtype) -> None:
    like = torch.zeros(7, 6, dtype=dtype)
    run = compiled(scatters, like, torch.zeros(3, 2).long(), torch.zeros(5, 4, dtype=dtype))

    @examples
    @given(size=st.integers(1, 4), rows=st.integers(0, 3), kind=kinds, seed=seeds)
    def check(size: int, rows: int, kind: str, seed: int) -> None:
        # Along either dim the index may be no larger than the tensor along the other.
        rows, columns = min(rows, size), max(1, size - 1)
        x, source = numbers((size, size), dtype, kind, seed), numbers((rows, columns), dtype, kind, seed + 1)
        assert_all_identical(run, scatters, x, positions((rows, columns), size, seed), source)

    check()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_index_for_each_row(dtype: torch.dtype) -> None:
    run = compiled(index_ops, torch.zeros(7, 6, dtype=dtype), torch.zeros(5).long(), torch.zeros(5, 6, dtype=dtype))

    @examples
    @given(size=st.integers(1, 5), width=st.integers(0, 5), count=st.integers(0, 12), kind=kinds, seed=seeds)
    def check(size: int, width: int, count: int, kind: str, seed: int) -> None:
        x, source = numbers((size, width), dtype, kind, seed), numbers((count, width), dtype, kind, seed + 1)
        assert_all_identical(run, index_ops, x, positions((count,), size, seed), source)

    check()


@pytest.mark.parametrize("accumulate", [False, True])
def test_pairs_of_indices(accumulate: bool) -> None:
    def put(x: Tensor, i: Tensor, j: Tensor, values: Tensor) -> list[Tensor]:
        columns = torch.ops.aten.index_put(x, [None, j], values[0], accumulate)
        return [torch.index_put(x, (i, j), values, accumulate), columns]

    run = compiled(put, torch.zeros(7, 6), torch.zeros(5).long(), torch.zeros(5).long(), torch.zeros(5))

    @examples
    @given(size=st.integers(1, 5), count=st.integers(1, 12), seed=seeds)
    def check(size: int, count: int, seed: int) -> None:
        i, j = positions((count,), size, seed) - size // 2, positions((count,), size + 1, seed + 1) - size // 2
        x, values = torch.randn(size, size + 1), torch.randn(count)
        assert_all_identical(run, put, x, i, j, values)

    check()


def chosen(x: Tensor, mask: Tensor, source: Tensor) -> list[Tensor]:
    return [
        torch.masked_scatter(x, mask, source),
        torch.masked_select(x, mask),
        torch.nonzero(mask),
        x[mask],
        *torch.unique(x, return_inverse=True, return_counts=True),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_what_masks_choose(dtype: torch.dtype) -> None:
    run = compiled(chosen, torch.zeros(7, 6, dtype=dtype), torch.ones(7, 6) > 0, torch.zeros(50, dtype=dtype))

    @examples
    @given(rows=st.integers(1, 5), width=st.integers(1, 60), share=st.floats(0, 1), seed=seeds)
    def check(rows: int, width: int, share: float, seed: int) -> None:
        mask = torch.rand(rows, width, generator=torch.Generator().manual_seed(seed)) < share
        x, source = filled((rows, width), dtype, "few", seed), filled((rows * width,), dtype, "bits", seed)
        assert_all_identical(run, chosen, x, mask, source)

    check()


OUTSIDE: dict[str, tuple[Callable[..., Tensor], bool]] = {
    "scatter": (lambda x, i, s: torch.scatter(x, 0, i[:, None], s), False),
    "scatter_add": (lambda x, i, s: torch.scatter_add(x, 0, i[:, None], s), False),
    "scatter_reduce": (lambda x, i, s: torch.scatter_reduce(x, 0, i[:, None], s, "amax"), False),
    "index_add": (lambda x, i, s: torch.index_add(x, 0, i, s), False),
    "index_copy": (lambda x, i, s: torch.index_copy(x, 0, i, s), False),
    "index_put": (lambda x, i, s: torch.index_put(x, (i,), s), True),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_out_of_range_stops_the_program(name: str) -> None:
    """Of empty tensors too, in which there is no place that could be written instead."""
    function, wraps = OUTSIDE[name]
    run = compiled(function, torch.zeros(7, 1), torch.zeros(5).long(), torch.zeros(5, 1))
    for size, index in ((3, 3), (3, 1 << 40), (3, -4), (3, -(1 << 40)), (0, 0), (0, -1), (1, 1)):
        with pytest.raises(flambeau.engines.RunError, match="out of range"):
            run(torch.zeros(size, 1), torch.tensor([index, index]), torch.ones(2, 1))
    if not wraps:
        with pytest.raises(flambeau.engines.RunError, match="out of range"):
            run(torch.zeros(3, 1), torch.tensor([-1, 0]), torch.ones(2, 1))
    assert run(torch.zeros(3, 1), torch.tensor([2, 0]), torch.ones(2, 1)).tolist() == [[1], [0], [1]]


def test_nothing_is_written_into_a_tensor_that_is_empty() -> None:
    """No place is inside of it: the loop over the updates has no turn, whatever the indices are."""
    add = Program(lambda x, i, s: torch.index_add(x, 0, i, s))
    sizes = {"tensors": ({0: torch.export.Dim.AUTO}, {}, {})}
    module = flambeau.compile(add, (torch.zeros(7), torch.zeros(5).long(), torch.zeros(5)), dynamic_shapes=sizes)
    (outermost,) = (
        op for op in module.op.walk() if isinstance(op, scf.ForOp) and not isinstance(op.parent_op(), scf.ForOp)
    )
    assert isinstance(outermost.ub.owner, arith.MinSIOp)
