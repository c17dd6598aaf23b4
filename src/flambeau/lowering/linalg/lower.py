"""The lowering to linalg-on-tensors."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from flambeau.ir.conversion import RuleTable
from flambeau.lowering.conversion import Lowering
from flambeau.lowering.linalg import pointwise  # noqa: F401  (each family adds its rules to the table)
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.linalg.rules import LINALG_RULES


def rules() -> RuleTable:
    """All linalg rules."""
    return LINALG_RULES


def lower_to_linalg(module: ModuleOp) -> ModuleOp:
    """Lower a module that satisfies the backend contract."""
    return Lowering("lower to linalg-on-tensors", LINALG_RULES, LinalgBuilder).convert_module(module)
