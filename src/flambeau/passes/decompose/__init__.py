"""Decompositions: torch ops as simpler torch ops, written as a PyTorch user would write them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.ops import TorchOp
from flambeau.infer.builder import TorchBuilder, python_value
from flambeau.infer.rules import InferenceError
from flambeau.ir.builder import erase
from flambeau.ir.conversion import Conversion, RuleTable
from flambeau.passes.decompose.rules import DECOMPOSITIONS

FAMILIES = ("pointwise", "reduce", "loss", "view")


@cache
def decompositions() -> RuleTable:
    """All of our decompositions."""
    for family in FAMILIES:
        import_module(f"flambeau.passes.decompose.{family}")
    return DECOMPOSITIONS


class Decomposition(Conversion):
    """Replaces each op that has a decomposition, until none is left."""

    stage = "decompose"

    def __init__(self, builder: TorchBuilder) -> None:
        super().__init__()
        self.builder = builder
        self.rules = decompositions()

    def convert_op(self, op: Operation) -> None:
        if not isinstance(op, TorchOp):
            return
        rule = self.rules.get(op.overload)
        if rule is None:
            return
        before = op.prev_op
        self.builder.before, self.builder.location = op, op.location
        try:
            new = rule(self.builder, *(python_value(v) for v in op.operands))
        except InferenceError as e:
            raise Unsupported(str(e)) from e
        results = new if isinstance(new, tuple) else (new,)
        for old, value in zip(op.results, results, strict=True):
            # PyTorch's word on the type may be better than what was inferred.
            value.name_hint = old.name_hint
            old.replace_all_uses_with(value)
        # A decomposition may use ops that have one themselves: those are next.
        first = before.next_op if before is not None else op.parent_block().first_op  # type: ignore[union-attr]
        erase(op)
        while first is not None and first is not self.following:
            following = first.next_op
            self.convert_op(first)
            first = following

    following: Operation | None = None

    def convert_block(self, block: Any) -> None:
        op = block.first_op
        while op is not None:
            self.following = op.next_op
            following = self.following
            try:
                self.convert_op(op)
            except Unsupported as e:
                from flambeau.diagnostics import diagnostic_for

                self.problems.append(diagnostic_for(op, self.stage, e.reason, e.hint))
            op = following

    def poison(self, op: Operation) -> None:
        return None


def decompose(module: ModuleOp) -> ModuleOp:
    """Apply the decompositions to a module in place."""
    for function in module.ops:
        if isinstance(function, func.FuncOp):
            for block in function.body.blocks:
                conversion = Decomposition(TorchBuilder(block))
                conversion.convert_block(block)
                conversion.finish()
    return module
