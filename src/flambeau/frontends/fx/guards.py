"""What PyTorch assumed about dynamic sizes while it traced: checked where the program begins.

`x.split(2)` of a tensor with four rows is two parts in the graph, whatever the number of rows is at run time. PyTorch
writes down that there are two; a call for which there are three must not be answered.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node
from xdsl.ir import SSAValue

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.emitter import TorchEmitter
from flambeau.dialects.torch.types import BOOL, INT
from flambeau.frontends.fx.types import known_size
from flambeau.ir.dtypes import INT64_MAX

_RELATIONS = {
    "Equality": "aten.eq.int", "GreaterThan": "aten.ge.int", "StrictGreaterThan": "aten.gt.int",
    "LessThan": "aten.le.int", "StrictLessThan": "aten.lt.int",
}  # fmt: skip
"""Not that two sizes differ, or that one is neither 0 nor 1: PyTorch assumes so of all that it can, and where it does
not hold, the same ops are right; those for which they are not check it themselves."""


Sizes = Mapping[Any, tuple[SSAValue, int | None]]
"""Where a symbol of PyTorch's can be had: a tensor and a dim, or a number and None."""


def sizes_of(nodes: Iterable[Any], values: Mapping[Node, Any]) -> Sizes:
    """Find the symbols that the sizes of these nodes are, each where it comes first."""
    found: dict[Any, tuple[SSAValue, int | None]] = {}
    for value, dim, size in _symbolic_sizes(nodes, values):
        if size.node.expr.is_Symbol:
            found.setdefault(size.node.expr, (value, dim))
    return found


def _symbolic_sizes(nodes: Iterable[Any], values: Mapping[Node, Any]) -> Iterator[tuple[SSAValue, int | None, Any]]:
    """Yield the sizes of tensors, and the numbers, among these nodes that are symbolic, each with where it is."""
    for node in nodes:
        if not isinstance(node, Node) or not isinstance(value := values.get(node), SSAValue):
            continue
        meta = node.meta.get("val")
        dims = enumerate(meta.shape) if isinstance(meta, torch.Tensor) else [(None, meta)]
        yield from ((value, dim, size) for dim, size in dims if isinstance(size, torch.SymInt))


def emit_guards(
    emitter: TorchEmitter, placeholders: Sequence[Node], values: dict[Node, Any], nodes: Iterable[Node] = ()
) -> list[Any]:
    """Check at run time what was assumed about the sizes of these inputs, for these nodes among others.

    Returns the conditions that are checked, as expressions of sympy's.
    """
    sizes = sizes_of(placeholders, values)
    env = next((size.node.shape_env for _, _, size in _symbolic_sizes(placeholders, values)), None)
    if env is None:
        return []
    assumed = [expr for guard in env.guards if is_checked(expr := env.replace(guard.expr))]
    seen: set[Any] = set()
    checked = []
    for expr in (*assumed, *_least_sizes(nodes)):
        if expr in seen or not expr.free_symbols <= sizes.keys():
            continue
        seen.add(expr)
        left, right = (emit_size(emitter, side, sizes) for side in expr.args)
        if left is None or right is None:
            continue
        (holds,) = emitter.op(_RELATIONS[type(expr).__name__], (left, right), [BOOL])
        emitter.require(holds, f"a size is not one that the program was compiled for: {expr} does not hold")
        checked.append(expr)
    return checked


def _least_sizes(nodes: Iterable[Node]) -> list[Any]:
    """List lower bounds on sizes for slices to have PyTorch's lengths, which it finds assuming no size to be 0 or 1.

    `x[-2:]` has two rows, and what Python has computed from that stands in the graph; but it has one if `x` has.
    """
    import sympy

    schema = registry.schema("aten.slice.Tensor")
    assert schema is not None
    least: dict[Any, int] = {}
    for node in nodes:
        given = schema.bind(node.args, node.kwargs) if node.target is torch.ops.aten.slice.Tensor else None
        if given is None:
            continue
        source, dim, *bounds = given
        old, count = source.meta["val"].shape[dim], known_size(node.meta["val"].shape[dim])
        if count is None or known_size(old) is not None or any(isinstance(n, Node) for n in bounds):
            continue
        wrong = [size for size in (0, 1) if len(range(*slice(*bounds).indices(size))) != count]
        if wrong:
            least[old.node.expr] = max(least.get(old.node.expr, 0), wrong[-1] + 1)
    return [sympy.Ge(expr, size, evaluate=False) for expr, size in least.items()]


_COUNTING = (torch.ops.aten.nonzero.default, torch.ops.aten.masked_select.default)
"""Ops whose result has a row for each element that is true: between none and all of them."""


def is_of_definition(node: Node) -> bool:
    """Tell whether a node asserts no more than what a counting op is: as many rows as 0, or as its operand's elements.

    Nothing has to check that, and where `masked_select` broadcasts it is wrong: PyTorch takes the number of elements
    of what is selected from for the limit, which is less than those of mask and operand together.
    """
    if node.target is not torch.ops.aten._assert_scalar.default or not isinstance(relation := node.args[0], Node):
        return False
    if relation.target not in (operator.ge, operator.le):
        return False
    size, bound = relation.args
    if not isinstance(size, Node) or size.target is not torch.ops.aten.sym_size.int:
        return False
    counted, dim = size.args
    if not isinstance(counted, Node) or counted.target not in _COUNTING or dim != 0:
        return False
    operand: Any = counted.args[0]
    limit = 0 if relation.target is operator.ge else known_size(operand.meta["val"].numel())
    return limit is not None and bool(bound == limit)


def is_checked(expr: Any) -> bool:
    """Tell whether an assumption about sizes is checked at run time: any relation but `size >= 2`."""
    kind = type(expr).__name__
    return kind in _RELATIONS and not (kind == "GreaterThan" and expr.args[1] == 2)


def emit_rank_guards(emitter: TorchEmitter, node: Node, value: SSAValue) -> None:
    """Check that no size of a tensor that is squeezed is 1 of which PyTorch has assumed that it is not."""
    given: Any
    source, *given = node.args
    meta = source.meta["val"]  # type: ignore[union-attr]
    dims = list(range(meta.dim()))
    if given and meta.dim():
        wanted = given[0] if isinstance(given[0], (list, tuple)) else [given[0]]
        dims = [d % meta.dim() for d in wanted]
    for dim in dims:
        if known_size(meta.shape[dim]) is None:
            size = emitter.size_along(value, dim)
            (holds,) = emitter.op("aten.ne.int", (size, emitter.constant(1)), [BOOL])
            message = f"dimension {dim} of a tensor that is squeezed has size 1, for which the rank differs"
            emitter.require(holds, message)


def emit_view_guards(emitter: TorchEmitter, op: str, value: SSAValue, dims: Iterable[Sequence[int]]) -> None:
    """Check that no set of dims has all sizes 1, for which an op gives a copy instead of a view, or a view instead."""
    for group in dims:
        sizes = [emitter.size_along(value, dim) for dim in group]
        largest = sizes[0]
        for size in sizes[1:]:
            (largest,) = emitter.op("prim.max.int", (largest, size), [INT])
        (holds,) = emitter.op("aten.ne.int", (largest, emitter.constant(1)), [BOOL])
        names = " and ".join(map(str, group))
        emitter.require(
            holds,
            f"dimension {names} of the operand of {op} has size 1, for which a copy is a view or a view a copy: "
            "the program, which writes to one of the two, was not compiled for it",
        )


def emit_size(emitter: TorchEmitter, expr: Any, sizes: Sizes) -> SSAValue | None:
    """Emit ops for a sympy expression over sizes; None for one that has no form in integers, or has other symbols."""
    if expr.is_Integer:
        return emitter.constant(max(-INT64_MAX, min(int(expr), INT64_MAX)))
    if expr.is_Symbol:
        if expr not in sizes:
            return None
        value, dim = sizes[expr]
        return value if dim is None else emitter.size_along(value, dim)
    parts = [emit_size(emitter, part, sizes) for part in expr.args]
    known = [p for p in parts if p is not None]
    name = type(expr).__name__
    if len(known) != len(parts):
        return None
    if name in ("FloorDiv", "Mod", "PythonMod", "CleanDiv"):
        op = "aten.remainder.int" if name.endswith("Mod") else "aten.floordiv.int"
        return emitter.op(op, known, [INT])[0]
    folded = {"Add": "aten.add.int", "Mul": "aten.mul.int", "Max": "prim.max.int", "Min": "prim.min.int"}.get(name)
    if folded is None:
        return None
    total = known[0]
    for part in known[1:]:
        (total,) = emitter.op(folded, (total, part), [INT])
    return total
