"""Writing at computed positions: scatter, index_put, index_add and their kin.

A loop nest goes through the updates in order and writes each where it belongs, in one pass; the last one wins where
the op overwrites, and sums are taken in the order of the updates, as PyTorch does on one thread. On whole tensors the
target has an op for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects.linalg.ops import GenericOp, YieldOp
from xdsl.ir.affine import AffineDimExpr

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.combining import Updating
from flambeau.lowering.element import Element, is_number
from flambeau.lowering.linalg.index import (
    OUT_OF_RANGE,
    at_least_1d,
    check_within,
    indexing,
    linear,
    prefix_sum,
    wrapped,
)
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.verbs import RuleBuilder

Values = Callable[[list[Size], list[Size]], Element]
"""`values(position of the update, position in the destination)`, inside a body."""


def scatter_rows(
    b: RuleBuilder,
    x: Tensor,
    dims: Sequence[int],
    rows: Tensor,
    values: Values,
    reduce: str | None = None,
    include_self: bool = True,
) -> Tensor:
    """Combine updates into a copy of x.

    A row is a position in `dims` of x, numbered row-major; the updates go to `rows`, a tensor of such numbers of any
    shape, and each writes the whole slice over the other dims.
    """
    sizes, update_sizes = b.sizes(x), b.sizes(rows)
    if any(isinstance(s, int) and s == 0 for s in (*sizes, *update_sizes)):
        return x
    how = Updating(reduce, include_self, x.dtype.compute)
    rest = [d for d in range(x.rank) if d not in dims]
    # The dims that are indexed are made one, where the first of them stands.
    first = dims[0] if list(dims) == list(range(dims[0], dims[0] + len(dims))) else 0
    order = [*rest[:first], *dims, *rest[first:]]
    row_count = b.product([sizes[d] for d in dims])
    start = b.transpose(x, order)
    start = b.reshape(start, [*(sizes[d] for d in rest[:first]), row_count, *(sizes[d] for d in rest[first:])])

    def at(update: list[Size], other: list[Size]) -> Element:
        """Compute the update for a position in the other dims."""
        position: list[Size] = [0] * x.rank
        for d, i in zip(rest, other, strict=True):
            position[d] = i
        return values(update, position).to(how.dtype)

    result = _combine(b, b.to(start, how.dtype), first, rows, at, how)
    inverse = [order.index(d) for d in range(x.rank)]
    return b.transpose(b.reshape(b.to(result, x.dtype), [sizes[d] for d in order]), inverse)


def _combine(b: RuleBuilder, x: Tensor, dim: int, rows: Tensor, values: Values, how: Updating) -> Tensor:
    """Combine updates into the slices of x along a dim; `values(update, position in the other dims)`."""
    start = b.full(b.sizes(x), how.start, how.dtype) if how.kind and not how.include_self else x
    result = b.scatter(start, dim, rows, values, how.combine, how.kind)
    if how.reduce is None or (how.include_self and how.reduce != "mean"):
        return result
    none = b.full(b.sizes(x), 0, dtypes.int64)
    seen = b.scatter(none, dim, rows, lambda *_: b.element(1, dtypes.int64), lambda old, new: old + new, "add")
    return b.elementwise([x, result, seen], how.finish, how.dtype, b.sizes(x))


# --- index_put and its kin: a list of index tensors ---


def write_indexed(
    b: RuleBuilder,
    x: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool,
) -> Tensor:
    """Copy x and assign `x[indices] = values`, or `+=` that counts repeated indices."""
    masked = _masked_fill(b, x, indices, values, accumulate)
    if masked is not None:
        return masked
    ix = indexing(b, x, [_wide(b, i) for i in indices])
    if not ix.dims:
        how = Updating("sum" if accumulate else None, True, x.dtype)
        return b.elementwise([x, values], how.combine, x.dtype, b.sizes(x))
    sizes = [b.size(x, d) for d in ix.dims]
    rows = b.elementwise(
        ix.tensors,
        lambda *e: linear(b, [wrapped(b, i, n) for i, n in zip(e, sizes, strict=False)], sizes),
        dtypes.int64,
    )
    index_dims, kept_dims = ix.result_dims()
    result_sizes = ix.result_sizes(b, x)
    _check_broadcast(b, values, result_sizes)
    missing = len(result_sizes) - values.rank

    def value(update: list[Size], position: list[Size]) -> Element:
        where: dict[int, Size] = dict(zip(index_dims, update, strict=True))
        where |= {i: position[d] for d, i in kept_dims.items()}
        return b.load(values, [0 if n == 1 else where[i + missing] for i, n in enumerate(values.shape)])

    return scatter_rows(b, x, ix.dims, rows, value, "sum" if accumulate else None)


@linalg_rule("aten.index_put", "aten.index_put.hacked_twin", "aten._unsafe_index_put")
def index_put(b: RuleBuilder, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor:
    return write_indexed(b, x, indices, values, accumulate)


@linalg_rule("aten._index_put_impl")
def index_put_impl(
    b: RuleBuilder, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool, unsafe: bool
) -> Tensor:
    return write_indexed(b, x, indices, values, accumulate)


def _wide(b: RuleBuilder, index: Tensor | None) -> Tensor | None:
    """Convert an index tensor to int64 once, for the guard and for every pass of the sort."""
    return b.to(index, dtypes.int64) if index is not None and index.dtype is dtypes.int32 else index


def _masked_fill(
    b: RuleBuilder, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool
) -> Tensor | None:
    """Assign `x[:, mask] = value` by a select; None if the value depends on which element of the mask it is for."""
    at = [i for i, t in enumerate(indices) if t is not None]
    if len(at) != 1:
        return None
    mask = indices[at[0]]
    assert mask is not None
    if mask.dtype not in (dtypes.bool_, dtypes.uint8):
        return None
    before, after = at[0], at[0] + mask.rank
    # The mask's dims are one dim of the value, and that has to be 1 or missing.
    tail = x.rank - after
    if values.rank > tail and values.shape[values.rank - tail - 1] != 1:
        return None
    sizes = b.sizes(x)
    for i in range(mask.rank):
        b.same_size(b.size(mask, i), sizes[before + i], "the shape of the mask does not match the tensor")
    mask = b.reshape(mask, [*b.sizes(mask), *[1] * tail])
    if values.rank > tail:
        own = b.sizes(values)
        split = values.rank - tail
        values = b.reshape(values, [*own[: split - 1], *[1] * (after - before), *own[split:]])

    def choose(old: Element, flag: Element, value: Element) -> Element:
        new = old + value.to(old.dtype) if accumulate else value
        return flag.to(dtypes.bool_).select(new.to(x.dtype), old)

    return b.elementwise([x, mask, values], choose, x.dtype, sizes)


def _check_broadcast(b: RuleBuilder, values: Tensor, sizes: Sequence[Size]) -> None:
    for have, size in zip(reversed(b.sizes(values)), reversed(sizes), strict=False):
        if not (isinstance(have, int) and have == 1):
            b.same_size(size, have, "the values cannot be broadcast to what is indexed")


# --- One index tensor of rows ---


def _index_rows(
    b: RuleBuilder,
    x: Tensor,
    dim: int,
    index: Tensor,
    value: Callable[[list[Size]], Element],
    reduce: str | None,
    include_self: bool = True,
    negative: bool = False,
) -> Tensor:
    """Update slices of x along a dim; `value(position)` has the number of the update in place of that dim."""
    flat, index = at_least_1d(b, x), at_least_1d(b, b.to(index, dtypes.int64))
    dim = b.dim(dim, flat.rank)
    size = b.size(flat, dim)
    b.check_range(index, size, OUT_OF_RANGE, negative)
    rows = b.elementwise([index], lambda e: wrapped(b, e, size), dtypes.int64) if negative else index

    def at(update: list[Size], position: list[Size]) -> Element:
        return value([*position[:dim], update[0], *position[dim + 1 :]])

    result = scatter_rows(b, flat, [dim], rows, at, reduce, include_self)
    return b.reshape(result, b.sizes(x))


@linalg_rule("aten.index_add")
def index_add(b: RuleBuilder, x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any) -> Tensor:
    source = _source(b, x, dim, index, source)
    return _index_rows(b, x, dim, index, lambda at: _scaled(b, b.load(source, at), alpha), "sum")


def _source(b: RuleBuilder, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Return the source, guarded to have a slice of x's size for each index."""
    source, flat = at_least_1d(b, source), at_least_1d(b, x)
    wanted = b.sizes(flat)
    wanted[b.dim(dim, flat.rank)] = b.product(b.sizes(index))
    if source.rank == flat.rank:
        for size, own in zip(wanted, b.sizes(source), strict=True):
            b.same_size(size, own, "the source has a slice for each index, and each of the size of the tensor's own")
    return source


def _scaled(b: RuleBuilder, value: Element, alpha: Any) -> Element:
    value = value.to(value.dtype.compute)
    return value if is_number(alpha, 1) else value * b.element(alpha, value.dtype)


@linalg_rule("aten.index_copy")
def index_copy(b: RuleBuilder, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    source = _source(b, x, dim, index, source)
    return _index_rows(b, x, dim, index, lambda at: b.load(source, at), None)


@linalg_rule("aten.index_fill.int_Scalar")
def index_fill_scalar(b: RuleBuilder, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    return _index_rows(b, x, dim, index, lambda _: b.element(value, x.dtype), None, negative=True)


@linalg_rule("aten.index_fill.int_Tensor")
def index_fill_tensor(b: RuleBuilder, x: Tensor, dim: int, index: Tensor, value: Tensor) -> Tensor:
    return _index_rows(b, x, dim, index, lambda _: b.load(value, []), None, negative=True)


@linalg_rule("aten.index_reduce")
def index_reduce(
    b: RuleBuilder, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool
) -> Tensor:
    source = _source(b, x, dim, index, source)
    return _index_rows(b, x, dim, index, lambda at: b.load(source, at), reduce, include_self)


@linalg_rule("aten.put")
def put(b: RuleBuilder, x: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> Tensor:
    sizes = b.sizes(x)
    flat = b.reshape(x, [b.product(sizes)])
    source = b.reshape(source, [b.product(b.sizes(source))])
    index = b.reshape(index, [b.product(b.sizes(index))])
    b.same_size(b.size(index, 0), b.size(source, 0), "put(): the source has an element for each index")
    value = _index_rows(b, flat, 0, index, lambda at: b.load(source, at), "sum" if accumulate else None, negative=True)
    return b.reshape(value, sizes)


# --- scatter: an index for each element ---


def _scatter(
    b: RuleBuilder, x: Tensor, dim: int, index: Tensor, src: Any, reduce: str | None, include_self: bool = True
) -> Tensor:
    if x.rank == 0 or index.rank == 0:
        flat_src = at_least_1d(b, src) if isinstance(src, Tensor) else src
        flat = _scatter(b, at_least_1d(b, x), 0, at_least_1d(b, index), flat_src, reduce, include_self)
        return b.reshape(flat, b.sizes(x))
    dim = b.dim(dim, x.rank)
    sizes = b.sizes(x)
    check_within(b, b.sizes(index), sizes, dim, "scatter(): the index is larger than the tensor")
    if isinstance(src, Tensor):
        check_within(b, b.sizes(index), b.sizes(src), None, "scatter(): the index is larger than the source")
    if 0 in index.shape or (isinstance(src, Tensor) and 0 in src.shape):
        return x
    index, repeated = _unrepeated(b, index, [d for d in range(x.rank) if d != dim], sizes)
    index = b.to(index, dtypes.int64)
    b.check_range(index, sizes[dim], OUT_OF_RANGE, negative=False)
    dims = [d for d in range(x.rank) if d not in repeated]

    def row(position: list[Size], e: Element) -> Element:
        own = [e.to(dtypes.int64) if d == dim else b.element(position[d], dtypes.int64) for d in dims]
        return linear(b, own, [sizes[d] for d in dims])

    index_sizes = b.sizes(index)
    rows = b.map_indexed([index], index_sizes, dtypes.int64, row)
    rows = b.reshape(rows, [index_sizes[d] for d in dims])

    def value(update: list[Size], position: list[Size]) -> Element:
        if not isinstance(src, Tensor):
            return b.element(src, x.dtype)
        at = list(position)
        for d, i in zip(dims, update, strict=True):
            at[d] = i
        return b.load(src, at)

    return scatter_rows(b, x, dims, rows, value, reduce, include_self)


def _unrepeated(
    b: RuleBuilder, index: Tensor, candidates: Sequence[int], sizes: Sequence[Size]
) -> tuple[Tensor, list[int]]:
    """Undo the expansion of an index tensor: size 1 in the dims where it repeats itself, and these dims.

    `index.unsqueeze(-1).expand_as(src)` is how rows are scattered in PyTorch: there are as many updates as rows then,
    not as many as elements.
    """
    op = index.value.owner
    if not (isinstance(op, GenericOp) and len(op.inputs) == 1 and len(op.outputs) == 1):
        return index, []
    body = op.body.block
    if not (isinstance(body.first_op, YieldOp) and body.first_op.operands[0] is body.args[0]):
        return index, []
    result_map = op.indexing_maps.data[-1].data.results
    if list(result_map) != [AffineDimExpr(i) for i in range(index.rank)]:
        return index, []
    loops = op.indexing_maps.data[0].data.results
    read = [e.position for e in loops if isinstance(e, AffineDimExpr)]
    own = b.sizes(index)
    repeated = [d for d in candidates if d not in read and _same_size(own[d], sizes[d])]
    source = Tensor(op.inputs[0], index.dtype)
    if len(read) + len(repeated) != index.rank or read != sorted(read) or not repeated:
        return index, []
    return b.reshape(source, [1 if d in repeated else own[d] for d in range(index.rank)]), repeated


def _same_size(a: Size, b: Size) -> bool:
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


@linalg_rule("aten.scatter.src", "aten.scatter.value")
def scatter(b: RuleBuilder, x: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    return _scatter(b, x, dim, index, src, None)


@linalg_rule("aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter_with(b: RuleBuilder, x: Tensor, dim: int, index: Tensor, src: Any, reduce: str) -> Tensor:
    return _scatter(b, x, dim, index, src, reduce)


@linalg_rule("aten.scatter_add")
def scatter_add(b: RuleBuilder, x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return _scatter(b, x, dim, index, src, "sum")


@linalg_rule("aten.scatter_reduce.two")
def scatter_reduce(
    b: RuleBuilder, x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool
) -> Tensor:
    return _scatter(b, x, dim, index, src, reduce, include_self)


# --- Masks ---


@linalg_rule("aten.masked_scatter")
def masked_scatter(b: RuleBuilder, x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    sizes = b.broadcast_sizes(b.sizes(x), b.sizes(mask))
    total = b.product(sizes)
    available = b.product(b.sizes(source))
    if isinstance(total, int) and total == 0:
        return x
    if isinstance(available, int) and available == 0:
        raise Unsupported("masked_scatter from an empty tensor")
    flags = b.broadcast_to(mask, sizes)
    counts = b.elementwise([b.reshape(flags, [total])], lambda e: e.to(dtypes.int64), dtypes.int64)
    numbers = b.reshape(prefix_sum(b, counts), sizes)
    if not isinstance(total, int) or not isinstance(available, int) or total > available:
        b.check_elements(
            numbers,
            lambda e: e <= b.element(available, dtypes.int64),
            "masked_scatter(): the source has fewer elements than the mask chooses",
        )
    flat = b.reshape(source, [available])

    def choose(old: Element, flag: Element, number: Element) -> Element:
        at = (number - 1).maximum(0).minimum(b.element(available, dtypes.int64) - 1)
        return flag.select(b.load(flat, [b.as_index(at)]), old)

    return b.elementwise([x, flags, numbers], choose, x.dtype, sizes)
