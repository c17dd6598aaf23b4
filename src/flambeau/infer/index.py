"""Shapes of reads and writes at indices."""

from __future__ import annotations

from typing import Any

from flambeau.infer.rules import Dim, InferenceError, Meta, broadcast, infer_rule, normal_dim, product, replaced, size
from flambeau.ir import dtypes


def indexed(shape: tuple[Dim, ...], indices: list[Meta | None]) -> tuple[Dim, ...]:
    """The shape of `x[indices]`: where the index dims stand depends on whether the indices are neighbours."""
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


@infer_rule("aten._unsafe_masked_index")
def masked_index(x: Meta, mask: Meta, indices: list[Meta | None], fill: Any) -> Meta:
    return index(x, indices)


@infer_rule("aten.index_select")
def index_select(x: Meta, dim: int, index: Meta) -> Meta:
    at = normal_dim(dim, x.rank)
    return Meta(replaced(x.shape, at, product(index.shape)) if x.rank else (), x.dtype)


@infer_rule("aten.gather")
def gather(x: Meta, dim: int, index: Meta, sparse_grad: bool) -> Meta:
    return Meta(index.shape, x.dtype)


@infer_rule("aten.take")
def take(x: Meta, index: Meta) -> Meta:
    return Meta(index.shape, x.dtype)


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


@infer_rule("aten.nonzero_static")
def nonzero_static(x: Meta, count: Any, fill: Any) -> Meta:
    return Meta((size(count), x.rank), dtypes.int64)


@infer_rule("aten.masked_select")
def masked_select(x: Meta, mask: Meta) -> Meta:
    return Meta((None,), x.dtype)


@infer_rule("aten.bincount")
def bincount(x: Meta, weights: Meta | None, least: Any) -> Meta:
    if weights is None or x.shape == (0,):
        return Meta((None,), dtypes.int64)
    return Meta((None,), dtypes.float32 if weights.dtype is dtypes.float32 else dtypes.float64)


@infer_rule("aten.unique_consecutive")
def unique_consecutive(x: Meta, inverse: bool, counts: bool, dim: int | None) -> tuple[Meta, Meta, Meta]:
    if dim is not None and not (dim == 0 and x.rank == 1):
        return unique_dim(x, dim, False, inverse, counts)
    return Meta((None,), x.dtype), _indices(x.shape, inverse), _indices((None,), counts)


@infer_rule("aten.unique_dim")
def unique_dim(x: Meta, dim: int, sort: bool, inverse: bool, counts: bool) -> tuple[Meta, Meta, Meta]:
    at = normal_dim(dim, x.rank)
    whole = x.shape[at] if x.rank else 1
    return Meta(replaced(x.shape, at, None), x.dtype), _indices((whole,), True), _indices((None,), True)


@infer_rule("aten._unique2")
def unique(x: Meta, sort: bool, inverse: bool, counts: bool) -> tuple[Meta, Meta, Meta]:
    return Meta((None,), x.dtype), _indices(x.shape, inverse), _indices((None,), counts)


def _indices(shape: tuple[Dim, ...], wanted: bool) -> Meta:
    return Meta(shape if wanted else (0,), dtypes.int64)


# --- Sorting and searching ---


@infer_rule("aten.sort")
def sort(x: Meta, dim: int, descending: bool) -> tuple[Meta, Meta]:
    normal_dim(dim, x.rank)
    return x, Meta(x.shape, dtypes.int64)


@infer_rule("aten.sort.stable")
def sort_stable(x: Meta, stable: Any, dim: int, descending: bool) -> tuple[Meta, Meta]:
    return sort(x, dim, descending)


@infer_rule("aten.argsort")
def argsort(x: Meta, dim: int, descending: bool) -> Meta:
    return sort(x, dim, descending)[1]


@infer_rule("aten.argsort.stable")
def argsort_stable(x: Meta, stable: bool, dim: int, descending: bool) -> Meta:
    return argsort(x, dim, descending)


@infer_rule("aten.msort")
def msort(x: Meta) -> Meta:
    return x


@infer_rule("aten.topk")
def topk(x: Meta, k: Any, dim: int, *_: Any) -> tuple[Meta, Meta]:
    at = normal_dim(dim, x.rank)
    shape = replaced(x.shape, at, size(k)) if x.rank else ()
    return Meta(shape, x.dtype), Meta(shape, dtypes.int64)


@infer_rule("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(x: Any, boundaries: Meta, out_int32: bool, right: bool) -> Meta:
    shape = x.shape if isinstance(x, Meta) else ()
    return Meta(shape, dtypes.int32 if out_int32 else dtypes.int64)


@infer_rule("aten.searchsorted.Tensor")
def searchsorted(boundaries: Meta, x: Meta, out_int32: bool, *_: Any) -> Meta:
    return Meta(x.shape, dtypes.int32 if out_int32 else dtypes.int64)


@infer_rule("aten.isin.Tensor_Tensor", "aten.isin.Tensor_Scalar")
def isin(x: Meta, elements: Any, *_: Any) -> Meta:
    return Meta(x.shape, dtypes.bool_)
