"""The lowering to linalg-on-tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

from flambeau.ir.conversion import RuleTable
from flambeau.lowering.conversion import Lowering
from flambeau.lowering.external import external_rules
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.linalg.external import ExternalCalls
from flambeau.lowering.linalg.rules import LINALG_RULES, LOOP_RULES
from flambeau.lowering.whole.rules import layered

FAMILIES = (
    "pointwise", "compare", "activation", "view", "slice", "create", "matmul", "reduce", "normalization", "scan",
    "conv", "fft", "pool", "pad", "index", "bags", "scatter", "search", "sort", "quantized", "random", "special",
    "bessel", "gamma", "polynomials", "collective",
)  # fmt: skip
"""The modules of this folder that add rules to the table."""


def rules() -> RuleTable:
    """Load the rules that other targets build on too."""
    return LINALG_RULES.load("flambeau.lowering.linalg", FAMILIES)


def loop_rules() -> RuleTable:
    """Load all linalg rules: the shared ones, and those that only a loop nest can express."""
    return layered("linalg-on-tensors", rules(), LOOP_RULES)


def lower_to_linalg(module: ModuleOp, tm_tensor: bool = False, external: Sequence[str] = ()) -> ModuleOp:
    """Lower a module that satisfies the backend contract; `tm_tensor` allows the ops of that dialect, for loops.

    The ops named in `external` become calls of functions that are declared and not defined.
    """
    table = loop_rules()
    builder: Callable[[Block], LinalgBuilder] = LinalgBuilder
    if tm_tensor:
        from flambeau.lowering.linalg.tm_tensor import TM_TENSOR_RULES, scatter

        table, builder = layered(table.name, table, TM_TENSOR_RULES), partial(LinalgBuilder, scatter_op=scatter)
    calls = ExternalCalls([op.sym_name.data for op in module.ops if isinstance(op, func.FuncOp)])
    left = external_rules(table.name, external, calls.emit)
    return calls.declare(Lowering("lower to linalg-on-tensors", table, builder, left).convert_module(module))
