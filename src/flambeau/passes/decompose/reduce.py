"""Reductions in terms of simpler ones."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from flambeau.infer.builder import TorchBuilder
from flambeau.passes.decompose.rules import decomposition


@decomposition("aten.cosine_similarity")
def cosine_similarity(t: TorchBuilder, x: SSAValue, y: SSAValue, dim: int, eps: float) -> SSAValue:
    def length(v: SSAValue) -> Any:
        return t.clamp(t.linalg_vector_norm(v, 2, [dim], True), eps)

    return t.sum(t.mul(t.div(x, length(x)), t.div(y, length(y))), [dim])


@decomposition("aten.pairwise_distance")
def pairwise_distance(t: TorchBuilder, x: SSAValue, y: SSAValue, p: float, eps: float, keepdim: bool) -> SSAValue:
    return t.linalg_vector_norm(t.add(t.sub(x, y), eps), p, [-1], keepdim)
