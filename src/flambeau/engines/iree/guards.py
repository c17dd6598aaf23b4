"""Checks of sizes before everything else that a function does.

WORKAROUND(iree==3.13): a program may run what stands behind a `cf.assert`, or what the assertion does not depend on,
before it looks at the condition: a bias of another size than the channels of a convolution is then read, and the result
written, beyond their ends, and the process dies before the error is raised. What depends on nothing but the sizes of
arguments is checked first of all. A process that writes beyond an end may live on, so that no test shows the bug each
time: this stays until IREE promises an order.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.cf import AssertOp
from xdsl.dialects.func import FuncOp
from xdsl.dialects.tensor import DimOp
from xdsl.ir import Block, Operation, SSAValue


def check_sizes_first(module: ModuleOp) -> ModuleOp:
    """Move checks of the arguments' sizes to the front of functions, in a copy if there is something to do."""
    if all(_come_first(block, _guards(block)) for block in _entry_blocks(module)):
        return module
    module = module.clone()
    for block in _entry_blocks(module):
        guards = _guards(block)
        if _come_first(block, guards):
            continue
        for op in guards:
            block.detach_op(op)
        front = block.first_op
        assert front is not None
        block.insert_ops_before(guards, front)
    return module


def _entry_blocks(module: ModuleOp) -> Iterator[Block]:
    for op in module.ops:
        if isinstance(op, FuncOp) and op.body.blocks:
            yield op.body.blocks[0]


def _guards(block: Block) -> list[Operation]:
    """List the checks that depend on the sizes of arguments alone and what computes them, in order."""
    sizes: set[SSAValue] = set()
    needed: set[Operation] = set()
    for op in block.ops:
        if isinstance(op, AssertOp) and op.operands[0] in sizes:
            _need(op, needed)
        elif _is_of_sizes(op, block, sizes):
            sizes.update(op.results)
    return [op for op in block.ops if op in needed]


def _is_of_sizes(op: Operation, block: Block, sizes: set[SSAValue]) -> bool:
    if isinstance(op, DimOp):
        return op.operands[0].owner is block and op.operands[1] in sizes
    return op.name.startswith("arith.") and all(v in sizes for v in op.operands)


def _need(op: Operation, needed: set[Operation]) -> None:
    needed.add(op)
    for value in op.operands:
        if isinstance(value.owner, Operation) and value.owner not in needed:
            _need(value.owner, needed)


def _come_first(block: Block, guards: list[Operation]) -> bool:
    return all(op is guard for op, guard in zip(block.ops, guards, strict=False))
