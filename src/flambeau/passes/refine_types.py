"""RefineTypes: shapes and dtypes through the whole program.

The rules of `infer/` say what each op gives. Branches give what holds for both sides; loops are evaluated until the
types of what they carry no longer change.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from flambeau.passes.evaluate.evaluator import Evaluator, Features


def refine_types(module: ModuleOp) -> ModuleOp:
    """Rewrite the module in place."""
    return Evaluator("refine types", Features(infer=True)).run(module)
