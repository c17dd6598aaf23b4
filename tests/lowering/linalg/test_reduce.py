"""Reductions against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import support
import torch
from support import check, check_all

import flambeau

NAN, INF = float("nan"), float("inf")

Reduction = Callable[..., Any]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def over_dims(reduction: Reduction, x: torch.Tensor, *dims: Any) -> list[tuple[Reduction, tuple[torch.Tensor]]]:
    """Cases for each of the dims, with and without keepdim."""
    return [(lambda x, d=d, k=k: reduction(x, dim=d, keepdim=k), (x,)) for d in dims for k in (False, True)]


def each(functions: list[Reduction], *inputs: torch.Tensor) -> list[tuple[Reduction, tuple[torch.Tensor]]]:
    return [(f, (x,)) for f in functions for x in inputs]


@pytest.mark.parametrize("dynamic", [False, True])
def test_sums_and_means_over_all_kinds_of_dims(dynamic: bool) -> None:
    x = torch.randn(3, 4, 5)
    cases = []
    for reduction in (torch.sum, torch.mean):
        cases += over_dims(reduction, x, 0, -1, (0, 2), (-1, 1), None, ())
    check_all([*cases, *each([torch.sum, torch.mean], x)], dynamic=dynamic)


def test_sums_of_integers_and_bools_are_int64() -> None:
    check_all(
        each(
            [torch.sum, torch.prod, lambda x: x.sum(0), lambda x: x.prod(-1), torch.count_nonzero],
            torch.tensor([[127, 127], [-128, 3]], dtype=torch.int8),
            torch.tensor([[255, 255], [255, 0]], dtype=torch.uint8),
            torch.tensor([[2**62, 2**62], [2**62, 5]]),
            torch.tensor([[True, True], [False, True]]),
        )
    )


def test_a_given_dtype_is_converted_to_first() -> None:
    check_all(
        [
            (lambda x: x.sum(dtype=torch.float64), (torch.full((300,), 0.1),)),
            (lambda x: x.mean(dtype=torch.float32), (torch.arange(7),)),
            (lambda x: x.sum(0, dtype=torch.int32), (torch.tensor([1.9, 2.9, -1.5]),)),
            (lambda x: x.prod(dtype=torch.float32), (torch.arange(1, 6),)),
        ]
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_floats_accumulate_in_float32(dtype: torch.dtype) -> None:
    ones = torch.ones(4096, dtype=dtype)
    functions = [torch.sum, torch.mean, torch.var, torch.linalg.vector_norm, lambda x: x.logsumexp(0), torch.amax]
    check_all([*each(functions, ones, torch.randn(64).to(dtype)), (torch.prod, (ones[:20] * 1.5,))])


def test_long_float32_sums_keep_their_digits() -> None:
    x = torch.rand(1 << 20) + 1
    y = torch.rand(3, 100, 2, 500)
    check_all(
        [
            (torch.sum, (x,)),
            (lambda x: x.reshape(1024, 1024).sum(), (x,)),
            (lambda x: x.reshape(-1, 4).mean(0), (x,)),
            (lambda y: y.sum((1, 3)), (y,)),
            (lambda y: y.var((1, 3), keepdim=True), (y,)),
            (torch.sum, (torch.rand(100003),)),
            (lambda x: x.var((0, 2)), (torch.rand(2, 3, 100003),)),
        ],
        rtol=1e-6,
    )


def test_reductions_of_0d_tensors_take_dim_0_and_minus_1() -> None:
    functions = [
        torch.sum, torch.mean, torch.prod, torch.amax, torch.max, torch.argmax, torch.any, torch.logsumexp,
        torch.linalg.vector_norm,
    ]  # fmt: skip
    cases = [(lambda x, f=f, d=d: f(x, dim=d), (torch.tensor(-2.5),)) for f in functions for d in (0, -1)]
    check_all([*cases, *each([torch.sum, torch.argmin, torch.max, torch.all, torch.std], torch.tensor(-2.5))])


def test_empty_reductions() -> None:
    x, wide = torch.zeros(0, 3), torch.zeros(2, 0)
    functions = [
        torch.sum, torch.mean, torch.prod, torch.all, torch.any, torch.var, torch.count_nonzero, lambda x: x.sum(0),
        lambda x: x.mean(0), lambda x: x.prod(0), lambda x: x.all(1), lambda x: x.any(0), lambda x: x.std(0),
        lambda x: x.logsumexp(0), lambda x: torch.linalg.vector_norm(x, dim=0),
    ]  # fmt: skip
    check_all([*each(functions, x, wide), *each([lambda x: x.amax(1), lambda x: x.max(1)], x)])


@pytest.mark.parametrize("dynamic", [False, True])
def test_extremes_and_their_positions(dynamic: bool) -> None:
    x = torch.randn(4, 5, 6)
    cases = []
    for reduction in (torch.max, torch.min, torch.argmax, torch.argmin):
        cases += over_dims(reduction, x, 0, -1)
    for reduction in (torch.amax, torch.amin):
        cases += over_dims(reduction, x, 1, (0, -1), ())
    whole = [torch.max, torch.min, torch.argmax, torch.argmin, torch.aminmax, lambda x: torch.aminmax(x, dim=1)]
    check_all([*cases, *each([*whole, lambda x: x.argmax(keepdim=True)], x)], dynamic=dynamic)


def test_ties_give_the_first_position_and_nan_wins() -> None:
    rows = torch.tensor(
        [
            [1.0, 3.0, 3.0, 0.0],
            [NAN, 1.0, NAN, 2.0],
            [-INF, -INF, -INF, -INF],
            [INF, INF, NAN, INF],
            [0.0, -0.0, 0.0, 0.0],
        ]
    )
    functions = [
        lambda x: x.max(1),
        lambda x: x.min(1),
        lambda x: x.argmax(1),
        lambda x: x.amax(0),
        lambda x: x.amin(1),
    ]
    check_all(each([*functions, torch.argmax, torch.argmin, torch.max], rows, rows.half(), rows.double(), rows[:1]))


def test_extremes_of_integers_and_bools() -> None:
    limits = torch.iinfo(torch.int64)
    functions = [lambda x: x.max(-1), lambda x: x.min(-1), torch.amax, torch.amin]
    inputs = [
        torch.tensor([limits.min, limits.min, -1]),
        torch.tensor([limits.max, limits.max]),
        torch.tensor([3, 250, 250], dtype=torch.uint8),
        torch.tensor([-3, -128, 127], dtype=torch.int8),
    ]
    check_all([*each(functions, *inputs), *each([torch.amax, torch.amin, torch.max], torch.tensor([False, True]))])


def test_a_dynamic_dim_that_is_empty_raises_as_in_eager() -> None:
    class Largest(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.amax(0)

    n = torch.export.Dim("n", min=0)
    program = torch.export.export(Largest(), (torch.randn(3, 2),), dynamic_shapes={"x": {0: n}})
    run = flambeau.load(flambeau.compile(program), engine="iree", profile="quick", device="local-sync")
    with pytest.raises(Exception, match="non-zero size"):
        run(torch.zeros(0, 2))


def test_all_and_any() -> None:
    x = torch.tensor([[0.0, NAN, 1.0], [0.0, -0.0, 2.0]])
    cases = []
    for reduction in (torch.all, torch.any):
        cases += over_dims(reduction, x, 0, -1, (0, 1), ())
    inputs = [x, x.to(torch.uint8), x.isnan(), torch.zeros(0), torch.ones(3, dtype=torch.complex64)]
    check_all([*cases, *each([torch.all, torch.any], *inputs)])
    check_all([*cases, *each([torch.all, torch.any], x)], dynamic=True)


@pytest.mark.parametrize("dynamic", [False, True])
def test_variances(dynamic: bool) -> None:
    x = torch.randn(4, 5, 6) + 100
    cases = []
    for reduction in (torch.var, torch.std, torch.var_mean, torch.std_mean):
        cases += over_dims(reduction, x, 1, (0, -1), None)
        cases += [(lambda x, f=reduction: f(x, dim=0, correction=2), (x,)), (reduction, (x,))]
        cases += [(lambda x, f=reduction: f(x, unbiased=False), (x,))]
    check_all(cases, dynamic=dynamic, rtol=1e-4)


def test_variances_with_too_few_elements() -> None:
    x = torch.tensor([[1.0], [2.0], [4.0]])
    cases: list[Any] = [(lambda x, c=c, d=d: x.var(d, correction=c), (x,)) for c in (0, 1, 3, 7, 0.5) for d in (0, 1)]
    cases += [(lambda x, c=c: x.var(0, correction=c), (torch.zeros(0, 2),)) for c in (-1, 0, 1)]
    check_all([*cases, *each([torch.var, torch.std], torch.tensor([1.0, INF]), torch.tensor([NAN, 1.0]))])


def test_variance_of_complex_numbers_is_real() -> None:
    check(lambda x: (x.var(1), x.mean(1), x.sum(1)), torch.randn(3, 5, dtype=torch.complex64), rtol=1e-4)


@pytest.mark.parametrize("dynamic", [False, True])
def test_vector_norms_of_every_order(dynamic: bool) -> None:
    x = torch.randn(3, 4, 5)
    x[0, 0, 0] = 0
    cases: list[Any] = [
        (lambda x, p=p, d=d: torch.linalg.vector_norm(x, p, dim=d, keepdim=True), (x,))
        for p in (0, 1, 2, 3, 0.5, -1, -2, INF, -INF)
        for d in (None, 1, (0, 2))
    ]
    cases += each([torch.norm, lambda x: torch.norm(x, 1), lambda x: torch.norm(x, p=2, dim=1)], x)
    check_all(cases, dynamic=dynamic, rtol=1e-4)


def test_vector_norms_of_other_dtypes() -> None:
    check_all(
        [
            (lambda x: torch.linalg.vector_norm(x, dtype=torch.float32), (torch.full((100,), 100.0).half(),)),
            (torch.linalg.vector_norm, (torch.randn(5, dtype=torch.complex64),)),
            (lambda x: torch.linalg.vector_norm(x, INF), (torch.randn(5, dtype=torch.complex64),)),
            (lambda x: torch.linalg.vector_norm(x, INF), (torch.tensor([1.0, NAN, -3.0]),)),
        ]
    )


def test_logsumexp_of_large_and_infinite_numbers() -> None:
    x = torch.tensor([[1000.0, 1000.5], [-INF, -INF], [INF, 1.0], [NAN, 0.0], [INF, -INF], [-1000.0, -INF]])
    check_all([*over_dims(torch.logsumexp, x, 1, (0, 1)), (lambda x: x.logsumexp(0), (torch.arange(4),))])


def test_nansum_and_count_nonzero_look_past_nan() -> None:
    x = torch.tensor([[1.0, NAN, 3.0], [NAN, NAN, 0.0]])
    functions = [
        torch.nansum, lambda x: x.nansum(1, keepdim=True), torch.nanmean, torch.count_nonzero,
        lambda x: torch.count_nonzero(x, 0), lambda x: torch.count_nonzero(x, (0, 1)),
    ]  # fmt: skip
    check_all(each(functions, x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_reductions_over_filled_tensors_count_all_elements(dynamic: bool) -> None:
    """IREE 3.13 loses the bounds of such a reduction, unless the constant is a tensor of its own."""
    x = torch.randn(5, 5, 5)
    check_all(
        [
            (lambda x: torch.ones_like(x, dtype=torch.int64).sum(), (x,)),
            (lambda x: torch.full_like(x, 2.0).sum((0, 2)), (x,)),
            (lambda x: torch.ones_like(x).sum((0, 1, 2), keepdim=True) + x, (x,)),
            (lambda x: torch.zeros_like(x).amax(), (x,)),
            (lambda x: (torch.ones_like(x) * 2 + 1).prod(1), (x,)),
            (lambda x: torch.ones_like(x, dtype=torch.bool).all(0), (x,)),
        ],
        dynamic=dynamic,
    )  # fmt: skip


def test_constants_keep_their_size_in_reductions_with_other_sizes() -> None:
    def deviation(x: torch.Tensor) -> torch.Tensor:
        return torch.masked.std(x, unbiased=True)

    auto = torch.export.Dim.AUTO
    module = flambeau.compile(
        deviation, torch.randn(5, 4), dynamic_shapes=({0: auto, 1: auto},), output_type=support.TARGET
    )
    run = flambeau.load(module, profile="quick")
    for shape in ((5, 4), (3, 70), (40, 33)):
        x = torch.randn(shape)
        torch.testing.assert_close(run(x), deviation(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_histograms(dynamic: bool) -> None:
    """What is outside does not count, NaN neither; without limits they are those of the data."""
    x = torch.tensor([0, 1, 1, 2.5, 3, 7, -1, float("nan")])
    check_all(
        [
            (lambda x: torch.histc(x, 4, 0, 3), (x,)),
            (lambda x: torch.histc(x, 5, -1.5, 8), (x.view(2, 4),)),
            (lambda x: torch.histc(x, 6), (x[:-1],)),
            (lambda x: torch.histc(x, 4), (torch.ones(7),)),
        ],
        dynamic=dynamic,
    )


def test_hashes_of_integers() -> None:
    functions = [torch.hash_tensor, lambda x: torch.hash_tensor(x, 1)]
    check_all(each(functions, torch.tensor([[3, 5], [-1, 7]]), torch.tensor([[True, False], [True, True]])))


def test_hashes_of_floats() -> None:
    functions = [torch.hash_tensor, lambda x: torch.hash_tensor(x, 0, keepdim=True)]
    check_all(each(functions, torch.tensor([[1.5, -0.0], [float("inf"), 3.0]]), torch.ones(3, dtype=torch.float16)))


@pytest.mark.engine
def test_histograms_of_points() -> None:
    points, weight = torch.randn(40, 2), torch.rand(40)
    edges = torch.tensor([-1.0, 0.0, 0.5, 2.0]), torch.tensor([-2.0, 0.3, 1.0])
    cases: list[Any] = [
        (lambda x: torch.histogramdd(x, [4, 3]), (points,)),
        (lambda x: torch.histogramdd(x, [4, 3], range=[-1.0, 1.0, -2.0, 2.0], density=True), (points,)),
        (lambda x, w: torch.histogramdd(x, [3, 5], weight=w), (points, weight)),
        (lambda x, a, b: torch.histogramdd(x, [a, b]), (points, *edges)),
        (lambda x: torch.histogramdd(x[:, :1], [4]), (points,)),
    ]
    check_all(cases)  # PyTorch exports none of dynamic size
