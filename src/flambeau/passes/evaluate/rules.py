"""Ops on objects, global slots and optionals, and ops that do more or less than their schema says."""

from __future__ import annotations

from typing import Any

from xdsl.ir import Operation, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch import registry
from flambeau.dialects.torch.global_slots import GlobalSlotGetOp
from flambeau.dialects.torch.ops import CopyToValueTensorOp
from flambeau.dialects.torch.types import NONE, NonValueTensorType, OptionalType, to_value
from flambeau.passes.evaluate.emission import emit_again
from flambeau.passes.evaluate.inference import inferred, tensor_type
from flambeau.passes.evaluate.operands import materialize, negated
from flambeau.passes.evaluate.state import Evaluation, NotKnown, Raised, rule
from flambeau.passes.evaluate.storages import look, set_content, wrapped, write
from flambeau.passes.evaluate.values import Cell, Known, List, Maybe, Object, Storage, Uninitialized, View

# --- Objects ---


@rule("prim.CreateObject")
def create_object(e: Evaluation, op: Operation) -> Any:
    return Object((), e.depth, type=op.results[0].type)


@rule("prim.GetAttr")
def get_attr(e: Evaluation, op: Any, value: Any) -> Any:
    if not isinstance(value, Object):
        raise NotKnown
    look(value)
    found = dict(value.content)
    if op.member not in found:
        raise Raised(op, f"the attribute {op.member!r} is not set")
    return found[op.member]


@rule("prim.SetAttr")
def set_attr(e: Evaluation, op: Any, value: Any, new: Any) -> Any:
    if not isinstance(value, Object):
        raise NotKnown
    look(value)
    set_content(e, value, tuple({**dict(value.content), op.member: new}.items()))
    return None


@rule("global_slot.get")
def slot_get(e: Evaluation, op: Any) -> Any:
    if op.slot_name not in e.slots:
        if not e.features.tensors or not isinstance(op.results[0].type, NonValueTensorType):
            raise NotKnown
        # Others see what is written to it, as with a tensor that the caller passed.
        outer = GlobalSlotGetOp.build(op.slot_name, op.results[0].type)
        content = CopyToValueTensorOp.create(operands=outer.results, result_types=(to_value(op.results[0].type),))
        e.t.insert_first(outer)
        e.t.insert_first(content)
        storage = Storage(content.results[0], 0, argument=outer.results[0], is_contiguous=True, location=op.location)
        e.visible.append(storage)
        e.slots[op.slot_name] = List((View(storage),), 0)
    return e.slots[op.slot_name].content[0]


@rule("global_slot.set")
def slot_set(e: Evaluation, op: Any, new: Any) -> Any:
    if e.owns_slots and op.slot_name in e.slots:
        set_content(e, e.slots[op.slot_name], (new,))
        return None
    if not e.features.tensors or not isinstance(new, View):
        raise NotKnown
    emit_again(e, op)
    # From now on, what is written to the tensor is written to the slot.
    if new.storage.argument is None:
        if new.steps or new.storage.depth < e.depth or e.depth:
            raise Unsupported("a slot is set to a view, or inside a branch or a loop", "clone() it first.")
        setting = e.t.block.last_op
        assert setting is not None
        e.heap.set(new.storage, "argument", setting.operands[0])
        e.visible.append(new.storage)
    if op.slot_name in e.slots:
        e.heap.set(e.slots[op.slot_name], "content", (new,))
    else:
        e.slots[op.slot_name] = List((new,), 0)
    return None


# --- Optionals and types ---


def is_none(value: Any) -> bool:
    """Tell whether a value is None, where that is known."""
    if isinstance(value, Known):
        return value.value is None
    if isinstance(value, SSAValue) and (isinstance(value.type, OptionalType) or value.type == NONE):
        if value.type == NONE:
            return True
        raise NotKnown
    if isinstance(value, Uninitialized):
        raise NotKnown
    return False


@rule("prim.unchecked_cast")
def unchecked_cast(e: Evaluation, op: Operation, value: Any) -> Any:
    if isinstance(value, SSAValue) and isinstance(value.type, OptionalType):
        raise NotKnown
    return value.value if isinstance(value, Maybe) else value


@rule("derefine")
def derefine(e: Evaluation, op: Operation, value: Any) -> Any:
    return value


@rule("aten.__is__")
def is_(e: Evaluation, op: Operation, a: Any, b: Any) -> Any:
    if a == Known(None):
        a, b = b, a
    if b == Known(None):
        if isinstance(a, Maybe):
            return Known(not a.flag.value) if isinstance(a.flag, Known) else negated(e, a.flag)
        return Known(is_none(a))
    if isinstance(a, View | Cell) and isinstance(b, View | Cell):
        # Each stands for one object of the program.
        return Known(a is b)
    raise NotKnown


@rule("aten.__isnot__")
def isnot(e: Evaluation, op: Operation, a: Any, b: Any) -> Any:
    same = is_(e, op, a, b)
    return Known(not same.value) if isinstance(same, Known) else negated(e, same)


@rule("prim.Uninitialized")
def uninitialized(e: Evaluation, op: Operation) -> Any:
    return Uninitialized(op.results[0].type)


# --- Ops that do more or less than their schema says ---


@rule("aten.dropout", "aten.alpha_dropout", "aten.feature_dropout", "aten.feature_alpha_dropout")
def dropout(e: Evaluation, op: Operation, value: Any, p: Any, train: Any) -> Any:
    """Return the argument itself outside of training."""
    if train != Known(False) or not e.features.fold:
        raise NotKnown
    return value


@rule("aten.requires_grad_")
def requires_grad(e: Evaluation, op: Operation, value: Any, flag: Any) -> Any:
    return value


@rule("aten.batch_norm")
def batch_norm(e: Evaluation, op: Operation, x: Any, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> Any:
    """Write the running statistics where the norm is trained."""
    if rest[0] != Known(True) or not isinstance(mean, View) or not isinstance(var, View):
        raise NotKnown
    statistics = [mean.type, var.type]
    schema = registry.schema("aten._native_batch_norm_legit_functional")
    args = [x, weight, bias, mean, var, *rest[:3]]
    assert schema is not None
    answers = inferred(e, schema, args) if e.features.infer else None
    type_ = tensor_type(e, op.results[0].type, answers[0] if answers is not None else None)
    operands = [materialize(e, a) for a in args]
    new = e.t.op(schema.name, operands, [type_, statistics[0], statistics[0], *statistics])
    write(e, mean, new[3])
    write(e, var, new[4])
    return wrapped(e, new[0], op.results[0].type)


# --- What only the host sees ---


@rule("prim.Print", "aten.warn")
def silent(e: Evaluation, op: Operation, *values: Any) -> Any:
    """Drop messages: they are for the host, which a compiled program does not have."""
    return None


@rule("prim.RaiseException")
def raise_exception(e: Evaluation, op: Operation, message: Any, *rest: Any) -> Any:
    text = message.value if isinstance(message, Known) else "an exception whose message is made at run time"
    raise Raised(op, str(text))
