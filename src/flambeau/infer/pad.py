"""Shapes of padding, and of images that are resized by copying or mixing neighbours."""

from __future__ import annotations

from typing import Any

from flambeau.infer.rules import Dim, InferenceError, Meta, infer_rule, known
from flambeau.infer.sample import resampled, upsample, upsample_linear_vec


@infer_rule(
    *(f"aten.{kind}_pad{rank}d" for kind in ("reflection", "replication") for rank in (1, 2, 3)),
    "aten.constant_pad_nd", "aten.pad", "aten._pad_circular",
)  # fmt: skip
def pad(x: Meta, amounts: list[Any], *_: Any) -> Meta:
    """Add pairs of amounts, before and behind, to the sizes from the last dim on."""
    if len(amounts) % 2 or len(amounts) > 2 * x.rank:
        raise InferenceError(f"{len(amounts)} amounts of padding do not fit a tensor of rank {x.rank}")
    shape: list[Dim] = list(x.shape)
    for i in range(len(amounts) // 2):
        d = shape[-1 - i]
        pair = amounts[2 * i : 2 * i + 2]
        shape[-1 - i] = d + sum(pair) if d is not None and known(pair) else d if pair == [0, 0] else None
    return Meta(tuple(shape), x.dtype)


NEAREST = [f"aten.{op}{rank}d" for op in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3)]
LINEAR = ["aten.upsample_linear1d", "aten.upsample_bilinear2d", "aten.upsample_trilinear3d"]

infer_rule(*NEAREST, *LINEAR)(upsample)
infer_rule(*(f"{name}.vec" for name in NEAREST))(resampled)
infer_rule(*(f"{name}.vec" for name in LINEAR))(upsample_linear_vec)
