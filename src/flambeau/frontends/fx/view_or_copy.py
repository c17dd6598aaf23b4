"""Ops that give a view or a copy, as strides have it: where that makes a difference, and whether sizes decide it.

`x.t().reshape(-1)` is a copy, but a view of an `x` with one row. Only who writes to one of the two, and looks at the
other, can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from flambeau.frontends.fx.aliasing import Aliasing, is_view, is_written_later, written_by
from flambeau.frontends.fx.guards import is_checked
from flambeau.frontends.fx.types import Problem, known_size

_MOST = 1000
"""How many combinations of sizes are tried."""


def makes_difference(node: Node, source: Node, aliasing: Aliasing, written_outside: Sequence[Node] = ()) -> bool:
    """Tell whether replacing a view of `source` by a copy, or a copy by a view, changes what a program computes.

    It does if one of the two is written behind the op and the other is read behind that, or seen by the caller.
    `written_outside` are nodes that are written behind the whole graph.
    """
    mine, theirs = aliasing.root(node), aliasing.root(source)
    if any(aliasing.root(n) in (mine, theirs) for n in written_outside):
        return True
    if mine is theirs:
        return is_written_later(node, aliasing)
    other = {mine: theirs, theirs: mine}
    changed: set[Node] = set()
    later = node.next
    while later.op != "root":
        if any(aliasing.root(read) in changed for read in later.all_input_nodes):
            return True
        changed |= {other[root] for n in written_by(later) if (root := aliasing.root(n)) in other}
        later = later.next
    return any(n.op in ("placeholder", "get_attr") and aliasing.root(n) in changed for n in node.graph.nodes)


def deciding_dims(node: Node, source: Node) -> list[tuple[int, ...]]:
    """List the sets of the source's dims whose sizes must not all be 1, lest a view become a copy or a copy a view."""
    meta = source.meta.get("val")
    if not isinstance(meta, torch.Tensor):
        return []
    dynamic = [d for d, size in enumerate(meta.shape) if known_size(size) is None]
    expected = is_view(node, source)
    found: set[frozenset[int]] = set()
    for sizes in _assignments(meta):
        try:
            operands: dict[Node, Any] = {n: _with_sizes(n.meta.get("val"), sizes) for n in node.all_input_nodes}
            args, kwargs = map_arg((node.args, node.kwargs), operands.__getitem__)
            result = node.target(*args, **kwargs)  # type: ignore[operator]
        except (RuntimeError, TypeError, ValueError, ZeroDivisionError):
            continue  # There are no such tensors, or PyTorch does not take them.
        whole = operands[source]
        # What is empty is not written.
        if whole.numel() and (result.untyped_storage()._cdata == whole.untyped_storage()._cdata) is not expected:
            found.add(frozenset(d for d in dynamic if whole.shape[d] == 1))
    if frozenset() in found:
        raise Problem(
            "sizes that only the run time knows decide if it gives a view, and somebody writes to it or to its source",
            "clone() its result.",
        )
    return sorted(tuple(sorted(dims)) for dims in found if not any(less < dims for less in found))


def layout_sources(node: Node) -> set[Node]:
    """Find the nodes whose strides decide those of a node: itself, and operands whose layout its ops keep."""
    found, open_ = {node}, [node]
    while open_:
        user = open_.pop()
        for operand in user.all_input_nodes:
            if operand not in found and _keeps_layout(user, operand):
                found.add(operand)
                open_.append(operand)
    return found


def _keeps_layout(node: Node, operand: Node) -> bool:
    """Tell whether the strides of an operand influence the strides of the result; True where it cannot be tried."""
    parts = pytree.tree_leaves(operand.meta.get("val"))
    if not any(isinstance(part, torch.Tensor) and part.dim() > 1 for part in parts):
        return False
    strides = []
    for turned in (None, operand):
        try:
            operands: dict[Node, Any] = {n: _with_hints(n.meta.get("val"), n is turned) for n in node.all_input_nodes}
            args, kwargs = map_arg((node.args, node.kwargs), operands.__getitem__)
            result = node.target(*args, **kwargs)  # type: ignore[operator]
        except Exception:
            return True  # It does not run like that, or not without contents.
        strides.append([t.stride() for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)])
    return strides[0] != strides[1]


def _assignments(meta: torch.Tensor) -> Iterator[Mapping[Any, Any]]:
    """Give small numbers to the symbols in a tensor's sizes and strides, all combinations that a call can have."""
    import sympy

    symbolic = [n for n in (*meta.shape, *meta.stride()) if known_size(n) is None]
    symbols = sorted(set().union(*(n.node.expr.free_symbols for n in symbolic)), key=str)
    if not symbols:
        return
    env = symbolic[0].node.shape_env
    guards = [expr for guard in env.guards if is_checked(expr := env.replace(guard.expr))]
    ranges = (range(5), range(1, 5), range(1, 4), range(1, 3))
    numbers = next((r for r in ranges if len(r) ** len(symbols) <= _MOST), ranges[-1])
    for chosen in product(map(sympy.Integer, numbers), repeat=len(symbols)):
        sizes = dict(zip(symbols, chosen, strict=True))
        if not any(_fails(guard, sizes) for guard in guards):
            yield sizes


def _fails(guard: Any, sizes: Mapping[Any, Any]) -> bool:
    """Tell whether an assumption is false for these sizes, or undefined because it divides by one that is 0."""
    import sympy

    try:
        return bool(guard.xreplace(sizes) == sympy.false)
    except ZeroDivisionError:
        return True


def _with_hints(value: Any, is_turned: bool) -> Any:
    """Make a meta tensor of the example's sizes, contiguous, or with reversed strides if `is_turned`."""
    if isinstance(value, torch.SymInt):
        return value.node.hint
    if isinstance(value, (list, tuple)):
        return [_with_hints(v, is_turned) for v in value]
    if not isinstance(value, torch.Tensor):
        return value
    shape = [n if isinstance(n, int) else n.node.hint for n in value.shape]
    if is_turned:
        return torch.empty(shape[::-1], dtype=value.dtype, device="meta").permute(*range(len(shape))[::-1])
    return torch.empty(shape, dtype=value.dtype, device="meta")


def _with_sizes(value: Any, sizes: Mapping[Any, Any]) -> Any:
    """Make a meta tensor, or a number, with numbers in place of symbols."""

    def number(n: Any) -> int:
        return n if isinstance(n, int) else int(n.node.expr.xreplace(sizes))

    if isinstance(value, torch.SymInt):
        return number(value)
    if not isinstance(value, torch.Tensor):
        return value
    shape, strides = list(map(number, value.shape)), list(map(number, value.stride()))
    return torch.empty_strided(shape, strides, dtype=value.dtype, device="meta")
