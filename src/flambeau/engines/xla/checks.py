"""Checks of a program as one more result of it: XLA has no assertions.

    stablehlo.composite "flambeau.assert" %holds {composite_attributes = {message = "index out of range"}, ...}

disappears, and the function gives a number besides its results: 0, or the number of the first check that failed. A
check in a branch or in a loop is handed out of it, as a result of the branch and as a value that the loop carries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, StringAttr, UnitAttr, i1, i32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from flambeau.dialects import stablehlo
from flambeau.dialects.sdy import ManualComputationOp, MeshOp, Sharding, ShardingPerValueAttr
from flambeau.dialects.stablehlo.attributes import ChannelHandle
from flambeau.engines.xla.values import before, constant
from flambeau.ir.builder import OpBuilder, erase
from flambeau.lowering.builder import tensor_type
from flambeau.lowering.stablehlo.collective import numbers
from flambeau.lowering.stablehlo.scalars import ASSERT

_NAME = StringAttr(ASSERT)
_HOLDS = tensor_type((), i1)
_NUMBER = tensor_type((), i32)


@dataclass(frozen=True)
class _Check:
    message: str
    holds: SSAValue


def is_check(op: Operation) -> bool:
    """Tell whether an op is the composite that stands for a check."""
    return op.name == "stablehlo.composite" and op.properties.get("name") == _NAME


def checks_to_result(function: func.FuncOp, wanted: bool = True) -> tuple[str, ...]:
    """Take the checks out of a function, in place; give their messages, the first of which has the number 1.

    If they are not `wanted`, they are dropped.
    """
    found = _take(function.body.block)
    if not found or not wanted:
        return ()
    end = function.get_return_op()
    assert end is not None
    end.operands = [*end.operands, _first_failure(before(end), found)]
    function.update_function_type()  # type: ignore[no-untyped-call]
    return tuple(check.message for check in found)


def _take(block: Block) -> list[_Check]:
    """Take the checks out of a block and all regions in it; what they found is a value of the block."""
    found: list[_Check] = []
    for op in list(block.ops):
        if is_check(op):
            attributes: Any = op.properties["composite_attributes"]
            found.append(_Check(attributes.data["message"].data, op.operands[0]))
            erase(op)
        elif op.name in ("stablehlo.if", "stablehlo.case"):
            found += _of_branch(op)
        elif op.name == "stablehlo.while":
            found += _of_loop(op)
        elif isinstance(op, ManualComputationOp):
            found += _of_devices(op)
    return found


def _of_devices(op: ManualComputationOp) -> list[_Check]:
    """Hand out the checks of what each device does on its own: all of them hear of one that failed on any."""
    found = _take(op.body.block)
    if not found:
        return []
    end = _end(op.body)
    b = before(end)
    failed = _among_devices(b, op, _first_failure(b, found))
    for i, _ in enumerate(found, 1):
        operands = (failed, constant(b, i, _NUMBER))
        end.operands = [*end.operands, b.value(stablehlo.op("compare"), operands, _HOLDS, stablehlo.comparison("NE"))]
    messages = [check.message for check in found]
    shardings = op.out_shardings.data + (Sharding(()),) * len(messages)
    op.properties["out_shardings"] = ShardingPerValueAttr(shardings)
    return _with_results(op, (), messages)


def _among_devices(b: OpBuilder, op: ManualComputationOp, number: SSAValue) -> SSAValue:
    """Take the largest of the numbers that all devices have."""
    module = op.get_toplevel_object()
    assert isinstance(module, ModuleOp)
    mesh = next(found.mesh.data for found in module.ops if isinstance(found, MeshOp))
    channels = [inner.properties.get("channel_handle") for inner in op.walk()]
    handle = 1 + max((c.data.handle for c in channels if isinstance(c, ChannelHandle)), default=0)
    block = Block(arg_types=[_NUMBER, _NUMBER])
    inner = OpBuilder(block)
    inner.emit(stablehlo.op("return"), (inner.value(stablehlo.op("maximum"), tuple(block.args), _NUMBER),))
    properties = {
        "replica_groups": numbers([range(math.prod(size for _, size in mesh))]),
        "channel_handle": stablehlo.channel(handle),
        "use_global_device_ids": UnitAttr(),
    }
    return b.emit(stablehlo.op("all_reduce"), (number,), (_NUMBER,), properties, regions=[Region(block)]).results[0]


def _first_failure(b: OpBuilder, checks: Sequence[_Check]) -> SSAValue:
    """Compute the number of the first check that failed, from 1; 0 if none did."""
    number = constant(b, 0, _NUMBER)
    for i, check in reversed(list(enumerate(checks, 1))):
        number = b.value(stablehlo.op("select"), (check.holds, number, constant(b, i, _NUMBER)), _NUMBER)
    return number


def _of_branch(op: Operation) -> list[_Check]:
    """Hand the checks of a branch out as results of it: one that is on another path holds."""
    inside = [_take(region.block) for region in op.regions]
    messages = [check.message for checks in inside for check in checks]
    if not messages:
        return []
    at = 0
    for region, checks in zip(op.regions, inside, strict=True):
        end = _end(region)
        holds = [constant(before(end), 1, _HOLDS)] * len(messages)
        holds[at : at + len(checks)] = [check.holds for check in checks]
        end.operands = [*end.operands, *holds]
        at += len(checks)
    return _with_results(op, (), messages)


def _of_loop(op: Operation) -> list[_Check]:
    """Hand the checks of a loop out as values that it carries; it ends once one of them is false.

    Without that a loop could go on for ever with what is read where there is nothing.
    """
    condition, body = op.regions
    early = _of_condition(op)
    checks = _take(body.block)
    if not checks:
        return early
    size = len(op.operands)
    for region in (condition, body):
        for _ in checks:
            region.block.insert_arg(_HOLDS, len(region.block.args))
    end = _end(body)
    b = before(end)
    carried = body.block.args[size:]
    holds = [
        b.value(stablehlo.op("and"), (old, check.holds), _HOLDS) for old, check in zip(carried, checks, strict=True)
    ]
    end.operands = [*end.operands, *holds]
    goes_on = _end(condition)
    b = before(goes_on)
    for still in condition.block.args[size:]:
        goes_on.operands[0] = b.value(stablehlo.op("and"), (goes_on.operands[0], still), _HOLDS)
    b = before(op)
    start = constant(b, 1, _HOLDS)
    for check in early:
        start = b.value(stablehlo.op("and"), (start, check.holds), _HOLDS)
    return early + _with_results(op, [start] * len(checks), [check.message for check in checks])


def _of_condition(op: Operation) -> list[_Check]:
    """Take the checks of a loop's condition out of it.

    A condition gives only whether to go on, so it is computed once more with its checks: before the loop, and at the
    end of its body.
    """
    condition, body = op.regions
    if not any(is_check(inner) for inner in condition.walk()):
        return []
    first, last = _copy(condition.block, op.operands), _copy(condition.block, _end(body).operands)
    _take(condition.block)
    found = _take(first)
    _move(first, op)
    _move(last, _end(body))
    return found


def _copy(block: Block, values: Sequence[SSAValue]) -> Block:
    """Copy the ops of a block, but its last, with values for the block's arguments."""
    mapping: dict[SSAValue, SSAValue] = dict(zip(block.args, values, strict=True))
    return Block([op.clone(mapping) for op in block.ops if op is not block.last_op])


def _move(block: Block, successor: Operation) -> None:
    """Move the ops of a block to stand before an op."""
    assert successor.parent is not None
    for op in list(block.ops):
        op.detach()  # type: ignore[no-untyped-call]
        successor.parent.insert_op_before(op, successor)


def _with_results(op: Operation, operands: Sequence[SSAValue], messages: Sequence[str]) -> list[_Check]:
    """Replace an op by one with further operands, and with one more truth value among its results for each message."""
    types: list[Attribute] = [r.type for r in op.results]
    new = type(op).create(
        operands=[*op.operands, *operands],
        result_types=[*types, *[_HOLDS] * len(messages)],
        properties=op.properties,
        attributes=op.attributes,
        regions=[op.detach_region(region) for region in list(op.regions)],
        location=op.location,
    )
    assert op.parent is not None
    op.parent.insert_op_before(new, op)
    for old, result in zip(op.results, new.results, strict=False):
        old.replace_all_uses_with(result)
    erase(op)
    return [_Check(message, new.results[len(types) + i]) for i, message in enumerate(messages)]


def _end(region: Region) -> Operation:
    end = region.block.last_op
    assert end is not None
    return end
