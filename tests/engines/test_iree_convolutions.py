"""Convolutions in groups, in one and three dimensions: `engines/iree/grouped_convolutions.py`, `row_convolutions.py`,
`volume_convolutions.py`, `turned_taps.py`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import flambeau
from flambeau.engines.iree.prepare import for_iree

OPTIONS: list[dict[str, Any]] = [{"padding": 2, "dilation": 2}, {"padding": (1, 2), "dilation": (1, 2), "stride": 2}]


@pytest.mark.engine
@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo", "tosa"])
def test_infinities_reach_what_they_are_weighed_into_and_nothing_else(target: str) -> None:
    def convolutions(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        return [F.conv2d(x, w, groups=2, **options) for options in OPTIONS]

    x, w = torch.randn(2, 4, 6, 6), torch.randn(6, 2, 3, 3)
    x[0, 0, 2, 2], x[1, 3, 4, 1] = float("inf"), float("nan")
    run = flambeau.load(flambeau.compile(convolutions, (x, w), output_type=target), profile="quick")
    for got, expected in zip(run(x, w), convolutions(x, w), strict=True):
        torch.testing.assert_close(got, expected, equal_nan=True)


def test_depthwise_convolutions_stay_as_they_are() -> None:
    module = flambeau.compile(
        lambda x, w: F.conv2d(x, w, groups=4, dilation=2),
        (torch.ones(1, 4, 6, 6), torch.ones(4, 1, 3, 3)),
        output_type="stablehlo",
    )
    assert for_iree(module.op) is module.op


IN_ONE_DIM: list[dict[str, Any]] = [
    {},
    {"padding": 2},
    {"stride": 3, "padding": 1},
    {"dilation": 2, "padding": 3},
    {"stride": 2, "dilation": 3, "padding": 4},
]


@pytest.mark.engine
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_convolutions_in_one_dimension_are_right(dtype: torch.dtype) -> None:
    def convolutions(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        return [F.conv1d(x, w, b, **options) for options in IN_ONE_DIM]

    given = [(torch.randn(size) * 4).to(dtype) for size in ((2, 5, 17), (7, 5, 3), (7,))]
    run = flambeau.load(flambeau.compile(convolutions, tuple(given)), device="local-sync")
    tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-4
    for got, expected in zip(run(*given), convolutions(*given), strict=True):
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.engine
def test_convolutions_in_one_dimension_of_dynamic_size_are_right() -> None:
    w = torch.randn(7, 5, 3)
    dims = {0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC}
    module = flambeau.compile(
        lambda x: F.conv1d(x, w, stride=2, padding=1), (torch.randn(2, 5, 17),), dynamic_shapes=[dims]
    )
    run = flambeau.load(module, device="local-sync")
    for batch, size in ((2, 17), (3, 4), (5, 40)):
        x = torch.randn(batch, 5, size)
        torch.testing.assert_close(run(x), F.conv1d(x, w, stride=2, padding=1), rtol=1e-4, atol=1e-4)


def test_a_convolution_in_one_dimension_is_one_of_an_image() -> None:
    module = flambeau.compile(lambda x, w: F.conv1d(x, w, stride=2), (torch.ones(1, 4, 9), torch.ones(6, 4, 3)))
    names = [op.name for op in for_iree(module.op).walk()]
    assert "linalg.conv_2d_nchw_fchw" in names
    assert "linalg.conv_1d_ncw_fcw" not in names
    assert "linalg.conv_1d_ncw_fcw" in [op.name for op in module.op.walk()]


def channels_last(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, w, b, groups=6, padding=1).permute(0, 2, 3, 1) * 2


def test_a_depthwise_convolution_is_computed_before_it_is_transposed() -> None:
    module = flambeau.compile(channels_last, (torch.ones(1, 6, 8, 8), torch.ones(6, 1, 3, 3), torch.ones(6)))
    transposes = [op for op in for_iree(module.op).walk() if op.name == "linalg.transpose"]
    assert ["barrier" in str(op.operands[0].owner) for op in transposes] == [True]
    pointwise = flambeau.compile(lambda x: (x + 1).relu().t(), (torch.ones(3, 4),))
    assert for_iree(pointwise.op) is pointwise.op


@pytest.mark.engine
def test_transposed_depthwise_convolutions_are_right() -> None:
    sizes = {0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC}
    x, w, b = torch.randn(2, 6, 8, 9), torch.randn(6, 1, 3, 3), torch.randn(6)
    for shapes, other in ((None, x), ([sizes, None, None], torch.randn(3, 6, 5, 9))):
        run = flambeau.load(flambeau.compile(channels_last, (x, w, b), dynamic_shapes=shapes), device="local-sync")
        torch.testing.assert_close(run(other, w, b), channels_last(other, w, b), rtol=1e-4, atol=1e-4)


KERNELS = {torch.float32: (2, 3, 3), torch.float64: (3, 1, 2), torch.bfloat16: (1, 2, 3)}
"""The compiler takes so long for each element of a kernel: only one of them is large."""
IN_THREE_DIMS: list[dict[str, Any]] = [
    {},
    {"padding": (2, 0, 1)},
    {"stride": (1, 2, 3), "padding": 1},
    {"dilation": (2, 1, 2), "padding": 2, "stride": 2},
]


@pytest.mark.engine
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_convolutions_in_three_dimensions_are_right(dtype: torch.dtype, dynamic: bool) -> None:
    def convolutions(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        return [F.conv3d(x, w, b, **options) for options in IN_THREE_DIMS]

    given = [(torch.randn(size) * 4).to(dtype) for size in ((2, 3, 6, 7, 8), (5, 3, *KERNELS[dtype]), (5,))]
    shapes = ({i: torch.export.Dim.DYNAMIC for i in (0, 2, 3, 4)}, {}, {}) if dynamic else None
    run = flambeau.load(flambeau.compile(convolutions, tuple(given), dynamic_shapes=shapes), device="local-sync")
    tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-4
    for got, expected in zip(run(*given), convolutions(*given), strict=True):
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=10 * tolerance)
