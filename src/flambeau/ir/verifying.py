"""Checking IR that came from outside: every op alone, and that values are defined where they are used."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.irdl.dominance import DominanceInfo
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from flambeau.diagnostics import CompileError, Diagnostic, diagnostic_for

STAGE = "verify"


def verify(module: Operation) -> None:
    """Raise CompileError with the place of the first op that is not valid."""
    for op in module.walk():
        _verify_op(op)
    found = next(_undefined(module), None)
    if found is not None:
        raise CompileError([found], summary="the program is not valid")


def _verify_op(op: Operation) -> None:
    try:
        op.verify(verify_nested_ops=False)
        _require_terminators(op)
    except Exception as e:
        # xDSL prints the program when an op does not verify, which can fail as well: what was wrong comes first.
        cause = e.__context__ if isinstance(e.__context__, VerifyException) else e
        text = str(cause) if isinstance(cause, VerifyException) else f"{type(cause).__name__}: {cause}"
        raise CompileError([diagnostic_for(op, STAGE, text)], summary="the program is not valid") from e


def _require_terminators(op: Operation) -> None:
    if op.has_trait(NoTerminator):
        return
    for region in op.regions:
        if any(block.is_empty for block in region.blocks):
            raise VerifyException(f"{op.name} has a block without a terminator")


def _undefined(module: Operation) -> Iterator[Diagnostic]:
    """Yield a diagnostic for each operand whose definition does not dominate its use."""
    number = {op: i for i, op in enumerate(module.walk())}
    dominance: dict[Region, DominanceInfo] = {}
    for op in number:
        for i, operand in enumerate(op.operands):
            if not _is_defined(operand, op, number, dominance):
                yield diagnostic_for(op, STAGE, f"operand {i} is used where it is not defined (yet)")


def _is_defined(
    value: SSAValue, user: Operation, number: dict[Operation, int], dominance: dict[Region, DominanceInfo]
) -> bool:
    owner = value.owner
    home = owner if isinstance(owner, Block) else owner.parent_block()
    region = home.parent_region() if home is not None else None
    if home is None or region is None:
        return False
    at: Operation | None = user
    while at is not None and (block := at.parent_block()) is not None:
        if block is home:
            # The ops of a module have no order.
            return isinstance(value, BlockArgument) or isinstance(region.parent, ModuleOp) or number[owner] < number[at]  # type: ignore[index]
        if block.parent_region() is region:
            if region not in dominance:
                dominance[region] = DominanceInfo(region)
            return dominance[region].strictly_dominates(home, block)
        at = at.parent_op()
    return False
