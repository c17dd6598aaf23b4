"""MaximizeValueSemantics: tensors that can be written become values.

The evaluator does it; "Note [Storages and views]" there tells how. What no write can observe is converted, through
views, tuples, lists, dictionaries, branches and loops.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from flambeau.ir.module_pass import TorchPass
from flambeau.passes.evaluate.evaluator import evaluate
from flambeau.passes.evaluate.state import Features


def maximize_value_semantics(module: ModuleOp) -> ModuleOp:
    """Rewrite the module in place."""
    return evaluate(module, "maximize value semantics", Features(containers=True, tensors=True))


class MaximizeValueSemantics(TorchPass):
    """Turn mutable tensors into values."""

    name = "torch-maximize-value-semantics"
    run = staticmethod(maximize_value_semantics)
