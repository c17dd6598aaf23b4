"""Shapes of reads and writes at indices."""

from __future__ import annotations

from typing import Any

from flambeau.infer.rules import (
    Dim,
    InferenceError,
    Meta,
    broadcast,
    infer_rule,
    normal_dim,
    product,
    replaced,
    same,
    size,
)
from flambeau.ir import dtypes

infer_rule("aten.embedding_renorm")(same)


def indexed(shape: tuple[Dim, ...], indices: list[Meta | None]) -> tuple[Dim, ...]:
    """Compute the shape of `x[indices]`; the index dims come first unless all indices are neighbours."""
    shapes: list[tuple[Dim, ...] | None] = []
    for index in indices:
        if index is not None and (index.dtype.is_bool or index.dtype is dtypes.uint8):
            shapes += [(None,)] * index.rank
        else:
            shapes.append(None if index is None else index.shape)
    if len(shapes) > len(shape):
        raise InferenceError(f"too many indices for a tensor of rank {len(shape)}")
    at = [i for i, s in enumerate(shapes) if s is not None]
    if not at:
        return shape
    joint = broadcast(*(s for s in shapes if s is not None))
    if at != list(range(at[0], at[-1] + 1)):
        return (*joint, *(d for i, d in enumerate(shape) if i not in at))
    return (*shape[: at[0]], *joint, *shape[at[-1] + 1 :])


@infer_rule("aten.index.Tensor", "aten._unsafe_index.Tensor", "aten.index.Tensor_hacked_twin")
def index(x: Meta, indices: list[Meta | None]) -> Meta:
    return Meta(indexed(x.shape, indices), x.dtype)


infer_rule("aten._unsafe_masked_index")(lambda x, mask, indices, fill: index(x, indices))


@infer_rule("aten.index_select")
def index_select(x: Meta, dim: int, index: Meta) -> Meta:
    at = normal_dim(dim, x.rank)
    return Meta(replaced(x.shape, at, product(index.shape)) if x.rank else (), x.dtype)


@infer_rule("aten.embedding_bag.padding_idx")
def embedding_bag(weight: Meta, indices: Meta, offsets: Meta, *rest: Any) -> tuple[Meta, Meta, Meta, Meta]:
    """Give each bag a row: the result, the bag of each index, the size of each bag, the rows that are greatest."""
    mode, include_last_offset = rest[1], rest[4]
    bags = offsets.shape[0]
    if include_last_offset and bags is not None:
        bags -= 1
    sizes, rows = Meta((bags,), offsets.dtype), (bags, weight.shape[1])
    most = Meta(rows, offsets.dtype) if mode == 2 else sizes
    return Meta(rows, weight.dtype), Meta(indices.shape, offsets.dtype), sizes, most


infer_rule("aten.gather")(lambda x, dim, index, sparse_grad: Meta(index.shape, x.dtype))
infer_rule("aten.take")(lambda x, index: Meta(index.shape, x.dtype))


@infer_rule("aten.take_along_dim")
def take_along_dim(x: Meta, index: Meta, dim: int | None) -> Meta:
    if dim is None:
        return Meta((product(index.shape),), x.dtype)
    at = normal_dim(dim, x.rank)
    joint = broadcast(replaced(x.shape, at, 1), replaced(index.shape, at, 1))
    return Meta(replaced(joint, at, index.shape[at]), x.dtype)


@infer_rule("aten.embedding")
def embedding(weight: Meta, indices: Meta, *_: Any) -> Meta:
    return Meta((*indices.shape, *weight.shape[1:]), weight.dtype)


@infer_rule("aten.embedding_dense_backward")
def embedding_dense_backward(gradient: Meta, indices: Meta, rows: Any, *_: Any) -> Meta:
    return Meta((size(rows), gradient.shape[-1]), gradient.dtype)


@infer_rule("aten.one_hot")
def one_hot(x: Meta, classes: Any) -> Meta:
    return Meta((*x.shape, None if classes == -1 else size(classes)), dtypes.int64)


# --- Results whose sizes depend on the contents ---


@infer_rule("aten.nonzero", "aten.argwhere")
def nonzero(x: Meta) -> Meta:
    return Meta((None, x.rank), dtypes.int64)


@infer_rule("aten.nonzero_numpy")
def nonzero_numpy(x: Meta) -> list[Meta]:
    return [Meta((None,), dtypes.int64)] * max(x.rank, 1)


@infer_rule("aten.masked_select")
def masked_select(x: Meta, mask: Meta) -> Meta:
    return Meta((None,), x.dtype)


@infer_rule("aten.bincount")
def bincount(x: Meta, weights: Meta | None, least: Any) -> Meta:
    if weights is None or x.shape == (0,):
        return Meta((None,), dtypes.int64)
    return Meta((None,), dtypes.float32 if weights.dtype is dtypes.float32 else dtypes.float64)
