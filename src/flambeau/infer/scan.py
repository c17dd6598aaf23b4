"""Shapes and dtypes of scans."""

from __future__ import annotations

from flambeau.infer.reduce import sum_dtype
from flambeau.infer.rules import Meta, infer_rule, same
from flambeau.ir import dtypes

infer_rule("aten.logcumsumexp")(same)


@infer_rule("aten.cummax", "aten.cummin")
def cummax(x: Meta, dim: int) -> tuple[Meta, Meta]:
    return x, Meta(x.shape, dtypes.int64)


@infer_rule("aten.cumsum", "aten.cumprod")
def cumsum(x: Meta, dim: int, dtype: int | None) -> Meta:
    return Meta(x.shape, sum_dtype(x, dtype))
