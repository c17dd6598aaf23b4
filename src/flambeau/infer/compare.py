"""Shapes and dtypes of comparisons, bitwise ops, and what chooses between elements."""

from __future__ import annotations

from typing import Any

from flambeau.infer.rules import InferenceError, Meta, arithmetic, broadcast_metas, infer_rule, promoted, same
from flambeau.ir import dtypes
from flambeau.ir.comparisons import OPERATORS

infer_rule("aten.bitwise_not", "aten.nan_to_num")(same)
infer_rule(
    *(f"aten.bitwise_{op}.{kind}" for op in ("and", "or", "xor") for kind in ("Tensor", "Scalar")),
    *(f"aten.__{op}__.{kind}" for op in ("and", "or", "xor", "lshift", "rshift") for kind in ("Tensor", "Scalar")),
    *(f"aten.bitwise_{d}_shift.{kind}" for d in ("left", "right") for kind in ("Tensor", "Tensor_Scalar")),
)(arithmetic)


@infer_rule(
    *(f"aten.{op}.{kind}" for op in OPERATORS for kind in ("Tensor", "Scalar")),
    "aten.logical_and", "aten.logical_or", "aten.logical_xor", "aten.logical_not", "aten.isnan", "aten.isinf",
    "aten.isfinite", "aten.isposinf", "aten.isneginf", "aten.signbit", "aten.isclose", "aten.isreal",
)  # fmt: skip
def predicate(*args: Any) -> Meta:
    return Meta(broadcast_metas(*args), dtypes.bool_)


@infer_rule("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(condition: Meta, x: Any, y: Any) -> Meta:
    return Meta(broadcast_metas(condition, x, y), promoted(x, y))


@infer_rule(
    "aten.clamp", "aten.clamp.Tensor", "aten.clamp_min", "aten.clamp_max", "aten.clamp_min.Tensor",
    "aten.clamp_max.Tensor", "aten.clip", "aten.clip.Tensor",
)  # fmt: skip
def clamp(*args: Any) -> Meta:
    numbers = [a for a in args if a is not None]
    if len(numbers) < 2:
        raise InferenceError("clamp with neither a least nor a greatest value")
    return Meta(broadcast_metas(*numbers), promoted(*numbers))


@infer_rule("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked(x: Meta, mask: Meta, *_: Any) -> Meta:
    return Meta(broadcast_metas(x, mask), x.dtype)
