"""MaximizeValueSemantics: tensors that can be written become values.

The evaluator does it; "Note [Storages and views]" there tells how. What no write can observe is converted, through
views, tuples, lists, dictionaries, branches and loops.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from flambeau.passes.evaluate.evaluator import Evaluator, Features


def maximize_value_semantics(module: ModuleOp) -> ModuleOp:
    """Rewrite the module in place."""
    return Evaluator("maximize value semantics", Features(containers=True, tensors=True)).run(module)
