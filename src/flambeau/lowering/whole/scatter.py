"""Writing at computed positions, on whole tensors: rows of a matrix take updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element

if TYPE_CHECKING:
    from flambeau.lowering.whole.builder import WholeBuilder

_KINDS = {
    "sum": "add", "add": "add", "mean": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min",
}  # fmt: skip
"""What PyTorch's names of reductions do."""


def scatter(
    b: WholeBuilder[Any],
    x: Tensor,
    dims: Sequence[int],
    rows: Tensor,
    update_sizes: Sequence[Size],
    values: Callable[[list[Size], list[Size]], Element],
    reduce: str | None,
    include_self: bool,
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
    dtype = x.dtype.compute
    with b.frame([*update_sizes, *rest_sizes]):
        at: list[Size] = [b.loop_index(i) for i in range(len(update_sizes) + len(rest_sizes))]
        position: list[Size] = [0] * x.rank
        for i, d in enumerate(rest):
            position[d] = at[len(update_sizes) + i]
        update = values(at[: len(update_sizes)], position).to(dtype)
        updates = Tensor(b.spread(update.value, b.frames[-1]), dtype, b.frames[-1])
    updates = b.reshape(updates, [count, width])
    result = _combine(b, b.to(flat, dtype), rows, updates, reduce, include_self)
    inverse = [order.index(d) for d in range(x.rank)]
    return b.transpose(b.reshape(b.to(result, x.dtype), [sizes[d] for d in order]), inverse)


def _combine(
    b: WholeBuilder[Any], x: Tensor, rows: Tensor, updates: Tensor, reduce: str | None, include_self: bool
) -> Tensor:
    """Combine [updates, width] into the rows of [rows, width] that they name, as PyTorch's reduction says."""
    dtype, kind, start = x.dtype, _KINDS[reduce] if reduce else None, x
    if kind and not include_self:
        start = b.full(b.sizes(x), neutral(kind, dtype), dtype)
    result = b.target.scatter(start, rows, updates, kind)
    if reduce is None or (include_self and reduce != "mean"):
        return result
    ones = b.full(b.sizes(updates), 1, dtypes.int64)
    seen = b.target.scatter(b.full(b.sizes(x), 0, dtypes.int64), rows, ones, "add")

    def finish(old: Element, new: Element, count: Element) -> Element:
        if reduce == "mean":
            total = (count + 1 if include_self else (count == 0).select(1, count)).to(dtype)
            new = new.floor_divide(total) if dtype.is_integral else new / total
        return new if include_self else (count == 0).select(old, new)

    return b.elementwise([x, result, seen], finish, dtype, b.sizes(x))


def neutral(kind: str | None, dtype: DType) -> Any:
    """The number that changes nothing when it is combined with another."""
    return {"add": 0, "mul": 1, "max": dtype.min, "min": dtype.max, None: 0}[kind]
