"""Rearrangements, joins and splits in terms of views, permutations and slices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.ops import StaticInfoCastOp
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition, listed, minus, over, require_size, times


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


@decomposition("aten.resize")
def resize(t: TorchBuilder, x: SSAValue, sizes: list[Any], memory_format: Any) -> SSAValue:
    """The same elements in another shape; there may be fewer, but what more of them would be is not defined."""
    old, new = t.shape(x), list(sizes)
    if not all(isinstance(n, int) for n in (*old, *new)) or math.prod(new) > math.prod(old):
        raise Unsupported("a tensor that is resized to more elements has contents that nothing defines")
    return t.reshape(t.slice(t.reshape(x, [-1]), 0, 0, math.prod(new)), new)


@decomposition("aten.resize_as")
def resize_as(t: TorchBuilder, x: SSAValue, like: SSAValue, memory_format: Any) -> SSAValue:
    return resize(t, x, t.shape(like), memory_format)


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


@decomposition("aten.ravel")
def ravel(t: TorchBuilder, x: SSAValue) -> SSAValue:
    return t.flatten(x, 0, -1)


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
    return t.clone(x, memory_format=0)


@decomposition("aten.meshgrid")
def meshgrid(t: TorchBuilder, tensors: Sequence[SSAValue]) -> SSAValue:
    return meshgrid_indexing(t, tensors, "ij")


@decomposition("aten.meshgrid.indexing")
def meshgrid_indexing(t: TorchBuilder, tensors: Sequence[SSAValue], indexing: str) -> SSAValue:
    """Expand each vector along the dims of the others; with `xy` the first two dims change places."""
    order = list(range(len(tensors)))
    if indexing == "xy":
        order[:2] = order[1::-1]
    sizes = [times(t, *t.shape(tensors[i])) for i in order]
    grids = {i: t.expand(t.view(tensors[i], [-1 if i == j else 1 for j in order]), sizes) for i in order}
    return listed(t, [grids[i] for i in range(len(tensors))])


# --- Diagonals ---


@decomposition("aten.linalg_diagonal")
def linalg_diagonal(t: TorchBuilder, x: SSAValue, offset: int, first: int, second: int) -> SSAValue:
    return t.diagonal(x, offset, first, second)


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


@decomposition("aten.vstack")
def vstack(t: TorchBuilder, tensors: Sequence[SSAValue]) -> SSAValue:
    return t.cat([atleast_2d(t, x) for x in tensors], 0)


@decomposition("aten.dstack")
def dstack(t: TorchBuilder, tensors: Sequence[SSAValue]) -> SSAValue:
    return t.cat([atleast_3d(t, x) for x in tensors], 2)


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
    return t.view(t.clone(spread, memory_format=0), [*sizes[:at], total, *sizes[at + 1 :]])


# --- Splits ---


@decomposition("prim.ListUnpack")
def unpack(t: TorchBuilder, elements: Any) -> tuple[SSAValue, ...] | None:
    """What a decomposition has built as a list is taken apart again; other lists stay."""
    op = t.before
    if op is None or not isinstance(elements, list) or not all(isinstance(x, SSAValue) for x in elements):
        return None
    types = [result.type for result in op.results]
    # What a frontend knows of the parts may be more than what can be inferred.
    return tuple(
        x if x.type == type_ else t.value(StaticInfoCastOp, (x,), type_)
        for x, type_ in zip(elements, types, strict=True)
    )


@decomposition("aten.tensor_split.indices")
def tensor_split(t: TorchBuilder, x: SSAValue, indices: Sequence[Any], dim: int) -> SSAValue:
    return listed(t, [t.slice(x, dim, *bounds) for bounds in zip([0, *indices], [*indices, None], strict=True)])


def _split_along(name: str, least: int, dim: Callable[[int], int]) -> None:
    """Split tensors of at least so many dims along one that their rank decides: in equal parts, or at indices."""

    def at_indices(t: TorchBuilder, x: SSAValue, indices: Sequence[Any]) -> SSAValue:
        return tensor_split(t, x, indices, along(t, x))

    def in_parts(t: TorchBuilder, x: SSAValue, sections: int) -> SSAValue:
        size = t.shape(x)[along(t, x)]
        rest = minus(t, size, times(t, over(t, size, sections), sections))
        require_size(t, rest, "eq", 0, f"{name} needs a size that its {sections} sections divide")
        return t.tensor_split(x, sections, along(t, x))

    def along(t: TorchBuilder, x: SSAValue) -> int:
        rank = len(t.shape(x))
        require_size(t, rank, "ge", least, f"{name} needs at least {least} dims")
        return dim(rank)

    decomposition(f"aten.{name}.int")(in_parts)
    decomposition(f"aten.{name}.array")(at_indices)


_split_along("hsplit", 1, lambda rank: 0 if rank == 1 else 1)
_split_along("vsplit", 2, lambda rank: 0)
_split_along("dsplit", 3, lambda rank: 2)


@decomposition("aten.diff")
def diff(t: TorchBuilder, x: SSAValue, n: int, dim: int, prepend: SSAValue | None, append: SSAValue | None) -> SSAValue:
    """Subtract from each element the one before it, n times; what is too short for that becomes empty."""
    parts = [part for part in (prepend, x, append) if part is not None]
    x = t.cat(parts, dim) if len(parts) > 1 and n else x
    size = t.shape(x)[dim]
    for _ in range(min(n, size) if isinstance(size, int) else n):
        later, earlier = t.slice(x, dim, 1), t.slice(x, dim, 0, -1)
        x = t.logical_xor(later, earlier) if t.dtype(x).is_bool else t.sub(later, earlier)
    return x
