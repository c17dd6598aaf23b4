"""Shapes of views, rearrangements, joins and conversions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.infer.promotion import COMPLEX_OF
from flambeau.infer.rules import (
    Dim,
    InferenceError,
    Meta,
    broadcast,
    dtype_or,
    infer_rule,
    known,
    normal_dim,
    product,
    promoted,
    replaced,
    same,
    size,
    sizes,
)
from flambeau.ir import dtypes

infer_rule(
    "aten.clone", "aten.contiguous", "aten.detach", "aten.detach_copy", "aten.alias", "aten.alias_copy", "aten.lift",
    "aten.lift_fresh", "aten.lift_fresh_copy", "aten.resolve_conj", "aten.resolve_neg", "aten.copy", "aten.data",
    "aten.cpu", "aten.cuda", "aten.flip", "aten.fliplr", "aten.flipud", "aten.roll", "aten.channel_shuffle",
    "aten._autocast_to_full_precision", "aten.as_strided_scatter", "prims.as_strided_scatter", "prims.view_of",
)(same)  # fmt: skip


def reshaped(old: Sequence[Dim], wanted: Sequence[Any]) -> tuple[Dim, ...]:
    """Compute the shape of a view from the `wanted` sizes, with -1 worked out where that can be known."""
    shape = [size(w) for w in wanted]
    if -1 not in shape:
        return tuple(shape)
    at = shape.index(-1)
    rest = product([d for i, d in enumerate(shape) if i != at])
    total = product(old)
    if total is not None and rest:
        if total % rest:
            raise InferenceError(f"{list(old)} cannot be viewed as {list(wanted)}")
        shape[at] = total // rest
    else:
        shape[at] = None
    return tuple(shape)


@infer_rule(
    "aten.view", "aten.view_copy", "aten.reshape", "aten._unsafe_view", "aten._reshape_copy", "aten._reshape_alias",
    "aten._reshape_alias_copy",
)  # fmt: skip
def view(x: Meta, shape: list[Any], strides: Any = None) -> Meta:
    return Meta(reshaped(x.shape, shape), x.dtype)


@infer_rule("aten.view_as", "aten.reshape_as")
def view_as(x: Meta, other: Meta) -> Meta:
    count, wanted = product(x.shape), product(other.shape)
    if count is not None and wanted is not None and count != wanted:
        raise InferenceError(f"{list(x.shape)} cannot be viewed as {list(other.shape)}")
    return Meta(other.shape, x.dtype)


@infer_rule("aten.expand_as")
def expand_as(x: Meta, other: Meta) -> Meta:
    return Meta(expand(x, list(other.shape), False).shape if None not in other.shape else other.shape, x.dtype)


@infer_rule("aten.as_strided", "aten.as_strided_copy", "aten.resize")
def as_strided(x: Meta, shape: list[Any], *_: Any) -> Meta:
    return Meta(sizes(shape), x.dtype)


@infer_rule("aten.view.dtype", "aten.view_copy.dtype")
def view_dtype(x: Meta, code: int) -> Meta:
    dtype = dtype_or(code, x.dtype)
    if dtype.size == x.dtype.size:
        return Meta(x.shape, dtype)
    if x.rank == 0:
        raise InferenceError(f"a 0-d tensor of {x.dtype} cannot be viewed as {dtype}")
    last = x.shape[-1]
    return Meta((*x.shape[:-1], None if last is None else last * x.dtype.size // dtype.size), dtype)


@infer_rule("aten.view_as_real", "aten.view_as_real_copy")
def view_as_real(x: Meta) -> Meta:
    return Meta((*x.shape, 2), x.dtype.real)


@infer_rule("aten.view_as_complex", "aten.view_as_complex_copy")
def view_as_complex(x: Meta) -> Meta:
    if not x.rank or x.shape[-1] not in (2, None):
        raise InferenceError(f"the last dim of complex numbers has their two parts, here is {list(x.shape)}")
    return Meta(x.shape[:-1], COMPLEX_OF[x.dtype])


@infer_rule("aten.flatten.using_ints", "aten.ravel", "prims.collapse")
def flatten(x: Meta, start: int = 0, end: int = -1) -> Meta:
    first, last = normal_dim(start, max(x.rank, 1)), normal_dim(end, max(x.rank, 1))
    if x.rank == 0:
        return Meta((1,), x.dtype)
    if first > last:
        raise InferenceError(f"flatten: dim {start} comes after dim {end}")
    return Meta((*x.shape[:first], product(x.shape[first : last + 1]), *x.shape[last + 1 :]), x.dtype)


@infer_rule("aten.unflatten.int")
def unflatten(x: Meta, dim: int, parts: list[Any]) -> Meta:
    at = normal_dim(dim, x.rank)
    return Meta((*x.shape[:at], *reshaped([x.shape[at]], parts), *x.shape[at + 1 :]), x.dtype)


@infer_rule("aten.unsqueeze", "aten.unsqueeze_copy")
def unsqueeze(x: Meta, dim: int) -> Meta:
    at = normal_dim(dim, x.rank + 1)
    return Meta((*x.shape[:at], 1, *x.shape[at:]), x.dtype)


def _squeezed(x: Meta, dims: set[int]) -> Meta:
    unknown = [i for i in dims if x.rank and x.shape[i] is None]
    if unknown:
        raise InferenceError(f"whether dim {unknown[0]} has size 1, so that squeeze drops it, is not known")
    return Meta(tuple(d for i, d in enumerate(x.shape) if not (i in dims and d == 1)), x.dtype)


@infer_rule("aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze_copy.dim", "aten.squeeze_copy.dims", "prims.squeeze")
def squeeze(x: Meta, dims: Any) -> Meta:
    return _squeezed(x, {normal_dim(d, x.rank) for d in (dims if isinstance(dims, list) else [dims])})


infer_rule("aten.squeeze", "aten.squeeze_copy")(lambda x: _squeezed(x, set(range(x.rank))))


@infer_rule("aten.transpose.int", "aten.transpose_copy.int", "aten.swapaxes", "aten.swapdims")
def transpose(x: Meta, first: int, second: int) -> Meta:
    shape = list(x.shape)
    if shape:
        i, j = normal_dim(first, x.rank), normal_dim(second, x.rank)
        shape[i], shape[j] = shape[j], shape[i]
    return Meta(tuple(shape), x.dtype)


infer_rule("aten.mT", "aten.mH", "aten.adjoint")(lambda x: transpose(x, -2, -1))


@infer_rule("aten.t", "aten.t_copy")
def t(x: Meta) -> Meta:
    if x.rank > 2:
        raise InferenceError(f"t of a tensor of rank {x.rank}, which is no matrix")
    return numpy_t(x)


@infer_rule("aten.numpy_T")
def numpy_t(x: Meta) -> Meta:
    return Meta(tuple(reversed(x.shape)), x.dtype)


@infer_rule("aten.permute", "aten.permute_copy")
def permute(x: Meta, dims: list[int]) -> Meta:
    return Meta(tuple(x.shape[normal_dim(d, x.rank)] for d in dims), x.dtype)


@infer_rule("aten.movedim.int", "aten.movedim.intlist")
def movedim(x: Meta, source: Any, destination: Any) -> Meta:
    listed = [v if isinstance(v, list) else [v] for v in (source, destination)]
    moved, places = ([normal_dim(d, x.rank) for d in v] for v in listed)
    rest = iter(d for i, d in enumerate(x.shape) if i not in moved)
    at = dict(zip(places, moved, strict=True))
    return Meta(tuple(x.shape[at[i]] if i in at else next(rest) for i in range(x.rank)), x.dtype)


@infer_rule("aten.rot90")
def rot90(x: Meta, times: int, dims: list[int]) -> Meta:
    if x.rank < 2 or len(dims) != 2 or normal_dim(dims[0], x.rank) == normal_dim(dims[1], x.rank):
        raise InferenceError(f"rot90 turns a plane of two dims, not {dims} of rank {x.rank}")
    return transpose(x, *dims) if times % 2 else x


@infer_rule("aten.expand", "aten.expand_copy")
def expand(x: Meta, sizes: list[Any], implicit: bool) -> Meta:
    offset = len(sizes) - x.rank
    if offset < 0 or any(isinstance(s, int) and s == -1 for s in sizes[:offset]):
        raise InferenceError(f"{list(x.shape)} cannot be expanded to {sizes}")
    shape = [x.shape[i - offset] if s == -1 else size(s) for i, s in enumerate(sizes)]
    found = broadcast(shape, x.shape)
    if any(s is not None and f not in (s, None) for s, f in zip(shape, found, strict=True)):
        raise InferenceError(f"{list(x.shape)} cannot be expanded to {sizes}")
    return Meta(tuple(f if s is None else s for s, f in zip(shape, found, strict=True)), x.dtype)


infer_rule("aten.broadcast_to")(lambda x, sizes: expand(x, sizes, False))


@infer_rule("aten.diagonal", "aten.diagonal_copy", "aten.linalg_diagonal")
def diagonal(x: Meta, offset: Any, first: int, second: int) -> Meta:
    i, j = normal_dim(first, x.rank), normal_dim(second, x.rank)
    if i == j:
        raise InferenceError(f"a diagonal of the dims {first} and {second}, which are one")
    rows, columns = x.shape[i], x.shape[j]
    length: Dim = None
    if rows is not None and columns is not None and known(offset):
        length = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    return Meta((*(d for k, d in enumerate(x.shape) if k not in (i, j)), length), x.dtype)


@infer_rule("aten.diag_embed")
def diag_embed(x: Meta, offset: int, first: int, second: int) -> Meta:
    places = {normal_dim(d, x.rank + 1) for d in (first, second)}
    if len(places) != 2 or x.rank == 0:
        raise InferenceError(f"a diagonal in the dims {first} and {second} of a tensor of rank {x.rank + 1}")
    last = x.shape[-1]
    side = None if last is None else last + abs(offset)
    rest = iter(x.shape[:-1])
    return Meta(tuple(side if i in places else next(rest) for i in range(x.rank + 1)), x.dtype)


@infer_rule("aten.diag")
def diag(x: Meta, offset: int) -> Meta:
    if x.rank not in (1, 2):
        raise InferenceError(f"diag is of vectors and matrices, not of rank {x.rank}")
    return diag_embed(x, offset, 0, 1) if x.rank == 1 else diagonal(x, offset, 0, 1)


@infer_rule("aten.unfold", "aten.unfold_copy")
def unfold(x: Meta, dim: int, length: Any, step: Any) -> Meta:
    if x.rank == 0:
        return Meta((size(length),), x.dtype)
    at = normal_dim(dim, x.rank)
    whole = x.shape[at]
    count = (whole - length) // step + 1 if whole is not None and known(length, step) else None
    return Meta((*replaced(x.shape, at, count), size(length)), x.dtype)


@infer_rule("aten.unfold_backward")
def unfold_backward(gradient: Meta, sizes: Sequence[Any], dim: int, length: Any, step: Any) -> Meta:
    return Meta(tuple(size(n) for n in sizes), gradient.dtype)


@infer_rule("aten.pixel_shuffle")
def pixel_shuffle(x: Meta, factor: int) -> Meta:
    *outer, channels, height, width = x.shape
    return Meta((*outer, divided(channels, factor**2), product([height, factor]), product([width, factor])), x.dtype)


@infer_rule("aten.pixel_unshuffle")
def pixel_unshuffle(x: Meta, factor: int) -> Meta:
    *outer, channels, height, width = x.shape
    return Meta((*outer, product([channels, factor**2]), divided(height, factor), divided(width, factor)), x.dtype)


def divided(length: Dim, parts: int) -> Dim:
    """Divide a size into equal parts; raises where it cannot be."""
    if length is not None and length % parts:
        raise InferenceError(f"{length} does not divide by {parts}")
    return None if length is None else length // parts


@infer_rule("aten.repeat_interleave.self_int")
def repeat_interleave(x: Meta, times: Any, dim: int | None, output: Any) -> Meta:
    if dim is None:
        return Meta((product([*x.shape, size(times)]),), x.dtype)
    at = normal_dim(dim, x.rank)
    return Meta(replaced(x.shape, at, product([x.shape[at] if x.rank else 1, size(times)])), x.dtype)


@infer_rule("aten.repeat_interleave.Tensor")
def repeat_interleave_indices(times: Meta, output: Any) -> Meta:
    return Meta((size(output),), times.dtype)


@infer_rule("aten.repeat_interleave.self_Tensor")
def repeat_interleave_tensor(x: Meta, times: Meta, dim: int | None, output: Any) -> Meta:
    if dim is None:
        return Meta((size(output),), x.dtype)
    return Meta(replaced(x.shape, normal_dim(dim, x.rank), size(output)), x.dtype)


@infer_rule("aten.repeat")
def repeat(x: Meta, times: list[Any]) -> Meta:
    shape = (1,) * (len(times) - x.rank) + x.shape
    return Meta(tuple(product([d, size(n)]) for d, n in zip(shape, times, strict=True)), x.dtype)


infer_rule("aten.tile")(lambda x, times: repeat(x, [1] * (x.rank - len(times)) + times))


@infer_rule("aten.atleast_1d")
def atleast_1d(x: Meta) -> Meta:
    return x if x.rank else Meta((1,), x.dtype)


@infer_rule("aten.atleast_2d")
def atleast_2d(x: Meta) -> Meta:
    return Meta((1,) * (2 - x.rank) + x.shape, x.dtype)


@infer_rule("aten.atleast_3d")
def atleast_3d(x: Meta) -> Meta:
    return x if x.rank >= 3 else Meta((*atleast_2d(x).shape, 1), x.dtype)


def _of_each(name: str, rule: Callable[[Meta], Meta]) -> None:
    infer_rule(name)(lambda tensors: [rule(m) for m in tensors])


_of_each("aten.atleast_1d.Sequence", atleast_1d)
_of_each("aten.atleast_2d.Sequence", atleast_2d)
_of_each("aten.atleast_3d.Sequence", atleast_3d)


infer_rule("prims.split_dim")(lambda x, dim, outer: unflatten(x, dim, [outer, -1]))


# --- Joins ---


@infer_rule("aten.cat", "aten.concat", "aten.concatenate")
def cat(tensors: list[Meta], dim: int) -> Meta:
    if not tensors:
        raise InferenceError("nothing to concatenate")
    rank = max(m.rank for m in tensors)
    # Beside others, a tensor of shape (0,) counts for nothing whatever their rank is.
    parts = [m for m in tensors if m.rank == rank and m.shape != (0,)] or tensors[:1]
    at = normal_dim(dim, rank)
    lengths = [m.shape[at] for m in parts]
    total = None if None in lengths else sum(d for d in lengths if d is not None)
    return Meta(replaced(_same_shapes([replaced(m.shape, at, 1) for m in parts]), at, total), promoted(*tensors))


def _same_shapes(shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """Join shapes that must be equal: each size is what any of them knows."""
    result = []
    for dims in zip(*shapes, strict=True):
        found = {d for d in dims if d is not None}
        if len(found) > 1:
            raise InferenceError(f"shapes {list(shapes)} differ")
        result.append(found.pop() if found else None)
    return tuple(result)


@infer_rule("aten.stack")
def stack(tensors: list[Meta], dim: int) -> Meta:
    if not tensors:
        raise InferenceError("nothing to stack")
    at = normal_dim(dim, tensors[0].rank + 1)
    shape = _same_shapes([m.shape for m in tensors])
    return Meta((*shape[:at], len(tensors), *shape[at:]), promoted(*tensors))


@infer_rule("aten.hstack")
def hstack(tensors: list[Meta]) -> Meta:
    parts = [atleast_1d(m) for m in tensors]
    return cat(parts, 0 if parts and parts[0].rank == 1 else 1)


infer_rule("aten.dstack")(lambda tensors: cat([atleast_3d(m) for m in tensors], 2))
infer_rule("aten.vstack")(lambda tensors: cat([atleast_2d(m) for m in tensors], 0))


@infer_rule("aten.column_stack")
def column_stack(tensors: list[Meta]) -> Meta:
    return cat([m if m.rank > 1 else Meta((product(m.shape), 1), m.dtype) for m in tensors], 1)


@infer_rule("aten.broadcast_tensors")
def broadcast_tensors(tensors: list[Meta]) -> list[Meta]:
    shape = broadcast(*(m.shape for m in tensors))
    return [Meta(shape, m.dtype) for m in tensors]


@infer_rule("aten.meshgrid.indexing")
def meshgrid_indexing(tensors: list[Meta], indexing: str) -> list[Meta]:
    lengths = [product(m.shape) for m in tensors]
    if indexing == "xy" and len(lengths) > 1:
        lengths[:2] = lengths[1::-1]
    return [Meta(tuple(lengths), m.dtype) for m in tensors]


infer_rule("aten.meshgrid")(lambda tensors: meshgrid_indexing(tensors, "ij"))


# --- Conversions ---


@infer_rule(
    "aten.to.dtype", "aten.to.dtype_layout", "aten.to.prim_dtype", "aten._to_copy", "prims.convert_element_type"
)
def to_dtype(x: Meta, dtype: int | None, *_: Any) -> Meta:
    return Meta(x.shape, dtype_or(dtype, x.dtype))


infer_rule("aten.to.device", "aten.to.prim_Device")(lambda x, device, dtype, *_: to_dtype(x, dtype))
infer_rule("aten.to.other", "aten.type_as")(lambda x, other, *_: Meta(x.shape, other.dtype))
infer_rule("aten._cast_Float")(lambda x, non_blocking: Meta(x.shape, dtypes.float32))
infer_rule("aten._cast_Long")(lambda x, non_blocking: Meta(x.shape, dtypes.int64))


@infer_rule("aten._autocast_to_reduced_precision")
def autocast(x: Meta, cuda_enabled: bool, cpu_enabled: bool, cuda_dtype: int, cpu_dtype: int) -> Meta:
    return Meta(x.shape, dtype_or(cpu_dtype, x.dtype) if cpu_enabled and x.dtype is dtypes.float32 else x.dtype)


@infer_rule("aten.resize_as")
def resize_as(x: Meta, template: Meta, *_: Any) -> Meta:
    return Meta(template.shape, x.dtype)


infer_rule("prims.broadcast_in_dim")(lambda x, shape, dims: Meta(sizes(shape), x.dtype))
infer_rule("prims.copy_strided")(lambda x, strides: x)
