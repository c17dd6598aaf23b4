"""Shapes of joins and splits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.infer.rules import (
    Dim,
    InferenceError,
    Meta,
    broadcast,
    infer_rule,
    known,
    normal_dim,
    product,
    promoted,
    replaced,
    size,
)
from flambeau.infer.view import atleast_1d, atleast_2d, atleast_3d, divided, slice_


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
    """One shape out of several that must be equal: what any of them knows."""
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


@infer_rule("aten.dstack")
def dstack(tensors: list[Meta]) -> Meta:
    return cat([atleast_3d(m) for m in tensors], 2)


@infer_rule("aten.vstack")
def vstack(tensors: list[Meta]) -> Meta:
    return cat([atleast_2d(m) for m in tensors], 0)


@infer_rule("aten.column_stack")
def column_stack(tensors: list[Meta]) -> Meta:
    return cat([m if m.rank > 1 else Meta((product(m.shape), 1), m.dtype) for m in tensors], 1)


@infer_rule("aten.broadcast_tensors")
def broadcast_tensors(tensors: list[Meta]) -> list[Meta]:
    shape = broadcast(*(m.shape for m in tensors))
    return [Meta(shape, m.dtype) for m in tensors]


@infer_rule("aten.meshgrid")
def meshgrid(tensors: list[Meta]) -> list[Meta]:
    return meshgrid_indexing(tensors, "ij")


@infer_rule("aten.meshgrid.indexing")
def meshgrid_indexing(tensors: list[Meta], indexing: str) -> list[Meta]:
    lengths = [product(m.shape) for m in tensors]
    if indexing == "xy" and len(lengths) > 1:
        lengths[:2] = lengths[1::-1]
    return [Meta(tuple(lengths), m.dtype) for m in tensors]


# --- Splits: a list is one result of list type ---


def _parts(x: Meta, dim: int, lengths: Sequence[Any]) -> list[Meta]:
    at = normal_dim(dim, x.rank)
    return [Meta(replaced(x.shape, at, size(n)), x.dtype) for n in lengths]


def _length(x: Meta, dim: int) -> int:
    """The size of a dim that decides how many results there are."""
    length = x.shape[normal_dim(dim, x.rank)] if x.rank else 1
    if length is None:
        raise InferenceError(f"how many parts there are depends on the size of dim {dim}, which is not known")
    return length


@infer_rule("aten.split.Tensor", "aten.split_copy.Tensor")
def split(x: Meta, length: Any, dim: int) -> list[Meta]:
    whole = _length(x, dim)
    if not known(length):
        raise InferenceError("how many parts there are depends on a size that is not known")
    if length <= 0:
        return _parts(x, dim, [whole])
    return _parts(x, dim, [min(length, whole - start) for start in range(0, max(whole, 1), length)])


@infer_rule("aten.chunk")
def chunk(x: Meta, count: int, dim: int) -> list[Meta]:
    whole = _length(x, dim)
    return _parts(x, dim, [0] * count) if whole == 0 else split(x, -(-whole // count), dim)


@infer_rule(
    "aten.split.sizes", "aten.split_with_sizes", "aten.split_with_sizes_copy",
)  # fmt: skip
def split_sizes(x: Meta, lengths: list[Any], dim: int) -> list[Meta]:
    return _parts(x, dim, lengths)


@infer_rule("aten.tensor_split.sections")
def tensor_split(x: Meta, count: int, dim: int) -> list[Meta]:
    whole = x.shape[normal_dim(dim, x.rank)]
    return _parts(x, dim, [None if whole is None else whole // count + (i < whole % count) for i in range(count)])


@infer_rule("aten.tensor_split.indices")
def tensor_split_indices(x: Meta, indices: list[Any], dim: int) -> list[Meta]:
    return [slice_(x, dim, start, end, 1) for start, end in zip([0, *indices], [*indices, None], strict=True)]


def _split_along(name: str, least: int, dim: Callable[[int], int]) -> None:
    """Splits along a dim that the rank decides: in equal parts, or at indices."""

    def along(x: Meta) -> int:
        if x.rank < least:
            raise InferenceError(f"{name} of a tensor of rank {x.rank}")
        return dim(x.rank)

    def in_parts(x: Meta, sections: int) -> list[Meta]:
        divided(x.shape[along(x)], sections)
        return tensor_split(x, sections, along(x))

    infer_rule(f"aten.{name}.int")(in_parts)
    infer_rule(f"aten.{name}.array")(lambda x, indices: tensor_split_indices(x, indices, along(x)))


_split_along("hsplit", 1, lambda rank: 0 if rank == 1 else 1)
_split_along("vsplit", 2, lambda rank: 0)
_split_along("dsplit", 3, lambda rank: 2)


@infer_rule("aten.diff")
def diff(x: Meta, n: int, dim: int, prepend: Meta | None, append: Meta | None) -> Meta:
    parts = [m for m in (prepend, x, append) if m is not None]
    if x.rank == 0 or n < 0 or any(m.rank != x.rank for m in parts):
        raise InferenceError("diff is of tensors that have dims, all as many, and of an order that is not negative")
    whole = cat(parts, dim)
    if n == 0:
        return x
    at = normal_dim(dim, x.rank)
    length = whole.shape[at]
    return Meta(replaced(whole.shape, at, None if length is None else max(length - n, 0)), whole.dtype)


@infer_rule("aten.unbind.int", "aten.unbind_copy.int")
def unbind(x: Meta, dim: int) -> list[Meta]:
    return [Meta(replaced(x.shape, normal_dim(dim, x.rank)), x.dtype)] * _length(x, dim)
