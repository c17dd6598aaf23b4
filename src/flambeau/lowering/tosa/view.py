"""Moves that TOSA has ops for."""

from __future__ import annotations

from flambeau.lowering.builder import Tensor
from flambeau.lowering.tosa.builder import TosaBuilder
from flambeau.lowering.tosa.rules import tosa_rule


@tosa_rule("aten.flip")
def flip(b: TosaBuilder, x: Tensor, dims: list[int]) -> Tensor:
    return b.reversed(x, [b.dim(d, x.rank) for d in dims]) if x.rank else x
