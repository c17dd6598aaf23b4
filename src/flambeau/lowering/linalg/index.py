"""Reading at computed positions: embedding, gather, advanced indexing, masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.verbs import RuleBuilder

OUT_OF_RANGE = "index out of range"


# --- Positions ---


def wrapped(b: RuleBuilder, index: Element, size: Size) -> Element:
    """Convert, inside a body, an index to int64; a negative one counts from the end."""
    index = index.to(dtypes.int64)
    return (index < 0).select(index + b.element(size, dtypes.int64), index)


def linear(b: RuleBuilder, position: Sequence[Element], sizes: Sequence[Size]) -> Element:
    """Compute the row-major number of a position."""
    number = b.element(0, dtypes.int64)
    for i, (at, size) in enumerate(zip(position, sizes, strict=True)):
        number = at if i == 0 else number * b.element(size, dtypes.int64) + at
    return number


def _load_at(b: RuleBuilder, x: Tensor, position: Sequence[Size | Element]) -> Element:
    """Load, inside a body, an element of x. Computed indices are clamped.

    The guard that makes the program fail may run after this loop, so the loop must not read outside of the tensor.
    """
    at: list[Size] = []
    for i, size in zip(position, b.sizes(x), strict=True):
        if isinstance(i, Element):
            last = b.element(size, dtypes.int64) - 1
            at.append(b.as_index(i.minimum(last).maximum(0)))
        else:
            at.append(i)
    return b.load(x, at)


def first_not_below(b: RuleBuilder, ascending: Tensor, target: Element) -> Element:
    """Find, inside a body, the first position in a sorted 1-d tensor with an element >= `target`; its size if none."""
    counted = b.count_below(ascending, target)
    if counted is not None:
        return counted

    def halve(low: Element, high: Element) -> tuple[Element, Element]:
        middle = (low + high).trunc_divide(2)
        below = b.load(ascending, [b.as_index(middle)]) < target
        return below.select(middle + 1, low), below.select(high, middle)

    size = b.element(b.size(ascending, 0), dtypes.int64)
    return b.while_loop([b.element(0, dtypes.int64), size], lambda low, high: low < high, halve)[0]


Read = Callable[[Element], Element]
"""The element at a position along a dim."""


def doubling_passes(
    b: RuleBuilder, x: Tensor, dim: int, step: Callable[[Sequence[SSAValue], Element, Read], Element]
) -> Tensor:
    """Run log2(n) parallel passes over a dim, of width 1, 2, 4 ...

    `step(at, width, read)` computes the element at the indices `at` from those of the pass before, which
    `read(position)` gives, at that position along the dim.
    """
    sizes = b.sizes(x)

    def one_pass(before: Tensor, width: Element) -> Tensor:
        def body(*at: SSAValue) -> Element:
            def read(position: Element) -> Element:
                return b.load(before, [b.as_index(position) if i == dim else p for i, p in enumerate(at)])

            return step(at, width, read)

        return b.generate(sizes, x.dtype, body)

    def turn(number: SSAValue, before: Tensor) -> list[Tensor]:
        return [one_pass(before, b.element(1, dtypes.int64) << b.scalar(number))]

    turns = b.doublings(sizes[dim])
    if not isinstance(turns, int):
        return b.loop(0, turns, [x], turn)[0]
    for number in range(turns):
        x = one_pass(x, b.element(1 << number, dtypes.int64))
    return x


def prefix_sum(b: RuleBuilder, x: Tensor) -> Tensor:
    """Compute the inclusive running sum of a 1-d int64 tensor."""

    def add_from_before(at: Sequence[SSAValue], width: Element, read: Read) -> Element:
        here = b.scalar(at[0])
        before = here - width
        return read(here) + (before >= 0).select(read(before.maximum(0)), 0)

    return doubling_passes(b, x, 0, add_from_before)


def true_positions(b: RuleBuilder, mask: Tensor) -> list[Tensor]:
    """List the indices of the true elements, one 1-d tensor for each dim of the mask; their number is dynamic."""
    sizes = b.sizes(mask)
    total = b.product(sizes)
    if isinstance(total, int) and total == 0:
        return [b.empty([0], dtypes.int64) for _ in sizes]
    flat = b.reshape(b.elementwise([mask], lambda e: e.to(dtypes.bool_).to(dtypes.int64), dtypes.int64), [total])
    counted = b.reduce([flat], [0], [(0, dtypes.int64)], lambda e, acc: acc + e)[0]
    count = b.as_index(Element(b, b.item(counted), dtypes.int64))
    if b.loads_are_cheap:
        places = _gather_true(b, flat, count)
    else:
        sums = prefix_sum(b, flat)
        places = b.generate([count], dtypes.int64, lambda i: first_not_below(b, sums, b.scalar(i) + 1))
    return [b.elementwise([places], lambda e, d=d: unravel(b, e, sizes)[d], dtypes.int64) for d in range(mask.rank)]


def _gather_true(b: RuleBuilder, flags: Tensor, count: Size) -> Tensor:
    """Find the positions of the ones in a tensor of zeros and ones, of which `count` are ones."""
    last = b.sub(count, 1)

    def turn(at: SSAValue, found: Element, places: Tensor) -> list[Any]:
        # What is not true is written as well, to be overwritten by the next; behind the last one there is no place.
        flag = b.load(flags, [at])
        here = b.as_index(found)
        stored = b.branch(
            b.scalar_bool(b.compare("sle", here, last)), [places], lambda: [b.store(places, [here], b.scalar(at))]
        )
        return [found + flag, *stored]

    none = b.element(0, dtypes.int64)
    return b.loop(0, b.size(flags, 0), [none, b.empty([count], dtypes.int64)], turn)[1]


def unravel(b: RuleBuilder, number: Element, sizes: Sequence[Size]) -> list[Element]:
    """Compute the position that has this row-major number."""
    position: list[Element] = []
    for size in reversed(sizes[1:]):
        n = b.element(size, dtypes.int64)
        position.append(number.fmod(n))
        number = number.trunc_divide(n)
    return [number, *reversed(position)][: len(sizes)]


# --- Lists of index tensors, for reading and for writing ---


@dataclass
class Indexing:
    """What `x[indices]` means: some dims of x are indexed, together, the others are kept."""

    dims: list[int]
    """The dims of x that are indexed."""
    tensors: list[Tensor]
    """An index tensor for each of them."""
    kept: list[int]
    """The other dims of x."""
    sizes: list[Size]
    """The sizes that the index tensors broadcast to."""
    at: int
    """Where those dims stand in the result: in place if the indexed dims are neighbours, else first."""

    def result_sizes(self, b: RuleBuilder, x: Tensor) -> list[Size]:
        kept = [b.size(x, d) for d in self.kept]
        return [*kept[: self.at], *self.sizes, *kept[self.at :]]

    def result_dims(self) -> tuple[list[int], dict[int, int]]:
        """Return the result's dims that the index tensors fill, and the result's dim for each kept dim of x."""
        rank = len(self.sizes)
        return (
            list(range(self.at, self.at + rank)),
            {d: i if i < self.at else i + rank for i, d in enumerate(self.kept)},
        )


INDICES = frozenset({dtypes.int64, dtypes.int32, dtypes.uint8, dtypes.bool_})
"""What PyTorch takes as indices in brackets; uint8 is a mask."""


def indexing(b: RuleBuilder, x: Tensor, indices: Sequence[Tensor | None]) -> Indexing:
    """Read a list of index tensors as PyTorch does: None keeps a dim, a mask stands for the indices of what is true."""
    dims: list[int] = []
    tensors: list[Tensor] = []
    dim = 0
    for index in indices:
        if index is None:
            dim += 1
            continue
        if index.dtype not in INDICES:
            raise Unsupported(f"indices of {index.dtype}", "Convert them to int64.")
        parts = [index]
        if index.dtype in (dtypes.bool_, dtypes.uint8):
            if index.rank == 0:
                raise Unsupported("indexing with a 0-d mask", "Use torch.where, or a mask with at least one dim.")
            for i in range(index.rank):
                b.same_size(b.size(index, i), b.size(x, dim + i), "the shape of the mask does not match the tensor")
            parts = true_positions(b, index)
        for part in parts:
            if part is index:
                b.check_range(part, b.size(x, dim), OUT_OF_RANGE)
            dims.append(dim)
            tensors.append(part)
            dim += 1
    neighbours = not dims or dims == list(range(dims[0], dims[0] + len(dims)))
    return Indexing(
        dims,
        tensors,
        [d for d in range(x.rank) if d not in dims],
        b.broadcast_sizes(*(b.sizes(t) for t in tensors)),
        dims[0] if dims and neighbours else 0,
    )


def read(
    b: RuleBuilder,
    x: Tensor,
    indices: Sequence[Tensor],
    maps: Sequence[tuple[int | None, ...]],
    sizes: Sequence[Size],
    source: Callable[[list[Size], list[Element]], list[Size | Element]],
) -> Tensor:
    """Gather elements of x; `source(position, elements of the index tensors)` returns where from."""
    x_sizes = b.sizes(x)
    out = b.empty(sizes, x.dtype)
    if any(s == 0 for s in x_sizes if isinstance(s, int)):
        # Nothing can be read: the result is empty too, or the guard on the indices fails.
        return out
    rank = len(sizes)

    def body(*elements: Element) -> Element:
        position: list[Size] = [b.loop_index(i) for i in range(rank)]
        return _load_at(b, x, source(position, list(elements[: len(indices)])))

    return b.generic(indices, maps, [out], [tuple(range(rank))], rank, body)[0]


def read_indexed(b: RuleBuilder, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Compute `x[indices]`."""
    ix = indexing(b, x, indices)
    if not ix.dims:
        return x
    x_sizes = b.sizes(x)
    index_dims, kept_dims = ix.result_dims()
    maps = [
        tuple(
            None if d == 1 and n != 1 else i
            for i, d, n in zip(
                index_dims[len(ix.sizes) - t.rank :], t.shape, ix.sizes[len(ix.sizes) - t.rank :], strict=True
            )
        )
        for t in ix.tensors
    ]

    def source(position: list[Size], elements: list[Element]) -> list[Size | Element]:
        found = {d: wrapped(b, e, x_sizes[d]) for d, e in zip(ix.dims, elements, strict=True)}
        return [found[d] if d in found else position[kept_dims[d]] for d in range(x.rank)]

    return read(b, x, ix.tensors, maps, ix.result_sizes(b, x), source)


@linalg_rule("aten.index.Tensor", "aten.index.Tensor_hacked_twin", "aten._unsafe_index.Tensor")
def index(b: RuleBuilder, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    return read_indexed(b, x, indices)


# --- One index tensor ---


def select_rows(b: RuleBuilder, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Replace a dim of `x` by the dims of the index tensor, which holds no negative indices."""
    sizes = b.sizes(x)
    b.check_range(index, sizes[dim], OUT_OF_RANGE, negative=False)
    after = dim + index.rank

    def source(position: list[Size], elements: list[Element]) -> list[Size | Element]:
        return [*position[:dim], elements[0].to(dtypes.int64), *position[after:]]

    result = [*sizes[:dim], *b.sizes(index), *sizes[dim + 1 :]]
    return read(b, x, [index], [tuple(range(dim, after))], result, source)


@linalg_rule("aten.embedding")
def embedding(
    b: RuleBuilder, weight: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, sparse: bool
) -> Tensor:
    # padding_idx only says which row gets no gradient.
    return select_rows(b, weight, 0, indices)


@linalg_rule("aten.index_select")
def index_select(b: RuleBuilder, x: Tensor, dim: int, index: Tensor) -> Tensor:
    result = select_rows(b, at_least_1d(b, x), b.dim(dim, x.rank), at_least_1d(b, index))
    return result if x.rank else b.reshape(result, [])


@linalg_rule("aten.gather")
def gather(b: RuleBuilder, x: Tensor, dim: int, index: Tensor, sparse_grad: bool) -> Tensor:
    if x.rank == 0 or index.rank == 0:
        flat = gather(b, at_least_1d(b, x), 0, at_least_1d(b, index), sparse_grad)
        return b.reshape(flat, b.sizes(index))
    dim = b.dim(dim, x.rank)
    check_within(b, b.sizes(index), b.sizes(x), dim, "gather(): the index is larger than the tensor")
    b.check_range(index, b.size(x, dim), OUT_OF_RANGE, negative=False)

    def source(position: list[Size], elements: list[Element]) -> list[Size | Element]:
        return [elements[0].to(dtypes.int64) if d == dim else p for d, p in enumerate(position)]

    return read(b, x, [index], [tuple(range(index.rank))], b.sizes(index), source)


@linalg_rule("aten.take")
def take(b: RuleBuilder, x: Tensor, index: Tensor) -> Tensor:
    flat = b.reshape(x, [b.product(b.sizes(x))])
    size = b.size(flat, 0)
    b.check_range(index, size, OUT_OF_RANGE)
    return read(b, flat, [index], [tuple(range(index.rank))], b.sizes(index), lambda _, e: [wrapped(b, e[0], size)])


def check_within(b: RuleBuilder, inner: Sequence[Size], outer: Sequence[Size], but: int | None, message: str) -> None:
    """Guard that no size of `inner` exceeds that of `outer`, except along dim `but` and where `inner` is empty."""
    is_empty = b.compare("eq", b.product(inner), 0)
    for d, (small, large) in enumerate(zip(inner, outer, strict=True)):
        if d != but:
            b.guard(b.compare("sle", b.select(is_empty, 0, small), large), message)


def at_least_1d(b: RuleBuilder, x: Tensor) -> Tensor:
    return x if x.rank else b.reshape(x, [1])


# --- Masks: how much there is to read is known at run time ---


@linalg_rule("aten.nonzero")
def nonzero(b: RuleBuilder, x: Tensor) -> Tensor:
    if x.rank == 0:
        # As many empty positions as there are elements that are not zero.
        return b.empty([b.size(true_positions(b, b.reshape(x, [1]))[0], 0), 0], dtypes.int64)
    columns = true_positions(b, x)
    count = b.size(columns[0], 0)
    out = b.empty([count, x.rank], dtypes.int64)
    for d, column in enumerate(columns):
        out = b.insert_slice(b.reshape(column, [count, 1]), out, [0, d], [1, 1])
    return out


@linalg_rule("aten.masked_select")
def masked_select(b: RuleBuilder, x: Tensor, mask: Tensor) -> Tensor:
    sizes = b.broadcast_sizes(b.sizes(x), b.sizes(mask))
    x, mask = (at_least_1d(b, b.broadcast_to(t, sizes)) for t in (x, mask))
    return read_indexed(b, x, [mask])
