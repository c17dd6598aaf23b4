"""Sorting and selecting, row by row, by the digits of keys.

The k least keys are kept at hand while a row is gone through if they are few. If they are more, what comes before the
k-th of the keys seen so far is collected, and from time to time the k least of that are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.digits import SHORT, Order, Row, collecting
from flambeau.lowering.linalg.rules import loop_rule
from flambeau.lowering.verbs import RuleBuilder

FEW = 8
"""Up to so many elements are kept at hand while a row is gone through."""


def _rows_last(b: RuleBuilder, x: Tensor, dim: int) -> Tensor:
    """Reshape to a matrix whose rows run along a dim."""
    order = [*(d for d in range(x.rank) if d != dim), dim]
    sizes = b.sizes(x)
    rows = b.product([s for d, s in enumerate(sizes) if d != dim])
    return b.reshape(b.transpose(x, order), [rows, sizes[dim]])


def _positions(size: Size) -> DType:
    """Return the dtype of positions in a row, while it is sorted."""
    return dtypes.int32 if isinstance(size, int) and size < 1 << 31 else dtypes.int64


def sorted_rows(b: RuleBuilder, x: Tensor, order: Order, keys: Tensor, numbers: Tensor | None = None) -> list[Tensor]:
    """Sort each row of keys; return the elements of x that they stand for, and their positions.

    The keys are those of whole rows, or of the positions `numbers` in them.
    """
    rows, count = b.sizes(keys)
    dtype = _positions(count) if numbers is None else numbers.dtype
    is_short = isinstance(count, int) and count <= SHORT
    is_packed = order.kind.size <= 4 and dtype.size == 4
    out = [b.empty([rows, count], x.dtype), b.empty([rows, count], dtypes.int64 if is_short or is_packed else dtype)]
    spare = [order.kind, dtype, order.kind]
    if is_short or is_packed or order.kind.size == 1:
        spare = [] if is_short or order.kind.size == 1 else [dtypes.int64]

    def turn(i: SSAValue, *rooms: Tensor) -> Sequence[Tensor]:
        row = Row(b, x, order, keys, i, count, numbers)
        if isinstance(count, int):
            return row.by_counting(*rooms) if is_short else row.by_digits(*rooms)
        return b.branch(
            b.scalar_bool(b.compare("sle", count, SHORT)),
            rooms,
            lambda: [*row.by_counting(*rooms[:2]), *rooms[2:]],
            lambda: row.by_digits(*rooms),
        )

    values, positions = b.loop(0, rows, [*out, *(b.empty([count], s) for s in spare)], turn)[:2]
    return [values, b.to(positions, dtypes.int64)]


def _first_few(b: RuleBuilder, x: Tensor, order: Order, keys: Tensor, k: int) -> list[Tensor]:
    """Find the k least keys of each row, in order: most keys are compared with the last only."""
    rows, count = b.sizes(keys)
    dtype = _positions(count)

    def inserted(found: Sequence[Element], key: Element, position: Element, keeps_last: bool) -> list[Element]:
        """Insert a key and its position into sorted ones; equal ones stay before it."""
        own, places = list(found[::2]), list(found[1::2])
        is_before = [key < other for other in own]
        result: list[Element] = []
        for j in range(len(own) + keeps_last):
            for new, others in ((key, own), (position, places)):
                earlier = is_before[j - 1].select(others[j - 1], new) if j else new
                result.append(is_before[j].select(earlier, others[j]) if j < len(own) else earlier)
        return result

    def turn(i: SSAValue, *out: Tensor) -> Sequence[Tensor]:
        row = Row(b, x, order, keys, i, count)
        found: list[Any] = []
        for j in range(k):
            found = inserted(found, row.key(j), b.element(j, dtype), True)

        def compare(j: SSAValue, *found: Element) -> list[Element]:
            key = row.key(j)
            return b.branch(key < found[-2], found, lambda: inserted(found, key, b.scalar(j).to(dtype), False))

        found = b.loop(k, count, found, compare)
        for j in range(k):
            out = tuple(row.finish(out, j, *found[2 * j : 2 * j + 2]))
        return out

    # Rows that are too short fail elsewhere: nothing is read behind their end.
    are_long = b.compare("sle", k, count)
    out = [b.empty([rows, k], x.dtype), b.empty([rows, k], dtypes.int64)]
    return b.loop(0, b.select(are_long, rows, 0), out, turn)


def _from_rows(b: RuleBuilder, rows: Sequence[Tensor], sizes: Sequence[Size], dim: int) -> list[Tensor]:
    """Invert `_rows_last`, for tensors of these sizes."""
    order = [*(d for d in range(len(sizes)) if d != dim), dim]
    back = [order.index(d) for d in range(len(sizes))]
    return [b.transpose(b.reshape(t, [sizes[d] for d in order]), back) for t in rows]


@loop_rule("aten.sort")
def sort(b: RuleBuilder, x: Tensor, dim: int, descending: bool) -> list[Tensor]:
    """Sort stably."""
    if not x.rank or 0 in x.shape:
        return [x, b.full(b.sizes(x), 0, dtypes.int64)]
    dim = b.dim(dim, x.rank)
    rows, order = _rows_last(b, x, dim), Order(x.dtype, descending)
    return _from_rows(b, sorted_rows(b, rows, order, order.keys(b, rows)), b.sizes(x), dim)


@loop_rule("aten.sort.stable")
def sort_stable(b: RuleBuilder, x: Tensor, stable: Any, dim: int, descending: bool) -> list[Tensor]:
    return sort(b, x, dim, descending)


@loop_rule("aten.topk")
def topk(b: RuleBuilder, x: Tensor, k: Size, dim: int, largest: bool, is_sorted: bool) -> list[Tensor]:
    """Take what comes before the k-th element, and of those that equal it the first ones; then sort them."""
    if not x.rank:
        return [x, b.full([], 0, dtypes.int64)]
    dim = b.dim(dim, x.rank)
    sizes = b.sizes(x)
    b.guard(b.compare("sle", k, sizes[dim]), "topk(): k is larger than the dimension")
    b.guard(b.compare("sge", k, 0), "topk(): k is negative")
    result = [k if d == dim else s for d, s in enumerate(sizes)]
    if any(isinstance(s, int) and s == 0 for s in result):
        return [b.empty(result, x.dtype), b.empty(result, dtypes.int64)]
    rows, order = _rows_last(b, x, dim), Order(x.dtype, largest)
    keys, count = order.keys(b, rows), sizes[dim]
    if isinstance(k, int) and k <= FEW:
        found = _first_few(b, rows, order, keys, k)
    elif isinstance(count, int) and count <= SHORT:
        found = [b.slice(t, [0, 0], [b.size(rows, 0), k], [1, 1]) for t in sorted_rows(b, rows, order, keys)]
    else:
        found = sorted_rows(b, rows, order, *_least(b, rows, order, keys, k))
    return _from_rows(b, found, result, dim)


def _least(b: RuleBuilder, x: Tensor, order: Order, keys: Tensor, k: Size) -> list[Tensor]:
    """Find the k least keys of each row and their positions, in the order of positions."""
    rows, count = b.sizes(keys)
    chosen = [b.empty([rows, k], keys.dtype), b.empty([rows, k], _positions(count))]
    if not isinstance(k, int) or (isinstance(count, int) and count < 4 * collecting(k)):
        return b.loop(0, rows, chosen, lambda i, *out: Row(b, x, order, keys, i, count).least(k, *out)[1:])
    room = k + collecting(k) // 4 + collecting(k)

    def turn(i: SSAValue, *state: Tensor) -> list[Tensor]:
        found = Row(b, x, order, keys, i, count).collected(k, *state[2:])

        def copy(j: SSAValue, *out: Tensor) -> list[Tensor]:
            return [b.store(t, [i, j], b.load(f, [j])) for t, f in zip(out, found, strict=True)]

        return [*b.loop(0, k, state[:2], copy), *found]

    return b.loop(0, rows, [*chosen, *(b.empty([room], t.dtype) for t in chosen)], turn)[:2]


def comes_before(p: Element, q: Element, descending: bool) -> Element:
    """Tell whether p is sorted before q; NaN counts as greater than all numbers."""
    if descending:
        return comes_before(q, p, False)
    return (p < q) | ((q != q) & (p == p)) if p.dtype.is_float else p < q
