"""Decompositions: torch ops as simpler torch ops, written as a PyTorch user would write them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from functools import cache
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.traits import IsTerminator

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.aliases import alias_overloads
from flambeau.dialects.torch.ops import TorchOp
from flambeau.dialects.torch.prims import Arguments, arguments_of, twins
from flambeau.dialects.torch.schema import Schema, selects
from flambeau.dialects.torch.types import TensorType
from flambeau.infer.builder import TorchBuilder, python_value, unknown_numbers
from flambeau.infer.builder import rules as infer_rules
from flambeau.infer.rules import InferenceError
from flambeau.ir.builder import erase
from flambeau.ir.conversion import Conversion, RuleFunction, RuleTable
from flambeau.ir.plugins import lowered_ops, over
from flambeau.passes.dead_code import eliminate_dead_code
from flambeau.passes.decompose.rules import DECOMPOSITIONS

FAMILIES = (
    "activation", "collective", "compare", "conv", "create", "fft", "index", "linear_algebra", "loss", "matmul",
    "pointwise", "pool", "reduce", "sample", "scalars", "search", "slice", "sort", "view",
)  # fmt: skip

LOWERED = frozenset({
    "aten.absolute", "aten.moveaxis.int", "aten.true_divide.Tensor",
    "prims.digamma", "prims.frexp", "prims.igamma", "prims.igammac", "prims.lgamma", "prims.nextafter",
})  # fmt: skip
"""Aliases that have rules of their own in the lowerings, or that are names of ops which nothing takes."""


@cache
def decompositions() -> RuleTable:
    """Load all decompositions: those of each family, and those of aliases, which have the family of the real op."""
    table = DECOMPOSITIONS.load("flambeau.passes.decompose", FAMILIES)
    for name, real in alias_overloads().items():
        if name not in LOWERED:
            table(name, family=infer_rules().families[real])(_renamed(real))
    for name, (twin, arguments) in twins().items():
        if name not in table and name not in LOWERED:
            table(name, family=infer_rules().families[name])(_as_twin(twin, arguments))
    return table


def _as_twin(twin: Schema, arguments: Arguments) -> RuleFunction:
    """Make a rule that builds the ATen op that a primitive is."""

    def build(t: TorchBuilder, *given: Any) -> Any:
        values = list(zip(twin.arguments, arguments_of(twin, arguments, given), strict=True))
        named = {a.name: v for a, v in values if a.kwarg_only}
        return t.call(twin.name, *(v for a, v in values if not a.kwarg_only), **named)

    return build


def _renamed(real: str) -> RuleFunction:
    """Make a rule that builds the overload `real` with an alias's operands, and the types known of its results."""

    def rename(t: TorchBuilder, *_: Any) -> tuple[SSAValue, ...]:
        op = t.before
        assert op is not None
        return tuple(t.op(real, op.operands, [r.type for r in op.results]))

    return rename


def _stands_for(value: Any, result: SSAValue) -> bool:
    """Tell whether a rule may give this for a result: None is for one that nobody uses."""
    return isinstance(value, SSAValue) or (value is None and not any(result.uses))


class Decomposition(Conversion):
    """Replaces each op that has a decomposition, and what it decomposes to, until none is left."""

    stage = "decompose"
    unknown_numbers = staticmethod(unknown_numbers)

    def __init__(self, builder: TorchBuilder, is_kept: Callable[[TorchOp], bool]) -> None:
        super().__init__()
        self.builder = builder
        self.is_kept = is_kept
        self.rules = over(decompositions())

    def convert_op(self, op: Operation) -> None:
        for region in op.regions:
            for block in region.blocks:
                self.convert_block(block)
        rule = self.rules.get(op.overload) if isinstance(op, TorchOp) else None
        if rule is None or not isinstance(op, TorchOp) or self.is_kept(op):
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
        if len(values) != len(op.results) or not all(map(_stands_for, values, op.results)):
            wanted = f"{len(op.results)} value{'s' if len(op.results) != 1 else ''}"
            raise TypeError(f"a decomposition of {op.name} must give {wanted}, and gives {new!r}")
        for old, value in zip(op.results, values, strict=True):
            if value is None:
                continue
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
        """Leave the op as it is."""


PRIMITIVES = frozenset(
    {
        "aten.sort",
        "aten.sort.stable",
        "aten.topk",
        "aten.searchsorted.Tensor",
        "aten.col2im",
        "aten.embedding_bag.padding_idx",
        "aten._fft_c2c",
        "aten._fft_r2c",
        "aten._fft_c2r",
    }
)
"""Ops that the backend contract admits whole, though they have a decomposition: some targets have an op for them."""

OF_KNOWN_LENGTH = frozenset({"aten._fft_c2c", "aten._fft_r2c", "aten._fft_c2r"})
"""Primitives that targets take only where the sizes of the dims in their second argument are known."""


def _is_of_unknown_length(op: TorchOp) -> bool:
    if op.overload not in OF_KNOWN_LENGTH:
        return False
    shapes = [v.type.shape for v in (op.operands[0], op.results[0]) if isinstance(v.type, TensorType)]
    dims = python_value(op.operands[1])
    return any(shape is None or shape[d] is None for shape in shapes for d in dims)


def decompose(module: ModuleOp, keep: Collection[str] = ()) -> ModuleOp:
    """Apply the decompositions to a module in place, but for primitives and the ops named in `keep`."""
    is_named, left = selects(keep), primitives()
    return _apply(module, lambda op: is_named(op.overload) or (op.overload in left and not _is_of_unknown_length(op)))


def primitives() -> frozenset[str]:
    """Name the ops that the backend contract admits whole: ours, and those that others have rules of targets for."""
    return PRIMITIVES | lowered_ops()


def legalize(module: ModuleOp, native: Container[str]) -> ModuleOp:
    """Decompose the primitives that a target does not take whole.

    `native` has the overloads that it does take, by name. Gives the module itself if there is nothing to do, or else a
    copy that has been rewritten.
    """
    left = primitives()
    if not any(isinstance(op, TorchOp) and op.overload in left and op.overload not in native for op in module.walk()):
        return module
    return eliminate_dead_code(_apply(module.clone(), lambda op: op.overload in native))


def _apply(module: ModuleOp, is_kept: Callable[[TorchOp], bool]) -> ModuleOp:
    for function in module.ops:
        if isinstance(function, func.FuncOp):
            for block in function.body.blocks:
                conversion = Decomposition(TorchBuilder(block), is_kept)
                conversion.convert_block(block)
                conversion.finish()
    return module
