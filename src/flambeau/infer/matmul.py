"""Shapes of products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.infer.rules import Dim, InferenceError, Meta, broadcast, dtype_or, infer_rule, normal_dim, promoted
from flambeau.ir import dtypes
from flambeau.ir.dtypes import promote


def product_shape(x: Meta, y: Meta) -> tuple[int | None, ...]:
    """Compute the shape of `torch.matmul(x, y)`."""
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


def _require_matrices(*sides: Meta) -> None:
    if any(side.rank != 2 for side in sides):
        raise InferenceError("both arguments must be matrices")


@infer_rule("aten._int_mm")
def int_mm(x: Meta, y: Meta) -> Meta:
    _require_matrices(x, y)
    if x.dtype is not dtypes.int8 or y.dtype is not dtypes.int8:
        raise InferenceError(f"_int_mm multiplies matrices of int8, not of {x.dtype} and {y.dtype}")
    return Meta(product_shape(x, y), dtypes.int32)


@infer_rule("aten._scaled_mm")
def scaled_mm(
    x: Meta, y: Meta, x_scale: Meta, y_scale: Meta, bias: Any, scale: Any, out_dtype: Any, use_fast_accum: bool
) -> Meta:
    _require_matrices(x, y)
    if any(not side.dtype.is_float or side.dtype.size != 1 for side in (x, y)):
        raise InferenceError(f"_scaled_mm multiplies matrices of 8-bit floats, not of {x.dtype} and {y.dtype}")
    if x_scale.dtype is not dtypes.float32 or y_scale.dtype is not dtypes.float32:
        raise InferenceError("the scales of _scaled_mm are float32")
    return Meta(product_shape(x, y), dtype_or(out_dtype, x.dtype))


@infer_rule("aten._weight_int8pack_mm")
def weight_int8pack_mm(x: Meta, weight: Meta, scales: Meta) -> Meta:
    _require_matrices(x, weight)
    if weight.dtype is not dtypes.int8 or x.dtype not in (dtypes.float32, dtypes.float16, dtypes.bfloat16):
        raise InferenceError(f"_weight_int8pack_mm multiplies floats by int8, not {x.dtype} by {weight.dtype}")
    if scales.rank != 1 or (None not in (*scales.shape, weight.shape[0]) and scales.shape[0] != weight.shape[0]):
        raise InferenceError("_weight_int8pack_mm takes one scale for each row of the weight")
    return Meta(product_shape(x, Meta(tuple(reversed(weight.shape)), weight.dtype)), x.dtype)


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


def einsum_labels(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Read Einstein's notation: a label for each dim of each operand, and those of the result.

    The dims that `...` stands for are aligned at the right; they have labels that no equation can contain.
    """
    left, arrow, output = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise InferenceError(f"{equation!r} needs {len(terms)} tensors, got {len(ranks)}")
    rests = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    many = max((rest for term, rest in zip(terms, rests, strict=True) if "..." in term), default=0)
    dots = "".join(chr(0x100 + i) for i in range(many))
    inputs = [term.replace("...", dots[many - max(rest, 0) :], 1) for term, rest in zip(terms, rests, strict=True)]
    for term, labels, rank in zip(terms, inputs, ranks, strict=True):
        if len(labels) != rank or "." in labels:
            raise InferenceError(f"{term!r} of {equation!r} does not fit a tensor of rank {rank}")
    every = "".join(inputs)
    if not arrow:
        return inputs, dots + "".join(sorted(c for c in set(every) if every.count(c) == 1 and c not in dots))
    output = output.replace("...", dots, 1)
    if len(set(output)) != len(output) or not set(output) <= {*every, *dots}:
        raise InferenceError(f"the result of {equation!r} names a label twice, or one that no operand has")
    if not all(c.isalpha() for c in every):
        raise InferenceError(f"{equation!r} has labels that are not letters")
    return inputs, output


@infer_rule("aten.einsum")
def einsum(equation: str, tensors: list[Meta], path: Any) -> Meta:
    inputs, output = einsum_labels(equation, [m.rank for m in tensors])
    lengths: dict[str, Dim] = {}
    for labels, m in zip(inputs, tensors, strict=True):
        for label, d in zip(labels, m.shape, strict=True):
            (lengths[label],) = broadcast((lengths.get(label, 1),), (d,))
    return Meta(tuple(lengths[label] for label in output), promoted(*tensors))


@infer_rule("aten.tensordot")
def tensordot(x: Meta, y: Meta, left: list[int], right: list[int]) -> Meta:
    if len(left) != len(right):
        raise InferenceError(f"as many dims of both tensors are summed over, not {left} and {right}")
    gone = [[normal_dim(d, m.rank) for d in dims] for m, dims in ((x, left), (y, right))]
    for i, j in zip(*gone, strict=True):
        broadcast((x.shape[i],), (y.shape[j],))
    if any(len(set(dims)) != len(dims) for dims in gone):
        raise InferenceError(f"{left} or {right} name a dim twice")
    rest = [d for m, dims in ((x, gone[0]), (y, gone[1])) for i, d in enumerate(m.shape) if i not in dims]
    return Meta(tuple(rest), x.dtype)


@infer_rule("aten.scaled_dot_product_attention")
def attention(
    query: Meta, key: Meta, value: Meta, mask: Any, dropout: Any, causal: Any, scale: Any, grouped: bool
) -> Meta:
    """Infer attention: batch dims broadcast; with `grouped`, several heads of queries share one of keys and values."""
    batch = query.shape[:-2] if grouped else broadcast(*(m.shape[:-2] for m in (query, key, value)))
    return Meta((*batch, query.shape[-2], value.shape[-1]), query.dtype)
