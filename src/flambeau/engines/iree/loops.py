"""Loops as branches between blocks, for functions that IREE could not compile otherwise.

IREE 3.13 dies of `scf.while` on tensors. As branches between blocks the same loops work. Whatever is around such a loop
becomes branches too; the bodies of linalg ops stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xdsl.dialects import cf, func, scf
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Operation, Region
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.transforms.convert_scf_to_cf import ForLowering, IfLowering

from flambeau.ir.builder import erase

Structured = scf.IfOp | scf.ForOp | scf.WhileOp


def is_loop_on_tensors(op: Structured) -> bool:
    """Tell whether IREE cannot take a loop: `scf.while` that carries tensors."""
    return isinstance(op, scf.WhileOp) and any(isinstance(o.type, TensorType) for o in op.operands)


def with_branches(module: ModuleOp, *needs: Callable[[Structured], bool]) -> ModuleOp:
    """Flatten functions with an op that needs it to branches between blocks, in a copy if there is any."""

    def needs_branches(function: Operation) -> bool:
        return isinstance(function, func.FuncOp) and any(
            need(op) for op in _all_structured(function.body) for need in needs
        )

    if not any(map(needs_branches, module.ops)):
        return module
    copy = module.clone()
    for function in copy.ops:
        if isinstance(function, func.FuncOp) and needs_branches(function):
            while (op := next(_structured(function.body), None)) is not None:
                _flatten(op)
    return copy


def _all_structured(region: Region) -> Iterator[Structured]:
    """Yield the structured ops of a function, and those inside them, but not those in the bodies of other ops."""
    for op in _structured(region):
        yield op
        for inner in op.regions:
            yield from _all_structured(inner)


def _structured(region: Region) -> Iterator[Structured]:
    """Yield the structured ops in the blocks of a region, but not inside other ops."""
    for block in region.blocks:
        for op in block.ops:
            if isinstance(op, Structured):
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
