"""Writing at computed positions, against eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support import check, check_all

import flambeau
from flambeau.engines.errors import RunError

PUT = torch.ops.aten.index_put.default
NAN, INF = float("nan"), float("inf")


def ramp(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small integers as data: sums are exact, so that order does not matter."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7 % 11) - 5).reshape(shape).to(dtype)


def spread(*shape: int, below: int) -> torch.Tensor:
    """Make indices below a limit, with repetitions, in no order."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 37 + 11) % 101 % below).reshape(shape)


def ints(*values: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


# --- scatter ---


@pytest.mark.parametrize("dynamic", [False, True])
def test_scatter_writes_a_corner_and_the_last_write_wins(dynamic: bool) -> None:
    x, index, src = ramp(5, 6, 7), spread(4, 9, 7, below=6), ramp(5, 9, 8)
    check_all(
        [
            (lambda x, i, s: x.scatter(1, i, s), (x, index, src)),
            (lambda x, i, s: x.scatter(-2, i, s), (x.to(torch.int8), index, src.to(torch.int8))),
            (lambda x, i: x.scatter(1, i, 2.5), (x, index)),
            (lambda x, i: x.scatter(1, i, True), (x > 0, index)),
            (lambda x, i, s: x.scatter(0, i, s), (ramp(6), ints(3, 1, 3), ints(7, 8, 9).float())),
            (lambda x, i, s: x.scatter(0, i, s), (ramp(6), ints(5, 4, 3, 2, 1, 0), torch.arange(6).float())),
        ],
        dynamic=dynamic,
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_scatter_add_sums_all_updates_of_a_place(dynamic: bool) -> None:
    x, index, src = ramp(5, 6, 7), spread(4, 9, 7, below=6), ramp(5, 9, 8)
    check_all(
        [
            (lambda x, i, s: x.scatter_add(1, i, s), (x, index, src)),
            (lambda x, i, s: x.scatter_add(1, i, s), (x.to(torch.int64), index, src.to(torch.int64))),
            (lambda x, i, s: x.scatter(1, i, s, reduce="add"), (x, index, src)),
            (lambda x, i, s: x.scatter(1, i, s, reduce="multiply"), (x, index, src)),
            (lambda x, i: x.scatter(1, i, 2, reduce="multiply"), (x, index)),
            (lambda x, i: x.scatter(1, i, 0.5, reduce="add"), (x, index)),
        ],
        dynamic=dynamic,
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_rows_are_scattered_with_an_expanded_index(dynamic: bool) -> None:
    check_all(
        [
            (
                lambda x, i, s: x.scatter_add(0, i[:, None].expand(-1, 7), s),
                (ramp(5, 7), spread(9, below=5), ramp(9, 7)),
            ),
            (lambda x, i, s: x.scatter_add(1, i.expand(5, -1), s), (ramp(5, 7), spread(9, below=7), ramp(5, 9))),
            # Only a part of the rows: the index does not reach the end of the destination.
            (lambda x, i, s: x.scatter(0, i[:, None].expand(-1, 3), s), (ramp(5, 7), spread(9, below=5), ramp(9, 7))),
            (
                lambda x, i, s: x.scatter_add(1, i[:, :, None].expand_as(s), s),
                (ramp(2, 5, 3), spread(2, 8, below=5), ramp(2, 8, 3)),
            ),
        ],
        dynamic=dynamic,
    )


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bfloat16])
def test_scatter_reduce_with_each_reduction(include_self: bool, dtype: torch.dtype) -> None:
    x, index, src = ramp(4, 8, dtype=dtype), spread(4, 5, below=8), ramp(4, 5, dtype=dtype) + 1

    def reduce(kind: str) -> Any:
        return lambda x, i, s: x.scatter_reduce(1, i, s, kind, include_self=include_self)

    check_all([(reduce(kind), (x, index, src)) for kind in ("sum", "prod", "mean", "amax", "amin")])


def test_nan_and_infinity_survive_reductions() -> None:
    x = torch.tensor([1.0, NAN, -INF, 2.0])
    src = torch.tensor([NAN, 3.0, INF, 4.0, -INF, 5.0])
    index = ints(0, 1, 2, 2, 3, 3)
    check_all(
        [
            (lambda x, i, s: x.scatter_reduce(0, i, s, "amax"), (x, index, src)),
            (lambda x, i, s: x.scatter_reduce(0, i, s, "amin", include_self=False), (x, index, src)),
            (lambda x, i, s: x.scatter_reduce(0, i, s, "sum", include_self=False), (x, index, src)),
        ]
    )


def test_scatter_of_scalars_and_of_nothing() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    check_all(
        [
            (lambda x, i, s: x.scatter(0, i, s), (torch.tensor(1.0), torch.tensor(0), torch.tensor(2.0))),
            (lambda x, i: x.scatter(0, i, 4), (torch.tensor(1.0), torch.tensor(0))),
            (lambda x, i, s: x.scatter_add(0, i, s), (ramp(3), torch.tensor(2), torch.tensor(5.0))),
            (lambda x, i, s: x.scatter_add(0, i, s), (ramp(3), none, torch.zeros(0))),
            (lambda x, i, s: x.scatter(1, i, s), (torch.zeros(0, 3), none.reshape(0, 3), torch.zeros(0, 3))),
            (lambda x, i, v: PUT(x, [i], v), (ramp(3, 2), none, torch.zeros(0, 2))),
            (lambda x, i, v: x.index_add(0, i, v), (ramp(3, 2), none, torch.zeros(0, 2))),
        ]
    )


def test_sixteen_bit_sums_are_rounded_once() -> None:
    ones, target = torch.ones(4096, dtype=torch.float16), torch.zeros(1, dtype=torch.float16)
    module = flambeau.compile(
        lambda x, i, s: x.index_add(0, i, s), (target, torch.zeros(4096, dtype=torch.int64), ones)
    )
    run = flambeau.load(module, engine="iree", profile="quick", device="local-sync")
    assert run(target, torch.zeros(4096, dtype=torch.int64), ones).item() == 4096


# --- index_put ---


@pytest.mark.parametrize("dynamic", [False, True])
def test_index_put_with_every_kind_of_index_list(dynamic: bool) -> None:
    x = ramp(5, 6, 7)
    i, j = ints(0, -1, 3, 3), ints([1], [-2])
    check_all(
        [
            (lambda x, i, v: PUT(x, [i], v), (x, i, ramp(4, 6, 7))),
            (lambda x, i, v: PUT(x, [i], v), (x, i, ramp(7))),
            (lambda x, i, v: PUT(x, [None, i], v), (x, i, ramp(5, 1, 7))),
            (lambda x, i, v: PUT(x, [None, None, i], v), (x, i, torch.tensor(9.0))),
            (lambda x, i, j, v: PUT(x, [i, j], v), (x, i, j, ramp(2, 4, 7))),
            (lambda x, i, j, v: PUT(x, [None, i, j], v), (x, i, j, ramp(5, 2, 4))),
            (lambda x, i, j, v: PUT(x, [i, None, j], v), (x, i, j, ramp(2, 4, 6))),
            (lambda x, i, j, v: PUT(x, [i, None, j], v), (x, i, j, ramp(4, 1))),
            (lambda x, i, v: PUT(x, [i], v), (x, ints(2, 0, 2, 1, 2), ramp(5, 6, 7) + 1)),
            (lambda x, i, v: torch.ops.aten._unsafe_index_put.default(x, [i], v), (x, i, ramp(4, 6, 7))),
            (lambda x, i, v: torch.ops.aten._index_put_impl.default(x, [i], v, True, True), (x, i, ramp(4, 6, 7))),
        ],
        dynamic=dynamic,
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_index_put_accumulates(dynamic: bool) -> None:
    x, i, j = ramp(5, 6, 7), ints(0, -1, 3, 3, 0, 0), ints([1], [-2])
    check_all(
        [
            (lambda x, i, v: PUT(x, [i], v, True), (x, i, ramp(6, 6, 7))),
            (lambda x, i, j, v: PUT(x, [i, None, j], v, True), (x, i, j, torch.tensor(2.0))),
            (lambda x, i, v: PUT(x, [None, i], v, True), (x.to(torch.int16), i, ramp(5, 6, 7, dtype=torch.int16))),
            (lambda x, i, v: PUT(x, [i], v, True), (x.half(), i, ramp(6, 6, 7).half())),
            (lambda x, i, v: PUT(x, [None, i], v, True), (x, ints(2, 2), ramp(5, 2, 7))),
        ],
        dynamic=dynamic,
    )


def test_a_key_value_cache_gets_a_row() -> None:
    def step(cache: torch.Tensor, position: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        cache = cache.clone()
        cache[:, :, position] = new
        return cache

    check_all(
        [
            (step, (ramp(1, 3, 8, 4), ints(5), ramp(1, 3, 1, 4) + 20)),
            (step, (ramp(1, 3, 8, 4), ints(5, 6, 7, 0, 1), ramp(1, 3, 5, 4) + 20)),
        ]
    )


def test_masks_choose_where_a_value_goes() -> None:
    x = ramp(5, 6, 7)
    plane = (torch.arange(30) % 3 == 1).reshape(5, 6)
    rest = (torch.arange(42) % 4 == 1).reshape(6, 7)

    def assign(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[mask] = 0.5
        return x

    check_all(
        [
            (assign, (x, x > 2)),
            (assign, (x, plane)),
            (lambda x, m, v: PUT(x, [m], v), (x, plane, ramp(7))),
            (lambda x, m, v: PUT(x, [m], v), (x, plane, ramp(1, 7))),
            (lambda x, m, v: PUT(x, [None, m], v), (x, rest, ramp(5, 1))),
            (lambda x, m, v: PUT(x, [None, m], v), (x, plane[0], ramp(5, 1, 7))),
            (lambda x, m, v: PUT(x, [m], v, True), (x, plane, torch.tensor(3.0))),
            (lambda x, m, v: PUT(x, [m], v), (x, plane, ramp(int(plane.sum()), 7))),
            (lambda x, m, v: PUT(x, [None, m], v), (x, rest, ramp(5, int(rest.sum())))),
        ]
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_masked_scatter_takes_the_source_in_order(dynamic: bool) -> None:
    x = ramp(4, 6)
    check_all(
        [
            (lambda x, m, s: x.masked_scatter(m, s), (x, x > 0, torch.arange(30.0))),
            (
                lambda x, m, s: x.masked_scatter(m, s),
                (x, ints(0, 1, 1, 0, 0, 1).bool(), torch.arange(30.0).reshape(5, 6)),
            ),
        ],
        dynamic=dynamic,
    )


# --- One index tensor ---


@pytest.mark.parametrize("dynamic", [False, True])
def test_whole_slices_are_added_copied_and_filled(dynamic: bool) -> None:
    x, i = ramp(5, 6, 7), ints(1, 1, 0, 5, 1, dtype=torch.int32)
    check_all(
        [
            (lambda x, i, s: x.index_add(1, i, s), (x, i, ramp(5, 5, 7))),
            (lambda x, i, s: x.index_add(-2, i, s, alpha=3), (x.int(), i, ramp(5, 5, 7).int())),
            (lambda x, i, s: x.index_add(0, i, s, alpha=0.5), (x, ints(4, 4), ramp(2, 6, 7))),
            (lambda x, i, s: x.index_copy(1, i, s), (x, ints(5, 0, 3, 1, 2), ramp(5, 5, 7))),
            (lambda x, i, s: x.index_copy(-1, i, s), (x, ints(6, 0), ramp(5, 6, 2))),
            (lambda x, i: x.index_fill(1, i, 2.5), (x, ints(1, -1, 0, 3, 3))),
            (lambda x, i, v: x.index_fill(2, i, v), (x, ints(-7), torch.tensor(4.0))),
            (lambda x, i, s: x.index_reduce(1, i, s, "amax", include_self=False), (x, i.long(), ramp(5, 5, 7))),
            (lambda x, i, s: x.put(i, s), (x, ints([1, -1], [0, 209]), ramp(2, 2) + 50)),
            (lambda x, i, s: x.put(i, s, accumulate=True), (x, ints(3, 3, 3, 3, 3), ramp(5))),
        ],
        dynamic=dynamic,
    )


def test_indexed_writes_to_scalars() -> None:
    zero = ints(0)
    check_all(
        [
            (lambda x, i, s: x.index_add(0, i, s), (torch.tensor(2.0), zero, torch.tensor(3.0))),
            (lambda x, i, s: x.index_copy(0, i, s), (torch.tensor(2.0), zero, torch.tensor(3.0))),
            (lambda x, i: x.index_fill(0, i, 7), (torch.tensor(2.0), zero)),
            (lambda x, i, s: x.index_copy(0, i, s), (ramp(3), torch.tensor(2), torch.tensor(3.0))),
        ]
    )


def test_many_updates_in_no_order() -> None:
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(0, 500, (3000,), generator=generator)
    rows, columns = (torch.randint(0, 90, (5000,), generator=generator) for _ in range(2))
    check_all(
        [
            (lambda x, i, s: x.index_add(0, i, s), (ramp(500, 16), index, ramp(3000, 16))),
            (lambda x, i, s: x.scatter(0, i, s), (ramp(500), index, torch.arange(3000.0))),
            (lambda x, i, j, s: PUT(x, [i, j], s, True), (ramp(90, 90), rows, columns, ramp(5000))),
            (lambda x, i, s: PUT(x, [i], s, True), (ramp(90), rows.int(), ramp(5000))),
        ]
    )


def test_a_dynamic_program_runs_with_other_sizes_and_with_nothing() -> None:
    def both(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.index_add(0, i, s), x.index_copy(0, i, s)

    module = check(both, ramp(5, 3), ints(4, 1, 2), ramp(3, 3), dynamic=True)
    run = flambeau.load(module, engine="iree", profile="quick", device="local-sync")
    for rows, count in ((70, 33), (6, 2), (5, 0)):
        args = (ramp(rows, 4), torch.arange(count).flip(0), ramp(count, 4))
        for actual, expected in zip(run(*args)[0], both(*args), strict=True):
            assert torch.equal(actual, expected)


def test_indices_out_of_range_stop_the_program() -> None:
    x = ramp(4, 3)
    cases = [
        (lambda x, i, s: PUT(x, [i], s), ints(0, -4), ints(0, 4), ramp(2, 3)),
        (lambda x, i, s: x.scatter(0, i, s), ints([0, 3]), ints([0, -1]), ramp(1, 2)),
        (lambda x, i, s: x.index_add(0, i, s), ints(0, 3), ints(0, 4), ramp(2, 3)),
        (lambda x, i, s: x.index_copy(0, i, s), ints(0, 3), ints(0, -1), ramp(2, 3)),
    ]
    for function, good, bad, source in cases:
        run = flambeau.load(check(function, x, good, source), engine="iree", profile="quick", device="local-sync")
        with pytest.raises(RunError, match="index out of range"):
            run(x, bad, source)
