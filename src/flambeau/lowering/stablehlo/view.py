"""Moves that StableHLO has ops for."""

from __future__ import annotations

from flambeau.lowering.builder import Tensor
from flambeau.lowering.stablehlo.builder import StablehloBuilder
from flambeau.lowering.stablehlo.rules import stablehlo_rule


@stablehlo_rule("aten.flip")
def flip(b: StablehloBuilder, x: Tensor, dims: list[int]) -> Tensor:
    return b.reversed(x, [b.dim(d, x.rank) for d in dims]) if x.rank else x
