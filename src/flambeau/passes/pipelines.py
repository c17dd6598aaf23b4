"""Passes by name, and the pipelines made of them."""

from __future__ import annotations

from collections.abc import Callable, Container

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from flambeau.dialects.torch.types import NonValueTensorType
from flambeau.passes.backend_contract import require_backend_contract
from flambeau.passes.dead_code import eliminate_dead_code
from flambeau.passes.decompose import decompose, decompositions
from flambeau.passes.maximize_value_semantics import maximize_value_semantics
from flambeau.passes.reduce_op_variants import reduce_op_variants

Pass = Callable[[ModuleOp], ModuleOp]


def decomposed_ops() -> Container[str]:
    """The ops that our own decompositions take apart."""
    return decompositions()


def has_mutable_tensors(module: ModuleOp) -> bool:
    """Whether any value of the program can be written."""
    return any(
        isinstance(result.type, NonValueTensorType)
        for function in module.ops
        if isinstance(function, func.FuncOp)
        for block in function.body.blocks
        for owner in (block.args, *(op.results for op in block.ops))
        for result in owner
    )


def to_backend_contract(module: ModuleOp) -> ModuleOp:
    """From what a frontend gives to what every lowering takes; rewrites the module."""
    if has_mutable_tensors(module):
        module = maximize_value_semantics(reduce_op_variants(module))
    return require_backend_contract(eliminate_dead_code(decompose(module)))
