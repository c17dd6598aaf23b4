"""Running sums, products and extremes along a dim.

A loop nest goes through the dim element by element, with what it has accumulated in PyTorch's accumulator dtype, so
that it rounds as PyTorch does. On whole tensors a scan is done by doubling: at step k every element takes in the one
2^k places before it, so after log2(n) steps it has taken in all that come before. Static sizes unroll the steps and
dynamic ones loop over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue

from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import INDEX, Size, Tensor
from flambeau.lowering.complex_functions import FUNCTIONS
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.digits import Order
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.verbs import RuleBuilder

Combine = Callable[[Element, Element], Element]
"""What an earlier and a later part of the dim give together; must be associative."""


Step = Callable[..., Sequence[Element]]
"""`step(position, here, *accumulated)` gives what is accumulated with an element."""


def walk(
    b: RuleBuilder, x: Tensor, dim: int, step: Step, start: Sequence[tuple[Any, DType]], out: Sequence[DType]
) -> Any:
    """Go through a dim in order; for each dtype of `out` a tensor of what an accumulator is at each position.

    Accumulators start with a number in a dtype. The dims after it are the inner loop, as their elements are
    neighbours: accumulators are rows of these then.
    """
    sizes = b.sizes(x)
    outer, length, inner = b.product(sizes[:dim]), sizes[dim], b.product(sizes[dim + 1 :])
    flat = b.reshape(x, [outer, length, inner])
    results = [b.empty([outer, length, inner], d) for d in out]
    first = [b.element(value, d) for value, d in start]

    def turn(at: list[Size], accumulated: Sequence[Element], results: Sequence[Tensor]) -> tuple[Any, Any]:
        new = step(b.element(at[1], dtypes.int64), b.load(flat, at), *accumulated)
        return new, [b.store(r, at, e) for r, e in zip(results, new, strict=False)]

    def alone(i: SSAValue, *results: Tensor) -> list[Tensor]:
        """Scan one row, where there are no dims after the one that is scanned."""

        def body(j: SSAValue, *carried: Any) -> list[Any]:
            new, stored = turn([i, j, 0], carried[: len(first)], carried[len(first) :])
            return [*new, *stored]

        return b.loop(0, length, [*first, *results], body)[len(first) :]

    def together(at: list[Size], *carried: Any) -> list[Any]:
        """Advance one of many rows by an element, each with its accumulators."""
        rows, count = carried[: len(first)], len(first)
        is_first = b.scalar_bool(b.compare("eq", at[1], 0))
        before = [is_first.select(f, b.load(r, [at[2]])) for f, r in zip(first, rows, strict=True)]
        new, stored = turn(at, before, carried[count:])
        return [*(b.store(r, [at[2]], e) for r, e in zip(rows, new, strict=True)), *stored]

    if isinstance(inner, int) and inner == 1:
        results = b.loop(0, outer, results, alone)
    else:
        rows = [b.empty([inner], d) for _, d in start]
        results = b.nest([outer, length, inner], [*rows, *results], together)[len(first) :]
    return [b.reshape(r, sizes) for r in results]


def scan(b: RuleBuilder, x: Tensor, dim: int, combine: Combine, start: Any, dtype: DType | None = None) -> Tensor:
    """Combine each element with all before it along dim: y[i] = x[0] . x[1] ... x[i], accumulated in `dtype`.

    `start` is the neutral element.
    """
    if not x.rank or 0 in x.shape:
        return x
    dim = b.dim(dim, x.rank)
    accumulator = dtype or x.dtype
    if b.loads_are_cheap:

        def step(position: Element, here: Element, before: Element) -> list[Element]:
            return [combine(before, here.to(accumulator))]

        return walk(b, x, dim, step, [(start, accumulator)], [x.dtype])[0]
    return _by_doubling(b, x, dim, combine)


def _by_doubling(b: RuleBuilder, x: Tensor, dim: int, combine: Combine) -> Tensor:
    sizes = b.sizes(x)
    length = sizes[dim]
    if isinstance(length, int):
        for k in range(max(length - 1, 0).bit_length()):
            x = _take_in_shifted(b, x, sizes, dim, 1 << k, combine)
        return x

    def turn(k: SSAValue, running: Tensor) -> list[Tensor]:
        shift = b.value(arith.ShLIOp, (b.index(1), k), INDEX, _NO_FLAGS)
        return [_take_in(b, partial(b.load, running), sizes, x.dtype, dim, shift, combine)]

    turns = _bit_length(b, b.sub(b.maximum(length, 1), 1))
    return b.loop(0, turns, [x], turn)[0]


def _take_in(
    b: RuleBuilder,
    load: Callable[[Sequence[Size]], Element],
    sizes: Sequence[Size],
    dtype: DType,
    dim: int,
    shift: Size,
    combine: Combine,
) -> Tensor:
    """Combine each element with the one `shift` places before it; the first ones have none.

    Both are loaded in the body. Were the tensor an operand, the fusion of elementwise ops would compute each step
    inside the next, over and over.
    """

    def body(*index: SSAValue) -> Element:
        here = load(index)
        place = b.sub(index[dim], shift)
        before = load([b.maximum(place, 0) if i == dim else at for i, at in enumerate(index)])
        exists = b.compare("sge", place, 0)
        assert isinstance(exists, SSAValue)
        return Element(b, exists, dtypes.bool_).select(combine(before, here), here)

    return b.generate(sizes, dtype, body)


def _take_in_shifted(b: RuleBuilder, x: Tensor, sizes: list[Size], dim: int, shift: int, combine: Combine) -> Tensor:
    """Combine each element with the one `shift` places before it on whole tensors: a slice, moved up by a pad."""
    length = sizes[dim]
    assert isinstance(length, int)
    none: list[Size] = [0] * x.rank
    part = b.slice(x, none, [length - shift if i == dim else s for i, s in enumerate(sizes)], [1] * x.rank)
    before = b.pad(part, [shift if i == dim else 0 for i in range(x.rank)], none, 0)

    def body(at: list[SSAValue], here: Element, earlier: Element) -> Element:
        return b.scalar_bool(b.compare("sge", at[dim], shift)).select(combine(earlier, here), here)

    return b.map_indexed([x, before], sizes, x.dtype, body)


_NO_FLAGS = {"overflowFlags": arith.IntegerOverflowAttr("none")}


def _bit_length(b: RuleBuilder, size: Size) -> Size:
    """Compute Python's `int.bit_length` of a size."""
    wide = b.value(arith.IndexCastOp, (b.index(size),), i64)
    zeros = b.value(math.CountLeadingZerosOp, (wide,), i64)
    return b.sub(64, b.value(arith.IndexCastOp, (zeros,), INDEX))


def _accumulate(b: RuleBuilder, x: Tensor, dim: int, combine: Combine, start: Any) -> Tensor:
    """Scan in the dtype that PyTorch accumulates in; in 32 bits on whole tensors, as sums are trees there."""
    out = b.out_dtype
    if b.loads_are_cheap:
        return scan(b, b.to(x, out), dim, combine, start, out.accumulator)
    return b.to(scan(b, b.to(b.to(x, out), out.compute), dim, combine, start), out)


@linalg_rule("aten.cumsum")
def cumsum(b: RuleBuilder, x: Tensor, dim: int, dtype: int | None) -> Tensor:
    if x.dtype.is_float and not b.loads_are_cheap:
        x = b.elementwise([x], lambda e: e + 0, x.dtype)  # PyTorch starts from 0, which a -0.0 does not survive
    return _accumulate(b, x, dim, lambda before, here: before + here, 0)


@linalg_rule("aten.cumprod")
def cumprod(b: RuleBuilder, x: Tensor, dim: int, dtype: int | None) -> Tensor:
    return _accumulate(b, x, dim, lambda before, here: before * here, 1)


@linalg_rule("aten.logcumsumexp")
def logcumsumexp(b: RuleBuilder, x: Tensor, dim: int) -> Tensor:
    def combine(before: Element, here: Element) -> Element:
        if x.dtype.is_complex:
            first = before.real >= here.real
            high, low = first.select(before, here), first.select(here, before)
            return high + FUNCTIONS["log1p"]((low - high).exp())
        high, low = before.maximum(here), before.minimum(here)
        # Equal infinities must not turn into inf - inf.
        return ((low == high) & high.isinf()).select(high, high + (low - high).exp().log1p())

    return _accumulate(b, x, dim, combine, float("-inf"))


def _running_extreme(b: RuleBuilder, x: Tensor, dim: int, largest: bool) -> Sequence[Tensor]:
    """Compute the extremes so far along a dim, and where each was last found.

    Once there is a NaN, the extreme is NaN, and the last NaN counts.
    """
    if not x.rank or 0 in x.shape:
        return x, b.full(b.sizes(x), 0, dtypes.int64)
    dim = b.dim(dim, x.rank)

    if b.loads_are_cheap:
        keys = Order(x.dtype, not largest, nan_last=True).keys(b, x)

        def step(position: Element, here: Element, at: Element, best: Element) -> list[Element]:
            is_new = here >= best
            return [is_new.select(position, at), is_new.select(here, best)]

        places = walk(b, keys, dim, step, [(0, dtypes.int64), (0, keys.dtype)], [dtypes.int64])[0]

        def load(index: list[SSAValue], place: Element) -> Element:
            return b.load(x, [b.as_index(place) if d == dim else i for d, i in enumerate(index)])

        return b.map_indexed([places], b.sizes(x), x.dtype, load), places
    values = scan(b, x, dim, lambda e, f: e.maximum(f) if largest else e.minimum(f), None)

    def place(index: list[SSAValue], e: Element, value: Element) -> Element:
        return ((e == value) | e.isnan()).select(b.element(index[dim], dtypes.int64), 0)

    places = b.map_indexed([x, values], b.sizes(x), dtypes.int64, place)
    return values, scan(b, places, dim, lambda i, j: i.maximum(j), None)


@linalg_rule("aten.cummax")
def cummax(b: RuleBuilder, x: Tensor, dim: int) -> Sequence[Tensor]:
    return _running_extreme(b, x, dim, largest=True)


@linalg_rule("aten.cummin")
def cummin(b: RuleBuilder, x: Tensor, dim: int) -> Sequence[Tensor]:
    return _running_extreme(b, x, dim, largest=False)
