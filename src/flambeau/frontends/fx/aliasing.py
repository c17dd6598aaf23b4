"""Which values of an FX graph may be written to: analysis first, the importer acts on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.schema import Schema, parse_schema
from flambeau.frontends.fx.types import known_size
from flambeau.ir.sharing import Sharing

# In-place in name only: they change how autograd sees the tensor, never its contents.
HARMLESS = frozenset({"aten.detach_", "aten.requires_grad_", "aten.resolve_conj", "aten.alias"})

RESHAPING = {name: form for name, form in registry.inplace_views().items() if name not in HARMLESS}
"""In place, but on the tensor's shape and not on its contents: the object becomes another view of its storage."""


def op_name(target: Any) -> str:
    """Name an OpOverload as the dialect does, `aten.add.Tensor`; the default overload has no suffix."""
    name: str = target._schema.name.replace("::", ".")
    overload = target._schema.overload_name
    return f"{name}.{overload}" if overload else name


Aliasing = Sharing[Node]
"""The nodes of a graph that may share storage."""


def analyze(graph: Graph, also: Sequence[Node] = ()) -> Aliasing:
    """Find the written alias sets of a graph. Without a write the answer is empty and costs one walk.

    `also` are nodes that somebody outside writes.
    """
    result = Aliasing()
    writes: list[Node] = list(also)
    for node in graph.nodes:
        writes.extend(written_by(node))
    if not writes:
        return result
    for node in graph.nodes:
        if node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem":
            source = node.args[0]
            if isinstance(source, Node) and _shares(source, node):
                result.join(source, node)
            continue
        schema = schema_of(node)
        if schema is None:
            continue
        sets = frozenset(s for r in schema.returns if r.alias for s in r.alias.sets)
        if not sets:
            # Some ops give back what they were given without saying so.
            for argument in node.all_input_nodes:
                if gives_back(schema, node, argument):
                    result.join(argument, node)
            continue
        for argument in _arguments_where(
            node, schema, lambda a, sets=sets: a.alias is not None and bool(sets & set(a.alias.sets))
        ):
            if schema.is_mutable or is_view(node, argument):
                result.join(argument, node)
    result.written = {result.root(n) for n in writes}
    return result


def written_by(node: Node) -> Iterator[Node]:
    """Yield the nodes whose tensors an op writes, running statistics of norms included."""
    schema = schema_of(node)
    if schema is not None and updates_statistics(schema, node):
        yield from (a for a in statistics_of(schema, node) if isinstance(a, Node))
    if schema is None or not schema.is_mutable or schema.name in HARMLESS | RESHAPING.keys():
        return
    yield from _arguments_where(node, schema, lambda a: a.is_written)


def is_written_later(node: Node, aliasing: Aliasing) -> bool:
    """Tell whether an op after this one writes to storage that this node's result may share."""
    root, later = aliasing.root(node), node.next
    while later.op not in ("output", "root"):
        if any(aliasing.root(n) is root for n in written_by(later)):
            return True
        later = later.next
    return False


def updates_statistics(schema: Schema, node: Node) -> bool:
    """Tell whether the op is a norm in training mode, which writes its running mean and variance."""
    if schema.name not in registry.TRAINING_FLAGS:
        return False
    flag = registry.TRAINING_FLAGS[schema.name]
    is_training = flag is None or _given(schema, node, flag) is True
    return is_training and (schema.name == "aten.batch_norm" or any(v is not None for v in statistics_of(schema, node)))


def statistics_of(schema: Schema, node: Node) -> list[Any]:
    """Return a norm's `running_mean` and `running_var` arguments; None for one that is not passed."""
    return [_given(schema, node, name) for name in ("running_mean", "running_var")]


def _given(schema: Schema, node: Node, name: str) -> Any:
    at = schema.index[name]
    return node.args[at] if at < len(node.args) else node.kwargs.get(name)


def schema_of(node: Node) -> Schema | None:
    if node.op != "call_function" or not hasattr(node.target, "_schema"):
        return None
    name = op_name(node.target)
    return registry.schema(name) or _own_schema(name, str(node.target._schema))


@cache
def _own_schema(name: str, text: str) -> Schema:
    """Parse the schema of an op that the snapshot lacks: a custom op, or one of another version of PyTorch."""
    return parse_schema(name, text[text.index("(") :])


def _arguments_where(node: Node, schema: Schema, accept: Any) -> Iterator[Node]:
    for i, argument in enumerate(schema.arguments):
        if not accept(argument):
            continue
        value = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
        values = value if isinstance(value, (list, tuple)) else [value]
        yield from (v for v in values if isinstance(v, Node))


UNSAFE_VIEWS = {
    "aten.unsafe_split.Tensor": "aten.split.Tensor", "aten.unsafe_split_with_sizes": "aten.split_with_sizes",
    "aten.unsafe_chunk": "aten.chunk", "aten._unsafe_view": "aten.view",
}  # fmt: skip
"""Views that do not say so, because whoever calls them promises not to look at the whole again."""

PERHAPS_VIEWS = frozenset({
    "aten.reshape", "aten.contiguous", "aten.flatten.using_ints", "aten.ravel", "aten.reshape_as", "aten.view_as",
    "aten.to.dtype", "aten.to.device", "aten.to.dtype_layout", "aten.to.other", "aten.to.memory_format",
    "aten.type_as", "aten.resolve_neg", "aten.flatten.named_out_dim", "aten.to.prim_Device", "aten.to.prim_dtype",
    "aten.atleast_1d", "aten.atleast_2d", "aten.atleast_3d", "aten.dropout", "aten.feature_dropout",
    "aten.alpha_dropout", "aten.feature_alpha_dropout",
})  # fmt: skip
"""They give a view or a copy, as strides and dtypes have it."""


DEPEND_ON_STRIDES = frozenset({
    "aten.reshape", "aten.contiguous", "aten.flatten.using_ints", "aten.ravel", "aten.reshape_as",
    "aten.flatten.named_out_dim", "aten.to.memory_format",
})  # fmt: skip
"""Those for which it is the strides."""


def _shares(a: Node, b: Node) -> bool:
    """Tell whether two nodes share storage by their fake tensors; True where there are none to ask."""
    left, right = _storages(a.meta.get("val")), _storages(b.meta.get("val"))
    return left is None or right is None or bool(left & right)


def gives_back(schema: Schema, node: Node, source: Node) -> bool:
    """Tell whether an op whose schema shows no alias returns an argument or a view of it: `atleast_2d`, `dropout`."""
    if schema.name in PERHAPS_VIEWS:
        return is_view(node, source)
    if is_copy(node):
        return False  # The fake tensor of a literal and that of its copy may be one.
    left, right = _storages(source.meta.get("val")), _storages(node.meta.get("val"))
    return bool(left and right and left & right)


def is_copy(node: Node) -> bool:
    """Tell whether an op always allocates new memory for its result."""
    schema = schema_of(node)
    return schema is not None and (schema.base_name == "clone" or schema.base_name.endswith("_copy"))


def is_view(node: Node, source: Node) -> bool:
    """Tell whether the result of an op shares the storage of one of its arguments.

    PyTorch's fake tensors know, but of a constant each op has a fake tensor of its own: where they say no, the kind of
    the op, or the op itself on tensors without contents, has the last word.
    """
    if _shares(source, node):
        return True
    schema = schema_of(node)
    if schema is None or schema.name not in PERHAPS_VIEWS:
        return schema is not None and schema.is_view
    empties: dict[Node, Any] = {n: stand_in(n.meta.get("val")) for n in node.all_input_nodes}
    if any(e is None for e in empties.values()) or not _is_static(source.meta.get("val")):
        return False  # The fake tensor of one with dynamic sizes is no constant's: it knows.
    args, kwargs = map_arg((node.args, {**node.kwargs}), lambda n: empties[n])
    if "device" in kwargs or schema.name in ("aten.to.device", "aten.to.prim_Device", "aten.to.dtype_layout"):
        return _has_type_of(node.meta.get("val"), source.meta.get("val")) and "copy" not in kwargs
    return bool((_storages(node.target(*args, **kwargs)) or set()) & (_storages(empties[source]) or set()))  # type: ignore[operator]


def stand_in(value: Any) -> Any:
    """Make a meta tensor with the example's sizes and strides, or a number; None where a symbol has no hint."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value.node.hint
    if not isinstance(value, torch.Tensor):
        return value if isinstance(value, (bool, int, float)) else None
    sizes, strides = ([n if isinstance(n, int) else n.node.hint for n in ns] for ns in (value.shape, value.stride()))
    if None in sizes or None in strides:
        return None
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device="meta")


def _is_static(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and all(isinstance(n, int) for n in (*value.shape, *value.stride()))


def _has_type_of(a: Any, b: Any) -> bool:
    return bool(a.dtype == b.dtype and a.stride() == b.stride())


def _storages(value: Any) -> set[int] | None:
    if isinstance(value, (list, tuple)):
        found = [_storages(v) for v in value]
        return None if any(f is None for f in found) else set().union(*(f for f in found if f is not None))
    try:
        return {value.untyped_storage()._cdata}
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


def overlaps(operand: Any, written: Sequence[Any], aliasing: Aliasing) -> bool:
    """Tell whether an operand is another view of memory that the op writes: it has to be read before the write."""
    nodes = [n for n in written if isinstance(n, Node)]
    values = operand if isinstance(operand, (list, tuple)) else [operand]
    return any(
        isinstance(v, Node) and aliasing.root(v) is aliasing.root(n) and not _is_same_view(v, n)
        for v in values
        for n in nodes
    )


def _is_same_view(a: Node, b: Node) -> bool:
    """Tell whether two nodes of one storage see the same elements of it in the same order."""
    x, y = a.meta.get("val"), b.meta.get("val")
    if a is b or not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return a is b
    places = [(tuple(map(known_size, (*t.shape, *t.stride(), t.storage_offset()))), t.dtype) for t in (x, y)]
    return None not in places[0][0] and places[0] == places[1]
