"""Convolutions against eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import check, check_all


def ramp(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small integers as data: sums are exact, so that order does not matter."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7 % 11) - 5).reshape(shape).to(dtype)


def case(function: Any, *tensors: Any, **options: Any) -> tuple[Any, Any]:
    return lambda *args: function(*args, **options), tensors


def test_stride_padding_dilation_in_each_rank() -> None:
    check_all(
        [
            case(F.conv1d, ramp(2, 3, 11), ramp(4, 3, 3), stride=2, padding=2, dilation=2),
            case(F.conv1d, ramp(1, 3, 5), ramp(4, 3, 5)),
            case(F.conv2d, ramp(2, 3, 9, 8), ramp(4, 3, 3, 2)),
            case(F.conv2d, ramp(2, 3, 9, 8), ramp(4, 3, 3, 2), stride=(2, 1), padding=(0, 3), dilation=(1, 2)),
            case(F.conv3d, ramp(1, 2, 5, 6, 7), ramp(3, 2, 2, 3, 2), stride=(1, 2, 3), padding=(1, 0, 1)),
            case(F.conv3d, ramp(1, 2, 5, 6, 7), ramp(3, 2, 2, 2, 2), dilation=2),
        ]
    )


def test_bias_is_added_to_each_channel() -> None:
    check_all(
        [
            case(F.conv1d, ramp(2, 3, 6), ramp(4, 3, 3), ramp(4)),
            case(F.conv2d, ramp(2, 3, 6, 6), ramp(4, 3, 3, 3), ramp(4), padding=1),
            case(F.conv3d, ramp(1, 2, 4, 4, 4), ramp(3, 2, 3, 3, 3), ramp(3)),
            case(F.conv_transpose2d, ramp(2, 3, 4, 4), ramp(3, 4, 3, 3), ramp(4)),
        ]
    )


def test_input_without_batch() -> None:
    check_all(
        [
            case(F.conv1d, ramp(3, 6), ramp(4, 3, 3), ramp(4)),
            case(F.conv2d, ramp(3, 6, 7), ramp(4, 3, 3, 3)),
            case(F.conv3d, ramp(2, 4, 4, 4), ramp(3, 2, 3, 3, 3)),
            case(F.conv_transpose1d, ramp(3, 6), ramp(3, 4, 3), stride=2),
            case(F.conv2d, ramp(3, 6, 7), ramp(4, 3, 2, 3), padding="same"),
        ]
    )


def test_padding_by_name() -> None:
    check_all(
        [
            case(F.conv1d, ramp(2, 3, 7), ramp(4, 3, 4), padding="same"),
            case(F.conv2d, ramp(2, 3, 7, 8), ramp(4, 3, 3, 2), padding="same", dilation=(2, 1)),
            case(F.conv2d, ramp(2, 3, 7, 8), ramp(4, 3, 3, 2), padding="valid", stride=2),
            case(F.conv3d, ramp(1, 2, 4, 5, 6), ramp(3, 2, 3, 2, 1), ramp(3), padding="same"),
        ]
    )


def test_strided_pointwise_convolution_reads_a_slice() -> None:
    module = check_all(
        [
            case(F.conv2d, ramp(2, 3, 7, 8), ramp(4, 3, 1, 1), stride=2),
            case(F.conv2d, ramp(2, 3, 7, 8), ramp(4, 3, 1, 1), stride=(3, 2), padding=1),
            case(F.conv1d, ramp(2, 3, 7), ramp(4, 3, 1), stride=3),
        ]
    )
    assert "tensor.extract_slice" in str(module)


def test_groups_and_depthwise() -> None:
    check_all(
        [
            case(F.conv1d, ramp(2, 4, 7), ramp(6, 2, 3), ramp(6), groups=2),
            case(F.conv2d, ramp(2, 6, 7, 8), ramp(9, 2, 3, 2), groups=3, stride=2, padding=1),
            case(F.conv3d, ramp(1, 4, 4, 4, 5), ramp(2, 2, 2, 2, 2), groups=2),
            case(F.conv2d, ramp(2, 6, 7, 8), ramp(6, 1, 3, 3), ramp(6), groups=6, padding=1),
            case(F.conv2d, ramp(2, 3, 7, 8), ramp(6, 1, 3, 3), groups=3, stride=2, dilation=2),
            case(F.conv1d, ramp(2, 3, 7), ramp(3, 1, 3), groups=3),
            case(F.conv2d, ramp(2, 4, 7, 8), ramp(8, 2, 1, 1), groups=2, stride=2),
            case(F.conv2d, ramp(2, 4, 11, 13), ramp(8, 1, 3, 4), groups=4, stride=3, dilation=2, padding=2),
        ]
    )


def test_groups_with_large_windows() -> None:
    """Few groups are convolved one by one, many in one loop nest."""
    check_all(
        [
            case(F.conv2d, ramp(1, 24, 5, 6), ramp(6, 12, 3, 3), ramp(6), groups=2, stride=2, padding=1),
            case(F.conv2d, ramp(1, 320, 4, 4), ramp(40, 8, 3, 3), groups=40),
            case(F.conv1d, ramp(2, 400, 9), ramp(80, 10, 7), groups=40, stride=2, padding=3),
        ]
    )


def test_transposed_stride_padding_and_output_padding() -> None:
    check_all(
        [
            case(F.conv_transpose1d, ramp(2, 3, 5), ramp(3, 4, 3), ramp(4), stride=2, padding=1, output_padding=1),
            case(F.conv_transpose2d, ramp(2, 3, 4, 5), ramp(3, 4, 3, 2)),
            case(
                F.conv_transpose2d, ramp(2, 3, 4, 5), ramp(3, 4, 3, 2), stride=(2, 3), padding=1, output_padding=(1, 2)
            ),
            case(F.conv_transpose2d, ramp(1, 2, 4, 4), ramp(2, 2, 3, 3), dilation=2, padding=1, stride=2),
            case(F.conv_transpose3d, ramp(1, 2, 3, 3, 3), ramp(2, 3, 2, 2, 2), stride=2),
            case(F.conv_transpose2d, ramp(1, 4, 3, 3), ramp(4, 3, 2, 2), ramp(6), groups=2, stride=2),
            case(F.conv_transpose1d, ramp(1, 4, 5), ramp(4, 1, 3), groups=4),
        ]
    )


def test_transposed_with_more_padding_than_kernel_crops() -> None:
    check_all(
        [
            case(F.conv_transpose1d, ramp(1, 2, 6), ramp(2, 3, 2), padding=2),
            case(F.conv_transpose2d, ramp(1, 2, 6, 6), ramp(2, 3, 1, 3), padding=(1, 3), stride=2),
        ]
    )


def test_the_general_op_by_its_own_name() -> None:
    x, w, wt = ramp(1, 4, 6, 6), ramp(4, 2, 3, 3), ramp(4, 3, 3, 3)
    check_all(
        [
            case(lambda a, b: torch.ops.aten.convolution(a, b, None, [2], [1], [1], False, [0], 2), x, w),
            case(lambda a, b: torch.ops.aten.convolution(a, b, None, [2, 2], [1, 1], [1, 1], True, [1, 0], 1), x, wt),
        ]
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_floats_accumulate_in_f32(dtype: torch.dtype) -> None:
    # 4096 ones: an accumulator of the same dtype would stop at 2048 or 256.
    ones, weight = torch.ones(1, 1024, 3, 3, dtype=dtype), torch.ones(2, 1024, 2, 2, dtype=dtype)
    check_all(
        [
            case(F.conv2d, ones, weight, torch.tensor([0.5, 1.0], dtype=dtype)),
            case(F.conv2d, ramp(1, 4, 5, 5, dtype=dtype), ramp(4, 2, 3, 3, dtype=dtype), groups=2),
            case(F.conv_transpose2d, ramp(1, 4, 5, 5, dtype=dtype), ramp(4, 2, 3, 3, dtype=dtype), stride=2),
        ],
        rtol=0,
        atol=0,
    )


def test_integers_wrap_around() -> None:
    cases = []
    for dtype in (torch.int64, torch.int32, torch.uint8, torch.int8):
        x, w = ramp(1, 3, 5, 5, dtype=dtype) * 9, ramp(2, 3, 3, 3, dtype=dtype) * 5
        cases.append(case(F.conv2d, x, w, ramp(2, dtype=dtype), padding=1))
    check_all(cases)


def test_doubles_and_complex_numbers() -> None:
    x = torch.randn(1, 2, 5, 5, dtype=torch.float64)
    z = torch.complex(ramp(1, 2, 5, 5), -ramp(1, 2, 5, 5))
    check_all(
        [
            case(F.conv2d, x, torch.randn(3, 2, 3, 3, dtype=torch.float64), padding=1),
            case(F.conv2d, z, z[:, :, :3, :2], padding=1),
        ]
    )


def test_nan_and_infinity_stay_in_their_windows() -> None:
    x = ramp(1, 1, 5, 5)
    x[0, 0, 0, 0], x[0, 0, 4, 4] = float("nan"), float("inf")
    check(lambda a, w: F.conv2d(a, w, padding=1), x, torch.ones(1, 1, 3, 3))


def test_empty_batch() -> None:
    check_all(
        [
            case(F.conv2d, torch.empty(0, 3, 5, 5), ramp(4, 3, 3, 3), ramp(4)),
            case(F.conv2d, torch.empty(0, 4, 5, 5), ramp(4, 2, 3, 3), groups=2, padding=1),
        ]
    )


def test_dynamic_sizes() -> None:
    check_all(
        [
            case(F.conv1d, ramp(2, 3, 11), ramp(4, 3, 3), ramp(4), stride=2, padding=2),
            case(F.conv2d, ramp(2, 3, 9, 8), ramp(4, 3, 3, 3), ramp(4), stride=2, padding=1),
            case(F.conv2d, ramp(2, 3, 9, 8), ramp(4, 3, 1, 1), stride=2),
            case(F.conv_transpose2d, ramp(2, 3, 4, 5), ramp(3, 4, 3, 3), stride=2, padding=1, output_padding=1),
            case(F.conv2d, ramp(2, 3, 6, 6), ramp(4, 3, 3, 3), padding="same"),
        ],
        dynamic=True,
    )


def test_dynamic_batch_and_image_with_groups() -> None:
    auto = torch.export.Dim.AUTO
    weight, depthwise = ramp(6, 2, 3, 3), ramp(4, 1, 3, 3)

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return F.conv2d(x, weight, groups=2, padding=1), F.conv2d(x, depthwise, groups=4, stride=2)

    import flambeau

    module = flambeau.compile(Net(), (ramp(2, 4, 6, 7),), dynamic_shapes={"x": {0: auto, 2: auto, 3: auto}})
    run = flambeau.load(module, engine="iree", profile="quick", device="local-sync")
    for shape in ((2, 4, 6, 7), (3, 4, 9, 8)):
        x = ramp(*shape)
        for actual, expected in zip(run(x), Net()(x), strict=True):
            torch.testing.assert_close(actual, expected)


def test_plain_convolution_and_relu_is_fill_named_convolution_and_one_loop() -> None:
    """What torch-mlir emits too: sizes, empty, fill, `linalg.conv_2d_nchw_fchw`, an elementwise loop."""
    module = check(lambda x, w: F.relu(F.conv2d(x, w)), ramp(2, 3, 6, 6), ramp(4, 3, 3, 3), dynamic=True)
    names = [op.name for op in module.op.walk() if op.name.startswith("linalg.") and op.name != "linalg.yield"]
    assert names == ["linalg.fill", "linalg.conv_2d_nchw_fchw", "linalg.generic"]


def test_windows_are_added_up_where_they_overlap() -> None:
    check_all(
        [
            case(F.fold, ramp(2, 12, 20), output_size=(5, 6), kernel_size=2),
            case(F.fold, ramp(2, 18, 6), output_size=(7, 6), kernel_size=3, padding=(2, 1), dilation=2, stride=(3, 2)),
            case(F.fold, ramp(6, 4), output_size=(4, 7), kernel_size=(1, 2), stride=(3, 5)),
            case(F.fold, ramp(1, 4, 25), output_size=4, kernel_size=2, padding=3, stride=1, dilation=5),
            case(F.fold, ramp(1, 8, 12, dtype=torch.bfloat16), output_size=(4, 5), kernel_size=2),
            case(F.fold, ramp(1, 8, 12, dtype=torch.complex64), output_size=(4, 5), kernel_size=2),
            case(F.fold, ramp(1, 8, 12) > 0, output_size=(4, 5), kernel_size=2),
        ]
    )


def test_windows_of_as_many_images_as_the_run_time_says() -> None:
    check(lambda x: F.fold(x, (5, 6), 2), ramp(3, 8, 20), dynamic=True)
