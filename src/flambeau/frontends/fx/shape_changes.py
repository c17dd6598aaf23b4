"""Ops that change the shape of a tensor object in place: `unsqueeze_`, `t_`, `resize_`.

What is in the tensor stays, but whoever has the object sees the new shape. An object of the program's own is another
view from then on; that of an argument or of state would have to change for the caller.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from flambeau.frontends.fx.aliasing import PERHAPS_VIEWS, RESHAPING, is_view, schema_of, stand_in
from flambeau.frontends.fx.schemas import writes_results
from flambeau.frontends.fx.types import Problem


def refuse_shape_change(node: Node, name: str) -> None:
    """Raise if an op changes the shape of a tensor that is not the program's own."""
    owner = object_of(node.args[0]) if name in RESHAPING else node
    if owner.op in ("placeholder", "get_attr"):
        raise Problem(
            f"it changes the shape of {owner.name!r} itself, which the caller would see, and not what is in it",
            f"Use {RESHAPING[name].split('.')[1]}(), which gives a view.",
        )


def object_of(node: Any) -> Node:
    """Follow ops that return an argument itself back to the node that made the tensor object."""
    while (source := _given_back(node)) is not None:
        node = source
    found: Node = node
    return found


def _given_back(node: Node) -> Node | None:
    """Return the argument that an op returns as the same object (in place, or a no-op such as `float()`); else None."""
    call, index = (node.args[0], node.args[1]) if node.target is operator.getitem else (node, None)
    schema = schema_of(call) if isinstance(call, Node) else None
    if schema is None:
        return None
    assert isinstance(call, Node)
    if schema.is_mutable:
        written = [call.args[0]] if schema.is_inplace_variant else []
        if writes_results(schema):
            written = [call.kwargs.get(a.name) for a in schema.arguments if a.is_written]
        at = index if isinstance(index, int) else 0
        found = written[at] if at < len(written) else None
        return found if isinstance(found, Node) else None
    first = call.args[0] if call.args else None
    if schema.name in PERHAPS_VIEWS and isinstance(first, Node) and _names_device(call):
        return first if is_view(call, first) else None  # What stands in for it lies on another device.
    operands = {n: stand_in(n.meta.get("val")) for n in call.all_input_nodes}
    try:
        args, kwargs = map_arg((call.args, call.kwargs), operands.__getitem__)
        result = call.target(*args, **kwargs)  # type: ignore[operator]
    except Exception:  # It does not run without contents.
        return first if isinstance(first, Node) and _looks_like(call, first) else None
    result = result if index is None else result[index]
    return next((n for n, value in operands.items() if value is result and value is not None), None)


def _names_device(node: Node) -> bool:
    return any(isinstance(a, torch.device) for a in (*node.args, *node.kwargs.values()))


def _looks_like(node: Node, source: Node) -> bool:
    """Tell whether a result may be its source itself: dtype, shape, strides and storage are equal."""
    new, old = node.meta.get("val"), source.meta.get("val")
    if not isinstance(new, torch.Tensor) or not isinstance(old, torch.Tensor) or new.dtype != old.dtype:
        return False
    return str(new.shape) == str(old.shape) and str(new.stride()) == str(old.stride()) and is_view(node, source)
