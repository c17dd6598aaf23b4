"""Calls after the first, which take the short way where they can: `engines/iree/quick_calls.py`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import flambeau
from flambeau.engines.iree.quick_calls import MISSED
from flambeau.ir.arrays import GradientError

pytestmark = pytest.mark.engine


def warm(function: Callable[..., Any], *args: Tensor) -> Any:
    """Return a program that has been called."""
    run = flambeau.load(flambeau.compile(function, args), profile="quick", device="local-sync")
    run(*args)
    return run


@pytest.fixture(scope="module")
def add() -> Any:
    return warm(torch.add, torch.ones(4, 4), torch.ones(4, 4))


def is_quick(run: Any, *args: Tensor) -> bool:
    return run._program.quick(args) is not MISSED


def test_the_short_way_is_taken(add: Any) -> None:
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    assert is_quick(add, x, y)
    assert torch.equal(add(x, y), x + y)


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(4, 4).T,
        torch.randn(8, 4)[::2],
        torch.randn(17)[1:].view(4, 4),
        torch.randn(4, 1).expand(4, 4),
        torch.randn(4, 4, dtype=torch.complex64).conj().imag,
        torch.nn.Parameter(torch.randn(4, 4), requires_grad=False),
        torch.randn(4, 4).requires_grad_(),
    ],
    ids=["transposed", "strided", "misaligned", "expanded", "negated", "parameter", "tracked"],
)
def test_the_long_way_is_taken(add: Any, x: Tensor) -> None:
    y = torch.ones(4, 4)
    with torch.no_grad():
        assert not is_quick(add, x, y)
        assert not is_quick(add, y, x)
        assert torch.equal(add(x, y), x + y)
        assert torch.equal(add(y, x), x + y)


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((torch.ones(4, 4),), TypeError),
        ((torch.ones(4, 4),) * 3, TypeError),
        ((torch.ones(4, 4), torch.ones(4, 5)), ValueError),
        ((torch.ones(4, 4), torch.ones(16)), ValueError),
        ((torch.ones(4, 4), torch.ones(4, 4).double()), TypeError),
        ((torch.ones(4, 4), torch.ones(4, 4).int()), TypeError),
        ((torch.ones(4, 4), torch.ones(4, 4, device="meta")), Exception),
        ((torch.ones(4, 4), torch.ones(4, 4).to_sparse()), Exception),
        ((torch.ones(4, 4), 1.0), TypeError),
        ((torch.ones(4, 4), torch.ones(4, 4).requires_grad_()), GradientError),
    ],
)
def test_what_is_wrong_is_said_in_every_call(add: Any, args: tuple[Any, ...], error: type[Exception]) -> None:
    fresh = flambeau.load(flambeau.compile(torch.add, (torch.ones(4, 4),) * 2), profile="quick", device="local-sync")
    said = []
    for run in (fresh, add):
        with pytest.raises(error) as caught:
            run(*args)
        said.append((caught.type, str(caught.value)))
    assert said[0] == said[1]


def test_numpy_arrays_give_numpy_arrays(add: Any) -> None:
    x = np.ones((4, 4), np.float32)
    assert isinstance(add(x, x), np.ndarray)


def test_no_result_shares_memory_with_an_argument() -> None:
    x = torch.randn(4, 16)
    for function in (lambda x: x.view(-1), lambda x: (x.view(-1), x + 1), lambda x: [x * 2] * 2, lambda x: x[1]):
        run = warm(function, x)
        assert is_quick(run, x)
        results = run(x)
        tensors = [results] if isinstance(results, Tensor) else [*results]
        before = [t.clone() for t in tensors]
        x += 1
        tensors[0] += 5
        for i, (t, old) in enumerate(zip(tensors, before, strict=True)):
            assert torch.equal(t, old + 5 * (i == 0))


def test_results_of_all_kinds() -> None:
    x, y = torch.randn(5, 3), torch.arange(15).reshape(5, 3)

    def function(x: Tensor, y: Tensor) -> dict[str, Any]:
        return {"a": x > 0, "b": [y.to(torch.uint8), y + 1], "c": 7, "d": x[:0], "e": x.sum()}

    run = warm(function, x, y)
    assert is_quick(run, x, y)
    got, expected = run(x, y), function(x, y)
    assert got["c"] == 7
    for a, b in zip(
        (got["a"], *got["b"], got["d"], got["e"]),
        (expected["a"], *expected["b"], expected["d"], expected["e"]),
        strict=True,
    ):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b)


def test_what_stops_at_run_time_says_so() -> None:
    x, i = torch.randn(4), torch.tensor([1])
    run = warm(lambda x, i: x[i], x, i)
    with pytest.raises(flambeau.engines.RunError):
        run(x, torch.tensor([9]))


def test_programs_with_state_take_the_long_way() -> None:
    x = torch.ones(3)
    norm = torch.nn.BatchNorm1d(3).train()
    run = warm(norm, x.expand(4, 3).contiguous())
    assert not is_quick(run, x.expand(4, 3).contiguous())


def opened(function: Callable[..., Any], args: tuple[Any, ...], shapes: Any) -> Any:
    """Return a program of dynamic shapes that has been called."""
    module = flambeau.compile(function, args, dynamic_shapes=shapes)
    run = flambeau.load(module, profile="quick", device="local-sync")
    run(*args)
    return run


def test_open_sizes_take_the_short_way() -> None:
    run = opened(torch.neg, (torch.ones(3),), ({0: torch.export.Dim.DYNAMIC},))
    for n in (3, 4, 5):
        assert is_quick(run, torch.ones(n))
        assert torch.equal(run(torch.ones(n)), -torch.ones(n))
    assert not is_quick(run, torch.ones(0))
    assert run(torch.ones(0)).shape == (0,)
    assert not is_quick(run, torch.ones(6)[::2])
    with pytest.raises(ValueError, match="expected a tensor"):
        run(torch.ones(3, 3))


def test_open_sizes_are_what_they_may_be() -> None:
    rows, columns = torch.export.Dim("rows", min=2, max=6), torch.export.Dim("columns")
    x, y = torch.randn(3, 4), torch.randn(6, 4)
    run = opened(lambda x, y: (torch.cat([x, x]) + y)[1:], (x, y), ({0: rows, 1: columns}, {0: 2 * rows, 1: columns}))
    for n in (2, 6):
        x, y = torch.randn(n, 5), torch.randn(2 * n, 5)
        assert is_quick(run, x, y)
        assert torch.equal(run(x, y), (torch.cat([x, x]) + y)[1:])
    for wrong in ((7, 5, 14, 5), (3, 5, 7, 5), (3, 5, 6, 4)):
        x, y = torch.randn(*wrong[:2]), torch.randn(*wrong[2:])
        assert not is_quick(run, x, y)
        with pytest.raises(ValueError, match="must be"):
            run(x, y)


def test_results_without_elements_of_open_sizes() -> None:
    def program(x: Tensor, n: int) -> Tensor:
        return x[0] * x.new_ones(n)

    run = opened(program, (torch.ones(5), 3), ({0: torch.export.Dim("m")}, torch.export.Dim.DYNAMIC))
    assert is_quick(run, torch.ones(5), 3)
    for n in (5, 0, 4):
        assert run(torch.ones(5), n).tolist() == [1.0] * n


def test_numbers_take_the_short_way() -> None:
    run = opened(lambda x, n: x * n, (torch.ones(2), 3), (None, torch.export.Dim.DYNAMIC))
    assert is_quick(run, torch.ones(2), 5)
    assert run(torch.ones(2), 5).tolist() == [5.0, 5.0]
    assert not is_quick(run, torch.ones(2), True)


def test_threads(add: Any) -> None:
    def work(i: int) -> bool:
        x, y = torch.full((4, 4), float(i)), torch.ones(4, 4)
        return all(torch.equal(add(x, y), x + y) for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))
