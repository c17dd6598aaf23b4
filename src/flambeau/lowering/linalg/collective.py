"""Collectives: a program of linalg runs on one device, and exchanges nothing."""

from __future__ import annotations

from typing import Any

from flambeau.diagnostics import Unsupported
from flambeau.lowering.builder import Tensor
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.verbs import RuleBuilder


@linalg_rule("_c10d_functional.wait_tensor")
def wait_tensor(b: RuleBuilder, x: Tensor) -> Tensor:
    return x


@linalg_rule("flambeau.constrain")
def constrain(b: RuleBuilder, x: Tensor, axis: str, dim: int | None) -> Tensor:
    return x


@linalg_rule(
    "_c10d_functional.all_reduce",
    "_c10d_functional.all_gather_into_tensor",
    "_c10d_functional.reduce_scatter_tensor",
    "_c10d_functional.all_to_all_single",
    "_c10d_functional.broadcast",
    "flambeau.permute_tensor",
)
def exchange(b: RuleBuilder, *args: Any) -> Tensor:
    raise Unsupported(
        "it exchanges tensors between devices, which this target cannot express",
        'Compile with output_type="stablehlo" and mesh=, as docs/distributed.md shows.',
    )
