"""Functions of `nn.functional` on tables of vectors, and on distances of vectors."""

from __future__ import annotations

from typing import Any

from flambeau.frontends.nn.core import ops
from flambeau.frontends.nn.core.lazy import np


def embedding(
    input: Any, weight: Any, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Any:  # fmt: skip
    """Look up rows of a table. `max_norm` is refused: PyTorch writes it into the weights."""
    refuse_max_norm(max_norm)
    row = -1 if padding_idx is None else padding_idx % weight.shape[0]
    return ops.embedding(weight, input, row, scale_grad_by_freq, sparse)


def refuse_max_norm(max_norm: float | None) -> None:
    if max_norm is not None:
        raise NotImplementedError(
            "max_norm writes to the weights of an embedding, and the weights of a program are constants: "
            "renormalise the weights before tracing, and leave max_norm out"
        )


def embedding_bag(
    input: Any, weight: Any, offsets: Any = None, max_norm: float | None = None, norm_type: float = 2,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Any = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Any:  # fmt: skip
    """Reduce rows of a table by sum, mean or maximum in bags: rows of `input`, or its parts from each offset on.

    Rows of `padding_idx` do not count; an empty bag gives zeros.
    """
    refuse_max_norm(max_norm)
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(f"embedding_bag: per_sample_weights go with mode='sum', not with {mode!r}")
    if (input.ndim == 2) == (offsets is not None):
        raise ValueError("embedding_bag takes input of 2 dims, or input of 1 dim and offsets")
    rows = ops.embedding(weight, input)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    valid = None if padding_idx is None else input != padding_idx % weight.shape[0]
    if offsets is not None:
        # One row of the mask for each bag, with what lies in it.
        starts = offsets[:-1] if include_last_offset else offsets
        size, place = input.shape[0], ops.arange(input.shape[0]).unsqueeze(0)
        ends = offsets[1:] if include_last_offset else ops.cat([offsets[1:], ops.full_like(offsets[:1], size)])
        inside = (place >= starts.unsqueeze(-1)) & (place < ends.unsqueeze(-1))
        valid = inside if valid is None else inside & valid.unsqueeze(0)
        rows = rows.unsqueeze(0)
    return _bags(rows, valid, mode)


def _bags(rows: Any, valid: Any, mode: str) -> Any:
    if valid is None:
        return rows.amax(1) if mode == "max" else rows.sum(1) if mode == "sum" else rows.mean(1)
    inside = valid.unsqueeze(-1)
    if mode == "max":
        greatest = ops.where(inside, rows, float("-inf")).amax(1)
        return ops.where(inside.any(1), greatest, 0.0)
    total = ops.where(inside, rows, 0.0).sum(1)
    return total if mode == "sum" else total / inside.sum(1).clamp(min=1)


def normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Any:
    """Divide by the p-norm along a dim: x / max(|x|_p, eps)."""
    if out is not None:
        return out.copy_(normalize(input, p, dim, eps))
    return input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)


def pdist(input: Any, p: float = 2.0) -> Any:
    """Compute the p-norm distances of all pairs of rows."""
    rows = len(input)
    first, second = np.triu_indices(rows, 1)
    return ops.linalg.vector_norm(input[first] - input[second], p, 1)
