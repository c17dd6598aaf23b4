"""Shapes of sorted tensors, of what a sort finds, and of distinct elements."""

from __future__ import annotations

from typing import Any

from flambeau.infer.reduce import extreme, extreme_dim
from flambeau.infer.rules import Dim, InferenceError, Meta, infer_rule, normal_dim, replaced, same, size
from flambeau.ir import dtypes

infer_rule("aten.msort")(same)
infer_rule("aten.median", "aten.nanmedian")(extreme)
infer_rule("aten.median.dim", "aten.nanmedian.dim", "aten.mode")(extreme_dim)


@infer_rule("aten.sort")
def sort(x: Meta, dim: int, descending: bool) -> tuple[Meta, Meta]:
    normal_dim(dim, x.rank)
    return x, Meta(x.shape, dtypes.int64)


infer_rule("aten.sort.stable")(lambda x, stable, dim, descending: sort(x, dim, descending))


@infer_rule("aten.argsort")
def argsort(x: Meta, dim: int, descending: bool) -> Meta:
    return sort(x, dim, descending)[1]


infer_rule("aten.argsort.stable")(lambda x, stable, dim, descending: argsort(x, dim, descending))


@infer_rule("aten.topk")
def topk(x: Meta, k: Any, dim: int, *_: Any) -> tuple[Meta, Meta]:
    at = normal_dim(dim, x.rank)
    length = x.shape[at] if x.rank else 1
    if isinstance(k, int) and (k < 0 or (isinstance(length, int) and k > length)):
        raise InferenceError(f"topk(): k is {k}, and the dimension has {length} elements")
    shape = replaced(x.shape, at, size(k)) if x.rank else ()
    return Meta(shape, x.dtype), Meta(shape, dtypes.int64)


infer_rule("aten.kthvalue")(lambda x, k, dim, keepdim: extreme_dim(x, dim, keepdim))


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
    """Give the type of indices or counts that an argument asks for; without it PyTorch returns an empty tensor."""
    return Meta(shape if wanted else (0,), dtypes.int64)
