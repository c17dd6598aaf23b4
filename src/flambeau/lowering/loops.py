"""Loops and branches of `scf`, written with functions of what they carry: tensors and elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, Region, SSAValue

from flambeau.lowering.builder import INDEX, LoweringBuilder, Size, Tensor
from flambeau.lowering.element import Element

Carried = Tensor | Element
"""What loops and branches carry."""


def loop(
    b: LoweringBuilder,
    lower: Size,
    upper: Size,
    carried: Sequence[Carried],
    body: Callable[..., Sequence[Carried]],
) -> list[Any]:
    """Emit `scf.for`: `body(i, *carried)` returns what the next iteration carries, of the same shapes and dtypes.

    Values that the body makes must not be used after it: ask for the sizes of outer tensors before the loop.
    """
    types = [c.value.type for c in carried]
    block = Block(arg_types=[INDEX, *types])
    with inside(b, block):
        results = body(block.args[0], *(_with_value(c, a) for c, a in zip(carried, block.args[1:], strict=True)))
        b.emit(scf.YieldOp, [_as_carried(b, r, c) for r, c in zip(results, carried, strict=True)])
    operands = [b.index(lower), b.index(upper), b.index(1), *(c.value for c in carried)]
    op = b.emit(scf.ForOp, operands, types, regions=(Region(block),))
    return [_with_value(c, r) for c, r in zip(carried, op.results, strict=True)]


def nest(
    b: LoweringBuilder, sizes: Sequence[Size], carried: Sequence[Carried], body: Callable[..., Sequence[Carried]]
) -> list[Any]:
    """Emit nested loops over all positions in row-major order: `body(position, *carried)`."""

    def turn(outer: list[Size], left: Sequence[Size], carried: Sequence[Carried]) -> Sequence[Carried]:
        if not left:
            return body(outer, *carried)
        return loop(b, 0, left[0], carried, lambda i, *inner: turn([*outer, i], left[1:], inner))

    return list(turn([], sizes, carried))


def branch(
    b: LoweringBuilder,
    condition: Element,
    carried: Sequence[Carried],
    then: Callable[[], Sequence[Carried]],
    otherwise: Callable[[], Sequence[Carried]] | None = None,
) -> list[Any]:
    """Emit `scf.if`: one of two functions returns new values for what is carried; without `otherwise` they stay."""
    regions = []
    for function in (then, otherwise):
        block = Block()
        with inside(b, block):
            results = carried if function is None else function()
            b.emit(scf.YieldOp, [_as_carried(b, r, c) for r, c in zip(results, carried, strict=True)])
        regions.append(Region(block))
    op = b.emit(scf.IfOp, [condition.value], [c.value.type for c in carried], regions=regions)
    return [_with_value(c, r) for c, r in zip(carried, op.results, strict=True)]


@contextmanager
def inside(b: LoweringBuilder, block: Block) -> Iterator[None]:
    """Build into another block meanwhile."""
    outer, b.block = b.block, block
    try:
        yield
    finally:
        b.block = outer


def _as_carried(b: LoweringBuilder, value: Carried, like: Carried) -> SSAValue:
    if isinstance(value, Tensor):
        assert isinstance(like, Tensor)
        return b.cast(value, like.shape).value
    return value.to(like.dtype).value


def while_loop(
    b: LoweringBuilder,
    carried: Sequence[Element],
    condition: Callable[..., Element],
    body: Callable[..., Sequence[Element]],
) -> list[Element]:
    """Emit `scf.while` on numbers, also inside a body: `carried = body(*carried)` while `condition(*carried)` holds."""
    types = [c.value.type for c in carried]

    def region(function: Callable[..., tuple[type[Operation], list[Element]]]) -> Region:
        block = Block(arg_types=types)
        with inside(b, block):
            terminator, results = function(*(_with_value(c, a) for c, a in zip(carried, block.args, strict=True)))
            b.emit(terminator, [r.value for r in results])
        return Region(block)

    before = region(lambda *args: (scf.ConditionOp, [condition(*args), *args]))
    after = region(lambda *args: (scf.YieldOp, list(body(*args))))
    op = b.emit(scf.WhileOp, [c.value for c in carried], types, regions=(before, after))
    return [_with_value(c, r) for c, r in zip(carried, op.results, strict=True)]


def _with_value(like: Any, value: SSAValue) -> Any:
    """Wrap a value like another: as a Tensor of the same sizes, or as an Element."""
    return Tensor(value, like.dtype, like._sizes) if isinstance(like, Tensor) else Element(like.b, value, like.dtype)
