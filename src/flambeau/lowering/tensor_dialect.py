"""Ops of the `tensor` dialect that rearrange elements, on tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from xdsl.dialects import tensor
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, i64
from xdsl.ir import Attribute, Block, Region, SSAValue

from flambeau.dialects.linalg_named import segments
from flambeau.lowering.builder import INDEX, Size, Tensor, i64_array, is_same, multiply_factors, static, tensor_type

if TYPE_CHECKING:
    from flambeau.lowering.verbs import RuleBuilder

_DYNAMIC = -(1 << 63)


@cache
def _reassociation(groups: tuple[tuple[int, ...], ...]) -> ArrayAttr[Any]:
    return ArrayAttr([ArrayAttr([IntegerAttr(i, i64) for i in g]) for g in groups])


def match_groups(b: RuleBuilder, old: list[Size], new: list[Size]) -> list[tuple[list[int], list[int]]]:
    """Pair groups of adjacent dims with equal numbers of elements, as fine as can be known."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        left, right = [i], [j]
        have, want = b.factors(old[i]), b.factors(new[j])
        while have != want:
            # Grow the side that has fewer elements so far; unknown sizes are grown on both.
            grow_left = have[0] < want[0] or (have[0] == want[0] and len(have[1]) <= len(want[1]))
            if grow_left and left[-1] + 1 < len(old):
                left.append(left[-1] + 1)
                have = multiply_factors(have, b.factors(old[left[-1]]))
            elif right[-1] + 1 < len(new):
                right.append(right[-1] + 1)
                want = multiply_factors(want, b.factors(new[right[-1]]))
            elif left[-1] + 1 < len(old):
                left.append(left[-1] + 1)
                have = multiply_factors(have, b.factors(old[left[-1]]))
            else:
                break
        i, j = left[-1] + 1, right[-1] + 1
        groups.append((left, right))
    # Size-1 dims at the end join the last group.
    rest_old, rest_new = list(range(i, len(old))), list(range(j, len(new)))
    if groups and (rest_old or rest_new):
        groups[-1] = (groups[-1][0] + rest_old, groups[-1][1] + rest_new)
    elif rest_old or rest_new:
        groups = [(rest_old, rest_new)]
    return groups


def collapse(b: RuleBuilder, x: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
    """Merge neighbouring dims; no elements move."""
    if all(len(g) == 1 for g in groups) and len(groups) == x.rank:
        return x
    old = b.sizes(x)
    new = [b.product([old[i] for i in g]) for g in groups]
    type_ = tensor_type(tuple(map(static, new)), x.dtype.builtin)
    properties = {"reassociation": _reassociation(tuple(map(tuple, groups)))}
    return Tensor(b.value(tensor.CollapseShapeOp, (x.value,), type_, properties), x.dtype, new)


def expand(b: RuleBuilder, x: Tensor, groups: Sequence[Sequence[int]], sizes: Sequence[Size]) -> Tensor:
    """Split dims into several; no elements move."""
    if all(len(g) == 1 for g in groups) and len(groups) == len(sizes):
        return x
    shape = tuple(map(static, sizes))
    # MLIR wants the collapsed size dynamic exactly where the group has a dynamic size.
    wanted = tuple(None if any(shape[i] is None for i in g) else math.prod([shape[i] or 0 for i in g]) for g in groups)
    x = b.cast(x, wanted)
    type_ = tensor_type(shape, x.dtype.builtin)
    dynamic = [s for s in sizes if isinstance(s, SSAValue)]
    properties: dict[str, Attribute] = {
        "reassociation": _reassociation(tuple(map(tuple, groups))),
        "static_output_shape": i64_array(tuple(_DYNAMIC if s is None else s for s in shape)),
    }
    value = b.value(tensor.ExpandShapeOp, (x.value, *dynamic), type_, properties)
    return Tensor(value, x.dtype, sizes)


def extract_slice(
    b: RuleBuilder, x: Tensor, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size]
) -> Tensor:
    """Emit `tensor.extract_slice`; a slice that is all of `x` is `x`."""
    if all(isinstance(s, int) and s == 0 for s in starts) and all(
        is_same(size, kept) for size, kept in zip(b.sizes(x), sizes, strict=True)
    ):
        return x
    if any(isinstance(s, int) and s == 0 for s in sizes):
        return b.empty(sizes, x.dtype)  # MLIR wants offsets inside the dimension
    type_ = tensor_type(tuple(map(static, sizes)), x.dtype.builtin)
    properties, operands = _slice_operands(starts, sizes, steps, 1)
    return Tensor(b.value(tensor.ExtractSliceOp, (x.value, *operands), type_, properties), x.dtype, sizes)


def insert_slice(b: RuleBuilder, source: Tensor, into: Tensor, starts: Sequence[Size], steps: Sequence[Size]) -> Tensor:
    """Emit `tensor.insert_slice`: a copy of `into` with `source` written at the given place."""
    sizes = b.sizes(source)
    if any(isinstance(s, int) and s == 0 for s in sizes):
        return into
    properties, operands = _slice_operands(starts, sizes, steps, 2)
    value = b.value(tensor.InsertSliceOp, (source.value, into.value, *operands), into.value.type, properties)
    return Tensor(value, into.dtype, into._sizes)


def pad(b: RuleBuilder, x: Tensor, low: Sequence[Size], high: Sequence[Size], value: Any) -> Tensor:
    """Add a border of one value; amounts must not be negative."""
    if all(isinstance(p, int) and p == 0 for p in (*low, *high)):
        return x
    sizes = [b.add(b.add(s, lo), hi) for s, lo, hi in zip(b.sizes(x), low, high, strict=True)]
    type_ = tensor_type(tuple(map(static, sizes)), x.dtype.builtin)
    fill = b.element(value, x.dtype)
    block = Block(arg_types=[INDEX] * x.rank)
    outer, b.block = b.block, block
    b.emit(tensor.YieldOp, (fill.value,))
    b.block = outer
    properties = {
        "static_low": _static_list(low),
        "static_high": _static_list(high),
        "operandSegmentSizes": segments(
            1, sum(isinstance(p, SSAValue) for p in low), sum(isinstance(p, SSAValue) for p in high)
        ),
    }
    operands = [x.value, *(p for p in (*low, *high) if isinstance(p, SSAValue))]
    op = b.emit(tensor.PadOp, operands, (type_,), properties, regions=(Region(block),))
    return Tensor(op.results[0], x.dtype, sizes)


def _static_list(sizes: Sequence[Size]) -> DenseArrayBase[Any]:
    return i64_array(tuple(s if isinstance(s, int) else _DYNAMIC for s in sizes))


def _slice_operands(
    starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size], tensors: int
) -> tuple[dict[str, Attribute], list[SSAValue]]:
    groups = (starts, sizes, steps)
    dynamic = [[s for s in group if isinstance(s, SSAValue)] for group in groups]
    properties: dict[str, Attribute] = {
        "static_offsets": _static_list(starts),
        "static_sizes": _static_list(sizes),
        "static_strides": _static_list(steps),
        "operandSegmentSizes": segments(*([1] * tensors), *(len(d) for d in dynamic)),
    }
    return properties, [v for group in dynamic for v in group]
