"""Running sums, products and extremes along a dim.

A scan is done by doubling: at step k every element takes in the one 2^k places before it, so after log2(n) steps it has
taken in all that come before. Each step is one parallel loop over the tensor, static sizes unroll the steps and dynamic
ones loop over them. Going through the dim one slice at a time would be less arithmetic, but n steps instead of log2(n),
each with the cost of a kernel launch; and neither linalg nor the targets have a portable serial scan. As a gift, sums
are taken in a tree, which keeps more digits than adding one number after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue

from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import INDEX, Size, Tensor
from flambeau.lowering.complex_functions import FUNCTIONS
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.verbs import RuleBuilder

Combine = Callable[[Element, Element], Element]
"""What an earlier and a later part of the dim give together; must be associative."""


def scan(b: RuleBuilder, x: Tensor, dim: int, combine: Combine) -> Tensor:
    """Every element becomes the combination of all elements up to it along dim."""
    if not x.rank:
        return x
    dim = b.dim(dim, x.rank)
    sizes = b.sizes(x)
    length = sizes[dim]

    if isinstance(length, int):
        for k in range(max(length - 1, 0).bit_length()):
            if b.loads_are_cheap:
                x = _take_in(b, partial(b.load, x), sizes, x.dtype, dim, 1 << k, combine)
            else:
                x = _take_in_shifted(b, x, sizes, dim, 1 << k, combine)
        return x

    def turn(k: SSAValue, running: list[Tensor]) -> list[Tensor]:
        shift = b.value(arith.ShLIOp, (b.index(1), k), INDEX, _NO_FLAGS)
        return [_take_in(b, partial(b.load, running[0]), sizes, x.dtype, dim, shift, combine)]

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
    """The same on whole tensors: the earlier elements are a slice, moved up by a pad."""
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
    """Python's `int.bit_length` of a size."""
    wide = b.value(arith.IndexCastOp, (b.index(size),), i64)
    zeros = b.value(math.CountLeadingZerosOp, (wide,), i64)
    return b.sub(64, b.value(arith.IndexCastOp, (zeros,), INDEX))


def _accumulate(b: RuleBuilder, x: Tensor, dim: int, combine: Combine) -> Tensor:
    """A scan in the dtype that PyTorch accumulates in."""
    out = b.out_dtype
    return b.to(scan(b, b.to(b.to(x, out), out.compute), dim, combine), out)


@linalg_rule("aten.cumsum")
def cumsum(b: RuleBuilder, x: Tensor, dim: int, dtype: int | None) -> Tensor:
    if x.dtype.is_float:
        x = b.elementwise([x], lambda e: e + 0, x.dtype)  # PyTorch starts from 0, which a -0.0 does not survive
    return _accumulate(b, x, dim, lambda before, here: before + here)


@linalg_rule("aten.cumprod")
def cumprod(b: RuleBuilder, x: Tensor, dim: int, dtype: int | None) -> Tensor:
    return _accumulate(b, x, dim, lambda before, here: before * here)


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

    return _accumulate(b, x, dim, combine)


def _running_extreme(b: RuleBuilder, x: Tensor, dim: int, largest: bool) -> tuple[Tensor, Tensor]:
    """The extremes so far, and where each was last found: at the last element that equals the extreme at its own place.

    Once there is a NaN, the extreme is NaN, which nothing equals, and the last NaN counts.
    """
    dim = b.dim(dim, x.rank)
    values = scan(b, x, dim, lambda e, f: e.maximum(f) if largest else e.minimum(f))

    def place(index: list[SSAValue], e: Element, value: Element) -> Element:
        here = b.element(index[dim] if index else 0, dtypes.int64)
        return ((e == value) | e.isnan()).select(here, 0)

    places = b.map_indexed([x, values], b.sizes(x), dtypes.int64, place)
    return values, scan(b, places, dim, lambda i, j: i.maximum(j))


@linalg_rule("aten.cummax")
def cummax(b: RuleBuilder, x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _running_extreme(b, x, dim, largest=True)


@linalg_rule("aten.cummin")
def cummin(b: RuleBuilder, x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _running_extreme(b, x, dim, largest=False)
