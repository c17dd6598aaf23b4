"""Lowering to StableHLO: the linalg rules on whole tensors, and rules of its own where StableHLO has a better op."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from xdsl.dialects.builtin import ModuleOp

from flambeau.ir.conversion import RuleTable
from flambeau.lowering.conversion import Lowering
from flambeau.lowering.external import external_rules
from flambeau.lowering.linalg.lower import rules as linalg_rules
from flambeau.lowering.stablehlo.external import emit_custom_call
from flambeau.lowering.stablehlo.groups import Groups
from flambeau.lowering.stablehlo.ops import StablehloBuilder, StablehloOps
from flambeau.lowering.stablehlo.rules import CANNOT, STABLEHLO_RULES
from flambeau.lowering.stablehlo.scalars import scalars_to_tensors
from flambeau.lowering.whole.rules import layered, refusals
from flambeau.passes.dead_code import eliminate_dead_code

FAMILIES = ("matmul", "conv", "index", "sort", "fft", "collective")
"""The modules of this folder that add rules to the table."""


def rules() -> RuleTable:
    """Load all rules: StableHLO's own, those for whole tensors, and linalg's."""
    own = STABLEHLO_RULES.load("flambeau.lowering.stablehlo", FAMILIES)
    return layered("stablehlo", linalg_rules(), own, refusals("StableHLO", CANNOT))


def lower_to_stablehlo(
    module: ModuleOp, keep: Collection[str] = (), external: Sequence[str] = (), groups: Groups | None = None
) -> ModuleOp:
    """Lower a module that satisfies the backend contract.

    The ops named in `keep` are composites then, those named in `external` custom calls. `groups` says which devices
    collectives are among.
    """
    stage, table = "lower to stablehlo", rules()
    builder = partial(StablehloBuilder, target=partial(StablehloOps, groups=groups))
    left = external_rules(table.name, external, emit_custom_call)
    if keep:
        from flambeau.lowering.stablehlo.composites import CompositeLowering

        lowering: Lowering = CompositeLowering(stage, table, builder, keep, left)
    else:
        lowering = Lowering(stage, table, builder, left)
    return scalars_to_tensors(eliminate_dead_code(lowering.convert_module(module)))
