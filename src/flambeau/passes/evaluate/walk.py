"""The walk over a block: each op by the first way that takes it, problems recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from xdsl.ir import Block, Operation

from flambeau.diagnostics import Unsupported, diagnostic_for
from flambeau.dialects.torch.emitter import Device
from flambeau.dialects.torch.ops import ConstantDeviceOp, ConstantOp, StaticInfoCastOp, TorchOp
from flambeau.dialects.torch.types import is_subtype, to_value
from flambeau.dialects.torch.values import UninitializedOp
from flambeau.ir.locations import UNKNOWN
from flambeau.passes.evaluate.emission import emit_again, emit_inferred
from flambeau.passes.evaluate.state import RULES, Evaluation, NotKnown, Stopped
from flambeau.passes.evaluate.storages import wrapped
from flambeau.passes.evaluate.values import Dict, Known, List, Tuple, View
from flambeau.passes.evaluate.view_ops import evaluate_on_tensors


def walk(e: Evaluation, block: Block) -> list[Any]:
    """Evaluate the ops of a block into the current one; gives the operands of its terminator."""
    op = block.first_op
    assert op is not None
    while op is not block.last_op:
        e.t.location = op.location
        guarded(e, op, partial(evaluate_op, e, op))
        op = op.next_op
        assert op is not None
    e.t.location = op.location
    return [e.values[o] for o in op.operands]


def guarded(e: Evaluation, op: Operation, action: Callable[[], Any]) -> None:
    """Turn what an op cannot do into a diagnostic, and go on to find more."""
    try:
        action()
    except Unsupported as error:
        where = error.__dict__.setdefault("op", op)
        if e.attempts:
            raise
        problem = diagnostic_for(where, e.stage, error.reason, error.hint)
        if problem.location is UNKNOWN:
            problem = replace(problem, location=error.location)
        e.problems.setdefault(op, problem)
        if op.regions:
            # What is on the heap is not known any more: further problems would only be consequences.
            raise Stopped from error
        for result in op.results:
            value = e.t.value(UninitializedOp, (), to_value(result.type))
            e.values[result] = wrapped(e, value, result.type)


def evaluate_op(e: Evaluation, op: Operation) -> None:
    """Evaluate one op, by the first of these that takes it."""
    if isinstance(op, ConstantOp):
        value = op.python_value
        e.values[op.results[0]] = Known(Device(value) if isinstance(op, ConstantDeviceOp) else value)
    elif type(op) in e.control_flow:
        e.control_flow[type(op)](e, op)
    elif not isinstance(op, TorchOp):
        emit_again(e, op)
    elif isinstance(op, StaticInfoCastOp) and e.features.infer and keeps_better_type(e, op):
        return
    elif not evaluate_by_rule(e, op) and not (e.features.tensors and evaluate_on_tensors(e, op)):
        emit_inferred(e, op)


def keeps_better_type(e: Evaluation, op: StaticInfoCastOp) -> bool:
    """Evaluate a cast that says nothing new; False for one that does."""
    value, want = e.values[op.operands[0]], op.results[0].type
    have = getattr(value, "type", None)
    if isinstance(value, View):
        want = to_value(want)
    if have is None or not is_subtype(have, want):
        return False
    e.values[op.results[0]] = value
    return True


def evaluate_by_rule(e: Evaluation, op: TorchOp) -> bool:
    """Evaluate an op on containers and the like; False where it has to stay an op."""
    rule = RULES.get(op.overload) if e.features.containers else None
    if rule is None:
        return False
    values = [e.values[o] for o in op.operands]
    try:
        result = rule(e, op, *values)
    except NotKnown:
        if e.features.tensors:
            some_element(e, op, values)
        return False
    e.record(op, (result,) if len(op.results) == 1 else result if op.results else ())
    return True


def some_element(e: Evaluation, op: TorchOp, values: Sequence[Any]) -> None:
    """Refuse an op on a container that is followed, where nothing tells which element it reads or writes."""
    containers = [v for v in values if isinstance(v, List | Dict | Tuple) and any(tensors_in(v))]
    if not containers or op.schema is None:
        return
    if op.schema.is_mutable or any(r.alias is not None for r in op.schema.returns):
        raise Unsupported(
            "which element of a list or dictionary this is, is known only at run time",
            "Use an index that does not depend on data, or stack the tensors and index the stack.",
        )


def tensors_in(value: Any) -> Iterator[View]:
    """List the tensors that a value holds."""
    if isinstance(value, View):
        yield value
    elif isinstance(value, Tuple):
        for item in value.items:
            yield from tensors_in(item)
    elif isinstance(value, List | Dict):
        for item in value.content:
            yield from tensors_in(item[1] if isinstance(value, Dict) else item)
