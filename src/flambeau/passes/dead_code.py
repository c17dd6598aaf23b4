"""Remove what nobody uses."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.traits import is_side_effect_free
from xdsl.transforms.dead_code_elimination import would_be_trivially_dead

from flambeau.dialects.torch.ops import BindSymbolicShapeOp, IfOp, LoopOp
from flambeau.ir.builder import erase
from flambeau.ir.module_pass import TorchPass


def eliminate_dead_code(module: ModuleOp) -> ModuleOp:
    """Erase pure ops without uses, in place. A shape binding is not a use: it goes with its tensor."""
    for function in module.ops:
        if isinstance(function, func.FuncOp):
            for block in function.body.blocks:
                _clean(block)
    return module


class DeadCodeElimination(TorchPass):
    """Remove what nobody uses."""

    name = "dce"
    run = staticmethod(eliminate_dead_code)


def _clean(block: Block) -> None:
    op = block.last_op
    while op is not None:
        previous = op.prev_op
        if isinstance(op, IfOp):
            op = _without(op, [bool(r.uses) for r in op.results])
        elif isinstance(op, LoopOp):
            op = _without(op, _live_in_loop(op))
        if _is_dead(op):
            for result in op.results:
                for use in list(result.uses):
                    erase(use.operation)
            erase(op)
        op = previous


def _is_dead(op: Operation) -> bool:
    if op.regions:
        # Branches and loops have lost their unused results already.
        return isinstance(op, IfOp | LoopOp) and not any(r.uses for r in op.results) and _has_no_effect(op)
    if not op.results:
        return False
    for result in op.results:
        for use in result.uses:
            if use.index or type(use.operation) is not BindSymbolicShapeOp:
                return False
    return would_be_trivially_dead(op)


def _has_no_effect(op: Operation) -> bool:
    return all(is_side_effect_free(inner) for region in op.regions for block in region.blocks for inner in block.walk())


def _live_in_loop(op: LoopOp) -> list[bool]:
    """Find which of the values that a loop carries reach a used result, the condition, or an effect."""
    body = op.body
    end = body.last_op
    assert end is not None
    live: set[SSAValue] = set()
    wanted: list[SSAValue] = [end.operands[0]]
    wanted += [end.operands[i + 1] for i, r in enumerate(op.results) if r.uses]
    for inner in body.ops:
        if inner is not end and not is_side_effect_free(inner):
            wanted += _read_by(inner)
    while wanted:
        value = wanted.pop()
        if value in live:
            continue
        live.add(value)
        owner = value.owner
        if owner is body:
            index = body.args.index(value) - 1
            if index >= 0:
                wanted.append(end.operands[index + 1])
        elif isinstance(owner, Operation) and owner.parent is body:
            wanted += _read_by(owner)
    return [bool(r.uses) or body.args[i + 1] in live for i, r in enumerate(op.results)]


def _read_by(op: Operation) -> list[SSAValue]:
    """Collect all values that an op and its regions use."""
    return [operand for inner in op.walk() for operand in inner.operands]


def _without(op: IfOp | LoopOp, live: Sequence[bool]) -> Operation:
    """Rebuild an op without the results that are not live, and without what only they needed."""
    is_loop = isinstance(op, LoopOp)
    kept = [i for i, is_live in enumerate(live) if is_live]
    for region in op.regions:
        end = region.block.last_op
        assert end is not None
        if not all(live):
            end.operands = [*end.operands[:is_loop], *(end.operands[is_loop + i] for i in kept)]
        _clean(region.block)
    if all(live):
        return op
    if is_loop:
        body = op.regions[0].block
        # Whatever used these was dead as well.
        for argument in [a for a, is_live in zip(body.args[1:], live, strict=True) if not is_live]:
            body.erase_arg(argument)
    first = 2 if is_loop else 1
    new = type(op).create(
        operands=[*op.operands[:first], *(op.operands[first + i] for i in kept if is_loop)],
        result_types=[op.results[i].type for i in kept],
        attributes=op.attributes,
        regions=[Region(region.detach_block(region.block)) for region in op.regions],
        location=op.location,
    )
    assert op.parent is not None
    op.parent.insert_ops_before((new,), op)
    for i, result in zip(kept, new.results, strict=True):
        result.name_hint = op.results[i].name_hint
        op.results[i].replace_all_uses_with(result)
    erase(op)
    return new
