"""Branches that pass narrow numbers, which IREE puts into registers that it has just overwritten.

IREE 3.13's virtual machine passes the arguments of a block one after the other, and orders these moves so that none
overwrites what another still reads. It takes a register of 32 bits and the pair of 64 bits that contains it for
different ones: a branch that passes an `i1` and an `index` may read the `i1` after the `index` has been written over
it. A loop then runs never, or forever. So whatever a branch passes has 64 bits here; then the order is right.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import arith, cf, func
from xdsl.dialects.builtin import AnyFloat, IntegerType, ModuleOp, i64
from xdsl.ir import Attribute, Block, Operation, SSAValue

from flambeau.engines.iree.loops import Structured

WIDTH = 64


def passes_narrow_numbers(op: Structured) -> bool:
    """Tell whether a branch or loop yields a number of less than 64 bits."""
    return any(_bits(r.type) is not None for r in op.results)


def widen_arguments(module: ModuleOp) -> None:
    """Pass what branches pass as 64 bits, in place."""
    for function in module.ops:
        if isinstance(function, func.FuncOp):
            for block in list(function.body.blocks)[1:]:
                for argument in block.args:
                    if _bits(argument.type) is not None:
                        _widen(block, argument.index)


def _bits(type_: Attribute) -> int | None:
    """Return the width of a narrow number; None for all other types."""
    width = type_.bitwidth if isinstance(type_, IntegerType | AnyFloat) else WIDTH
    return width if width < WIDTH else None


def _widen(block: Block, index: int) -> None:
    old = block.args[index]
    for branch, position in _incoming(block, index):
        home = branch.parent
        assert home is not None
        wide = _widened(branch.operands[position])
        home.insert_ops_before(wide, branch)
        branch.operands[position] = wide[-1].results[0]
    narrow = IntegerType(_bits(old.type) or 0)
    new = block.insert_arg(i64, index)
    new.name_hint = old.name_hint
    ops: list[Operation] = [arith.TruncIOp(new, narrow)]
    if old.type != narrow:
        ops.append(arith.BitcastOp(ops[0].results[0], old.type))
    first = block.first_op
    assert first is not None
    block.insert_ops_before(ops, first)
    old.replace_all_uses_with(ops[-1].results[0])
    block.erase_arg(old)


def _widened(value: SSAValue) -> list[Operation]:
    narrow = IntegerType(_bits(value.type) or 0)
    ops: list[Operation] = []
    if value.type != narrow:
        ops.append(arith.BitcastOp(value, narrow))
    return [*ops, arith.ExtUIOp(ops[-1].results[0] if ops else value, i64)]


def _incoming(block: Block, index: int) -> Iterator[tuple[Operation, int]]:
    """Yield the branches to a block, each with the position of the operand that becomes this argument."""
    assert block.parent is not None
    for other in block.parent.blocks:
        match other.last_op:
            case cf.BranchOp() as branch if branch.successor is block:
                yield branch, index
            case cf.ConditionalBranchOp() as branch:
                if branch.then_block is block:
                    yield branch, 1 + index
                if branch.else_block is block:
                    yield branch, 1 + len(branch.then_arguments) + index
