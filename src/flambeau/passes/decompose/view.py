"""Rearrangements and joins in terms of views, permutations and slices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from xdsl.ir import Block, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.enums import CONTIGUOUS
from flambeau.dialects.torch.ops import TorchOp
from flambeau.infer.builder import TorchBuilder, python_value
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition, listed, minus, most, over, plus, require_size, times
from flambeau.passes.decompose.search import find
from flambeau.passes.decompose.storage import place_of


@decomposition("aten.pixel_shuffle")
def pixel_shuffle(t: TorchBuilder, x: SSAValue, factor: int) -> SSAValue:
    *batch, channels, height, width = t.shape(x)
    n, r = len(batch), factor
    split = t.view(x, [*batch, over(t, channels, r * r), r, r, height, width])
    mixed = t.permute(split, [*range(n), n, n + 3, n + 1, n + 4, n + 2])
    return t.reshape(mixed, [*batch, over(t, channels, r * r), times(t, height, r), times(t, width, r)])


@decomposition("aten.pixel_unshuffle")
def pixel_unshuffle(t: TorchBuilder, x: SSAValue, factor: int) -> SSAValue:
    *batch, channels, height, width = t.shape(x)
    n, r = len(batch), factor
    small = [over(t, height, r), over(t, width, r)]
    split = t.view(x, [*batch, channels, small[0], r, small[1], r])
    mixed = t.permute(split, [*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return t.reshape(mixed, [*batch, times(t, channels, r * r), *small])


@decomposition("aten.channel_shuffle")
def channel_shuffle(t: TorchBuilder, x: SSAValue, groups: int) -> SSAValue:
    batch, channels, *rest = t.shape(x)
    split = t.view(x, [batch, groups, over(t, channels, groups), *rest])
    return t.reshape(t.transpose(split, 1, 2), [batch, channels, *rest])


@decomposition("aten.unfold_backward")
def unfold_backward(
    t: TorchBuilder, windows: SSAValue, sizes: Sequence[Any], dim: int, length: int, step: int
) -> SSAValue:
    """Add windows up where they overlap: window i begins at `i * step` of the dim.

    Each window is cut into parts of `step` elements. Part j of all windows is a row of as many parts as there are
    windows, and belongs j parts further on: one more column behind each row, and one less when rows are read anew,
    moves each row by its number. So it is one sum, whatever the length of a window.
    """
    shape = t.shape(windows)
    if len(shape) != len(sizes) + 1:
        raise Unsupported("windows whose rank is not that of the result and one more")
    if not sizes:
        return t.reshape(t.sum(windows, [0]), [])
    at, rank, count = dim % len(sizes), len(shape), shape[dim % len(sizes)]
    before, behind = list(sizes[:at]), list(sizes[at + 1 :])
    parts = max(-(-length // step), 1)
    windows = t.expand(windows, [*before, count, *behind, length])
    windows = t.constant_pad_nd(windows, [0, parts * step - length])
    windows = t.reshape(windows, [*before, count, *behind, parts, step])
    windows = t.permute(windows, [*range(at), rank - 1, at, rank, *range(at + 1, rank - 1)])
    wide, around = plus(t, count, parts), [0, 0] * (len(behind) + 1)
    rows = t.constant_pad_nd(windows, [*around, 0, parts])
    flat = t.reshape(rows, [*before, times(t, parts, wide), step, *behind])
    flat = t.slice(flat, at, 0, times(t, parts, minus(t, wide, 1)))
    total = t.sum(t.reshape(flat, [*before, parts, minus(t, wide, 1), step, *behind]), [at])
    covered = times(t, minus(t, wide, 1), step)
    joined = t.reshape(total, [*before, covered, *behind])
    missing = most(t, minus(t, sizes[at], covered), 0)
    return t.slice(t.constant_pad_nd(joined, [*around[2:], 0, missing]), at, 0, sizes[at])


@decomposition("aten.resize")
def resize(t: TorchBuilder, x: SSAValue, sizes: list[Any], memory_format: Any) -> SSAValue:
    """Take the same elements in another shape; there may be fewer, but what more of them would be is not defined."""
    old, new = t.shape(x), list(sizes)
    if not all(isinstance(n, int) for n in (*old, *new)) or math.prod(new) > math.prod(old):
        raise Unsupported("a tensor that is resized to more elements has contents that nothing defines")
    return t.reshape(t.slice(t.reshape(x, [-1]), 0, 0, math.prod(new)), new)


decomposition("aten.resize_as")(lambda t, x, like, memory_format: resize(t, x, t.shape(like), memory_format))


# --- Dims ---


@decomposition("aten.atleast_1d")
def atleast_1d(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return x if t.shape(x) else t.reshape(x, [1])


@decomposition("aten.atleast_2d")
def atleast_2d(t: TorchBuilder, x: SSAValue) -> SSAValue:
    rank = len(t.shape(x))
    return x if rank >= 2 else t.unsqueeze(x, 0) if rank else t.reshape(x, [1, 1])


@decomposition("aten.atleast_3d")
def atleast_3d(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return x if len(t.shape(x)) >= 3 else t.unsqueeze(atleast_2d(t, x), -1)


def _of_each(name: str, one: Callable[[TorchBuilder, SSAValue], SSAValue]) -> None:
    decomposition(name)(lambda t, tensors: listed(t, [one(t, x) for x in tensors]))


_of_each("aten.atleast_1d.Sequence", atleast_1d)
_of_each("aten.atleast_2d.Sequence", atleast_2d)
_of_each("aten.atleast_3d.Sequence", atleast_3d)


decomposition("aten.ravel")(lambda t, x: t.flatten(x, 0, -1))


@decomposition("aten.fliplr")
def fliplr(t: TorchBuilder, x: SSAValue) -> SSAValue:
    require_size(t, len(t.shape(x)), "ge", 2, "fliplr needs at least two dims")
    return t.flip(x, [1])


@decomposition("aten.flipud")
def flipud(t: TorchBuilder, x: SSAValue) -> SSAValue:
    require_size(t, len(t.shape(x)), "ge", 1, "flipud needs at least one dim")
    return t.flip(x, [0])


@decomposition("aten.rot90")
def rot90(t: TorchBuilder, x: SSAValue, k: int, dims: Sequence[int]) -> SSAValue:
    """Turn a plane by quarters: half a turn flips both dims, a quarter flips one and swaps them."""
    first, second = dims
    match k % 4:
        case 1:
            return t.transpose(t.flip(x, [second]), first, second)
        case 2:
            return t.flip(x, [first, second])
        case 3:
            return t.transpose(t.flip(x, [first]), first, second)
    return t.clone(x, memory_format=CONTIGUOUS)


@decomposition("aten.meshgrid.indexing")
def meshgrid_indexing(t: TorchBuilder, tensors: Sequence[SSAValue], indexing: str) -> SSAValue:
    """Expand each vector along the dims of the others; with `xy` the first two dims change places."""
    order = list(range(len(tensors)))
    if indexing == "xy":
        order[:2] = order[1::-1]
    sizes = [times(t, *t.shape(tensors[i])) for i in order]
    grids = {i: t.expand(t.view(tensors[i], [-1 if i == j else 1 for j in order]), sizes) for i in order}
    return listed(t, [grids[i] for i in range(len(tensors))])


decomposition("aten.meshgrid")(lambda t, tensors: meshgrid_indexing(t, tensors, "ij"))


# --- Diagonals ---


decomposition("aten.linalg_diagonal")(lambda t, x, offset, first, second: t.diagonal(x, offset, first, second))


@decomposition("aten.diag")
def diag(t: TorchBuilder, x: SSAValue, offset: int) -> SSAValue:
    return t.diagonal_copy(x, offset) if len(t.shape(x)) == 2 else diag_embed(t, x, offset, 0, 1)


@decomposition("aten.diag_embed")
def diag_embed(t: TorchBuilder, x: SSAValue, offset: int, first: int, second: int) -> SSAValue:
    """Put vectors on a diagonal of new matrices.

    With zeros before or behind it, one vector serves all rows: what is off the diagonal is masked.
    """
    rank = len(t.shape(x)) + 1
    dims = [first % rank, second % rank]
    if dims[0] > dims[1]:  # The matrix of the dims in order is the transposed one.
        dims, offset = dims[::-1], -offset
    columns = t.constant_pad_nd(x, [max(offset, 0), max(-offset, 0)], 0) if offset else x
    places = t.arange(t.shape(columns)[-1], dtype=dtypes.int64)
    on_diagonal = t.eq(t.add(t.unsqueeze(places, -1), offset), places)
    columns = t.unsqueeze(columns, -2)
    matrices = t.where(on_diagonal, columns, t.zeros_like(columns))
    return matrices if dims == [rank - 2, rank - 1] else t.movedim(matrices, [-2, -1], dims)


# --- Joins ---


@decomposition("aten.hstack")
def hstack(t: TorchBuilder, tensors: Sequence[SSAValue]) -> SSAValue:
    parts = [atleast_1d(t, x) for x in tensors]
    return t.cat(parts, 0 if len(t.shape(parts[0])) == 1 else 1)


decomposition("aten.vstack")(lambda t, tensors: t.cat([atleast_2d(t, x) for x in tensors], 0))
decomposition("aten.dstack")(lambda t, tensors: t.cat([atleast_3d(t, x) for x in tensors], 2))


@decomposition("aten.column_stack")
def column_stack(t: TorchBuilder, tensors: Sequence[SSAValue]) -> SSAValue:
    columns = [x if len(s := t.shape(x)) > 1 else t.reshape(x, [times(t, *s), 1]) for x in tensors]
    return t.cat(columns, 1)


@decomposition("aten.repeat_interleave.self_int")
def repeat_interleave(t: TorchBuilder, x: SSAValue, repeats: Any, dim: int | None, output_size: Any) -> SSAValue:
    if dim is None:
        x, dim = t.flatten(x, 0, -1), 0
    sizes = t.shape(x)
    if not sizes:
        raise Unsupported("repeat_interleave along a dim of a tensor that has none")
    require_size(t, repeats, "ge", 0, "repeats must not be negative")
    at = dim % len(sizes)
    total = times(t, sizes[at], repeats)
    if output_size is not None:
        require_size(t, output_size, "eq", total, "output_size is not the size of what is repeated")
    spread = t.expand(t.unsqueeze(x, at + 1), [*sizes[: at + 1], repeats, *sizes[at + 1 :]])
    return t.view(t.clone(spread, memory_format=CONTIGUOUS), [*sizes[:at], total, *sizes[at + 1 :]])


@decomposition("aten.repeat_interleave.Tensor")
def repeat_interleave_indices(t: TorchBuilder, repeats: SSAValue, output_size: Any) -> SSAValue:
    """Give 0 as often as the first number says, 1 as often as the second says, and so on."""
    ends = t.cumsum(repeats, 0, dtype=dtypes.int64)
    if output_size is None:
        output_size = t.call("aten.Int.Tensor", t.sum(repeats, dtype=dtypes.int64))
    return t.to(find(t, ends, t.arange(output_size, dtype=dtypes.int64), False, True), t.dtype(repeats))


# --- Strided views ---

_UNKNOWN = Unsupported(
    "a strided view of a tensor whose place in memory is not known",
    "Call .clone(memory_format=torch.contiguous_format) on the tensor first.",
)


decomposition("aten.as_strided_copy")(lambda t, x, sizes, strides, offset: t.as_strided(x, sizes, strides, offset))


@decomposition("aten.as_strided")
def as_strided(t: TorchBuilder, x: SSAValue, sizes: Any, strides: Any, offset: Any) -> SSAValue | None:
    """Make a strided view of the tensor whose memory it is."""
    at = place_of(x)
    if at is None and _lies_in_order_anyway(x):
        return None
    if at is None:
        raise _UNKNOWN
    if at.base is x:
        return None
    return t.as_strided(at.base, sizes, strides, at.offset if offset is None else offset)


def _lies_in_order_anyway(x: SSAValue) -> bool:
    """Tell whether a tensor is contiguous whatever its sizes: an argument or a clone."""
    owner = x.owner
    if isinstance(owner, TorchOp) and owner.overload in ("aten.clone", "aten.contiguous"):
        return python_value(owner.operands[1]) == CONTIGUOUS
    return isinstance(owner, Block)


@decomposition("prims.as_strided_scatter", "aten.as_strided_scatter")
def as_strided_scatter(
    t: TorchBuilder, x: SSAValue, source: SSAValue, sizes: list[int], strides: list[int], offset: int | None
) -> SSAValue:
    """Replace the elements that a strided view would show."""
    memory = place_of(x)
    if memory is None or not memory.is_in_order or memory.offset or t.shape(memory.base) != t.shape(x):
        raise _UNKNOWN
    at = t.full([1] * len(sizes), offset or 0, dtype=dtypes.int64)
    for dim, (n, stride) in enumerate(zip(sizes, strides, strict=True)):
        along = t.mul(t.arange(n, dtype=dtypes.int64), stride)
        at = t.add(at, t.view(along, [n if i == dim else 1 for i in range(len(sizes))]))
    flat = t.reshape(x, [-1])
    return t.reshape(t.index_put(flat, [t.reshape(at, [-1])], t.reshape(source, [-1])), t.shape(x))


@decomposition("prims.broadcast_in_dim")
def broadcast_in_dim(t: TorchBuilder, x: SSAValue, shape: Sequence[Any], dims: Sequence[int]) -> SSAValue:
    """Let dim i of `x` be dim `dims[i]` of the result; the others are new."""
    for dim in range(len(shape)):
        if dim not in dims:
            x = t.unsqueeze(x, dim)
    return t.expand(x, shape)


decomposition("prims.collapse")(lambda t, x, start, end: t.flatten(x, start, end))
decomposition("prims.copy_strided")(lambda t, x, strides: t.clone(x))
decomposition("prims.split_dim")(lambda t, x, dim, outer: t.unflatten(x, dim, [outer, -1]))
