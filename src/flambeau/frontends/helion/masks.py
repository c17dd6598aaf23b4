"""Which operands of an op must be masked: those whose missing elements it would mix with those that exist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from flambeau.diagnostics import Unsupported
from flambeau.frontends.helion.nodes import inputs_of
from flambeau.ir import dtypes

LEAST, GREATEST = "least", "greatest"

REDUCTIONS: dict[str, Any] = {
    "sum": 0, "mean": 0, "prod": 1, "amax": LEAST, "amin": GREATEST, "max": LEAST, "min": GREATEST,
    "argmax": LEAST, "argmin": GREATEST, "any": 0, "all": 1, "logsumexp": LEAST, "_softmax": LEAST,
    "_log_softmax": LEAST, "linalg_vector_norm": 0, "count_nonzero": 0,
}  # fmt: skip
"""Ops over some dims, and the element that changes nothing."""

CONTRACTIONS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2)}
"""Products, with the positions of their factors: the last dim of the first meets the last but one of the second."""

UNMIXED = frozenset({
    "arange", "cat", "clone", "constant_pad_nd", "convert_element_type", "copy", "cummax", "cummin", "cumprod",
    "cumsum", "empty", "empty_like", "full", "full_like", "iota", "logcumsumexp", "ones", "ones_like", "repeat",
    "scalar_tensor", "stack", "where", "zeros", "zeros_like", "_to_copy",
})  # fmt: skip
"""Other ops in which an element meets none that comes after it in its dim: what does not exist comes last."""

Counts = Callable[[Sequence[Any]], dict[int, Any]]
"""For each dim of a shape that lies over the edge, how many elements exist."""


def needed_masks(node: Node, counts: Counts) -> dict[int, tuple[dict[int, Any], Any]]:
    """Map positions in `inputs_of(node)` to the dims to mask with their element counts, and the fill value."""
    target: Any = node.target
    name, overload = str(target).split(".")[-2:]
    shapes = [getattr(n.meta.get("val"), "shape", None) for n in inputs_of(node)]
    if name in CONTRACTIONS:
        first, second = CONTRACTIONS[name]
        pairs = ((first, -1), (second, -2))
        return {i: (c, 0) for i, dim in pairs if (c := _among(counts, shapes[i], [dim]))}
    if name in REDUCTIONS and overload != "other":
        fill, shape = REDUCTIONS[name], shapes[0]
        if fill in (LEAST, GREATEST):
            dtype = dtypes.from_torch(node.all_input_nodes[0].meta["val"].dtype)
            assert dtype is not None
            fill = dtype.min if fill == LEAST else dtype.max
        found = _among(counts, shape, _dims(node, target))
        return {0: (found, fill)} if found else {}
    dims = _dims(node, target)
    if not _keeps_elements_apart(target, name) and any(_among(counts, s, dims) for s in shapes if s is not None):
        raise Unsupported(
            "it may mix elements of a tile that lies over the edge with others",
            "Choose a block size that divides the size, or write it with sums, maxima and products.",
        )
    return {}


def _among(counts: Counts, shape: Any, dims: Sequence[int]) -> dict[int, Any]:
    """Select from the dims that reach over the edge those among `dims`; an empty `dims` means all."""
    rank = len(shape)
    chosen = {d % rank for d in dims} if dims and rank else set(range(rank))
    return {d: c for d, c in counts(shape).items() if d in chosen}


def _dims(node: Node, target: Any) -> list[int]:
    """List the dims that an op reduces or scans; an empty list means all."""
    names = [a.name for a in target._schema.arguments]
    name = next((n for n in ("dim", "dims") if n in names), None)
    if name is None:
        return []
    at = names.index(name)
    dim = node.args[at] if at < len(node.args) else node.kwargs.get(name)
    return [] if dim is None else [dim] if isinstance(dim, int) else list(dim)  # type: ignore[arg-type]


def _keeps_elements_apart(target: Any, name: str) -> bool:
    if name in UNMIXED or torch.Tag.pointwise in target.tags:
        return True
    return any(r.alias_info is not None for r in target._schema.returns)
