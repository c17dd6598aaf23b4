"""Evaluating: one walk over a function that re-emits it on what is known of its values.

Note [Evaluating]. Folding numbers, taking containers apart, inferring types, taking branches that are known, unrolling
loops and turning writes into values all need each other: a list's length decides a loop, the loop decides a shape, the
shape decides a branch. So they are not passes that are repeated until nothing changes any more, but one walk, in order,
that knows all of it at each op. A pass is an evaluation with some of these features.

Note [Storages and views]. Every mutable tensor is a view of a storage, which has a current value. A read applies the
chain of view ops to that value; a write goes back up the chain (views.py). In branches and loops, a storage that is
written becomes a result of the branch or loop like any other value. Where two storages may be one (a branch gave one
tensor or another), they are linked: a write to one is also a write to the other where the link's condition holds.
Where nothing tells whether a link holds, a write makes the other storage stale: to look at it is an error that names
both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic, diagnostic_for
from flambeau.dialects.torch.control_flow import IfOp, LoopOp
from flambeau.dialects.torch.emitter import TorchEmitter
from flambeau.dialects.torch.global_slots import GlobalSlotSetOp, InitializeGlobalSlotsOp
from flambeau.dialects.torch.types import TensorType
from flambeau.passes.evaluate.branches import evaluate_if
from flambeau.passes.evaluate.loops import evaluate_loop
from flambeau.passes.evaluate.operands import fit
from flambeau.passes.evaluate.state import RULES, Evaluation, Features, Oracle, Raised, Stopped
from flambeau.passes.evaluate.storages import look, of_argument
from flambeau.passes.evaluate.view_ops import metadata_writes
from flambeau.passes.evaluate.walk import guarded, walk

RULES.load("flambeau.passes.evaluate", ("containers", "rules", "queries", "scalars"))
CONTROL_FLOW: Mapping[type[Operation], Callable[[Evaluation, Any], None]] = {IfOp: evaluate_if, LoopOp: evaluate_loop}


class Border:
    """How a function's arguments and results look to its evaluation: as they were."""

    owns_slots = False
    """Whether the border keeps account of what is in the global slots."""

    def arguments(self, e: Evaluation, old: Block) -> None:
        """Give the new function its arguments."""
        for argument in old.args:
            new = e.entry.insert_arg(argument.type, len(e.entry.args))
            new.name_hint = argument.name_hint
            e.values[argument] = of_argument(e, new) if argument.uses else new

    def results(self, e: Evaluation, op: func.ReturnOp) -> Sequence[SSAValue]:
        """Say what the new function returns."""
        for storage in e.visible:
            look(storage)
        return [fit(e, e.values[o], o.type) for o in op.operands]


def evaluate(module: ModuleOp, stage: str, features: Features) -> ModuleOp:
    """Evaluate all functions of a module, in place; raises CompileError with everything that could not be done."""
    problems: dict[Operation, Diagnostic] = {}
    slot_types = types_of_slots(module)
    for op in module.ops:
        if isinstance(op, func.FuncOp) and not op.is_declaration:
            problems |= evaluate_function(op, stage, features, slot_types=slot_types)
    if problems:
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
        raise CompileError(list(problems.values()), summary=f"cannot {stage}: {count}")
    return module


def evaluate_function(
    function: func.FuncOp,
    stage: str,
    features: Features,
    border: Border | None = None,
    oracle: Oracle | None = None,
    slot_types: Mapping[str, Attribute] | None = None,
) -> dict[Operation, Diagnostic]:
    """Evaluate a function and replace its body; where there are problems, the body stays, and they are the result."""
    if len(function.body.blocks) != 1:
        raise CompileError([diagnostic_for(function, stage, "a function with several blocks")])
    old, new = function.body.block, Block()
    border = border or Border()
    e = Evaluation(stage, features, TorchEmitter(new), new, CONTROL_FLOW, {}, oracle, slot_types or {})
    e.owns_slots = border.owns_slots
    e.t.location = function.location
    is_metadata_written = any(getattr(op, "overload", "") in metadata_writes() for op in function.walk())
    e.refines_mutable = features.tensors or not is_metadata_written
    border.arguments(e, old)
    try:
        walk(e, old)
        if isinstance(ending := old.last_op, func.ReturnOp):
            guarded(e, ending, lambda: e.t.emit(func.ReturnOp, border.results(e, ending)))
    except Stopped:
        return e.problems
    except Raised as raised:
        reason = f"the program always raises: {raised.message}"
        e.problems[raised.op] = diagnostic_for(raised.op, stage, reason)
    if not e.problems:
        function.body.detach_block(old)
        function.body.add_block(new)
        outputs = [o.type for o in new.last_op.operands] if new.last_op is not None else []
        function.function_type = FunctionType.from_lists([a.type for a in new.args], outputs)
    return e.problems


def types_of_slots(module: ModuleOp) -> dict[str, Attribute]:
    """Find the types of the tensors in global slots that the program never sets."""
    found: dict[str, Attribute] = {}
    for op in module.walk():
        if isinstance(op, InitializeGlobalSlotsOp):
            found.update((n, v.type) for n, v in op.initial_values if isinstance(v.type, TensorType))
    for op in module.walk():
        if isinstance(op, GlobalSlotSetOp):
            found.pop(op.slot_name, None)
    return found
