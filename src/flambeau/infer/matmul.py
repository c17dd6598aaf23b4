"""Shapes of products."""

from __future__ import annotations

from typing import Any

from flambeau.infer.rules import Dim, InferenceError, Meta, broadcast, infer_rule, promoted
from flambeau.ir import dtypes
from flambeau.ir.dtypes import promote


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


@infer_rule("aten.matmul", "aten.mm", "aten.bmm", "aten.mv", "aten.dot", "aten.vdot")
def matmul(x: Meta, y: Meta) -> Meta:
    return Meta(product_shape(x, y), x.dtype)


@infer_rule("aten.linear")
def linear(x: Meta, weight: Meta, bias: Meta | None) -> Meta:
    return Meta(product_shape(x, Meta(tuple(reversed(weight.shape)), weight.dtype)), x.dtype)


@infer_rule("aten.addmm", "aten.baddbmm", "aten.addmv")
def addmm(bias: Meta, x: Meta, y: Meta, *_: Any) -> Meta:
    return Meta(product_shape(x, y), x.dtype)


@infer_rule("aten.addbmm")
def addbmm(bias: Meta, x: Meta, y: Meta, *_: Any) -> Meta:
    return Meta(product_shape(x, y)[1:], x.dtype)


@infer_rule("aten._int_mm")
def int_mm(x: Meta, y: Meta) -> Meta:
    return Meta(product_shape(x, y), dtypes.int32)


@infer_rule("aten.outer", "aten.ger")
def outer(x: Meta, y: Meta) -> Meta:
    return Meta((*x.shape, *y.shape), promoted(x, y))


@infer_rule("aten.addr")
def addr(bias: Meta, x: Meta, y: Meta, *_: Any) -> Meta:
    return Meta((*x.shape, *y.shape), promote(bias.dtype, promoted(x, y)))


@infer_rule("aten.inner")
def inner(x: Meta, y: Meta) -> Meta:
    if x.rank == 0 or y.rank == 0:
        return Meta((*x.shape, *y.shape), promoted(x, y))
    return Meta((*x.shape[:-1], *y.shape[:-1]), x.dtype)


@infer_rule("aten.bilinear")
def bilinear(x: Meta, y: Meta, weight: Meta, bias: Any) -> Meta:
    return Meta((*x.shape[:-1], weight.shape[0]), x.dtype)


@infer_rule("aten.einsum")
def einsum(equation: str, tensors: list[Meta], path: Any) -> Meta:
    """Each letter is a size; `...` stands for dims that broadcast."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(tensors):
        raise InferenceError(f"{equation!r} needs {len(terms)} tensors, got {len(tensors)}")
    lengths: dict[str, Dim] = {}
    extra: tuple[Dim, ...] = ()
    for term, m in zip(terms, tensors, strict=True):
        before, dots, after = term.partition("...")
        middle = m.rank - len(before) - len(after)
        if middle < 0 or (middle and not dots):
            raise InferenceError(f"{term!r} of {equation!r} does not fit a tensor of rank {m.rank}")
        extra = broadcast(extra, m.shape[len(before) : len(before) + middle])
        dims = (*m.shape[: len(before)], *m.shape[m.rank - len(after) :])
        for letter, d in zip(before + after, dims, strict=True):
            (lengths[letter],) = broadcast((lengths.get(letter, 1),), (d,))
    if not arrow:
        once = sorted(letter for letter in lengths if inputs.count(letter) == 1)
        output = ("..." if "..." in inputs else "") + "".join(once)
    before, dots, after = output.partition("...")
    shape = (*(lengths[c] for c in before), *(extra if dots else ()), *(lengths[c] for c in after))
    return Meta(shape, tensors[0].dtype)


@infer_rule("aten.scaled_dot_product_attention")
def attention(
    query: Meta, key: Meta, value: Meta, mask: Any, dropout: Any, causal: Any, scale: Any, grouped: bool
) -> Meta:
    """Batch dims broadcast; with `grouped`, several heads of queries share one of keys and values."""
    batch = query.shape[:-2] if grouped else broadcast(*(m.shape[:-2] for m in (query, key, value)))
    return Meta((*batch, query.shape[-2], value.shape[-1]), query.dtype)
