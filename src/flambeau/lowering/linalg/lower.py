"""The lowering to linalg-on-tensors."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from flambeau.ir.conversion import RuleTable
from flambeau.lowering.conversion import Lowering
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.linalg.rules import LINALG_RULES, LOOP_RULES
from flambeau.lowering.whole.rules import layered

FAMILIES = (
    "pointwise", "compare", "activation", "view", "slice", "create", "matmul", "reduce", "normalization", "scan",
    "conv", "pool", "pad", "index", "scatter", "sort", "quantized", "special", "bessel", "gamma", "polynomials",
)  # fmt: skip
"""The modules of this folder that add rules to the table."""


def rules() -> RuleTable:
    """The rules that other targets build on too."""
    return LINALG_RULES.load("flambeau.lowering.linalg", FAMILIES)


def loop_rules() -> RuleTable:
    """All linalg rules: those, and what only a loop nest can say."""
    return layered("linalg-on-tensors", rules(), LOOP_RULES)


def lower_to_linalg(module: ModuleOp) -> ModuleOp:
    """Lower a module that satisfies the backend contract."""
    return Lowering("lower to linalg-on-tensors", loop_rules(), LinalgBuilder).convert_module(module)
