"""Ops on tuples, lists, strings and dictionaries: what each gives, and what it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from xdsl.ir import Operation

from flambeau.dialects.torch.types import FLOAT, INT
from flambeau.passes.evaluate.operands import materialize
from flambeau.passes.evaluate.state import Evaluation, NotKnown, Raised, known, new_list, rule
from flambeau.passes.evaluate.storages import look, set_content
from flambeau.passes.evaluate.values import Cell, Dict, Known, List, Tuple

KEYS = ("str", "int", "bool", "float", "complex", "Tensor")
"""The kinds of keys that PyTorch has overloads of dictionary ops for."""

NOTHING = Known(None)


def each_key(*patterns: str) -> tuple[str, ...]:
    """Name the overloads of dictionary ops for every kind of key, from patterns such as `aten.keys.{}`."""
    return tuple(p.format(k) for p in patterns for k in KEYS)


# --- What is in a value ---


def items(e: Evaluation, value: Any) -> tuple[Any, ...]:
    """Return the elements of a list."""
    if not isinstance(value, List):
        raise NotKnown
    look(value)
    return tuple(value.content)


def entries(e: Evaluation, value: Any) -> dict[Any, Any]:
    """Return the entries of a dictionary by their Python keys."""
    if not isinstance(value, Dict):
        raise NotKnown
    look(value)
    return {constant(k): v for k, v in value.content}


def constant(value: Any) -> Any:
    """Return the Python value of a known value, list or tuple."""
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


def change(e: Evaluation, cell: Cell, content: Any) -> None:
    look(cell)
    set_content(e, cell, tuple(content))


# --- Tuples ---


@rule("prim.TupleConstruct")
def tuple_construct(e: Evaluation, op: Operation, *values: Any) -> Any:
    return Tuple(values)


@rule("prim.TupleUnpack")
def tuple_unpack(e: Evaluation, op: Operation, value: Any) -> Any:
    if not isinstance(value, Tuple):
        raise NotKnown
    return value.items if len(op.results) != 1 else value.items[0]


@rule("prim.TupleIndex")
def tuple_index(e: Evaluation, op: Operation, value: Any, index: Any) -> Any:
    if not isinstance(value, Tuple):
        raise NotKnown
    return value.items[position(index, len(value.items), op)]


# --- Lists ---


@rule("prim.ListConstruct")
def list_construct(e: Evaluation, op: Operation, *values: Any) -> Any:
    return new_list(e, values, op.results[0].type)


@rule("prim.ListUnpack")
def list_unpack(e: Evaluation, op: Operation, value: Any) -> Any:
    found = items(e, value)
    if len(found) != len(op.results):
        raise Raised(op, f"a list of {len(found)} elements is unpacked into {len(op.results)}")
    return found if len(found) != 1 else found[0]


@rule("aten.__getitem__.t")
def get_item(e: Evaluation, op: Operation, value: Any, index: Any) -> Any:
    found = items(e, value)
    return found[position(index, len(found), op)]


@rule("aten.pop.t")
def pop(e: Evaluation, op: Operation, value: Any, index: Any) -> Any:
    found = list(items(e, value))
    taken = found.pop(position(index, len(found), op))
    change(e, value, found)
    return taken


def _in_place(name: str, update: Callable[..., Any]) -> None:
    """Add a rule for an op that changes a list: `update` does the same to a Python list of its elements."""

    @rule(name)
    def apply(e: Evaluation, op: Operation, value: Any, *rest: Any) -> Any:
        found = list(items(e, value))
        update(e, op, found, *rest)
        change(e, value, found)
        return value


_in_place("aten._set_item.t", lambda e, op, found, at, new: found.__setitem__(position(at, len(found), op), new))
_in_place("aten.Delete.t", lambda e, op, found, at: found.__delitem__(position(at, len(found), op)))
_in_place("aten.insert.t", lambda e, op, found, at, new: found.insert(constant(at), new))
_in_place("aten.append.t", lambda e, op, found, new: found.append(new))
_in_place("aten.extend.t", lambda e, op, found, more: found.extend(items(e, more)))
_in_place("aten.add_.t", lambda e, op, found, more: found.extend(items(e, more)))
_in_place("aten.clear.t", lambda e, op, found: found.clear())
_in_place("aten.reverse.t", lambda e, op, found: found.reverse())


def _makes_list(names: Sequence[str], content: Callable[..., Iterable[Any]]) -> None:
    """Add a rule for ops that make a list: `content` gives its elements from the evaluation and the operands."""
    rule(*names)(lambda e, op, *values: new_list(e, content(e, *values), op.results[0].type))


_makes_list(("aten.copy.t", "aten.list.t"), items)
_makes_list(("aten.add.t",), lambda e, a, b: (*items(e, a), *items(e, b)))
_makes_list(("aten.mul.left_t",), lambda e, a, times: items(e, a) * max(0, constant(times)))
_makes_list(("aten.mul.right_",), lambda e, times, a: items(e, a) * max(0, constant(times)))
_makes_list(("aten.slice.t",), lambda e, a, *bounds: items(e, a)[slice(*map(constant, bounds))])
_makes_list(each_key("aten.keys.{}"), lambda e, a: map(Known, entries(e, a)))
_makes_list(each_key("aten.values.{}"), lambda e, a: entries(e, a).values())
_makes_list(each_key("aten.items.{}"), lambda e, a: [Tuple((Known(k), v)) for k, v in entries(e, a).items()])


def _in_order(e: Evaluation, values: Sequence[Any], backwards: bool = False) -> list[Any]:
    """Sort elements: in Python what is known; numbers that are not by exchanges of neighbours, as in bubble sort."""
    if all(isinstance(v, Known) for v in values):
        return sorted(values, key=constant, reverse=backwards)
    network = [materialize(e, v) for v in values]
    kind = {INT: "int", FLOAT: "float"}.get(network[0].type)
    if kind is None:
        raise NotKnown
    for end in range(len(network) - 1, 0, -1):
        for i in range(end):
            pair = network[i : i + 2]
            least, most = (e.t.op(f"prim.{name}.{kind}", pair, (pair[0].type,))[0] for name in ("min", "max"))
            network[i : i + 2] = (most, least) if backwards else (least, most)
    return network


_makes_list(
    tuple(f"aten.sorted.{kind}" for kind in ("int", "float", "bool", "str")), lambda e, a: _in_order(e, items(e, a))
)
for _sorts in ("int", "float", "bool", "str"):
    _in_place(
        f"aten.sort.{_sorts}",
        lambda e, op, found, reverse: found.__setitem__(slice(None), _in_order(e, found, constant(reverse))),
    )


@rule("aten.len.t")
def len_list(e: Evaluation, op: Operation, value: Any) -> Any:
    return Known(len(items(e, value)))


def _computed(names: tuple[str, ...], compute: Callable[..., Any]) -> None:
    """Add a rule that computes with known elements in Python."""

    @rule(*names)
    def apply(e: Evaluation, op: Operation, *values: Any) -> Any:
        for value in values:
            if isinstance(value, Cell):
                look(value)
        if not e.features.fold:
            raise NotKnown
        arguments = [constant(v) for v in values]
        try:
            answer = compute(*arguments)
        except (ValueError, ArithmeticError, LookupError) as error:
            raise Raised(op, str(error)) from error
        if len(op.results) > 1:
            return [known(e, a, r.type) for a, r in zip(answer, op.results, strict=True)]
        return known(e, answer, op.results[0].type)


for _kind in ("int", "float", "bool", "str"):
    _computed((f"aten.eq.{_kind}_list",), lambda a, b: a == b)
    _computed((f"aten.ne.{_kind}_list",), lambda a, b: a != b)
    _computed((f"aten.any.{_kind}",), any)
    _computed((f"aten.index.list_{_kind}",), lambda a, b: a.index(b))
    _computed((f"aten.count.{_kind}",), lambda a, b: a.count(b))
    if _kind != "bool":
        _computed((f"aten.__contains__.{_kind}_list",), lambda a, b: b in a)
    if _kind != "str":
        _computed((f"aten.all.{_kind}",), all)
        _computed((f"aten.sum.{_kind}",), sum)
        _computed((f"prim.max.self_{_kind}",), max)
        _computed((f"prim.min.self_{_kind}",), min)

_computed(("aten.join",), str.join)
_computed(("aten.split.str",), lambda text, separator, most: text.split(separator, most))
_computed(("aten.rsplit",), lambda text, separator, most: text.rsplit(separator, most))
_computed(("aten.splitlines",), str.splitlines)
_computed(("aten.list",), list)
_computed(("aten.partition",), lambda text, separator: list(text.partition(separator)))
_computed(("aten.rpartition",), lambda text, separator: list(text.rpartition(separator)))
_computed(("aten.percentFormat",), lambda text, *values: text % (values if len(values) > 1 else values[0]))
_computed(("aten.format",), lambda a, *rest: a.format(*rest))
_computed(("aten.str",), str)


# --- Dictionaries ---


@rule("prim.DictConstruct")
def dict_construct(e: Evaluation, op: Operation, *values: Any) -> Any:
    half = len(values) // 2
    content: dict[Any, tuple[Any, Any]] = {}
    for key, value in zip(values[:half], values[half:], strict=True):
        content[constant(key)] = (key, value)
    return Dict(tuple(content.values()), e.depth, type=op.results[0].type)


def _stored(e: Evaluation, value: Dict, found: dict[Any, Any]) -> None:
    change(e, value, [(Known(k), v) for k, v in found.items()])


@rule(*each_key("aten.__getitem__.Dict_{}"))
def dict_get(e: Evaluation, op: Operation, value: Any, key: Any) -> Any:
    found = entries(e, value)
    if constant(key) not in found:
        raise Raised(op, f"key {constant(key)!r} is not in the dictionary")
    return found[constant(key)]


@rule(*each_key("aten.get.{}", "aten.get.default_{}"))
def dict_get_default(e: Evaluation, op: Operation, value: Any, key: Any, default: Any = NOTHING) -> Any:
    return entries(e, value).get(constant(key), default)


@rule(*each_key("aten._set_item.{}"))
def dict_set(e: Evaluation, op: Operation, value: Any, key: Any, element: Any) -> Any:
    _stored(e, value, {**entries(e, value), constant(key): element})
    return None


@rule(*each_key("aten.Delete.Dict_{}"))
def dict_delete(e: Evaluation, op: Operation, value: Any, key: Any) -> Any:
    dict_get(e, op, value, key)
    _stored(e, value, {k: v for k, v in entries(e, value).items() if k != constant(key)})
    return None


@rule(*each_key("aten.pop.Dict_{}"))
def dict_pop(e: Evaluation, op: Operation, value: Any, key: Any) -> Any:
    taken = dict_get(e, op, value, key)
    dict_delete(e, op, value, key)
    return taken


@rule(*each_key("aten.update.{}"))
def dict_update(e: Evaluation, op: Operation, value: Any, more: Any) -> Any:
    _stored(e, value, {**entries(e, value), **entries(e, more)})
    return None


@rule(*each_key("aten.copy.Dict_{}", "aten.dict.Dict_{}"))
def dict_copy(e: Evaluation, op: Operation, value: Any) -> Any:
    entries(e, value)
    return Dict(value.content, e.depth, type=op.results[0].type)


@rule(*each_key("aten.len.Dict_{}"))
def dict_len(e: Evaluation, op: Operation, value: Any) -> Any:
    return Known(len(entries(e, value)))


@rule(*each_key("aten.__contains__.{}"))
def dict_contains(e: Evaluation, op: Operation, value: Any, key: Any) -> Any:
    return Known(constant(key) in entries(e, value))
