"""Views that are written here as simpler ones, so that what is written through them reaches the tensor that they show.

Schemas do not say of all of these that they give views, and the passes follow writes through simple views only. Where
nothing is written, the program is the same as that of the op left whole: its decomposition says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.frontends.nn.core import context
from flambeau.frontends.nn.core.values import Tensor

VIEWS: dict[str, Callable[..., Any]] = {
    "aten.positive": lambda x: x,
    "aten.linalg_diagonal": lambda x, offset, first, second: x.diagonal(offset, first, second),
}
"""By overload, called with the arguments in the order of its schema."""


def _at_least(rank: int, x: Tensor) -> Tensor:
    if x.ndim >= rank:
        return x
    if x.ndim == 0:
        return x.reshape([1] * rank) if rank < 3 else _at_least(2, x).unsqueeze(-1)
    return x.unsqueeze(0) if rank == 2 else _at_least(2, x).unsqueeze(-1)


for _rank in (1, 2, 3):
    VIEWS[f"aten.atleast_{_rank}d"] = lambda x, rank=_rank: _at_least(rank, x)
    VIEWS[f"aten.atleast_{_rank}d.Sequence"] = lambda xs, rank=_rank: tuple(_at_least(rank, x) for x in xs)


def _meshgrid(tensors: Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    order = list(range(len(tensors)))
    if indexing == "xy":
        order[:2] = order[1::-1]
    sizes = [tensors[i].numel() for i in order]
    grids = {i: tensors[i].view([-1 if i == j else 1 for j in order]).expand(sizes) for i in order}
    return tuple(grids[i] for i in range(len(tensors)))


VIEWS["aten.meshgrid"] = VIEWS["aten.meshgrid.indexing"] = _meshgrid


def _split(x: Tensor, indices: Sequence[Any], dim: int) -> tuple[Tensor, ...]:
    bounds = zip([0, *indices], [*indices, None], strict=True)
    return tuple(context.current().invoke("aten.slice", None, (x, dim, *b), {}) for b in bounds)


VIEWS["aten.tensor_split.indices"] = _split
VIEWS["aten.hsplit.array"] = lambda x, indices: _split(x, indices, min(x.ndim - 1, 1))
VIEWS["aten.vsplit.array"] = lambda x, indices: _split(x, indices, 0)
VIEWS["aten.dsplit.array"] = lambda x, indices: _split(x, indices, 2)
