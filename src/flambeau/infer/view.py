"""Shapes of views."""

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
    replaced,
    size,
    sizes,
)


def reshaped(old: Sequence[Dim], wanted: Sequence[Any]) -> tuple[Dim, ...]:
    """The shape of a view, with -1 worked out where that can be known."""
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


@infer_rule("aten.flatten.using_ints", "aten.ravel")
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


@infer_rule("aten.squeeze", "aten.squeeze_copy")
def squeeze_all(x: Meta) -> Meta:
    return _squeezed(x, set(range(x.rank)))


@infer_rule("aten.transpose.int", "aten.transpose_copy.int", "aten.swapaxes", "aten.swapdims")
def transpose(x: Meta, first: int, second: int) -> Meta:
    shape = list(x.shape)
    if shape:
        i, j = normal_dim(first, x.rank), normal_dim(second, x.rank)
        shape[i], shape[j] = shape[j], shape[i]
    return Meta(tuple(shape), x.dtype)


@infer_rule("aten.mT", "aten.mH", "aten.adjoint")
def matrix_transpose(x: Meta) -> Meta:
    return transpose(x, -2, -1)


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


@infer_rule("aten.broadcast_to")
def broadcast_to(x: Meta, sizes: list[Any]) -> Meta:
    return expand(x, sizes, False)


@infer_rule("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(x: Meta, dim: int, start: Any, end: Any, step: int) -> Meta:
    at = normal_dim(dim, x.rank)
    if isinstance(step, int) and step <= 0:
        raise InferenceError(f"the step of a slice is {step}")
    length = x.shape[at]
    known = all(v is None or isinstance(v, int) for v in (start, end))
    if length is not None and known:
        shape: Dim = len(range(*slice(start, end, step).indices(length)))
    else:
        shape = None
    return Meta((*x.shape[:at], shape, *x.shape[at + 1 :]), x.dtype)


@infer_rule("aten.narrow", "aten.narrow_copy", "aten.narrow.Tensor")
def narrow(x: Meta, dim: int, start: Any, length: Any) -> Meta:
    return Meta(replaced(x.shape, normal_dim(dim, x.rank), size(length)), x.dtype)


@infer_rule("aten.select.int", "aten.select_copy.int")
def select(x: Meta, dim: int, index: Any) -> Meta:
    at = normal_dim(dim, x.rank)
    length = x.shape[at]
    if length is not None and isinstance(index, int) and not -length <= index < length:
        raise InferenceError(f"index {index} is out of range for size {length}")
    return Meta((*x.shape[:at], *x.shape[at + 1 :]), x.dtype)


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


@infer_rule("aten.pixel_shuffle")
def pixel_shuffle(x: Meta, factor: int) -> Meta:
    *outer, channels, height, width = x.shape
    return Meta((*outer, divided(channels, factor**2), product([height, factor]), product([width, factor])), x.dtype)


@infer_rule("aten.pixel_unshuffle")
def pixel_unshuffle(x: Meta, factor: int) -> Meta:
    *outer, channels, height, width = x.shape
    return Meta((*outer, product([channels, factor**2]), divided(height, factor), divided(width, factor)), x.dtype)


@infer_rule("aten.glu")
def glu(x: Meta, dim: int) -> Meta:
    at = normal_dim(dim, x.rank)
    return Meta(replaced(x.shape, at, divided(x.shape[at], 2)), x.dtype)


@infer_rule("aten.channel_shuffle")
def channel_shuffle(x: Meta, groups: Any) -> Meta:
    return x


def divided(length: Dim, parts: int) -> Dim:
    """A size as that of so many equal parts."""
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


@infer_rule("aten.tile")
def tile(x: Meta, times: list[Any]) -> Meta:
    return repeat(x, [1] * (x.rank - len(times)) + times)


@infer_rule("aten.repeat")
def repeat(x: Meta, times: list[Any]) -> Meta:
    shape = (1,) * (len(times) - x.rank) + x.shape
    return Meta(tuple(product([d, size(n)]) for d, n in zip(shape, times, strict=True)), x.dtype)


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


@infer_rule("prims.collapse")
def collapse(x: Meta, start: int, end: int) -> Meta:
    return flatten(x, start, end)


@infer_rule("prims.split_dim")
def split_dim(x: Meta, dim: int, outer: Any) -> Meta:
    return unflatten(x, dim, [outer, -1])
