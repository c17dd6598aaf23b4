"""Compute equal things once."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.transforms.common_subexpression_elimination import CommonSubexpressionElimination


def eliminate_common_subexpressions(module: ModuleOp) -> ModuleOp:
    """xDSL's pass, over the traits that our ops declare."""
    CommonSubexpressionElimination().apply(Context(), module)
    return module
