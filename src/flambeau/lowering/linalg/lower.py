"""The lowering to linalg-on-tensors."""

from __future__ import annotations

from importlib import import_module

from xdsl.dialects.builtin import ModuleOp

from flambeau.ir.conversion import RuleTable
from flambeau.lowering.conversion import Lowering
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.linalg.rules import LINALG_RULES

FAMILIES = (
    "pointwise", "view", "create", "matmul", "reduce", "normalization", "scan", "conv", "pool", "pad", "index",
    "scatter",
)  # fmt: skip
"""The modules of this folder that add rules to the table."""


def rules() -> RuleTable:
    """All linalg rules."""
    for family in FAMILIES:
        import_module(f"flambeau.lowering.linalg.{family}")
    return LINALG_RULES


def lower_to_linalg(module: ModuleOp) -> ModuleOp:
    """Lower a module that satisfies the backend contract."""
    return Lowering("lower to linalg-on-tensors", rules(), LinalgBuilder).convert_module(module)
