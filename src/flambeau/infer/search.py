"""Shapes of searches in sorted sequences."""

from __future__ import annotations

from typing import Any

from flambeau.infer.rules import Meta, broadcast_metas, infer_rule, size
from flambeau.ir import dtypes


@infer_rule("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(boundaries: Meta, x: Any, out_int32: bool, *_: Any) -> Meta:
    return Meta(broadcast_metas(x), dtypes.int32 if out_int32 else dtypes.int64)


@infer_rule("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(x: Any, boundaries: Meta, out_int32: bool, right: bool) -> Meta:
    return searchsorted(boundaries, x, out_int32)


@infer_rule("aten.nonzero_static")
def nonzero_static(x: Meta, count: Any, fill: Any) -> Meta:
    return Meta((size(count), x.rank), dtypes.int64)


@infer_rule("aten.isin.Tensor_Tensor", "aten.isin.Tensor_Scalar")
def isin(x: Meta, elements: Any, *_: Any) -> Meta:
    return Meta(x.shape, dtypes.bool_)
