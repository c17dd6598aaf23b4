"""Sorts and selections of any input, against eager PyTorch."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from lowering.linalg.properties import FLOATS, INTS, assert_identical, compiled, examples, filled, kinds, lowered, seeds
from support import Together
from torch import Tensor

DTYPES = (*FLOATS, *INTS, torch.bool)

counts = st.one_of(st.integers(0, 30), st.sampled_from([24, 25, 255, 256, 257, 300]))
"""Lengths of rows: short ones are sorted in another way than long ones, and a digit has 256 values."""


def sorts(x: Tensor) -> list[Tensor]:
    """Both directions along each of two dims, as values and positions in turn."""
    return [t for d in (0, 1) for down in (False, True) for t in torch.sort(x, dim=d, descending=down, stable=True)]


SORTING = Together({str(d): partial(lowered, sorts, torch.zeros(2, 3, dtype=d)) for d in DTYPES})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sorts_of_any_input_are_stable_and_total(dtype: torch.dtype) -> None:
    run = SORTING[str(dtype)]

    @examples
    @given(rows=st.integers(0, 3), count=counts, kind=kinds, seed=seeds)
    @example(rows=1, count=257, kind="few", seed=0)
    def check(rows: int, count: int, kind: str, seed: int) -> None:
        x = filled((rows, count), dtype, kind, seed)
        for actual, expected in zip(run(x), sorts(x), strict=True):
            assert_identical(actual, expected)

    check()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8, torch.int64], ids=str)
def test_sorts_of_known_size(dtype: torch.dtype) -> None:
    """Rows of a size that the compiler knows take one of the two ways, without a branch."""
    tensors = [torch.zeros(2, n, dtype=dtype) for n in (1, 2, 24, 25, 257)]

    def all_sorts(*tensors: Tensor) -> list[Tensor]:
        return [t for i, x in enumerate(tensors) for t in torch.sort(x, stable=True, descending=i % 2 == 0)]

    run = compiled(all_sorts, *tensors, dynamic=False)

    @examples
    @given(kind=kinds, seed=seeds)
    def check(kind: str, seed: int) -> None:
        given = [filled(tuple(t.shape), dtype, kind, seed + i) for i, t in enumerate(tensors)]
        for actual, expected in zip(run(*given), all_sorts(*given), strict=True):
            assert_identical(actual, expected)

    check()


def assert_selected(x: Tensor, dim: int, actual: tuple[Tensor, Tensor], expected: Tensor) -> None:
    """Assert that values are eager's, in order, and that positions are distinct and hold those values.

    Which of equal elements is taken is free, so of two zeros the sign is.
    """
    values, positions = actual
    torch.testing.assert_close(values, expected, rtol=0, atol=0, equal_nan=True)
    if x.numel():
        assert_identical(x.gather(dim, positions), values)
    ordered = positions.sort(dim).values
    steps = ordered.diff(dim=dim)
    assert bool((steps > 0).all())


def selections(x: Tensor, like: Tensor) -> list[Tensor]:
    """Select the k largest and the k smallest; k is the size of another tensor, so that it is free too."""
    k = like.shape[0]
    return [t for largest in (True, False) for t in torch.topk(x, k, -1, largest)]


SELECTING = Together(
    {str(d): partial(lowered, selections, torch.zeros(3, 7, dtype=d), torch.zeros(5)) for d in (*FLOATS, *INTS)}
)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS], ids=str)
def test_selections_of_any_input(dtype: torch.dtype) -> None:
    run = SELECTING[str(dtype)]

    @examples
    @given(rows=st.integers(1, 3), count=counts, share=st.floats(0, 1), kind=kinds, seed=seeds)
    @example(rows=2, count=257, share=1.0, kind="few", seed=0)
    @example(rows=2, count=257, share=0.0, kind="few", seed=0)
    def check(rows: int, count: int, share: float, kind: str, seed: int) -> None:
        x, k = filled((rows, count), dtype, kind, seed), round(count * share)
        results = run(x, torch.zeros(k))
        for i, largest in enumerate((True, False)):
            expected = torch.topk(x, k, -1, largest).values
            assert_selected(x, -1, (results[2 * i], results[2 * i + 1]), expected)

    check()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int32], ids=str)
def test_selections_of_known_size(dtype: torch.dtype) -> None:
    cases = [(n, k) for n, k in ((1, 1), (5, 0), (24, 24), (25, 3), (257, 256), (300, 26))]

    def selections(*tensors: Tensor) -> list[Tensor]:
        pairs = (torch.topk(x, k, 0, i % 2 == 0) for i, (x, (_, k)) in enumerate(zip(tensors, cases, strict=True)))
        return [t for pair in pairs for t in pair]

    run = compiled(selections, *(torch.zeros(n, 2, dtype=dtype) for n, _ in cases), dynamic=False)

    @examples
    @given(kind=kinds, seed=seeds)
    def check(kind: str, seed: int) -> None:
        tensors = [filled((n, 2), dtype, kind, seed + n) for n, _ in cases]
        actual, expected = run(*tensors), selections(*tensors)
        for i, x in enumerate(tensors):
            assert_selected(x, 0, (actual[2 * i], actual[2 * i + 1]), expected[2 * i])

    check()


@pytest.mark.parametrize("is_known", [True, False], ids=["of known size", "of any size"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64], ids=str)
def test_selections_of_a_few_of_many(dtype: torch.dtype, is_known: bool) -> None:
    """What is collected on the way is thinned out; of equal elements the first are taken."""

    def selections(x: Tensor) -> tuple[Tensor, ...]:
        return *torch.topk(x, 9), *torch.topk(x, 70, largest=False)

    run = compiled(selections, torch.zeros(2, 4999, dtype=dtype), dynamic=not is_known)
    sizes = st.just(4999) if is_known else st.sampled_from([70, 71, 1024, 1025, 2048, 4096, 9000])

    @examples
    @given(kind=kinds, seed=seeds, count=sizes)
    def check(kind: str, seed: int, count: int) -> None:
        x = filled((2, count), dtype, kind, seed)
        actual = run(x)
        for i, (k, descending) in enumerate(((9, True), (70, False))):
            expected = torch.sort(x, stable=True, descending=descending)
            assert_identical(actual[2 * i], expected.values[:, :k])
            assert_identical(actual[2 * i + 1], expected.indices[:, :k])

    check()
