"""The calls of an FX graph as the schemas of their ops have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import Node

from flambeau.dialects.torch.schema import Schema, parse_schema
from flambeau.frontends.fx.types import Problem


def foreign_schema(name: str, target: Any, node: Node) -> tuple[Schema, list[Any]]:
    """Parse the schema of an op that the snapshot lacks (custom, or another torch version); bind the call to it."""
    text = str(target._schema)
    schema = parse_schema(name, text[text.index("(") :])
    given = schema.bind(node.args, node.kwargs)
    if given is None:
        raise Problem(f"the call does not fit the schema {text}", "This is a malformed graph.")
    return schema, given


SEVERAL_VIEWS = frozenset({
    "aten.tensor_split.sections", "aten.tensor_split.indices", "aten.hsplit.int", "aten.hsplit.array",
    "aten.vsplit.int", "aten.vsplit.array", "aten.dsplit.int", "aten.dsplit.array", "aten.moveaxis.intlist",
    "aten.linalg_diagonal", "aten.positive",
})  # fmt: skip
"""Lists of views, and views by other names, that are taken apart where somebody writes to one."""


def writes_results(schema: Schema) -> bool:
    """Tell whether an op writes all its results into keyword arguments: `out=`."""
    written = [a for a in schema.arguments if a.is_written]
    return bool(written) and all(a.kwarg_only and a.type.is_tensor and not a.type.is_list for a in written)


def without_out(target: Any, written: Sequence[str]) -> Callable[..., Any]:
    """Find the overload of an `out=` op that returns its results, and wrap it to ignore `out`."""
    wanted = [(a.name, str(a.type)) for a in target._schema.arguments if a.name not in written]
    packet = target._overloadpacket
    overloads = [getattr(packet, name) for name in packet.overloads()]
    same = [o for o in overloads if [(a.name, str(a.type)) for a in o._schema.arguments] == wanted]
    if not same or same[0]._schema.is_mutable:
        raise Problem("it has no form without `out`", "Use another op without `out`, and copy_().")
    return lambda *args, **kwargs: same[0](*args, **{k: v for k, v in kwargs.items() if k not in written})


def first_argument(node: Node) -> Node:
    first = node.args[0]
    assert isinstance(first, Node)
    return first
