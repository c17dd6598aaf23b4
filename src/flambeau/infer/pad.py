"""Shapes of padding."""

from __future__ import annotations

from typing import Any

from flambeau.infer.rules import Dim, InferenceError, Meta, infer_rule, known


@infer_rule(
    *(f"aten.{kind}_pad{rank}d" for kind in ("reflection", "replication") for rank in (1, 2, 3)),
    "aten.constant_pad_nd", "aten.pad", "aten._pad_circular",
)  # fmt: skip
def pad(x: Meta, amounts: list[Any], *_: Any) -> Meta:
    """Pairs of amounts, from the last dim on."""
    if len(amounts) % 2 or len(amounts) > 2 * x.rank:
        raise InferenceError(f"{len(amounts)} amounts of padding do not fit a tensor of rank {x.rank}")
    shape: list[Dim] = list(x.shape)
    for i in range(len(amounts) // 2):
        d = shape[-1 - i]
        pair = amounts[2 * i : 2 * i + 2]
        shape[-1 - i] = d + sum(pair) if d is not None and known(pair) else d if pair == [0, 0] else None
    return Meta(tuple(shape), x.dtype)
