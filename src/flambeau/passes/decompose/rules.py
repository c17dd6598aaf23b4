"""The table of decompositions, and what several of them need."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal

from xdsl.ir import Block, Region, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.ops import LoopConditionOp, LoopOp
from flambeau.dialects.torch.types import BOOL, INT, TensorType, vtensor
from flambeau.infer.builder import TorchBuilder
from flambeau.ir.conversion import RuleTable

DECOMPOSITIONS = RuleTable("decompositions")
decomposition = DECOMPOSITIONS


def require_element(t: TorchBuilder, condition: SSAValue, message: str) -> None:
    """Make the program fail with `message` unless a tensor with one element is true."""
    flag = t.op("aten.Bool.Tensor", (condition,), (BOOL,))[0]
    t.require(flag, message)


def require_size(t: TorchBuilder, size: Any, relation: Literal["eq", "ge", "gt"], bound: Any, message: str) -> None:
    """Refuse a size for which a relation does not hold: here where it is known, else when the program runs."""
    if isinstance(size, int) and isinstance(bound, int):
        if not getattr(operator, relation)(size, bound):
            raise Unsupported(f"{message}: {size} and {bound}")
        return
    numbers = [t.constant(n) if isinstance(n, int) else n for n in (size, bound)]
    t.require(t.op(f"aten.{relation}.int", numbers, (BOOL,))[0], message)


def _sizes(t: TorchBuilder, op: str, size: Any, other: Any) -> Any:
    """Apply `add`, `sub`, `mul` or `floordiv` to two sizes; the result is an int where both are known."""
    if isinstance(size, int) and isinstance(other, int):
        return getattr(operator, op)(size, other)
    numbers = [t.constant(n) if isinstance(n, int) else n for n in (size, other)]
    return t.op(f"aten.{op}.int", numbers, (INT,))[0]


def plus(t: TorchBuilder, size: Any, other: Any) -> Any:
    """Add two sizes."""
    return _sizes(t, "add", size, other)


def minus(t: TorchBuilder, size: Any, other: Any) -> Any:
    """Subtract a size from another."""
    return _sizes(t, "sub", size, other)


def times(t: TorchBuilder, *sizes: Any) -> Any:
    """Multiply sizes; the product of none is 1."""
    if any(isinstance(size, int) and size == 0 for size in sizes):
        return 0
    total: Any = 1
    for size in sizes:
        total = size if total == 1 and isinstance(total, int) else _sizes(t, "mul", total, size)
    return total


def over(t: TorchBuilder, size: Any, divisor: Any) -> Any:
    """Divide a size by another, rounding down."""
    return _sizes(t, "floordiv", size, divisor)


def broadcast_sizes(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Broadcast two lists of as many sizes; of two that only the run time knows, one stands for both."""
    return [n if m == 1 or (isinstance(n, int) and n != 1) else m for m, n in zip(first, second, strict=True)]


def listed(t: TorchBuilder, tensors: Sequence[SSAValue]) -> SSAValue:
    """Build the list that an op with a result of type `Tensor[]` gives."""
    types = {x.type for x in tensors}
    return t.list(tensors, types.pop() if len(types) == 1 else vtensor())


def _is_empty(x: SSAValue) -> bool:
    """Tell whether a tensor is known to have no elements."""
    return isinstance(x.type, TensorType) and x.type.shape is not None and 0 in x.type.shape


def repeat(
    t: TorchBuilder,
    count: Any,
    carried: Sequence[SSAValue],
    body: Callable[..., Sequence[SSAValue]],
    goes_on: Callable[..., SSAValue] | None = None,
) -> list[SSAValue]:
    """Emit a `torch.prim.Loop` of `count` turns: `body(i, *carried)` gives the tensors that the next turn carries.

    With `goes_on` the loop ends early, after the turn for whose tensors that gives a false `!torch.bool`. A loop that
    is known to have no turns, or nothing to work on, is not emitted: its body need not fit tensors of no elements.
    """
    if (isinstance(count, int) and count <= 0) or all(map(_is_empty, carried)):
        return list(carried)
    types = [c.type for c in carried]
    block = Block(arg_types=[INT, *types])
    outer = t.block, t.before
    t.block, t.before = block, None
    try:
        results = body(*block.args)
        nexts = [t.cast(v, type_) for v, type_ in zip(results, types, strict=True)]
        t.emit(LoopConditionOp, (t.constant(True) if goes_on is None else goes_on(*nexts), *nexts))
    finally:
        t.block, t.before = outer
    trip = t.constant(count) if isinstance(count, int) else count
    return list(t.emit(LoopOp, (trip, t.constant(True), *carried), types, regions=(Region(block),)).results)


def least(t: TorchBuilder, size: Any, other: Any) -> Any:
    """Take the smaller of two sizes; no size is smaller than 0."""
    if any(isinstance(n, int) and n == 0 for n in (size, other)):
        return 0
    if isinstance(size, int) and isinstance(other, int):
        return min(size, other)
    numbers = [t.constant(n) if isinstance(n, int) else n for n in (size, other)]
    return t.op("prim.min.int", numbers, (INT,))[0]


def most(t: TorchBuilder, size: Any, other: Any) -> Any:
    """Take the larger of two sizes."""
    if isinstance(size, int) and isinstance(other, int):
        return max(size, other)
    numbers = [t.constant(n) if isinstance(n, int) else n for n in (size, other)]
    return t.op("prim.max.int", numbers, (INT,))[0]
