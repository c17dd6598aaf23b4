"""Ops on containers, optionals, strings and the like: what each gives, and what it changes.

A rule takes the evaluator, the op and the values of its operands, and gives the value of its result (or a sequence, for
several). It raises `NotKnown` where the op has to stay because its operands are known only at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from xdsl.ir import Attribute, Operation, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch import registry
from flambeau.dialects.torch.global_slots import GlobalSlotGetOp
from flambeau.dialects.torch.ops import CopyToValueTensorOp
from flambeau.dialects.torch.types import (
    INT,
    NONE,
    ListType,
    NonValueTensorType,
    OptionalType,
    to_value,
)
from flambeau.ir.conversion import RuleTable
from flambeau.passes.evaluate.values import Cell, Dict, Known, List, Maybe, Object, Storage, Tuple, Uninitialized, View

if TYPE_CHECKING:
    from flambeau.passes.evaluate.evaluator import Evaluator

RULES = RuleTable("evaluate")
rule = RULES

KEYS = ("str", "int", "bool", "float", "complex", "Tensor")
"""The kinds of keys that PyTorch has overloads of dictionary ops for."""


NOTHING = Known(None)


class NotKnown(Exception):
    """The answer depends on what only the run time knows."""


class Raised(Exception):
    """The program raises here."""

    def __init__(self, op: Operation, message: str) -> None:
        super().__init__(message)
        self.op = op
        self.message = message


def for_keys(*patterns: str) -> Callable[[Any], Any]:
    """Register a rule for every kind of key: `aten.keys.{}`."""
    return rule(*(p.format(k) for p in patterns for k in KEYS))


# --- What is in a value ---


def items(e: Evaluator, value: Any) -> tuple[Any, ...]:
    """The elements of a list."""
    if not isinstance(value, List):
        raise NotKnown
    e.look(value)
    return tuple(value.content)


def entries(e: Evaluator, value: Any) -> dict[Any, Any]:
    """The entries of a dictionary by their Python keys."""
    if not isinstance(value, Dict):
        raise NotKnown
    e.look(value)
    return {constant(k): v for k, v in value.content}


def constant(value: Any) -> Any:
    """The Python value of a known value, list or tuple."""
    if isinstance(value, Known):
        return value.value
    if isinstance(value, List):
        return [constant(v) for v in value.content]
    if isinstance(value, Tuple):
        return tuple(constant(v) for v in value.items)
    raise NotKnown


def position(index: Any, length: int, op: Operation) -> int:
    at = constant(index)
    if not -length <= at < length:
        raise Raised(op, f"list index {at} out of range for {length} elements")
    return int(at) % length


def new_list(e: Evaluator, content: Any, type_: Attribute) -> List:
    element = type_.element_type if isinstance(type_, ListType) else INT
    return List(tuple(content), e.depth, element_type=element)


def change(e: Evaluator, cell: Cell, content: Any) -> None:
    e.look(cell)
    e.set_content(cell, tuple(content))


def is_none(value: Any) -> bool:
    """Whether a value is None, where that is known."""
    if isinstance(value, Known):
        return value.value is None
    if isinstance(value, SSAValue) and (isinstance(value.type, OptionalType) or value.type == NONE):
        if value.type == NONE:
            return True
        raise NotKnown
    if isinstance(value, Uninitialized):
        raise NotKnown
    return False


# --- Tuples ---


@rule("prim.TupleConstruct")
def tuple_construct(e: Evaluator, op: Operation, *values: Any) -> Any:
    return Tuple(values)


@rule("prim.TupleUnpack")
def tuple_unpack(e: Evaluator, op: Operation, value: Any) -> Any:
    if not isinstance(value, Tuple):
        raise NotKnown
    return value.items if len(op.results) != 1 else value.items[0]


@rule("prim.TupleIndex")
def tuple_index(e: Evaluator, op: Operation, value: Any, index: Any) -> Any:
    if not isinstance(value, Tuple):
        raise NotKnown
    return value.items[position(index, len(value.items), op)]


# --- Lists ---


@rule("prim.ListConstruct")
def list_construct(e: Evaluator, op: Operation, *values: Any) -> Any:
    return new_list(e, values, op.results[0].type)


@rule("prim.ListUnpack")
def list_unpack(e: Evaluator, op: Operation, value: Any) -> Any:
    found = items(e, value)
    if len(found) != len(op.results):
        raise Raised(op, f"a list of {len(found)} elements is unpacked into {len(op.results)}")
    return found if len(found) != 1 else found[0]


@rule("aten.__getitem__.t")
def get_item(e: Evaluator, op: Operation, value: Any, index: Any) -> Any:
    found = items(e, value)
    return found[position(index, len(found), op)]


@rule("aten._set_item.t")
def set_item(e: Evaluator, op: Operation, value: Any, index: Any, element: Any) -> Any:
    found = list(items(e, value))
    found[position(index, len(found), op)] = element
    change(e, value, found)
    return value


@rule("aten.append.t")
def append(e: Evaluator, op: Operation, value: Any, element: Any) -> Any:
    change(e, value, (*items(e, value), element))
    return value


@rule("aten.insert.t")
def insert(e: Evaluator, op: Operation, value: Any, index: Any, element: Any) -> Any:
    found = list(items(e, value))
    found.insert(constant(index), element)
    change(e, value, found)
    return None


@rule("aten.pop.t")
def pop(e: Evaluator, op: Operation, value: Any, index: Any) -> Any:
    found = list(items(e, value))
    taken = found.pop(position(index, len(found), op))
    change(e, value, found)
    return taken


@rule("aten.Delete.t")
def delete(e: Evaluator, op: Operation, value: Any, index: Any) -> Any:
    return pop(e, op, value, index)


@rule("aten.extend.t")
def extend(e: Evaluator, op: Operation, value: Any, more: Any) -> Any:
    change(e, value, (*items(e, value), *items(e, more)))
    return None


@rule("aten.add_.t")
def add_in_place(e: Evaluator, op: Operation, value: Any, more: Any) -> Any:
    extend(e, op, value, more)
    return value


@rule("aten.clear.t")
def clear(e: Evaluator, op: Operation, value: Any) -> Any:
    items(e, value)
    change(e, value, ())
    return None


@rule("aten.reverse.t")
def reverse(e: Evaluator, op: Operation, value: Any) -> Any:
    change(e, value, reversed(items(e, value)))
    return None


@rule("aten.copy.t", "aten.list.t")
def copy(e: Evaluator, op: Operation, value: Any) -> Any:
    return new_list(e, items(e, value), op.results[0].type)


@rule("aten.add.t")
def concatenate(e: Evaluator, op: Operation, a: Any, b: Any) -> Any:
    return new_list(e, (*items(e, a), *items(e, b)), op.results[0].type)


@rule("aten.mul.left_t")
def repeat(e: Evaluator, op: Operation, value: Any, times: Any) -> Any:
    return new_list(e, items(e, value) * max(0, constant(times)), op.results[0].type)


@rule("aten.mul.right_")
def repeat_right(e: Evaluator, op: Operation, times: Any, value: Any) -> Any:
    return repeat(e, op, value, times)


@rule("aten.slice.t")
def slice_list(e: Evaluator, op: Operation, value: Any, start: Any, end: Any, step: Any) -> Any:
    bounds = slice(constant(start), constant(end), constant(step))
    return new_list(e, items(e, value)[bounds], op.results[0].type)


@rule("aten.len.t")
def len_list(e: Evaluator, op: Operation, value: Any) -> Any:
    return Known(len(items(e, value)))


def _computed(names: tuple[str, ...], compute: Callable[..., Any]) -> None:
    """A rule that computes with known elements in Python."""

    @rule(*names)
    def apply(e: Evaluator, op: Operation, *values: Any) -> Any:
        for value in values:
            if isinstance(value, Cell):
                e.look(value)
        if not e.features.fold:
            raise NotKnown
        arguments = [constant(v) for v in values]
        try:
            answer = compute(*arguments)
        except (ValueError, ArithmeticError, LookupError) as error:
            raise Raised(op, str(error)) from error
        return _lifted(e, answer, op.results[0].type)


def _lifted(e: Evaluator, answer: Any, type_: Attribute) -> Any:
    if isinstance(answer, list):
        element = type_.element_type if isinstance(type_, ListType) else INT
        return List(tuple(_lifted(e, a, element) for a in answer), e.depth, element_type=element)
    return Known(answer)


for _kind in ("int", "float", "bool", "str"):
    _computed((f"aten.eq.{_kind}_list",), lambda a, b: a == b)
    _computed((f"aten.ne.{_kind}_list",), lambda a, b: a != b)
    _computed((f"aten.any.{_kind}",), any)
    _computed((f"aten.index.list_{_kind}",), lambda a, b: a.index(b))
    _computed((f"aten.count.{_kind}",), lambda a, b: a.count(b))
    _computed((f"aten.sorted.{_kind}",), lambda a, *_: sorted(a))
    if _kind != "bool":
        _computed((f"aten.__contains__.{_kind}_list",), lambda a, b: b in a)
    if _kind != "str":
        _computed((f"aten.all.{_kind}",), all)
        _computed((f"aten.sum.{_kind}",), sum)
        _computed((f"prim.max.self_{_kind}",), max)
        _computed((f"prim.min.self_{_kind}",), min)

_computed(("aten.len.str",), len)
_computed(("aten.add.str",), lambda a, b: a + b)
_computed(("aten.eq.str",), lambda a, b: a == b)
_computed(("aten.ne.str",), lambda a, b: a != b)
_computed(("aten.lower",), str.lower)
_computed(("aten.upper",), str.upper)
_computed(("aten.join",), lambda a, b: a.join(b))
_computed(("aten.startswith",), lambda a, b, start, end: a.startswith(b, start, end if end != -1 else None))
_computed(("aten.format",), lambda a, *rest: a.format(*rest))
_computed(("aten.str",), str)


# --- Dictionaries ---


@rule("prim.DictConstruct")
def dict_construct(e: Evaluator, op: Operation, *values: Any) -> Any:
    half = len(values) // 2
    content: dict[Any, tuple[Any, Any]] = {}
    for key, value in zip(values[:half], values[half:], strict=True):
        content[constant(key)] = (key, value)
    return Dict(tuple(content.values()), e.depth, type=op.results[0].type)


def _stored(e: Evaluator, value: Dict, found: dict[Any, Any]) -> None:
    change(e, value, [(Known(k), v) for k, v in found.items()])


@for_keys("aten.__getitem__.Dict_{}")
def dict_get(e: Evaluator, op: Operation, value: Any, key: Any) -> Any:
    found = entries(e, value)
    if constant(key) not in found:
        raise Raised(op, f"key {constant(key)!r} is not in the dictionary")
    return found[constant(key)]


@for_keys("aten.get.{}", "aten.get.default_{}")
def dict_get_default(e: Evaluator, op: Operation, value: Any, key: Any, default: Any = NOTHING) -> Any:
    return entries(e, value).get(constant(key), default)


@for_keys("aten._set_item.{}")
def dict_set(e: Evaluator, op: Operation, value: Any, key: Any, element: Any) -> Any:
    _stored(e, value, {**entries(e, value), constant(key): element})
    return None


@for_keys("aten.Delete.Dict_{}")
def dict_delete(e: Evaluator, op: Operation, value: Any, key: Any) -> Any:
    dict_get(e, op, value, key)
    _stored(e, value, {k: v for k, v in entries(e, value).items() if k != constant(key)})
    return None


@for_keys("aten.pop.Dict_{}")
def dict_pop(e: Evaluator, op: Operation, value: Any, key: Any) -> Any:
    taken = dict_get(e, op, value, key)
    dict_delete(e, op, value, key)
    return taken


@for_keys("aten.update.{}")
def dict_update(e: Evaluator, op: Operation, value: Any, more: Any) -> Any:
    _stored(e, value, {**entries(e, value), **entries(e, more)})
    return None


@for_keys("aten.copy.Dict_{}", "aten.dict.Dict_{}")
def dict_copy(e: Evaluator, op: Operation, value: Any) -> Any:
    entries(e, value)
    return Dict(value.content, e.depth, type=op.results[0].type)


@for_keys("aten.keys.{}")
def dict_keys(e: Evaluator, op: Operation, value: Any) -> Any:
    return new_list(e, map(Known, entries(e, value)), op.results[0].type)


@for_keys("aten.values.{}")
def dict_values(e: Evaluator, op: Operation, value: Any) -> Any:
    return new_list(e, entries(e, value).values(), op.results[0].type)


@for_keys("aten.items.{}")
def dict_items(e: Evaluator, op: Operation, value: Any) -> Any:
    pairs = [Tuple((Known(k), v)) for k, v in entries(e, value).items()]
    return new_list(e, pairs, op.results[0].type)


@for_keys("aten.len.Dict_{}")
def dict_len(e: Evaluator, op: Operation, value: Any) -> Any:
    return Known(len(entries(e, value)))


@rule(*(f"aten.__contains__.{k}" for k in KEYS))
def dict_contains(e: Evaluator, op: Operation, value: Any, key: Any) -> Any:
    return Known(constant(key) in entries(e, value))


# --- Objects ---


@rule("prim.CreateObject")
def create_object(e: Evaluator, op: Operation) -> Any:
    return Object((), e.depth, type=op.results[0].type)


@rule("prim.GetAttr")
def get_attr(e: Evaluator, op: Any, value: Any) -> Any:
    if not isinstance(value, Object):
        raise NotKnown
    e.look(value)
    found = dict(value.content)
    if op.member not in found:
        raise Raised(op, f"the attribute {op.member!r} is not set")
    return found[op.member]


@rule("prim.SetAttr")
def set_attr(e: Evaluator, op: Any, value: Any, new: Any) -> Any:
    if not isinstance(value, Object):
        raise NotKnown
    e.look(value)
    e.set_content(value, tuple({**dict(value.content), op.member: new}.items()))
    return None


@rule("global_slot.get")
def slot_get(e: Evaluator, op: Any) -> Any:
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
def slot_set(e: Evaluator, op: Any, new: Any) -> Any:
    if e.border.owns_slots and op.slot_name in e.slots:
        e.set_content(e.slots[op.slot_name], (new,))
        return None
    if not e.features.tensors or not isinstance(new, View):
        raise NotKnown
    e.emit_again(op)
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


@rule("prim.unchecked_cast")
def unchecked_cast(e: Evaluator, op: Operation, value: Any) -> Any:
    if isinstance(value, SSAValue) and isinstance(value.type, OptionalType):
        raise NotKnown
    return value.value if isinstance(value, Maybe) else value


@rule("derefine")
def derefine(e: Evaluator, op: Operation, value: Any) -> Any:
    return value


@rule("aten.__is__")
def is_(e: Evaluator, op: Operation, a: Any, b: Any) -> Any:
    if a == Known(None):
        a, b = b, a
    if b == Known(None):
        if isinstance(a, Maybe):
            return Known(not a.flag.value) if isinstance(a.flag, Known) else e.negated(a.flag)
        return Known(is_none(a))
    if isinstance(a, View | Cell) and isinstance(b, View | Cell):
        # Each stands for one object of the program.
        return Known(a is b)
    raise NotKnown


@rule("aten.__isnot__")
def isnot(e: Evaluator, op: Operation, a: Any, b: Any) -> Any:
    same = is_(e, op, a, b)
    return Known(not same.value) if isinstance(same, Known) else e.negated(same)


@rule("prim.Uninitialized")
def uninitialized(e: Evaluator, op: Operation) -> Any:
    return Uninitialized(op.results[0].type)


# --- Ops that do more or less than their schema says ---


@rule("aten.dropout", "aten.alpha_dropout", "aten.feature_dropout", "aten.feature_alpha_dropout")
def dropout(e: Evaluator, op: Operation, value: Any, p: Any, train: Any) -> Any:
    """Out of training, the argument itself."""
    if train != Known(False) or not e.features.fold:
        raise NotKnown
    return value


@rule("aten.requires_grad_")
def requires_grad(e: Evaluator, op: Operation, value: Any, flag: Any) -> Any:
    return value


@rule("aten.batch_norm")
def batch_norm(e: Evaluator, op: Operation, x: Any, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> Any:
    """In training, the running statistics are written."""
    if rest[0] != Known(True) or not isinstance(mean, View) or not isinstance(var, View):
        raise NotKnown
    statistics = [e.view_type(mean), e.view_type(var)]
    schema = registry.schema("aten._native_batch_norm_legit_functional")
    args = [x, weight, bias, mean, var, *rest[:3]]
    assert schema is not None
    answers = e.inferred(schema, args) if e.features.infer else None
    type_ = e.tensor_type(op.results[0].type, answers[0] if answers is not None else None)
    operands = [e.materialize(a) for a in args]
    new = e.t.op(schema.name, operands, [type_, statistics[0], statistics[0], *statistics])
    e.write(mean, new[3])
    e.write(var, new[4])
    return e.wrapped(new[0], op.results[0].type)


# --- What only the host sees ---


@rule("prim.Print", "aten.warn")
def silent(e: Evaluator, op: Operation, *values: Any) -> Any:
    """Messages are for the host; a compiled program has none."""
    return None


@rule("prim.RaiseException")
def raise_exception(e: Evaluator, op: Operation, message: Any, *rest: Any) -> Any:
    text = message.value if isinstance(message, Known) else "an exception whose message is made at run time"
    raise Raised(op, str(text))
