"""Canonicalize: compute what is known, take containers apart, take known branches, unroll loops with lists in them."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from flambeau.ir.module_pass import TorchPass
from flambeau.passes.dead_code import eliminate_dead_code
from flambeau.passes.evaluate.evaluator import evaluate
from flambeau.passes.evaluate.state import Features


def canonicalize(module: ModuleOp) -> ModuleOp:
    """Rewrite the module in place."""
    features = Features(infer=True, fold=True, containers=True)
    return eliminate_dead_code(evaluate(module, "canonicalize", features))


class Canonicalize(TorchPass):
    """Compute what is known, take containers apart."""

    name = "canonicalize"
    run = staticmethod(canonicalize)
