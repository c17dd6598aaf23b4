"""Shapes of writes at indices, which are those of the tensor that is written."""

from __future__ import annotations

from typing import Any

from flambeau.infer.rules import Meta, infer_rule, normal_dim


@infer_rule(
    "aten.index_put", "aten.index_put.hacked_twin", "aten._unsafe_index_put", "aten._unsafe_index_put.hacked_twin",
    "aten._index_put_impl", "aten.put", "aten.select_scatter", "aten.slice_scatter", "aten.diagonal_scatter",
    "aten.as_strided_scatter",
)  # fmt: skip
def written(x: Meta, *_: Any) -> Meta:
    return x


@infer_rule(
    "aten.index_add", "aten.index_copy", "aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor",
    "aten.index_reduce", "aten.scatter.src", "aten.scatter.value", "aten.scatter.reduce",
    "aten.scatter.value_reduce", "aten.scatter_add", "aten.scatter_reduce.two",
)  # fmt: skip
def written_along(x: Meta, dim: int, *_: Any) -> Meta:
    normal_dim(dim, x.rank)  # which refuses one that there is not
    return x
