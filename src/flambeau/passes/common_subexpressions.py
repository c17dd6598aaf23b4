"""Compute equal things once."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.transforms import common_subexpression_elimination as xdsl_cse

from flambeau.ir.module_pass import TorchPass


def eliminate_common_subexpressions(module: ModuleOp) -> ModuleOp:
    """Run xDSL's pass over a module, by the traits that our ops declare."""
    xdsl_cse.CommonSubexpressionElimination().apply(Context(), module)
    return module


class CommonSubexpressionElimination(TorchPass):
    """Compute equal things once."""

    name = "cse"
    run = staticmethod(eliminate_common_subexpressions)
