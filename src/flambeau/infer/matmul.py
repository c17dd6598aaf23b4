"""Shapes of products."""

from __future__ import annotations

from typing import Any

from flambeau.infer.rules import InferenceError, Meta, broadcast, infer_rule


def product_shape(x: Meta, y: Meta) -> tuple[int | None, ...]:
    """`torch.matmul`'s shape."""
    if x.rank == 0 or y.rank == 0:
        raise InferenceError("both arguments of matmul need at least one dim")
    left = x.shape if x.rank > 1 else (1, *x.shape)
    right = y.shape if y.rank > 1 else (*y.shape, 1)
    if left[-1] is not None and right[-2] is not None and left[-1] != right[-2]:
        raise InferenceError(f"mismatching contracting dimension: {left[-1]} and {right[-2]}")
    shape = [*broadcast(left[:-2], right[:-2]), left[-2], right[-1]]
    if x.rank == 1:
        del shape[-2]
    if y.rank == 1:
        del shape[-1]
    return tuple(shape)


@infer_rule("aten.matmul", "aten.mm", "aten.bmm", "aten.mv", "aten.dot")
def matmul(x: Meta, y: Meta) -> Meta:
    return Meta(product_shape(x, y), x.dtype)


@infer_rule("aten.linear")
def linear(x: Meta, weight: Meta, bias: Meta | None) -> Meta:
    return Meta(product_shape(x, Meta(tuple(reversed(weight.shape)), weight.dtype)), x.dtype)


@infer_rule("aten.addmm", "aten.baddbmm", "aten.addmv")
def addmm(bias: Meta, x: Meta, y: Meta, *_: Any) -> Meta:
    return Meta(product_shape(x, y), x.dtype)
