"""Pooling against eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import check, check_all

nan, inf = float("nan"), float("inf")


def ramp(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small integers in no order, with many ties."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7 % 11) - 5).reshape(shape).to(dtype)


def case(function: Any, x: torch.Tensor, *args: Any, **options: Any) -> tuple[Any, Any]:
    return lambda a: function(a, *args, **options), (x,)


def test_max_pool_stride_padding_dilation() -> None:
    check_all(
        [
            case(F.max_pool1d, ramp(2, 3, 11), 3, stride=2, padding=1, dilation=2),
            case(F.max_pool2d, ramp(2, 3, 9, 8), 2),
            case(F.max_pool2d, ramp(2, 3, 9, 8) - 20, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 3)),
            case(F.max_pool3d, ramp(1, 2, 5, 6, 7), (2, 3, 2), stride=(1, 2, 3), padding=1),
            case(F.max_pool2d, ramp(3, 9, 8), 3),
            case(F.max_pool1d, ramp(3, 9), 3),
            case(F.max_pool3d, ramp(2, 4, 4, 4), 2),
        ]
    )


def test_a_lone_window_larger_than_its_input() -> None:
    x = ramp(2, 3, 8, 8)
    check_all(
        [
            case(F.avg_pool2d, x, 640, ceil_mode=True),
            case(F.avg_pool2d, x, 9, 9, 2, True),
            case(F.avg_pool2d, x, 9, 9, 2, True, False),
            case(F.avg_pool2d, x, 30, 30, 4, True, divisor_override=3),
            case(F.max_pool2d, x, 64, ceil_mode=True),
        ]
    )


def test_ceil_mode_drops_windows_that_start_in_the_right_border() -> None:
    cases = []
    for size in (5, 6, 7, 8):
        for kernel, stride, padding in ((2, 2, 1), (3, 2, 1), (2, 3, 0), (3, 3, 1), (1, 3, 0)):
            cases.append(case(F.max_pool1d, ramp(1, 2, size), kernel, stride, padding, 1, True))
            cases.append(case(F.avg_pool1d, ramp(1, 2, size), kernel, stride, padding, True, False))
    check_all(cases)


def test_max_pool_indices_are_places_in_the_input() -> None:
    options = {"return_indices": True}
    check_all(
        [
            case(F.max_pool1d, ramp(2, 3, 11), 3, stride=2, padding=1, dilation=2, **options),
            case(F.max_pool2d, ramp(2, 3, 9, 8), 3, **options),
            case(F.max_pool2d, ramp(2, 3, 9, 8), 3, stride=2, padding=1, ceil_mode=True, **options),
            case(F.max_pool3d, ramp(1, 2, 5, 6, 7), 2, stride=2, padding=1, **options),
            case(F.max_pool2d, ramp(3, 9, 8), (2, 3), dilation=(1, 2), **options),
        ]
    )


def test_max_pool_of_nan_ties_and_infinities() -> None:
    x = torch.tensor([[[1, nan, 2, nan, 3, 3], [5, -5, -inf, -inf, inf, inf]]])
    check_all(
        [
            case(F.max_pool1d, x, 2),
            case(F.max_pool1d, x, 2, return_indices=True),
            case(F.max_pool1d, x, 3, stride=1, padding=1, return_indices=True),
            case(F.max_pool1d, torch.full((1, 1, 4), -inf), 3, stride=2, padding=1, return_indices=True),
            case(F.adaptive_max_pool1d, x, 4, return_indices=True),
        ]
    )


def test_max_pool_dtypes() -> None:
    cases = []
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.uint8, torch.int8):
        x = ramp(1, 2, 6, 6, dtype=dtype)
        cases.append(case(F.max_pool2d, x, 3, stride=2, padding=1))
        cases.append(case(F.max_pool2d, x, 2, return_indices=True))
    lowest = torch.full((1, 1, 2, 2), torch.iinfo(torch.int64).min)
    cases.append(case(F.max_pool2d, lowest, 3, padding=1, stride=1, return_indices=True))
    check_all(cases)


def test_avg_pool_counts_the_border_or_not() -> None:
    cases = []
    for ceil_mode in (False, True):
        for count_include_pad in (False, True):
            cases.append(case(F.avg_pool1d, ramp(2, 3, 10), 3, 2, 1, ceil_mode, count_include_pad))
            cases.append(case(F.avg_pool2d, ramp(2, 3, 9, 8), (3, 2), (2, 3), (1, 0), ceil_mode, count_include_pad))
            cases.append(case(F.avg_pool2d, ramp(2, 3, 9, 8), 3, 2, 1, ceil_mode, count_include_pad))
            cases.append(case(F.avg_pool3d, ramp(1, 2, 5, 6, 7), 2, 2, 1, ceil_mode, count_include_pad))
    check_all(cases)


def test_avg_pool_with_a_given_divisor_and_without_batch() -> None:
    check_all(
        [
            case(F.avg_pool2d, ramp(2, 3, 9, 8), 3, 2, 1, divisor_override=5),
            case(F.avg_pool3d, ramp(1, 2, 5, 6, 7), 2, divisor_override=-3),
            case(F.avg_pool2d, ramp(3, 9, 8), 2),
            case(F.avg_pool1d, ramp(3, 9), 2),
        ]
    )


def test_avg_pool_of_integers_rounds_towards_zero() -> None:
    x = torch.tensor([[[[-3, -4, 7], [0, 0, 0], [1, 2, 8]]]])
    check_all([case(F.avg_pool2d, x, 2, 1), case(F.avg_pool2d, x, 2, 1, 1, False, False)])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_averages_of_16_bit_floats_accumulate_in_f32(dtype: torch.dtype) -> None:
    ones = torch.ones(1, 2, 64, 64, dtype=dtype)
    check_all(
        [
            case(F.avg_pool2d, ones, 64),
            case(F.adaptive_avg_pool2d, ones, 1),
            case(F.adaptive_avg_pool2d, ones, (1, 2)),
            case(F.adaptive_avg_pool2d, ramp(1, 2, 7, 5, dtype=dtype), 3),
        ]
    )


def test_adaptive_avg_pool_of_any_size() -> None:
    check_all(
        [
            case(F.adaptive_avg_pool1d, ramp(2, 3, 10), 4),
            case(F.adaptive_avg_pool1d, ramp(3, 4), 7),
            case(F.adaptive_avg_pool2d, ramp(2, 3, 7, 9), (3, 5)),
            case(F.adaptive_avg_pool2d, ramp(2, 3, 8, 9), (4, 3)),
            case(F.adaptive_avg_pool2d, ramp(2, 3, 8, 9), 1),
            case(F.adaptive_avg_pool2d, ramp(3, 8, 9), (None, 2)),
            case(F.adaptive_avg_pool3d, ramp(1, 2, 5, 6, 7), (2, 3, 4)),
            case(F.adaptive_avg_pool3d, ramp(1, 2, 5, 6, 7), 1),
        ]
    )


def test_adaptive_max_pool_with_indices() -> None:
    check_all(
        [
            case(F.adaptive_max_pool1d, ramp(2, 3, 10), 4, return_indices=True),
            case(F.adaptive_max_pool2d, ramp(2, 3, 7, 9), (3, 5), return_indices=True),
            case(F.adaptive_max_pool2d, ramp(3, 8, 9), (4, 3), return_indices=True),
            case(F.adaptive_max_pool2d, ramp(2, 3, 8, 9), 1),
            case(F.adaptive_max_pool3d, ramp(1, 2, 5, 6, 7), (2, 3, 4), return_indices=True),
        ]
    )


def test_empty_batch() -> None:
    x = torch.empty(0, 3, 6, 6)
    check_all([case(F.max_pool2d, x, 2), case(F.avg_pool2d, x, 2, 1), case(F.adaptive_avg_pool2d, x, 4)])


def test_dynamic_sizes() -> None:
    check_all(
        [
            case(F.max_pool2d, ramp(2, 3, 9, 8), 3, 2, 1),
            case(F.max_pool2d, ramp(2, 3, 9, 8), 3, 2, 1, 1, True),
            case(F.max_pool2d, ramp(2, 3, 9, 8), 3, 2, 1, return_indices=True),
            case(F.avg_pool2d, ramp(2, 3, 9, 8), 3, 2, 1, True, False),
            case(F.avg_pool1d, ramp(2, 3, 9), 2),
            case(F.adaptive_avg_pool2d, ramp(2, 3, 9, 8), 1),
            case(F.adaptive_avg_pool2d, ramp(2, 3, 9, 8), (3, 2)),
            case(F.adaptive_avg_pool2d, ramp(2, 3, 9, 7), (4, 5)),
            case(F.adaptive_avg_pool1d, ramp(2, 3, 9), 4),
        ],
        dynamic=True,
    )


def test_dynamic_windows() -> None:
    """Of equal elements the first counts, of NaN the last."""
    torch.manual_seed(0)
    ties = torch.randint(0, 3, (2, 3, 9, 7)).float()
    holes = torch.where(ties == 2, float("nan"), ties)
    check_all(
        [
            case(F.adaptive_max_pool2d, ramp(2, 3, 9, 7), (4, 5), return_indices=True),
            case(F.adaptive_max_pool2d, ties, (4, 5), return_indices=True),
            case(F.adaptive_max_pool2d, holes, (2, 3), return_indices=True),
            case(F.adaptive_max_pool1d, torch.full((2, 3, 9), -float("inf")), 4, return_indices=True),
        ],
        dynamic=True,
    )


def test_planes_are_pooled_by_the_named_op() -> None:
    module = check(lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 2)), ramp(1, 2, 4, 4))
    assert "linalg.pooling_nchw_max" in str(module)
    assert "linalg.pooling_nchw_sum" in str(module)


def test_a_single_window_that_does_not_reach_the_end() -> None:
    x, v = torch.randn(1, 2, 3, 3), torch.randn(1, 2, 3, 3, 4)
    check_all(
        [
            (lambda x: F.max_pool2d(x, 2), (x,)), (lambda x: F.avg_pool2d(x, 2), (x,)),
            (lambda x: F.max_pool2d(x, 2, return_indices=True), (x,)), (lambda v: F.avg_pool3d(v, 2), (v,)),
            (lambda x: F.conv2d(x, torch.ones(4, 2, 2, 2), stride=2), (x,)),
            (lambda v: F.conv3d(v, torch.ones(4, 2, 2, 2, 2), stride=2), (v,)),
        ]
    )  # fmt: skip


@pytest.mark.engine
@pytest.mark.parametrize("dynamic", [False, True])
def test_windows_at_random_places(dynamic: bool) -> None:
    pool2, pool3 = torch.ops.aten.fractional_max_pool2d, torch.ops.aten.fractional_max_pool3d
    cases: list[Any] = [
        (lambda x, s: pool2(x, [2, 3], [4, 2], s), (torch.randn(2, 3, 9, 8), torch.rand(2, 3, 2))),
        (lambda x, s: pool2(x, [3, 3], [1, 5], s), (torch.randn(1, 2, 7, 9), torch.rand(1, 2, 2))),
        (lambda x, s: pool3(x, [2, 2, 3], [3, 2, 2], s), (torch.randn(1, 2, 7, 6, 8), torch.rand(1, 2, 3))),
    ]
    if not dynamic:
        cases.append((lambda x, s: pool2(x, [2, 2], [3, 3], s), (torch.randn(3, 6, 7), torch.rand(1, 3, 2))))
        cases.append((lambda x, s: pool3(x, [2, 2, 2], [2, 3, 2], s), (torch.randn(2, 5, 6, 7), torch.rand(1, 2, 3))))
    check_all(cases, dynamic=dynamic)
