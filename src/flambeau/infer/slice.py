"""Shapes of parts of tensors: slices, splits into lists, and writes into slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.infer.rules import InferenceError, Meta, infer_rule, known, normal_dim, replaced, same, size
from flambeau.infer.view import cat, divided

infer_rule("aten.select_scatter", "aten.slice_scatter", "aten.diagonal_scatter")(same)


@infer_rule("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(x: Meta, dim: int, start: Any, end: Any, step: int) -> Meta:
    at = normal_dim(dim, x.rank)
    if isinstance(step, int) and step <= 0:
        raise InferenceError(f"the step of a slice is {step}")
    length = x.shape[at]
    if length is not None:
        is_known = all(v is None or isinstance(v, int) for v in (start, end))
        length = len(range(*slice(start, end, step).indices(length))) if is_known else None
    return Meta(replaced(x.shape, at, length), x.dtype)


@infer_rule("aten.narrow", "aten.narrow_copy", "aten.narrow.Tensor")
def narrow(x: Meta, dim: int, start: Any, length: Any) -> Meta:
    return Meta(replaced(x.shape, normal_dim(dim, x.rank), size(length)), x.dtype)


@infer_rule("aten.select.int", "aten.select_copy.int")
def select(x: Meta, dim: int, index: Any) -> Meta:
    at = normal_dim(dim, x.rank)
    length = x.shape[at]
    if length is not None and isinstance(index, int) and not -length <= index < length:
        raise InferenceError(f"index {index} is out of range for size {length}")
    return Meta(replaced(x.shape, at), x.dtype)


# --- Splits: a list is one result of list type ---


infer_rule("prim.ListUnpack")(lambda values: tuple(values))


def _parts(x: Meta, dim: int, lengths: Sequence[Any]) -> list[Meta]:
    at = normal_dim(dim, x.rank)
    return [Meta(replaced(x.shape, at, size(n)), x.dtype) for n in lengths]


def _length(x: Meta, dim: int) -> int:
    """Look up the size of a dim that decides how many results there are; raises where it is unknown."""
    length = x.shape[normal_dim(dim, x.rank)] if x.rank else 1
    if length is None:
        raise InferenceError(f"how many parts there are depends on the size of dim {dim}, which is not known")
    return length


@infer_rule("aten.split.Tensor", "aten.split_copy.Tensor")
def split(x: Meta, length: Any, dim: int) -> list[Meta]:
    whole = _length(x, dim)
    if not known(length):
        raise InferenceError("how many parts there are depends on a size that is not known")
    if length <= 0:
        return _parts(x, dim, [whole])
    return _parts(x, dim, [min(length, whole - start) for start in range(0, max(whole, 1), length)])


@infer_rule("aten.chunk")
def chunk(x: Meta, count: int, dim: int) -> list[Meta]:
    whole = _length(x, dim)
    return _parts(x, dim, [0] * count) if whole == 0 else split(x, -(-whole // count), dim)


@infer_rule("aten.split.sizes", "aten.split_with_sizes", "aten.split_with_sizes_copy")
def split_sizes(x: Meta, lengths: list[Any], dim: int) -> list[Meta]:
    return _parts(x, dim, lengths)


@infer_rule("aten.tensor_split.sections")
def tensor_split(x: Meta, count: int, dim: int) -> list[Meta]:
    whole = x.shape[normal_dim(dim, x.rank)]
    return _parts(x, dim, [None if whole is None else whole // count + (i < whole % count) for i in range(count)])


@infer_rule("aten.tensor_split.indices")
def tensor_split_indices(x: Meta, indices: list[Any], dim: int) -> list[Meta]:
    return [slice_(x, dim, start, end, 1) for start, end in zip([0, *indices], [*indices, None], strict=True)]


def _split_along(name: str, least: int, dim: Callable[[int], int]) -> None:
    """Add the rules of a split along a dim that the rank decides: in equal parts, or at indices."""

    def along(x: Meta) -> int:
        if x.rank < least:
            raise InferenceError(f"{name} of a tensor of rank {x.rank}")
        return dim(x.rank)

    def in_parts(x: Meta, sections: int) -> list[Meta]:
        divided(x.shape[along(x)], sections)
        return tensor_split(x, sections, along(x))

    infer_rule(f"aten.{name}.int")(in_parts)
    infer_rule(f"aten.{name}.array")(lambda x, indices: tensor_split_indices(x, indices, along(x)))


_split_along("hsplit", 1, lambda rank: 0 if rank == 1 else 1)
_split_along("vsplit", 2, lambda rank: 0)
_split_along("dsplit", 3, lambda rank: 2)


@infer_rule("aten.diff")
def diff(x: Meta, n: int, dim: int, prepend: Meta | None, append: Meta | None) -> Meta:
    parts = [m for m in (prepend, x, append) if m is not None]
    if x.rank == 0 or n < 0 or any(m.rank != x.rank for m in parts):
        raise InferenceError("diff is of tensors that have dims, all as many, and of an order that is not negative")
    whole = cat(parts, dim)
    if n == 0:
        return x
    at = normal_dim(dim, x.rank)
    length = whole.shape[at]
    return Meta(replaced(whole.shape, at, None if length is None else max(length - n, 0)), whole.dtype)


@infer_rule("aten.unbind.int", "aten.unbind_copy.int")
def unbind(x: Meta, dim: int) -> list[Meta]:
    return [Meta(replaced(x.shape, normal_dim(dim, x.rank)), x.dtype)] * _length(x, dim)
