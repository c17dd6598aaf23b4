"""Moves: TOSA's ops that rearrange elements and compute nothing.

Where only the run time knows a size and TOSA has no op that takes it, the `tensor` dialect says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import IntegerType, TensorType, i1, i64
from xdsl.ir import Attribute, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects import tosa
from flambeau.lowering import tensor_dialect
from flambeau.lowering.builder import Size, Tensor, static, tensor_type
from flambeau.lowering.element import Element
from flambeau.lowering.tosa import access
from flambeau.lowering.tosa.constants import Counter, array_of, fitting, is_small
from flambeau.lowering.whole.values import element_of, shape_of

if TYPE_CHECKING:
    from flambeau.lowering.tosa.ops import TosaOps

COUNTING_ROW, COUNTING_LEVELS = 1024, 3
"""Positions along a size that only the run time knows are put together from rows, and rows of rows: up to 2^30."""


def broadcast(t: TosaOps, value: SSAValue, sizes: Sequence[Size]) -> SSAValue:
    """Repeat dims of size 1 up to the given sizes."""
    have, wanted = shape_of(value), tuple(map(static, sizes))
    if have == wanted:
        return value
    array = array_of(value)
    if array is not None and None not in wanted:
        spread = np.broadcast_to(array, [w for w in wanted if w is not None])
        if is_small(spread):
            return t.known(spread, t.logical(value))
    times = [w if h == 1 and w is not None else 1 for h, w in zip(have, wanted, strict=True)]
    if any(n != 1 for n in times):
        shape = tuple(n if n != 1 else h for n, h in zip(times, have, strict=True))
        value = t.make("tile", (value, t.shape_value(times)), tensor_type(shape, element_of(value)))
    for i, size in enumerate(sizes):
        if have[i] == 1 and isinstance(size, SSAValue):
            value = _stretch(t, value, i, size)
    return value


def _stretch(t: TosaOps, value: SSAValue, dim: int, size: SSAValue) -> SSAValue:
    """Repeat a dim as often as another tensor has elements along one of its own."""
    source, axis = _of_length(t, size)
    rank = len(shape_of(source))
    row = source
    sizes = [1 if i != axis else -1 for i in range(rank)]
    if rank > 1:
        start = t.shape_value([0] * rank)
        type_ = tensor_type(tuple(1 if i != axis else None for i in range(rank)), element_of(source))
        row = t.make("slice", (source, start, t.shape_value(sizes)), type_)
    places = [1 if i != dim else -1 for i in range(len(shape_of(value)))]
    type_ = tensor_type(tuple(1 if p == 1 else None for p in places), element_of(source))
    row = t.make("reshape", (row, t.shape_value(places)), type_)
    element = element_of(row)
    same = t.on("equal", (row, row), i1) if element != i1 else row
    every = t.on("logical_or", (same, t.single(True, i1, [1] * len(places))), i1)
    return t.on("select", (every, value, value), element_of(value))


def _of_length(t: TosaOps, size: SSAValue) -> tuple[SSAValue, int]:
    """Find a tensor and a dim of it that has this dynamic size."""
    owner = size.owner
    if not isinstance(owner, tensor.DimOp) or 0 in shape_of(owner.operands[0]):
        return _line(t, size), 0
    at = owner.operands[1].owner
    assert isinstance(at, arith.ConstantOp)
    return owner.operands[0], at.properties["value"].value.data  # type: ignore[attr-defined]


def reshape(t: TosaOps, value: SSAValue, sizes: Sequence[Size]) -> SSAValue:
    """Keep the elements and their order under another shape; TOSA's op finds out one size itself."""
    have, wanted = shape_of(value), tuple(map(static, sizes))
    if have == wanted and have.count(None) <= 1:
        return value
    type_ = tensor_type(wanted, element_of(value))
    if isinstance(value.owner, Counter):
        return Counter(type_, value.owner.size).value
    array = array_of(value)
    if array is not None and None not in wanted:
        flat = array.flat[0] if array.size and not any(array.strides) else None
        shape = [w for w in wanted if w is not None]
        return t.known(array.reshape(shape) if flat is None else np.broadcast_to(flat, shape), t.logical(value))
    if 0 in wanted:
        return t.nothing([s for s in sizes if isinstance(s, SSAValue)], type_)
    if wanted.count(None) <= 1:
        # Of several in a row, the last one counts.
        source = t.flat.get(value, value)
        if shape_of(source) == wanted:
            return source
        given = t.shape_value([-1 if w is None else w for w in wanted])
        result = t.make("reshape", (source, given), type_)
        t.flat[result] = source
        return result
    old = t.lengths.get(value)
    own = Tensor(value, t.b.dtype_of(element_of(value)), old)
    groups = tensor_dialect.match_groups(t.b, t.b.sizes(own), list(sizes))
    merged = tensor_dialect.collapse(t.b, own, [g[0] for g in groups])
    return tensor_dialect.expand(t.b, merged, [g[1] for g in groups], sizes).value


def transpose(t: TosaOps, value: SSAValue, order: Sequence[int]) -> SSAValue:
    """Reorder dims."""
    order = tuple(order)
    if order == tuple(range(len(order))):
        return value
    array = array_of(value)
    if array is not None:
        return t.known(array.transpose(order), t.logical(value))
    if value in t.turned:
        # Two in a row are one; a transpose that meets its inverse is none.
        source, first = t.turned[value]
        return transpose(t, source, [first[i] for i in order])
    shape = shape_of(value)
    type_ = tensor_type(tuple(shape[i] for i in order), element_of(value))
    if 0 in shape and None in shape:
        return t.nothing([t.dim_of([value], i) for i in order if shape[i] is None], type_)
    result = t.make("transpose", (value,), type_, {"perms": tosa.perms(order)})
    t.turned[result] = (value, order)
    if value in t.lengths:
        t.lengths[result] = [t.lengths[value][i] for i in order]
    return result


def slice_(t: TosaOps, x: Tensor, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size]) -> SSAValue:
    """Take every step-th element from the starts on."""
    wanted = tuple(map(static, sizes))
    array = array_of(x.value)
    if array is not None and all(isinstance(v, int) for g in (starts, sizes, steps) for v in g):
        places = tuple(
            slice(s, s + (n - 1) * k + 1, k)  # type: ignore[operator]
            for s, n, k in zip(starts, sizes, steps, strict=True)
        )
        return t.known(array[places], t.logical(x.value))
    if None not in (*wanted, *x.shape) and any(isinstance(s, SSAValue) for s in starts):
        return access.slice_from(t, x, starts, sizes, steps)
    if not all(isinstance(v, int) for g in (starts, steps) for v in g) or any(
        n is None and not (s == 0 and k == 1 and n0 is z)
        for n, s, k, n0, z in zip(wanted, starts, steps, sizes, t.b.sizes(x), strict=True)
    ):
        own = Tensor(x.value, t.b.dtype_of(element_of(x.value)), x._sizes)
        return tensor_dialect.extract_slice(t.b, own, starts, sizes, steps).value
    value = x.value
    for i, (start, step) in enumerate(zip(starts, steps, strict=True)):
        if step != 1 and wanted[i] != 1:
            value = _stepped(t, value, i, start, wanted[i], step)  # type: ignore[arg-type]
    own_shape = shape_of(value)
    first = [0 if k != 1 and n != 1 else s for s, n, k in zip(starts, wanted, steps, strict=True)]
    if own_shape == wanted and not any(first):
        return value
    type_ = tensor_type(wanted, element_of(value))
    counts = [-1 if w is None else w for w in wanted]
    return t.make("slice", (value, t.shape_value(first), t.shape_value(counts)), type_)  # type: ignore[arg-type]


def _stepped(t: TosaOps, value: SSAValue, dim: int, start: int, count: int, step: int) -> SSAValue:
    """Take every step-th element along a dim: reshape to rows of `step` and keep the first column."""
    shape = list(shape_of(value))
    size = shape[dim]
    if size is None:
        raise Unsupported("TOSA has no slice with steps along a size that only the run time knows")
    if shape.count(None) > 1:
        raise Unsupported("TOSA has no slice with steps of a tensor with several sizes that are not known")
    end = start + count * step
    element = element_of(value)
    if end > size:
        edges = [0] * (2 * len(shape))
        edges[2 * dim + 1] = end - size
        shape[dim] = end
        operands = (value, t.shape_value(edges), t.single(0, element, [1]))
        value = t.make("pad", operands, tensor_type(tuple(shape), element))
    if start or end < size:
        shape[dim] = count * step
        first = [start if i == dim else 0 for i in range(len(shape))]
        counts = [-1 if s is None else s for s in shape]
        operands = (value, t.shape_value(first), t.shape_value(counts))
        value = t.make("slice", operands, tensor_type(tuple(shape), element))
    rows = [*shape[:dim], count, step, *shape[dim + 1 :]]
    value = _reshape_static(t, value, rows)
    rows[dim + 1] = 1
    operands = (
        value,
        t.shape_value([0] * len(rows)),
        t.shape_value([-1 if r is None else r for r in rows]),
    )
    value = t.make("slice", operands, tensor_type(tuple(rows), element))
    shape[dim] = count
    return _reshape_static(t, value, shape)


def _reshape_static(t: TosaOps, value: SSAValue, shape: Sequence[int | None]) -> SSAValue:
    sizes = [-1 if s is None else s for s in shape]
    return t.make("reshape", (value, t.shape_value(sizes)), tensor_type(tuple(shape), element_of(value)))


def pad(
    t: TosaOps, x: Tensor, low: Sequence[Size], high: Sequence[Size], value: Any, sizes: Sequence[Size]
) -> SSAValue:
    """Add a border of one number."""
    if 0 in x.shape:
        return t.b.full(sizes, value, x.dtype).value
    array = array_of(x.value)
    known = all(isinstance(p, int) for p in (*low, *high))
    number = not isinstance(value, SSAValue | Element)
    if array is not None and known and number:
        edges: Any = list(zip(low, high, strict=True))
        return t.known(np.pad(array, edges, constant_values=value), t.logical(x.value))
    if not known:
        held = Tensor(x.value, t.b.dtype_of(element_of(x.value)), x._sizes)
        if number and isinstance(held.dtype.builtin, IntegerType) and held.dtype.is_int:
            value = fitting(np.asarray(value, np.int64), held.dtype.builtin).item()
        return tensor_dialect.pad(t.b, held, low, high, value).value
    if number:
        fill = t.splat(value, x.dtype, [1])
    else:
        with t.b.frame([1]):
            fill = t.b.spread(t.b.element(value, x.dtype).value, [1])
    amounts = t.shape_value([p for pair in zip(low, high, strict=True) for p in pair])  # type: ignore[misc]
    type_ = tensor_type(tuple(map(static, sizes)), element_of(x.value))
    return t.make("pad", (x.value, amounts, fill), type_)


def concatenate(t: TosaOps, values: Sequence[SSAValue], dim: int, type_: Attribute) -> SSAValue:
    """Join the tensors that have elements."""
    assert isinstance(type_, TensorType)
    full = [v for v in values if 0 not in shape_of(v)]
    if len(full) == 1:
        return t.cast(full[0], type_)
    wanted = TensorType(element_of(values[0]), type_.get_shape())
    arrays = [a for v in full if (a := array_of(v)) is not None]
    if full and len(arrays) == len(full):
        joined = np.concatenate(arrays, dim)
        if is_small(joined):
            return t.known(joined, t.logical(full[0]))
    return t.make("concat", full, wanted, {"axis": tosa.axis(dim)})


def count(t: TosaOps, positions: Counter) -> SSAValue:
    """Build positions as the result of an op of TOSA."""
    line, shape = _line(t, positions.size), shape_of(positions.value)
    return line if len(shape) == 1 else _reshape_static(t, line, shape)


def _line(t: TosaOps, size: Size, levels: int = COUNTING_LEVELS) -> SSAValue:
    """Build 0, 1, 2, ... up to a size. TOSA has no op that counts: rows of a constant, one below the other, are cut."""
    key = ("line", t.b.block, size)
    if key not in t.memo:
        line = t.memo.setdefault("row", t.known(np.arange(COUNTING_ROW), i64))
        length: Size = COUNTING_ROW
        if levels > 1:
            rows = t.b.ceildiv(size, COUNTING_ROW)
            starts = t.product_of(_line(t, rows, levels - 1), t.single(COUNTING_ROW, i64, [1]))
            columns = _reshape_static(t, line, [1, COUNTING_ROW])
            block = t.on("add", (_reshape_static(t, starts, [None, 1]), columns), element_of(starts))
            line, length = _reshape_static(t, block, [None]), t.b.mul(rows, COUNTING_ROW)
        whole = Tensor(line, t.b.dtype_of(element_of(line)), [length])
        t.memo[key] = tensor_dialect.extract_slice(t.b, whole, [0], [size], [1]).value
    return t.memo[key]
