"""Shapes of images that are resized, or read between their pixels."""

from __future__ import annotations

import math
from typing import Any

from flambeau.infer.rules import InferenceError, Meta, infer_rule, known, size, spread


@infer_rule("aten.upsample_bicubic2d", "aten._upsample_bilinear2d_aa", "aten._upsample_bicubic2d_aa")
def upsample(x: Meta, output: Any, *_: Any) -> Meta:
    wanted = [size(n) for n in spread(output, x.rank - 2)]
    if len(wanted) != x.rank - 2 or 0 in (*wanted, *x.shape[2:]):
        raise InferenceError(f"images of {list(x.shape[2:])} pixels cannot be resized to {wanted}")
    return Meta((*x.shape[:2], *wanted), x.dtype)


def resampled(x: Meta, output: Any, scales: Any) -> Meta:
    """Resize the images `x` to the sizes `output`, or else by the factors `scales`."""
    if output is not None:
        return upsample(x, output)
    if scales is None:
        raise InferenceError("neither sizes nor scale factors are given")
    factors = spread(scales, x.rank - 2)
    shape = [math.floor(d * s) if d is not None and known(s) else None for d, s in zip(x.shape[2:], factors)]
    return upsample(x, shape)


@infer_rule("aten.upsample_bicubic2d.vec", "aten._upsample_bilinear2d_aa.vec", "aten._upsample_bicubic2d_aa.vec")
def upsample_linear_vec(x: Meta, output: Any, align_corners: bool, scales: Any) -> Meta:
    return resampled(x, output, scales)


@infer_rule(
    "aten.__interpolate.scale_list", "aten.__interpolate.size_list_scale_list", "aten.__interpolate",
    "aten.__interpolate.size_list",
)  # fmt: skip
def interpolate(x: Meta, output: Any, scales: Any, *_: Any) -> Meta:
    return resampled(x, output, scales)


@infer_rule("aten.grid_sampler", "aten.grid_sampler_2d", "aten.grid_sampler_3d")
def grid_sampler(x: Meta, grid: Meta, *_: Any) -> Meta:
    return Meta((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
