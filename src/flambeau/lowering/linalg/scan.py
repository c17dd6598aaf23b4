"""Running sums, products and extremes along a dim.

A scan is done by doubling: at step k every element takes in the one 2^k places before it, so after log2(n) steps it has
taken in all that come before. Each step is one parallel loop over the tensor, static sizes unroll the steps and dynamic
ones loop over them. Going through the dim one slice at a time would be less arithmetic, but n steps instead of log2(n),
each with the cost of a kernel launch; and neither linalg nor the targets have a portable serial scan. As a gift, sums
are taken in a tree, which keeps more digits than adding one number after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue

from flambeau.ir import dtypes
from flambeau.lowering.builder import INDEX, Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.linalg.rules import linalg_rule

Combine = Callable[[list[Element], list[Element]], Sequence[Element]]
"""What an earlier and a later part of the dim give together; must be associative."""


def scan(b: LinalgBuilder, tensors: Sequence[Tensor], dim: int, combine: Combine) -> list[Tensor]:
    """Every element becomes the combination of all elements up to it along dim. Several tensors go together."""
    x = tensors[0]
    if not x.rank:
        return list(tensors)
    dim = b.dim(dim, x.rank)
    sizes = b.sizes(x)
    length = sizes[dim]

    def step(shift: Size, running: Sequence[Tensor]) -> list[Tensor]:
        return _take_in(b, running, sizes, dim, shift, combine)

    if isinstance(length, int):
        running = list(tensors)
        for k in range(max(length - 1, 0).bit_length()):
            running = step(1 << k, running)
        return running

    def turn(k: SSAValue, running: list[Tensor]) -> list[Tensor]:
        return step(b.value(arith.ShLIOp, (b.index(1), k), INDEX, _NO_FLAGS), running)

    return b.loop(0, _bit_length(b, b.sub(b.maximum(length, 1), 1)), tensors, turn)


def _take_in(
    b: LinalgBuilder, running: Sequence[Tensor], sizes: Sequence[Size], dim: int, shift: Size, combine: Combine
) -> list[Tensor]:
    """Combine each element with the one `shift` places before it; the first ones have none."""
    rank = len(sizes)

    def body(*_: Element) -> tuple[Element, ...]:
        index: list[Size] = [b.loop_index(i) for i in range(rank)]
        here = [b.load(t, index) for t in running]
        place = b.sub(index[dim], shift)
        index[dim] = b.maximum(place, 0)
        before = [b.load(t, index) for t in running]
        exists = Element(b, b.compare("sge", place, 0), dtypes.bool_)  # type: ignore[arg-type]
        return tuple(exists.select(new, old) for new, old in zip(combine(before, here), here, strict=True))

    outs = [b.empty(sizes, t.dtype) for t in running]
    return b.generic([], [], outs, [tuple(range(rank))] * len(outs), rank, body)


_NO_FLAGS = {"overflowFlags": arith.IntegerOverflowAttr("none")}


def _bit_length(b: LinalgBuilder, size: Size) -> Size:
    """Python's `int.bit_length` of a size."""
    wide = b.value(arith.IndexCastOp, (b.index(size),), i64)
    zeros = b.value(math.CountLeadingZerosOp, (wide,), i64)
    return b.sub(64, b.value(arith.IndexCastOp, (zeros,), INDEX))


def _accumulate(b: LinalgBuilder, x: Tensor, dim: int, combine: Callable[[Element, Element], Element]) -> Tensor:
    """A scan of one tensor in the dtype that PyTorch accumulates in."""
    out = b.out_dtype
    x = b.to(b.to(x, out), out.compute)
    return b.to(scan(b, [x], dim, lambda before, here: [combine(before[0], here[0])])[0], out)


@linalg_rule("aten.cumsum")
def cumsum(b: LinalgBuilder, x: Tensor, dim: int, dtype: int | None) -> Tensor:
    return _accumulate(b, x, dim, lambda before, here: before + here)


@linalg_rule("aten.cumprod")
def cumprod(b: LinalgBuilder, x: Tensor, dim: int, dtype: int | None) -> Tensor:
    return _accumulate(b, x, dim, lambda before, here: before * here)


@linalg_rule("aten.logcumsumexp")
def logcumsumexp(b: LinalgBuilder, x: Tensor, dim: int) -> Tensor:
    def combine(before: Element, here: Element) -> Element:
        high, low = before.maximum(here), before.minimum(here)
        # Equal infinities must not turn into inf - inf.
        return ((low == high) & high.isinf()).select(high, high + (low - high).exp().log1p())

    return _accumulate(b, x, dim, combine)


def _running_extreme(b: LinalgBuilder, x: Tensor, dim: int, largest: bool) -> tuple[Tensor, ...]:
    sizes = b.sizes(x)
    place = b.dim(dim, x.rank)
    indices = b.generate(sizes, dtypes.int64, lambda *index: b.scalar(index[place]) if index else 0)

    def combine(before: list[Element], here: list[Element]) -> list[Element]:
        # The later one wins among equals, and a NaN wins over all before it.
        (old, _), (new, _) = before, here
        wins = new.isnan() | (~old.isnan() & (new >= old if largest else new <= old))
        return [wins.select(n, o) for n, o in zip(here, before, strict=True)]

    return tuple(scan(b, [x, indices], dim, combine))


@linalg_rule("aten.cummax")
def cummax(b: LinalgBuilder, x: Tensor, dim: int) -> Any:
    return _running_extreme(b, x, dim, largest=True)


@linalg_rule("aten.cummin")
def cummin(b: LinalgBuilder, x: Tensor, dim: int) -> Any:
    return _running_extreme(b, x, dim, largest=False)
