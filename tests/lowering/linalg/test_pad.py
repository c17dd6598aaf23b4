"""Padding and upsampling against eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import check_all

import flambeau
from flambeau import torchscript
from flambeau.engines.errors import RunError


def ramp(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7 % 23) - 5).reshape(shape).to(dtype)


def case(function: Any, x: torch.Tensor, *args: Any, **options: Any) -> tuple[Any, Any]:
    return lambda a: function(a, *args, **options), (x,)


def test_constant_padding_in_some_dims() -> None:
    check_all(
        [
            case(F.pad, ramp(2, 3), (1, 2)),
            case(F.pad, ramp(2, 3), (1, 2, 0, 3), value=-1.5),
            case(F.pad, ramp(2, 3, 4), (0, 0, 2, 0)),
            case(F.pad, ramp(4), (0, 0)),
            case(F.pad, ramp(2, 3), (1, 1), value=float("-inf")),
            case(torch.ops.aten.constant_pad_nd, ramp(2, 3), [2, 1], 7),
            case(torch.ops.aten.constant_pad_nd, ramp(2, 3), [], 7),
        ]
    )


def test_negative_amounts_crop() -> None:
    check_all(
        [
            case(F.pad, ramp(5, 6), (-1, -2)),
            case(F.pad, ramp(5, 6), (-2, 3, 1, -4), value=9),
            case(F.pad, ramp(5, 6), (-3, -3)),
            case(F.pad, ramp(4, 5, 6), (-1, 1, 1, -1), mode="circular"),
            case(F.pad, ramp(4, 5, 6), (-1, 2), mode="replicate"),
        ]
    )


def test_constant_padding_of_other_dtypes() -> None:
    check_all(
        [
            case(F.pad, ramp(2, 3, dtype=d), (1, 1), value=v)
            for d, v in (
                (torch.int64, 3), (torch.uint8, 255), (torch.bool, True), (torch.float16, 0.5), (torch.bfloat16, 0.5),
                (torch.float64, 0.1), (torch.int32, 2.7),
            )
        ]
    )  # fmt: skip


def test_padding_of_complex_numbers() -> None:
    x = torch.complex(ramp(2, 3, 4), -ramp(2, 3, 4))
    check_all([case(F.pad, x, (1, 2), value=2.0), case(F.pad, x, (1, -2)), case(F.pad, x, (1, 2), mode="replicate")])


def test_reflect_replicate_circular_in_each_rank() -> None:
    cases = []
    for mode in ("reflect", "replicate", "circular"):
        cases += [
            case(F.pad, ramp(2, 3, 5), (2, 4), mode=mode),
            case(F.pad, ramp(2, 3, 4, 5), (2, 4, 0, 3), mode=mode),
            case(F.pad, ramp(1, 2, 3, 4, 5), (1, 2, 3, 0, 2, 1), mode=mode),
            case(F.pad, ramp(3, 4, 5), (1, 1, 1, 1), mode=mode),
        ]
    check_all(cases)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_rows_of_each_dtype_are_padded(mode: str, dynamic: bool) -> None:
    x = torch.arange(24).reshape(2, 3, 4)
    kinds = (torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int64, torch.complex64)
    check_all(
        [
            *((lambda x: F.pad(x, (2, 1), mode=mode), (x.to(kind),)) for kind in kinds),
            # PyTorch reflects and replicates no truth values.
            *([(lambda x: F.pad(x > 3, (1, 2), mode=mode), (x,))] if mode == "circular" else []),
            (lambda x: F.pad(x, (0, 3), mode=mode), (x.float(),)),
            (lambda x: F.pad(x, (-1, 2), mode=mode), (x.float(),)),
            (lambda x: F.pad(x, (1, 2, 2, 1), mode=mode), (x[None].float(),)),
            (lambda x: F.pad(x, (1, 0, 0, 0), mode=mode), (x[None, :, :1].float(),)),
        ],
        dynamic=dynamic,
    )


def test_padding_ops_by_their_own_names() -> None:
    aten = torch.ops.aten
    check_all(
        [
            case(aten.reflection_pad1d, ramp(3, 5), [1, 2]),
            case(aten.reflection_pad2d, ramp(2, 3, 5), [1, 2, 0, 1]),
            case(aten.replication_pad2d, ramp(2, 3, 5), [3, 2, 0, 1]),
            case(aten.replication_pad1d, ramp(2, 5, dtype=torch.int64), [7, 8]),
        ]
    )


def test_nearest_upsampling() -> None:
    check_all(
        [
            case(F.interpolate, ramp(2, 3, 5), scale_factor=2),
            case(F.interpolate, ramp(2, 3, 5, 4), scale_factor=(2, 3)),
            case(F.interpolate, ramp(2, 3, 5, 4), scale_factor=1.7),
            case(F.interpolate, ramp(2, 3, 5, 4), size=(13, 3)),
            case(F.interpolate, ramp(2, 3, 8, 9), scale_factor=0.5),
            case(F.interpolate, ramp(1, 2, 2, 3, 4), scale_factor=2),
            case(F.interpolate, ramp(2, 3, 5, 4), scale_factor=2.5, recompute_scale_factor=True),
            case(F.interpolate, ramp(2, 3, 5, 4), size=(13, 3), mode="nearest-exact"),
            case(F.interpolate, ramp(2, 3, 5, 4, dtype=torch.uint8), scale_factor=2),
        ]
    )


def test_linear_upsampling() -> None:
    cases = []
    for align in (False, True):
        cases += [
            case(F.interpolate, ramp(2, 3, 5), scale_factor=2, mode="linear", align_corners=align),
            case(F.interpolate, ramp(2, 3, 5, 4), scale_factor=2, mode="bilinear", align_corners=align),
            case(F.interpolate, ramp(2, 3, 5, 4), size=(7, 3), mode="bilinear", align_corners=align),
            case(F.interpolate, ramp(2, 3, 5, 4), size=(1, 1), mode="bilinear", align_corners=align),
            case(F.interpolate, ramp(2, 3, 5, 4), scale_factor=1.3, mode="bilinear", align_corners=align),
            case(F.interpolate, ramp(1, 2, 3, 4, 5), scale_factor=2, mode="trilinear", align_corners=align),
            case(F.interpolate, ramp(2, 3, 5, 4).half(), scale_factor=2, mode="bilinear", align_corners=align),
            case(F.interpolate, ramp(2, 3, 5, 4).double(), size=(9, 9), mode="bilinear", align_corners=align),
        ]
    check_all(cases)


def test_dynamic_sizes() -> None:
    check_all(
        [
            case(F.pad, ramp(4, 5), (1, 2, -1, 3), value=2),
            case(F.pad, ramp(2, 4, 5), (2, 3), mode="reflect"),
            case(F.pad, ramp(2, 4, 5), (2, 3), mode="circular"),
            case(F.interpolate, ramp(2, 3, 5, 4), scale_factor=2),
            case(F.interpolate, ramp(2, 3, 5, 9), scale_factor=1.7),
            case(F.interpolate, ramp(2, 3, 5, 4), scale_factor=3),
            case(F.interpolate, ramp(2, 3, 5, 4), scale_factor=2, mode="bilinear"),
        ],
        dynamic=True,
    )


def test_empty_batch() -> None:
    x = torch.empty(0, 3, 4)
    check_all([case(F.pad, x, (1, 1)), case(F.pad, x, (1, 1), mode="reflect"), case(F.pad, torch.empty(2, 0), (1, 2))])


class Cropped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.constant_pad_nd(x, [-1, -2])


def test_no_more_is_cropped_than_there_is() -> None:
    place = torchscript.TensorPlaceholder([-1], torch.float32)
    program = torchscript.compile(torch.jit.script(Cropped()), [place], output_type="linalg-on-tensors")
    run = flambeau.load(program, profile="quick")
    assert torch.equal(run(torch.arange(5.0)), torch.tensor([1.0, 2.0]))
    assert run(torch.arange(3.0)).shape == (0,)
    with pytest.raises(RunError, match="more is cropped"):
        run(torch.arange(2.0))


def test_a_dim_that_keeps_its_size_is_not_blended() -> None:
    x = torch.tensor([[1.0, float("inf"), 2.0], [float("nan"), 0.5, 3.0]]).reshape(1, 1, 2, 3)
    check_all(
        [
            (lambda x: F.interpolate(x, size=(2, 5), mode="bilinear", align_corners=False), (x,)),
            (lambda x: F.interpolate(x, size=(4, 3), mode="bilinear", align_corners=True), (x,)),
            (lambda x: F.interpolate(x, size=(2, 3), mode="bilinear", align_corners=False), (x,)),
        ]
    )
