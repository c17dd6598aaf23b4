"""Passes by name, and the pipelines made of them."""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from flambeau.dialects.torch.ops import ClassTypeOp, GlobalSlotOp, NnModuleOp
from flambeau.dialects.torch.types import NonValueTensorType
from flambeau.ir.module_pass import TorchPass
from flambeau.ir.plugins import lowered_ops, over
from flambeau.passes.adjust_calling_conventions import adjust_calling_conventions
from flambeau.passes.backend_contract import Constraint, require_backend_contract, violations
from flambeau.passes.dead_code import eliminate_dead_code
from flambeau.passes.decompose import decompose, decompositions
from flambeau.passes.evaluate.evaluator import evaluate
from flambeau.passes.evaluate.state import EVERYTHING
from flambeau.passes.inline import inline_calls
from flambeau.passes.maximize_value_semantics import maximize_value_semantics
from flambeau.passes.random_state import random_ops, thread_random_state
from flambeau.passes.reduce_op_variants import reduce_op_variants
from flambeau.passes.refine_public_return import refine_public_return
from flambeau.passes.script import flatten, specialize
from flambeau.passes.symbol_dce import eliminate_dead_symbols


def decomposed_ops() -> Container[str]:
    """Name the ops that our own decompositions take apart, that draw random numbers, or that others have rules for."""
    return {*over(decompositions()), *lowered_ops(), *random_ops()}


def has_mutable_tensors(module: ModuleOp) -> bool:
    """Tell whether any value of the program can be written."""
    return any(
        isinstance(result.type, NonValueTensorType)
        for function in module.ops
        if isinstance(function, func.FuncOp)
        for block in function.body.blocks
        for owner in (block.args, *(op.results for op in block.ops))
        for result in owner
    )


def to_backend_contract(module: ModuleOp, keep: Collection[str] = ()) -> ModuleOp:
    """Lower what a frontend gives to what every lowering takes; rewrite the module. Ops in `keep` stay whole."""
    if any(isinstance(op, ClassTypeOp | NnModuleOp | GlobalSlotOp) for op in module.ops):
        specialize(flatten(module))
    broken = {violation.constraint for violation in violations(module)}
    if broken == {Constraint.C2}:
        maximize_value_semantics(reduce_op_variants(module))
    elif broken:
        infer_everything(module)
    thread_random_state(module)
    return require_backend_contract(eliminate_dead_code(decompose(module, keep)))


def infer_everything(module: ModuleOp) -> ModuleOp:
    """Evaluate all that the types of arguments and the constants tell: shapes, dtypes, values of tensors; in place."""
    inline_calls(module)
    eliminate_dead_symbols(module)
    reduce_op_variants(adjust_calling_conventions(module))
    return refine_public_return(evaluate(module, "specialize", EVERYTHING))


@dataclass(frozen=True)
class DecomposeComplexOps(TorchPass):
    """Apply our decompositions."""

    name = "torch-decompose-complex-ops"

    legal_ops: tuple[str, ...] = ()
    """Ops that stay whole."""

    def run(self, module: ModuleOp) -> ModuleOp:
        return decompose(module, self.legal_ops)


@dataclass(frozen=True)
class LowerToBackendContract(TorchPass):
    """Take the torch dialect to the backend contract."""

    name = "torch-lower-to-backend-contract"

    backend_legal_ops: tuple[str, ...] = ()
    """Ops that stay whole."""

    def run(self, module: ModuleOp) -> ModuleOp:
        return to_backend_contract(module, self.backend_legal_ops)
