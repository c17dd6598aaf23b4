"""InlineGlobalSlots: a slot that nobody writes is its initial value.

Note [What may be written]. A slot may be given a new value, and what it holds may be changed: a tensor in place, a list
by `append`. An object is changed through any of its names, so from every op that writes we go back to all values that
may be the same object, or hold it or a part of it: through views, casts, containers, branches, loops, calls and slots.
A value that is not reached is never written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from flambeau.dialects.torch.base import is_mutable_object
from flambeau.dialects.torch.control_flow import YieldOp
from flambeau.dialects.torch.emitter import TorchEmitter
from flambeau.dialects.torch.ops import (
    BindSymbolicShapeOp,
    CopyOp,
    DerefineOp,
    DictConstructOp,
    GlobalSlotGetOp,
    GlobalSlotOp,
    GlobalSlotSetOp,
    InitializeGlobalSlotsOp,
    ListConstructOp,
    ListUnpackOp,
    LoopConditionOp,
    LoopOp,
    OverwriteTensorContentsOp,
    StaticInfoCastOp,
    TorchOp,
    TupleConstructOp,
    TupleUnpackOp,
)
from flambeau.dialects.torch.schema import Argument, Schema
from flambeau.dialects.torch.types import TensorType
from flambeau.ir.builder import backward_slice, erase
from flambeau.ir.module_pass import TorchPass
from flambeau.passes.evaluate.view_ops import updates_statistics
from flambeau.passes.inline import copy_op
from flambeau.passes.symbol_dce import callee_name, drop_initial_values, find_initializer, functions_of, is_public


def inline_global_slots(module: ModuleOp) -> ModuleOp:
    """Rewrite the module in place. Slots that are public or written stay; private ones that nobody uses go."""
    initializer = find_initializer(module)
    if initializer is None:
        return module
    private = {op.sym_name: op for op in module.ops if isinstance(op, GlobalSlotOp) and not is_public(op)}
    values = dict(initializer.initialization.initial_values)
    written = written_values(module)
    accesses = _accesses(module)
    assigned = {op.slot_name for op in accesses if isinstance(op, GlobalSlotSetOp)}
    fixed = {
        name: value
        for name, value in values.items()
        if name in private and name not in assigned and not _is_written(value, written)
    }
    used = {op.slot_name for op in accesses} - fixed.keys()
    _inline(accesses, fixed, {op: i for i, op in enumerate(initializer.regions[0].block.ops)})
    gone = [name for name in private if name not in used]
    drop_initial_values(module, gone)
    for name in gone:
        erase(private[name])
    return module


class InlineGlobalSlots(TorchPass):
    """Replace slots that nobody writes by their initial values."""

    name = "torch-inline-global-slots"
    run = staticmethod(inline_global_slots)


def _accesses(module: ModuleOp) -> list[GlobalSlotGetOp | GlobalSlotSetOp]:
    return [
        op
        for function in functions_of(module).values()
        for op in function.walk()
        if isinstance(op, GlobalSlotGetOp | GlobalSlotSetOp)
    ]


def _is_written(value: SSAValue, written: set[SSAValue]) -> bool:
    """Tell whether an initial value, or something that it is made of, may be written."""
    pending, seen = [value], {value}
    while pending:
        value = pending.pop()
        if value in written:
            return True
        if isinstance(value.owner, Operation):
            new = [o for o in value.owner.operands if o not in seen and is_mutable_object(o.type)]
            seen.update(new)
            pending += new
    return False


# --- Initial values in functions ---


def _inline(
    accesses: list[GlobalSlotGetOp | GlobalSlotSetOp], fixed: Mapping[str, SSAValue], order: Mapping[Operation, int]
) -> None:
    gets: dict[Block, list[GlobalSlotGetOp]] = {}
    for op in accesses:
        if isinstance(op, GlobalSlotGetOp) and op.slot_name in fixed:
            gets.setdefault(_entry(op), []).append(op)
    for entry, ops in gets.items():
        names = dict.fromkeys(op.slot_name for op in ops)
        builder = TorchEmitter(entry)
        builder.before = entry.first_op
        copies: dict[SSAValue, SSAValue] = {}
        for initial in sorted(backward_slice([fixed[name] for name in names]), key=order.__getitem__):
            builder.insert(copy_op(initial, copies))
        seen_as: dict[tuple[str, Attribute], SSAValue] = {}
        for get in ops:
            key = (get.slot_name, get.results[0].type)
            if key not in seen_as:
                builder.location = get.location
                seen_as[key] = builder.cast(copies[fixed[get.slot_name]], get.results[0].type)
            get.results[0].replace_all_uses_with(seen_as[key])
        for get in ops:
            erase(get)


def _entry(op: Operation) -> Block:
    """Find the first block of the function around an op."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, func.FuncOp):
        parent = parent.parent_op()
    assert parent is not None
    block = parent.body.first_block
    assert block is not None
    return block


@dataclass
class _Flow:
    """Where objects come from and where they are written."""

    sources: dict[SSAValue, list[SSAValue]] = field(default_factory=dict)
    """Values to those that may be the same object, or be inside it."""
    written: set[SSAValue] = field(default_factory=set)
    """Values whose object some op writes."""
    changed: set[SSAValue] = field(default_factory=set)
    """Containers that get or lose elements; the elements stay what they are."""

    def joins(self, source: SSAValue, target: SSAValue) -> None:
        if is_mutable_object(source.type) and is_mutable_object(target.type):
            self.sources.setdefault(target, []).append(source)


def written_values(module: ModuleOp) -> set[SSAValue]:
    """Collect all values of a module whose contents may be written by the program."""
    flow = _Flow()
    functions = functions_of(module)
    gets: dict[str, list[SSAValue]] = {}
    for function in functions.values():
        for op in function.walk():
            if isinstance(op, GlobalSlotGetOp):
                gets.setdefault(op.slot_name, []).append(op.results[0])
    for name, value in _slot_values(module):
        for got in gets.get(name, ()):
            flow.joins(value, got)
    public = {op.sym_name for op in module.ops if isinstance(op, GlobalSlotOp) and is_public(op)}
    initializer = find_initializer(module)
    if initializer is not None:
        # Whoever is outside may do anything with a public slot.
        flow.written.update(v for name, v in initializer.initialization.initial_values if name in public)
    for outer in module.ops:
        for op in outer.walk():
            _add(op, flow, functions)
    return _reached(flow, flow.written, through_elements=True) | _reached(flow, flow.changed, through_elements=False)


def _slot_values(module: ModuleOp) -> Iterator[tuple[str, SSAValue]]:
    """Collect every value that some slot holds at some time."""
    for op in module.walk():
        if isinstance(op, GlobalSlotSetOp):
            yield op.slot_name, op.operands[0]
        elif isinstance(op, InitializeGlobalSlotsOp):
            yield from op.initial_values


def _reached(flow: _Flow, seeds: set[SSAValue], through_elements: bool) -> set[SSAValue]:
    found = set(seeds)
    pending = list(seeds)
    while pending:
        for source in flow.sources.get(pending.pop(), ()):
            if source not in found and (through_elements or not isinstance(source.type, TensorType)):
                found.add(source)
                pending.append(source)
    return found


_PASSING = (
    ListConstructOp, TupleConstructOp, DictConstructOp, ListUnpackOp, TupleUnpackOp, DerefineOp, StaticInfoCastOp,
)  # fmt: skip
"""Ops whose results are, hold, or are held by their operands."""
_HARMLESS = (
    CopyOp, BindSymbolicShapeOp, GlobalSlotSetOp, InitializeGlobalSlotsOp, func.FuncOp, func.ReturnOp, ModuleOp,
)  # fmt: skip
"""Ops that write nothing and pass nothing on, or whose part in it is seen elsewhere."""
_MAY_GIVE_ITS_ARGUMENT = frozenset({"aten.dropout", "aten.alpha_dropout", "aten.feature_dropout"})
"""Ops that give a fresh tensor by their schema, and the argument itself where there is nothing to do."""


def _add(op: Operation, flow: _Flow, functions: Mapping[str, func.FuncOp]) -> None:
    if isinstance(op, _PASSING):
        for operand in op.operands:
            for result in op.results:
                flow.joins(operand, result)
    elif isinstance(op, OverwriteTensorContentsOp):
        flow.written.add(op.operands[1])
    elif isinstance(op, LoopOp):
        for operand, argument, result in zip(op.iter_args_init, op.body.args[1:], op.results, strict=True):
            flow.joins(operand, argument)
            flow.joins(operand, result)
    elif isinstance(op, LoopConditionOp):
        loop = op.parent_op()
        assert isinstance(loop, LoopOp)
        for operand, argument, result in zip(op.iter_args, loop.body.args[1:], loop.results, strict=True):
            flow.joins(operand, argument)
            flow.joins(operand, result)
    elif isinstance(op, YieldOp):
        around = op.parent_op()
        assert around is not None
        for operand, result in zip(op.operands, around.results, strict=False):
            flow.joins(operand, result)
    elif isinstance(op, func.CallOp) and (callee := functions.get(callee_name(op))) and callee.body.blocks:
        for operand, argument in zip(op.operands, callee.args, strict=True):
            flow.joins(operand, argument)
        for block in callee.body.blocks:
            if isinstance(block.last_op, func.ReturnOp):
                for operand, result in zip(block.last_op.operands, op.results, strict=True):
                    flow.joins(operand, result)
    elif isinstance(op, TorchOp) and op.schema is not None:
        _add_registry_op(op, op.schema, flow)
    elif not isinstance(op, _HARMLESS):
        # Nobody knows what this does with its operands.
        flow.written.update(o for o in op.operands if is_mutable_object(o.type))


def _add_registry_op(op: TorchOp, schema: Schema, flow: _Flow) -> None:
    if updates_statistics(op):
        flow.written.update(op.operands[3:5])
    known = not schema.is_vararg and len(op.operands) == len(schema.arguments)
    arguments = schema.arguments if known else (None,) * len(op.operands)
    containers: list[SSAValue] = []
    for operand, argument in zip(op.operands, arguments, strict=True):
        if argument is not None and argument.is_written:
            if argument.type.is_tensor:
                flow.written.add(operand)
            else:
                flow.changed.add(operand)
                containers.append(operand)
    returns = schema.returns if len(op.results) == len(schema.returns) else (None,) * len(op.results)
    for i, (operand, argument) in enumerate(zip(op.operands, arguments, strict=True)):
        for container in containers:
            if operand is not container:
                flow.joins(operand, container)
        for result, declared in zip(op.results, returns, strict=True):
            if (i == 0 and schema.name in _MAY_GIVE_ITS_ARGUMENT) or _may_share(argument, declared):
                flow.joins(operand, result)


def _may_share(argument: Argument | None, result: Argument | None) -> bool:
    """Tell whether a result may be an argument, a view of it, or an element of it."""
    if argument is None or result is None or not result.type.is_tensor:
        # PyTorch does not say what becomes of the elements of containers.
        return True
    if argument.alias is None or result.alias is None:
        return False
    sets = {*argument.alias.sets, *argument.alias.after}
    others = {*result.alias.sets, *result.alias.after}
    return bool(sets & others) or "*" in others
