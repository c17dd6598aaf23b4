"""Writing at computed positions, on whole tensors: rows of a matrix take updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flambeau.ir import dtypes
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.combining import Updating
from flambeau.lowering.element import Element

if TYPE_CHECKING:
    from flambeau.lowering.whole.builder import WholeBuilder


def scatter(
    b: WholeBuilder[Any],
    x: Tensor,
    dims: Sequence[int],
    rows: Tensor,
    update_sizes: Sequence[Size],
    values: Callable[[list[Size], list[Size]], Element],
    how: Updating,
) -> Tensor:
    """Scatter into x with its rows in front: [rows, rest], from updates [updates, rest]."""
    sizes = b.sizes(x)
    rest = [d for d in range(x.rank) if d not in dims]
    order = [*dims, *rest]
    row_count = b.product([sizes[d] for d in dims])
    rest_sizes = [sizes[d] for d in rest]
    width = b.product(rest_sizes)
    count = b.size(rows, 0)
    flat = b.reshape(b.transpose(x, order), [row_count, width])
    with b.frame([*update_sizes, *rest_sizes]):
        at: list[Size] = [b.loop_index(i) for i in range(len(update_sizes) + len(rest_sizes))]
        position: list[Size] = [0] * x.rank
        for i, d in enumerate(rest):
            position[d] = at[len(update_sizes) + i]
        update = values(at[: len(update_sizes)], position).to(how.dtype)
        updates = Tensor(b.spread(update.value, b.frames[-1]), how.dtype, b.frames[-1])
    updates = b.reshape(updates, [count, width])
    result = _combine(b, b.to(flat, how.dtype), rows, updates, how)
    inverse = [order.index(d) for d in range(x.rank)]
    return b.transpose(b.reshape(b.to(result, x.dtype), [sizes[d] for d in order]), inverse)


def _combine(b: WholeBuilder[Any], x: Tensor, rows: Tensor, updates: Tensor, how: Updating) -> Tensor:
    """Combine [updates, width] into the rows of [rows, width] that they name."""
    start = b.full(b.sizes(x), how.start, how.dtype) if how.kind and not how.include_self else x
    result = b.target.scatter(start, rows, updates, how.kind)
    if how.reduce is None or (how.include_self and how.reduce != "mean"):
        return result
    ones = b.full(b.sizes(updates), 1, dtypes.int64)
    seen = b.target.scatter(b.full(b.sizes(x), 0, dtypes.int64), rows, ones, "add")
    return b.elementwise([x, result, seen], how.finish, how.dtype, b.sizes(x))
