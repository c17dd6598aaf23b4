"""Reading at computed positions, against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import check, check_all
from torch.nn import functional as F

import flambeau
from flambeau.engines.errors import RunError

INDEX = torch.ops.aten.index.Tensor

Function = Callable[..., Any]


def ramp(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Elements that are all different."""
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)


def ints(*values: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def fails_at_run_time(function: Function, good: tuple[torch.Tensor, ...], bad: tuple[torch.Tensor, ...]) -> None:
    """Assert that the good inputs run, and that the bad ones raise that an index is out of range."""
    run = flambeau.load(check(function, *good), engine="iree", profile="quick", device="local-sync")
    with pytest.raises(RunError, match="index out of range"):
        run(*bad)


@pytest.mark.parametrize("dynamic", [False, True])
def test_embedding_takes_indices_of_any_rank(dynamic: bool) -> None:
    weight = ramp(10, 4)
    check_all(
        [
            (lambda w, i: F.embedding(i, w), (weight, ints([1, 9, 0], [3, 3, 3]))),
            (lambda w, i: F.embedding(i, w, padding_idx=3), (weight, ints(3, 1, 4, dtype=torch.int32))),
            (lambda w, i: F.embedding(i, w), (weight.bfloat16(), torch.tensor(7))),
            (lambda w, i: F.embedding(i, w), (weight.half(), torch.zeros(2, 3, 2, dtype=torch.int64))),
            (lambda w, i: F.embedding(i, w), (weight, torch.zeros(2, 0, dtype=torch.int64))),
        ],
        dynamic=dynamic,
    )


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_embedding_bags(mode: str, dynamic: bool) -> None:
    """The second bag is empty, and with a padding index so is the last."""
    weight, indices, offsets = torch.randn(10, 4), ints(1, 2, 4, 5, 4, 3, 2, 9, 4), ints(0, 4, 4, 8)
    cases: list[tuple[Function, tuple[torch.Tensor, ...]]] = [
        (lambda w, i, o: F.embedding_bag(i, w, o, mode=mode), (weight, indices, offsets)),
        (lambda w, i, o: F.embedding_bag(i, w, o, mode=mode, padding_idx=4), (weight, indices, offsets)),
        (lambda w, i: F.embedding_bag(i, w, mode=mode), (weight.half(), indices.view(3, 3))),
        (
            lambda w, i, o: F.embedding_bag(i, w, o, mode=mode, include_last_offset=True),
            (weight, indices, ints(0, 3, 9)),
        ),
    ]
    if mode == "sum":
        scales = torch.randn(9)
        cases.append(
            (
                lambda w, i, o, s: F.embedding_bag(i, w, o, mode=mode, per_sample_weights=s),
                (weight, indices, offsets, scales),
            )
        )
    check_all(cases, dynamic=dynamic)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bags_of_other_dtypes_and_sizes(mode: str) -> None:
    narrow = {"dtype": torch.int32}
    indices, offsets = ints(1, 2, 4, 0, 4, **narrow), ints(0, 0, 3, **narrow)
    check_all(
        [
            (lambda w, i, o: F.embedding_bag(i, w, o, mode=mode), (torch.randn(5, 3).double(), indices, offsets)),
            (lambda w, i, o: F.embedding_bag(i, w, o, mode=mode), (torch.randn(5, 1).bfloat16(), indices, offsets)),
            (lambda w, i, o: F.embedding_bag(i, w, o, mode=mode), (torch.randn(5, 17), indices, ints(0, **narrow))),
            (
                lambda w, i, o: F.embedding_bag(i, w, o, mode=mode),
                (torch.randn(5, 3), indices[:0], ints(0, 0, **narrow)),
            ),
            (
                lambda w, i, o: F.embedding_bag(i, w, o, mode=mode, padding_idx=-1),
                (torch.randn(5, 3), indices, offsets),
            ),
        ]
    )


@pytest.mark.parametrize("offsets", [ints(0, 6), ints(1, 2)], ids=["behind", "before"])
def test_offsets_of_bags_are_guarded(offsets: torch.Tensor) -> None:
    weight, indices = torch.randn(5, 3), ints(1, 2, 4, 0, 4)
    module = flambeau.compile(lambda w, i, o: F.embedding_bag(i, w, o, mode="sum"), (weight, indices, ints(0, 3)))
    run = flambeau.load(module, engine="iree", profile="quick", device="local-sync")
    with pytest.raises(Exception, match="offsets must"):
        run(weight, indices, offsets)
    with pytest.raises(Exception, match="index out of range"):
        run(weight, indices + 1, ints(0, 3))


@pytest.mark.parametrize("dynamic", [False, True])
def test_index_select_along_each_dim(dynamic: bool) -> None:
    x = ramp(3, 4, 5)
    check_all(
        [
            (lambda x, i: torch.index_select(x, 0, i), (x, ints(2, 0))),
            (lambda x, i: torch.index_select(x, 1, i), (x, ints(3, 3, 0, 1, 2, dtype=torch.int32))),
            (lambda x, i: torch.index_select(x, -1, i), (x, ints(4))),
            (lambda x, i: torch.index_select(x, 0, i), (x, torch.tensor(1))),
            (lambda x, i: torch.index_select(x, 0, i), (torch.tensor(3.0), ints(0))),
            (lambda x, i: torch.index_select(x, 1, i), (x, torch.zeros(0, dtype=torch.int64))),
            (lambda x, i: torch.index_select(x, 1, i), (torch.zeros(0, 4), ints(1, 2))),
        ],
        dynamic=dynamic,
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_gather_reads_a_corner_of_larger_tensors(dynamic: bool) -> None:
    x = ramp(3, 4, 5)
    check_all(
        [
            (lambda x, i: torch.gather(x, 1, i), (x, torch.arange(2 * 6 * 3).reshape(2, 6, 3) % 4)),
            (lambda x, i: torch.gather(x, -1, i), (x, torch.arange(3 * 4 * 2).reshape(3, 4, 2) % 5)),
            (lambda x, i: torch.gather(x, 0, i), (x > 9, torch.arange(24).reshape(2, 4, 3) % 3)),
            (lambda x, i: torch.gather(x, 0, i), (torch.tensor(5), torch.tensor(0))),
            (lambda x, i: torch.gather(x, 0, i), (torch.tensor(5), ints(0, 0))),
            (lambda x, i: torch.gather(x, 0, i), (ramp(4), torch.tensor(2))),
            (lambda x, i: torch.gather(x, 1, i), (x, torch.zeros(3, 0, 5, dtype=torch.int64))),
            (lambda x, i: torch.take_along_dim(x, i, 1), (x, ints([[3], [0]]))),
        ],
        dynamic=dynamic,
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_take_counts_over_the_whole_tensor(dynamic: bool) -> None:
    x = ramp(3, 4)
    check_all(
        [
            (lambda x, i: torch.take(x, i), (x, ints([0, -1], [11, -12]))),
            (lambda x, i: torch.take(x, i), (x, torch.tensor(-2))),
            (lambda x, i: torch.take(x, i), (torch.tensor(2.0), ints(0, -1))),
            (lambda x, i: torch.take(x, i), (x, torch.zeros(0, 3, dtype=torch.int64))),
        ],
        dynamic=dynamic,
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_index_tensors_broadcast_and_stand_where_pytorch_puts_them(dynamic: bool) -> None:
    x = ramp(5, 6, 7, 3)
    i, j = ints(0, -1, 3), ints([1], [-2])
    check_all(
        [
            (lambda x, i: x[i], (x, i)),
            (lambda x, i: x[:, i], (x, i)),
            (lambda x, i: x[..., i], (x, ints([2, -3], [0, 1]))),
            (lambda x, i, j: x[i, j], (x, i, j)),
            (lambda x, i, j: x[:, i, j], (x, i, j)),
            (lambda x, i, j: x[i, :, j], (x, i, j)),
            (lambda x, i, j: x[:, i, :, j], (x, i, ints([1], [-2]))),
            (lambda x, i, j, k: INDEX(x, [i, j, k, k]), (x, i, j, ints(0))),
            (lambda x, i: x[1:, i, 2], (x, i)),
            (lambda x, i: x[i, None, 2:4], (x, i)),
        ],
        dynamic=dynamic,
    )


def test_element_and_index_types() -> None:
    x = ramp(4, 3)
    i = ints(3, -4, 1, dtype=torch.int32)
    kinds = [
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int8,
        torch.uint8,
        torch.int64,
        torch.bool,
        torch.complex64,
    ]
    check_all([(lambda x, i: x[i], (x.to(d), i)) for d in kinds])


def test_indexing_with_nothing_and_of_nothing() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    check_all(
        [
            (lambda x, i: x[i], (ramp(4, 3), none)),
            (lambda x, i: x[:, i], (torch.zeros(0, 3), ints(1, 2))),
            (lambda x, i: x[i], (torch.zeros(0, 3), none)),
            (lambda x, i: x[i, i], (ramp(4, 3), none)),
            (lambda x, i: INDEX(x, [None, i]), (ramp(4, 3), ints(2))),
        ]
    )


def test_unsafe_index_reads_like_index() -> None:
    check(lambda x, i: torch.ops.aten._unsafe_index.Tensor(x, [None, i]), ramp(4, 3), ints(2, -1))


@pytest.mark.parametrize("dynamic", [False, True])
def test_masked_indices_may_be_anything(dynamic: bool) -> None:
    x, index = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 99, -1, 3, -77])
    mask = torch.tensor([True, False, True, True, False])
    check(
        lambda x, m, i: torch.ops.aten._unsafe_masked_index(x, m, [i, i.clamp(0, 2)], 7),
        x,
        mask,
        index,
        dynamic=dynamic,
    )


def test_upsampled_images_are_read_by_index() -> None:
    check(lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), ramp(1, 2, 3, 4))


def test_indices_out_of_range_stop_the_program() -> None:
    x = ramp(4, 3)
    fails_at_run_time(lambda x, i: x[i], (x, ints(-4, 3)), (x, ints(0, 4)))
    fails_at_run_time(lambda x, i: x[:, i], (x, ints(-3, 2)), (x, ints(-4, 0)))
    fails_at_run_time(lambda x, i: F.embedding(i, x), (x, ints(0, 3)), (x, ints(0, 1 << 40)))


def test_negative_indices_are_refused_where_pytorch_refuses_them() -> None:
    x = ramp(4, 3)
    fails_at_run_time(lambda x, i: F.embedding(i, x), (x, ints(0, 3)), (x, ints(0, -1)))
    fails_at_run_time(lambda x, i: torch.index_select(x, 1, i), (x, ints(0, 2)), (x, ints(0, -1)))
    fails_at_run_time(lambda x, i: torch.gather(x, 0, i), (x, ints([0, 2])), (x, ints([0, -1])))


def test_masks_select_as_many_elements_as_are_true() -> None:
    x = ramp(5, 6, 3)
    plane = (torch.arange(30) % 3 == 1).reshape(5, 6)
    check_all(
        [
            (lambda x, m: x[m], (x, plane)),
            (lambda x, m: x[:, m], (x, ints(1, 0, 0, 1, 1, 0).bool())),
            (lambda x, m: x[m], (x, x % 7 == 0)),
            (lambda x, m: x[m], (x, torch.zeros(5, dtype=torch.bool))),
            (lambda x, m: x[m], (x, torch.ones(5, 6, dtype=torch.bool))),
            (lambda x, m: torch.masked_select(x, m), (x, ints(0, 1, 1).bool())),
            (lambda x, m: torch.masked_select(x, m), (torch.tensor(2.0), ints(0, 1, 1).bool())),
            (lambda x: torch.nonzero(x), (ints([0, 2, -1], [0, 0, 5]),)),
            (lambda x: torch.nonzero(x), (torch.zeros(3),)),
            (lambda x, m: x[m].sum(0) * 2, (x, plane)),
        ]
    )


def test_masks_of_dynamic_size() -> None:
    x = ramp(5, 4)
    module = check(lambda x, m: x[m], x, ints(0, 1, 0, 1, 1).bool(), dynamic=True)
    run = flambeau.load(module, engine="iree", profile="quick", device="local-sync")
    more, mask = ramp(70, 3), torch.arange(70) % 9 == 4
    assert torch.equal(run(more, mask)[0], more[mask])


@pytest.mark.engine
def test_counts_of_numbers() -> None:
    x, w = torch.tensor([3, 0, 3, 1, 7]), torch.rand(5)
    cases: list[Any] = [
        (torch.bincount, (x,)),
        (lambda x: torch.bincount(x, minlength=12), (x.int(),)),
        (lambda x: torch.bincount(x, minlength=4), (x[:0],)),
        (lambda x: torch.bincount(x), (x[:0],)),
        (torch.bincount, (x, w)),
        (torch.bincount, (x.to(torch.uint8), w.double())),
        (torch.bincount, (x, w.half())),
        (lambda x, i: torch.tensor_split(x, i), (torch.arange(20).reshape(5, 4), torch.tensor([1, 3]))),
        (lambda x, i: torch.tensor_split(x, i, 1), (torch.arange(20).reshape(5, 4), torch.tensor([0, 2, 9]))),
    ]
    check_all(cases)
    check_all([(torch.bincount, (x, w))], dynamic=True)
    run = flambeau.load(flambeau.compile(torch.bincount, (x,)), profile="quick")
    with pytest.raises(RuntimeError, match="non-negative"):
        run(torch.tensor([3, 0, -1, 1, 7]))
