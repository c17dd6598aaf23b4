"""Loop nests on whole tensors: the indexing maps of operands, reductions, windows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.verbs import Body, Loops, MapResult
from flambeau.lowering.whole.values import POSITION, reduction_of

if TYPE_CHECKING:
    from flambeau.lowering.whole.builder import WholeBuilder


def generic(
    b: WholeBuilder[Any],
    ins: Sequence[Tensor],
    in_maps: Sequence[tuple[MapResult, ...]],
    outs: Sequence[Tensor],
    out_maps: Sequence[tuple[MapResult, ...]],
    loops: int,
    body: Body,
    reduced: Sequence[int] = (),
) -> list[Tensor]:
    """Run a loop nest's body on whole tensors, with a dim for each loop."""
    if not b.target.has_empty:
        if any(0 in o.shape for o in outs):
            return list(outs)
        if any(0 in t.shape for t in ins):
            return [b.full(b.sizes(o), b.fills.get(o.value, 0), o.dtype) for o in outs]
    sizes = _sizes_of(b, [*ins, *outs], [*in_maps, *out_maps], loops)
    aligned = [Element(b, align(b, t, m, loops), t.dtype) for t, m in zip(ins, in_maps, strict=True)]
    starts: list[Element] = []
    with b.frame(sizes):
        for out, out_map in zip(outs, out_maps, strict=True):
            if reduced:
                starts.append(b.accumulator(out.dtype))
            else:
                starts.append(Element(b, align(b, out, out_map, loops), out.dtype))
        results = body(*aligned, *starts)
        results = results if isinstance(results, tuple) else (results,)
        if reduced:
            return [_reduce(b, r, o, sizes, sorted(reduced)) for r, o in zip(results, outs, strict=True)]
        finished = [b.spread(b.element(r, o.dtype).value, sizes) for r, o in zip(results, outs, strict=True)]
    return [_finish(b, v, o, m, sizes) for v, o, m in zip(finished, outs, out_maps, strict=True)]


def each(
    b: WholeBuilder[Any],
    operands: Sequence[tuple[Tensor, Loops]],
    sizes: Sequence[Size],
    body: Body,
    types: Sequence[DType],
) -> list[Tensor]:
    """Run a body once, for all positions."""
    rank, elements = len(sizes), []
    for t, loops in operands:
        if list(loops) == list(range(rank - t.rank, rank)):
            value = t.value if t.rank == rank else b.target.reshape(t.value, [*[1] * (rank - t.rank), *b.sizes(t)])
        else:
            value = align(b, t, loops, rank)
        elements.append(Element(b, value, t.dtype))
    with b.frame(sizes):
        results = body(*elements)
        results = results if isinstance(results, tuple) else (results,)
        values = [b.spread(b.element(r, d).value, sizes) for r, d in zip(results, types, strict=True)]
    return [Tensor(v, d, sizes) for v, d in zip(values, types, strict=True)]


def _sizes_of(b: WholeBuilder[Any], tensors: Sequence[Tensor], maps: Sequence[Any], loops: int) -> list[Size]:
    """Find the size of each loop: that of a tensor's dim which runs along it."""
    sizes: list[Size | None] = [None] * loops
    for x, map_ in zip(tensors, maps, strict=True):
        for i, d in enumerate(map_):
            if isinstance(d, int) and sizes[d] is None:
                sizes[d] = b.size(x, i)
    if any(s is None for s in sizes):
        raise Unsupported("a loop whose size no operand tells")
    return [s for s in sizes if s is not None]


def align(b: WholeBuilder[Any], x: Tensor, map_: Sequence[MapResult], loops: int) -> SSAValue:
    """Give a tensor a dim for each loop: its own, or 1."""
    if b.target.repeats_ones and x.value in b.fills:
        # One number everywhere, also where a tensor of that size was never made.
        return b.target.splat(b.fills[x.value], x.dtype, [1] * loops)
    b.target.measure(x)
    if len(map_) == loops and all(d == i for i, d in enumerate(map_)):
        return x.value
    if any(isinstance(d, tuple) for d in map_):
        raise Unsupported("a window over a tensor")
    kept = [(d, i) for i, d in enumerate(map_) if isinstance(d, int)]
    order = [i for _, i in sorted(kept)]
    ones = [i for i, d in enumerate(map_) if d is None]
    value = b.target.transpose(x.value, [*order, *ones]) if [*order, *ones] != list(range(x.rank)) else x.value
    sizes = b.sizes(x)
    along = {d: sizes[i] for d, i in kept}
    return b.target.reshape(value, [along.get(d, 1) for d in range(loops)])


def _finish(
    b: WholeBuilder[Any], value: SSAValue, out: Tensor, map_: Sequence[MapResult], sizes: Sequence[Size]
) -> Tensor:
    """Order the dims of a result, which are those of the loops, as its map says."""
    order = [d for d in map_ if isinstance(d, int)]
    if order != list(range(len(sizes))):
        value = b.target.transpose(value, order)
    result = Tensor(value, out.dtype, [sizes[d] for d in order])
    b.target.measure(result)
    return result


def _reduce(b: WholeBuilder[Any], result: Any, out: Tensor, sizes: Sequence[Size], dims: Sequence[int]) -> Tensor:
    """Reduce what a body combines with its accumulator over some loops."""
    reduction = reduction_of(result.value) if isinstance(result, Element) else None
    if reduction is None:
        raise Unsupported("a reduction that is none of sum, product, extreme, all and any")
    term = b.spread(reduction.term, sizes)
    init = b.fills.get(out.value, 0)
    value = b.target.reduce(reduction.kind, term, dims, init, out.dtype)
    return Tensor(value, out.dtype, [s for i, s in enumerate(sizes) if i not in dims])


def windows(
    b: WholeBuilder[Any],
    ins: Sequence[Tensor],
    in_maps: Sequence[tuple[MapResult, ...]],
    sizes: Sequence[Size],
    kernel: Sequence[Size],
    inits: Sequence[tuple[Any, DType]],
    body: Body,
    indexed: bool = False,
) -> list[Tensor]:
    """Take each step of the window in turn, on all windows at once."""
    if not all(isinstance(k, int) for k in kernel):
        raise Unsupported("a window whose size is not a constant")
    rank = len(sizes)
    with b.frame(sizes):
        acc = [Element(b, b.target.splat(v, d, [1] * rank), d) for v, d in inits]
        for place in itertools.product(*(range(k) for k in kernel if isinstance(k, int))):
            elements = [
                Element(b, _at_place(b, x, m, sizes, place), x.dtype) for x, m in zip(ins, in_maps, strict=True)
            ]
            steps = [b.target.splat(p, POSITION, [1] * rank) for p in place]
            indices = [[*(b.loop_index(i) for i in range(rank)), *steps]] if indexed else []
            results = body(*indices, *elements, *acc)
            results = results if isinstance(results, tuple) else (results,)
            acc = [b.element(r, d) for r, (_, d) in zip(results, inits, strict=True)]
        finished = [b.spread(a.value, sizes) for a in acc]
    return [Tensor(v, d, sizes) for v, (_, d) in zip(finished, inits, strict=True)]


def _at_place(
    b: WholeBuilder[Any], x: Tensor, map_: Sequence[MapResult], sizes: Sequence[Size], place: Sequence[int]
) -> SSAValue:
    """Slice what all windows see at one place inside of them."""
    starts: list[Size] = []
    lengths: list[Size] = []
    steps: list[Size] = []
    order: list[int] = []
    rank = len(sizes)
    for d in map_:
        if isinstance(d, int):
            starts.append(0)
            lengths.append(sizes[d])
            steps.append(1)
            order.append(d)
        elif isinstance(d, tuple) and len(d) == 2:
            (loop, stride), (window, dilation) = d
            starts.append(place[window - rank] * dilation)
            lengths.append(sizes[loop])
            steps.append(stride)
            order.append(loop)
        else:
            raise Unsupported("a window of this form")
    if order != sorted(order):
        raise Unsupported("a window with its dims in another order")
    part = b.slice(x, starts, lengths, steps)
    along = dict(zip(order, b.sizes(part), strict=True))
    return b.target.reshape(part.value, [along.get(i, 1) for i in range(rank)])
