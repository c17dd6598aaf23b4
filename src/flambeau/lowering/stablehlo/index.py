"""Rows that are looked up, as gathers of whole rows."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, i1

from flambeau.dialects import stablehlo
from flambeau.lowering.builder import Tensor, i64_array, tensor_type
from flambeau.lowering.linalg.index import OUT_OF_RANGE, at_least_1d
from flambeau.lowering.linalg.index import select_rows as select_elements
from flambeau.lowering.stablehlo.ops import StablehloBuilder
from flambeau.lowering.stablehlo.rules import stablehlo_rule


@stablehlo_rule("aten.embedding")
def embedding(
    b: StablehloBuilder, weight: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, sparse: bool
) -> Tensor:
    # padding_idx only says which row gets no gradient.
    return select_rows(b, weight, 0, indices)


@stablehlo_rule("aten.index_select")
def index_select(b: StablehloBuilder, x: Tensor, dim: int, index: Tensor) -> Tensor:
    result = select_rows(b, at_least_1d(b, x), b.dim(dim, x.rank), at_least_1d(b, index))
    return result if x.rank else b.reshape(result, [])


def select_rows(b: StablehloBuilder, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Replace a dim of `x` by the dims of the index tensor: a gather of slices that are whole along all other dims."""
    if None in (*x.shape, *index.shape) or 0 in x.shape:
        return select_elements(b, x, dim, index)  # Sizes of slices are part of the op, and none is empty.
    sizes = b.sizes(x)
    b.check_range(index, sizes[dim], OUT_OF_RANGE, negative=False)
    result = [*sizes[:dim], *b.sizes(index), *sizes[dim + 1 :]]
    numbers = stablehlo.gather_dimension_numbers(
        offset_dims=(*range(dim), *range(dim + index.rank, len(result))),
        collapsed_slice_dims=(dim,),
        operand_batching_dims=(),
        start_indices_batching_dims=(),
        start_index_map=(dim,),
        index_vector_dim=index.rank,
    )
    properties = {
        "dimension_numbers": numbers,
        "slice_sizes": i64_array(tuple(1 if d == dim else n for d, n in enumerate(x.shape) if n is not None)),
        "indices_are_sorted": IntegerAttr(0, i1),
    }
    shape = (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :])
    made = b.target.make("gather", (x.value, index.value), tensor_type(shape, x.dtype.builtin), properties)
    return Tensor(made, x.dtype, result)
