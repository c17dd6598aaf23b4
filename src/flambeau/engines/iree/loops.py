"""Loops as branches between blocks, for functions that IREE could not compile otherwise.

IREE 3.13 dies of `scf.while` on tensors. As branches between blocks the same loops work. Whatever is around such a loop
becomes branches too; the bodies of linalg ops stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import cf, func, scf
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Operation, Region
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.transforms.convert_scf_to_cf import ForLowering, IfLowering

from flambeau.ir.builder import erase


def has_loops_on_tensors(module: ModuleOp) -> bool:
    """Whether a program has a loop that IREE cannot take."""
    return any(_needs_branches(op) for op in module.ops if isinstance(op, func.FuncOp))


def loops_to_branches(module: ModuleOp) -> ModuleOp:
    """A copy of the module without such loops."""
    copy = module.clone()
    for function in copy.ops:
        if isinstance(function, func.FuncOp) and _needs_branches(function):
            while (op := next(_structured(function.body), None)) is not None:
                _flatten(op)
    return copy


def _needs_branches(function: func.FuncOp) -> bool:
    return any(
        isinstance(op, scf.WhileOp) and any(isinstance(o.type, TensorType) for o in op.operands)
        for op in function.walk()
    )


def _structured(region: Region) -> Iterator[Operation]:
    """The structured ops in the blocks of a region, but not inside other ops."""
    for block in region.blocks:
        for op in block.ops:
            if isinstance(op, scf.IfOp | scf.ForOp | scf.WhileOp):
                yield op


def _flatten(op: Operation) -> None:
    rewriter = PatternRewriter(op)
    if isinstance(op, scf.IfOp):
        IfLowering().match_and_rewrite(op, rewriter)
    elif isinstance(op, scf.ForOp):
        ForLowering().match_and_rewrite(op, rewriter)
    elif isinstance(op, scf.WhileOp):
        _flatten_while(op)


def _flatten_while(op: scf.WhileOp) -> None:
    start = op.parent
    assert start is not None
    region = start.parent
    assert region is not None
    end = start.split_before(op)
    head, body = op.before_region.block, op.after_region.block
    for block in (head, body):
        assert block.parent is not None
        block.parent.detach_block(block)
        region.insert_block_before(block, end)
    start.add_op(cf.BranchOp(head, *op.operands))
    condition = head.last_op
    assert isinstance(condition, scf.ConditionOp)
    # The condition hands its values to the body and to the results alike.
    flag, *values = condition.operands
    arguments = [end.insert_arg(v.type, i) for i, v in enumerate(values)]
    erase(condition)
    head.add_op(cf.ConditionalBranchOp(flag, body, values, end, values))
    back = body.last_op
    assert isinstance(back, scf.YieldOp)
    nexts = list(back.operands)
    erase(back)
    body.add_op(cf.BranchOp(head, *nexts))
    for result, argument in zip(op.results, arguments, strict=True):
        result.replace_all_uses_with(argument)
    erase(op)
