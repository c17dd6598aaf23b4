"""Decompositions: torch ops as simpler torch ops, written as a PyTorch user would write them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.traits import IsTerminator

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.ops import TorchOp
from flambeau.dialects.torch.schema import selects
from flambeau.infer.builder import TorchBuilder, python_value
from flambeau.infer.rules import InferenceError
from flambeau.ir.builder import erase
from flambeau.ir.conversion import Conversion, RuleTable
from flambeau.passes.dead_code import eliminate_dead_code
from flambeau.passes.decompose.rules import DECOMPOSITIONS

FAMILIES = (
    "distance", "fft", "index", "loss", "matmul", "pointwise", "reduce", "sample", "search", "segment", "sort",
    "storage", "view",
)  # fmt: skip


def decompositions() -> RuleTable:
    """All of our decompositions."""
    return DECOMPOSITIONS.load("flambeau.passes.decompose", FAMILIES)


class Decomposition(Conversion):
    """Replaces each op that has a decomposition, and what it decomposes to, until none is left."""

    stage = "decompose"

    def __init__(self, builder: TorchBuilder, is_kept: Callable[[str], bool]) -> None:
        super().__init__()
        self.builder = builder
        self.is_kept = is_kept
        self.rules = decompositions()

    def convert_op(self, op: Operation) -> None:
        for region in op.regions:
            for block in region.blocks:
                self.convert_block(block)
        rule = self.rules.get(op.overload) if isinstance(op, TorchOp) else None
        if rule is None or self.is_kept(op.overload):  # type: ignore[attr-defined]
            return
        before, following, block = op.prev_op, op.next_op, op.parent_block()
        assert block is not None
        self.builder.block, self.builder.before, self.builder.location = block, op, op.location
        self.rule = rule
        try:
            new = rule(self.builder, *(python_value(v) for v in op.operands))
        except InferenceError as e:
            raise Unsupported(str(e)) from e
        if new is None:
            # The rule says that this one is as simple as it gets.
            return
        values = new if isinstance(new, tuple) else (new,)
        if len(values) != len(op.results) or not all(isinstance(v, SSAValue) for v in values):
            wanted = f"{len(op.results)} value{'s' if len(op.results) != 1 else ''}"
            raise TypeError(f"a decomposition of {op.name} must give {wanted}, and gives {new!r}")
        for old, value in zip(op.results, values, strict=True):
            if value not in op.operands:
                value.name_hint = old.name_hint
            if value.type != old.type:
                # What leaves a function or a region has the type that was promised.
                for use in [u for u in old.uses if u.operation.has_trait(IsTerminator)]:
                    use.operation.operands[use.index] = self.builder.cast(value, old.type)
            old.replace_all_uses_with(value)
        erase(op)
        inner = before.next_op if before is not None else block.first_op
        while inner is not None and inner is not following:
            after = inner.next_op
            self.convert_op(inner)
            inner = after

    def poison(self, op: Operation) -> None:
        """The op stays as it is."""


PRIMITIVES = frozenset({"aten.sort", "aten.sort.stable", "aten._fft_c2c", "aten._fft_r2c", "aten._fft_c2r"})
"""Ops that the backend contract admits whole, though they have a decomposition: some targets have an op for them."""


def decompose(module: ModuleOp, keep: Collection[str] = ()) -> ModuleOp:
    """Apply the decompositions to a module in place, but for primitives and the ops named in `keep`."""
    is_named = selects(keep)
    return _apply(module, lambda name: name in PRIMITIVES or is_named(name))


def legalize(module: ModuleOp, native: Container[str]) -> ModuleOp:
    """Decompose the primitives that a target does not take whole.

    `native` has the overloads that it does take, by name. Gives the module itself if there is nothing to do, or else a
    copy that has been rewritten.
    """
    if not any(
        isinstance(op, TorchOp) and op.overload in PRIMITIVES and op.overload not in native for op in module.walk()
    ):
        return module
    return eliminate_dead_code(_apply(module.clone(), lambda name: name in native))


def _apply(module: ModuleOp, is_kept: Callable[[str], bool]) -> ModuleOp:
    for function in module.ops:
        if isinstance(function, func.FuncOp):
            for block in function.body.blocks:
                conversion = Decomposition(TorchBuilder(block), is_kept)
                conversion.convert_block(block)
                conversion.finish()
    return module
