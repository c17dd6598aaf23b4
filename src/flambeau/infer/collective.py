"""Shapes of collectives, `torch.distributed`'s exchanges between the devices of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.infer.rules import InferenceError, Meta, infer_rule, product, replaced, same, sizes

infer_rule(
    "_c10d_functional.all_reduce",
    "_c10d_functional.broadcast",
    "_c10d_functional.wait_tensor",
    "flambeau.constrain",
    "flambeau.permute_tensor",
)(same)


@infer_rule("_c10d_functional.all_gather_into_tensor")
def all_gather(x: Meta, group_size: int, group: str) -> Meta:
    return Meta(replaced(x.shape, 0, product([_first(x), group_size])), x.dtype)


@infer_rule("_c10d_functional.reduce_scatter_tensor")
def reduce_scatter(x: Meta, reduce_op: str, group_size: int, group: str) -> Meta:
    size = _first(x)
    if size is not None and size % group_size:
        raise InferenceError(f"a first dim of {size} has no {group_size} equal parts")
    return Meta(replaced(x.shape, 0, None if size is None else size // group_size), x.dtype)


@infer_rule("_c10d_functional.all_to_all_single")
def all_to_all(x: Meta, output_splits: Sequence[Any], input_splits: Sequence[Any], group: str) -> Meta:
    _first(x)
    if not output_splits:
        return x
    rows = sizes(output_splits)
    return Meta(replaced(x.shape, 0, None if None in rows else sum(n or 0 for n in rows)), x.dtype)


@infer_rule("_c10d_functional.all_reduce_coalesced")
def all_reduce_coalesced(xs: Sequence[Meta], reduce_op: str, group: str) -> list[Meta]:
    return list(xs)


@infer_rule("_c10d_functional.all_gather_into_tensor_coalesced")
def all_gather_coalesced(xs: Sequence[Meta], group_size: int, group: str) -> list[Meta]:
    return [all_gather(x, group_size, group) for x in xs]


@infer_rule("_c10d_functional.reduce_scatter_tensor_coalesced")
def reduce_scatter_coalesced(xs: Sequence[Meta], reduce_op: str, group_size: int, group: str) -> list[Meta]:
    return [reduce_scatter(x, reduce_op, group_size, group) for x in xs]


def _first(x: Meta) -> int | None:
    """Return the size of the first dim, along which tensors are put together and split."""
    if not x.rank:
        raise InferenceError("a tensor without dims is not put together with others, nor split")
    return x.shape[0]
