"""Rules for Helion's loops and branches inside a tile loop."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from torch.fx import Graph, Node

from flambeau.frontends.helion.program import inner_graphs, target_name
from flambeau.frontends.helion.rules import device_rule
from flambeau.frontends.helion.tiles import dtype_of

if TYPE_CHECKING:
    from flambeau.frontends.helion.kernel import KernelImporter
    from flambeau.lowering.builder import Tensor


def outputs_of(graph: Graph) -> list[Any]:
    """List the outputs of a graph; empty if it returns no list."""
    (outputs,) = next(n for n in graph.nodes if n.op == "output").args
    return list(outputs) if isinstance(outputs, (list, tuple)) else []


def starts(node: Node, arguments: Any, count: int) -> list[int | None]:
    """List for each output of a loop the argument that it starts from: the one its phi after the loop joins it with."""
    found: list[int | None] = [None] * count
    for part in node.users:
        if part.target is not operator.getitem:
            continue
        for user in part.users:
            if target_name(user) == "_phi" and user.args[1] is part:
                free = [i for i, a in enumerate(arguments) if a is user.args[0] and i not in found]
                if free:
                    found[part.args[1]] = free[0]  # type: ignore[index]
    return found


class Carried:
    """What a loop carries: for each output of its body a value that starts as an argument, or as zeros."""

    def __init__(self, k: KernelImporter, node: Node, body: Graph, arguments: Any) -> None:
        self.arguments: list[Any] = k.resolve(arguments)
        self.at = starts(node, arguments, len(outputs_of(body)))
        self.first: list[Tensor] = [
            self.arguments[i] if i is not None else _zeros(k, meta) for i, meta in zip(self.at, node.meta["val"])
        ]

    def given(self, now: list[Tensor]) -> list[Any]:
        """Return the arguments of the body with the carried values `now` in their places."""
        given = list(self.arguments)
        for i, value in zip(self.at, now, strict=True):
            if i is not None:
                given[i] = value
        return given


def _zeros(k: KernelImporter, meta: Any) -> Tensor:
    """Make the initial value of a carried tensor that only the body defines: nothing reads it before it is written."""
    return k.b.full([k.program.size(d) or 0 for d in meta.shape], 0, dtype_of(meta.dtype))


@device_rule("_for_loop", "_for_loop_step")
def for_loop(k: KernelImporter, node: Node) -> list[Tensor]:
    number, begins, ends, arguments = node.args[:4]
    assert isinstance(number, int)
    graph, blocks = k.program.graph(number), k.program.graphs[number].block_ids
    lows, highs = ([k.index(n) for n in k.resolve(v)] for v in (begins, ends))
    steps = k.resolve(node.args[4]) if len(node.args) > 4 else [None] * len(blocks)
    carried = Carried(k, node, graph, arguments)
    bounds = list(zip(lows, highs, steps, strict=True))
    return k.over_tiles(blocks, bounds, carried.first, graph, lambda now: k.graph(graph, carried.given(now)) or [])


@device_rule("_while_loop")
def while_loop(k: KernelImporter, node: Node) -> list[Tensor]:
    test, body = (k.program.graph(n) for n in inner_graphs(node))
    carried = Carried(k, node, body, node.args[2])
    count, written = len(carried.first), k.written(body)

    def going(now: list[Tensor]) -> Any:
        k.tensors.update(zip(written, now[count:], strict=True))
        (flag,) = k.graph(test, carried.given(now[:count]))
        return k.condition(flag)

    def turn(now: list[Tensor]) -> list[Tensor]:
        k.tensors.update(zip(written, now[count:], strict=True))
        results = k.graph(body, carried.given(now[:count])) or []
        return [*results, *(k.tensors[n] for n in written)]

    last = k.tiles.while_loop([*carried.first, *(k.tensors[n] for n in written)], going, turn)
    k.tensors.update(zip(written, last[count:], strict=True))
    return last[:count]


@device_rule("_if")
def if_(k: KernelImporter, node: Node) -> list[Any]:
    """Import an `if`, whose outputs Helion lists as pairs: an output of each body, or the name of the value before it.

    The node gives the first of all pairs, then the second of all; once joined, they are the same.
    """
    numbers = inner_graphs(node)
    graphs = [k.program.graph(n) for n in numbers]
    info = k.program.graphs[numbers[0]]
    given = [k.resolve(a) for a in node.args[3:5]]
    names = dict(zip([*info.if_arg_names, *info.else_arg_names], [*given[0], *given[1]], strict=True))
    pairs = info.branches_outputs
    condition = k.condition(k.resolve(node.args[0]))
    written, before = k.written(*graphs), dict(k.tensors)

    def body(which: int) -> list[Tensor]:
        k.tensors = dict(before)
        results = k.graph(graphs[which], given[which]) or []
        chosen = [results[p[which]] if isinstance(p[which], int) else names[p[which]] for p in pairs]
        return [*chosen, *(k.tensors[n] for n in written)]

    if isinstance(condition, bool):
        now = body(0 if condition else 1)
    else:
        now = k.tiles.branch(condition, [lambda: body(0), lambda: body(1)])
    k.tensors = before
    k.tensors.update(zip(written, now[len(pairs) :], strict=True))
    return now[: len(pairs)] * 2
