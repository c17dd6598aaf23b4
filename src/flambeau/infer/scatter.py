"""Shapes of writes at indices, which are those of the tensor that is written."""

from __future__ import annotations

from typing import Any

from flambeau.infer.compare import masked
from flambeau.infer.rules import Meta, infer_rule, normal_dim, same

infer_rule(
    "aten.index_put", "aten.index_put.hacked_twin", "aten._unsafe_index_put", "aten._unsafe_index_put.hacked_twin",
    "aten._index_put_impl", "aten.put",
)(same)  # fmt: skip
infer_rule("aten.masked_scatter")(masked)


@infer_rule(
    "aten.index_add", "aten.index_copy", "aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor",
    "aten.index_reduce", "aten.scatter.src", "aten.scatter.value", "aten.scatter.reduce",
    "aten.scatter.value_reduce", "aten.scatter_add", "aten.scatter_reduce.two",
)  # fmt: skip
def written_along(x: Meta, dim: int, *_: Any) -> Meta:
    normal_dim(dim, x.rank)  # which refuses one that there is not
    return x
