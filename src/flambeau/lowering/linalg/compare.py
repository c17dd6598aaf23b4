"""Elementwise comparisons, logic, bits and choices."""

from __future__ import annotations

from typing import Any

from flambeau.ir import dtypes
from flambeau.ir.comparisons import OPERATORS
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.rules import pointwise

# --- Comparisons ---


for _name, _operator in OPERATORS.items():
    pointwise(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar", inputs="common")(_operator)


# --- Logic and bits ---


@pointwise("aten.logical_and", inputs="own")
def logical_and(x: Element, y: Element) -> Element:
    return x.to(dtypes.bool_) & y.to(dtypes.bool_)


@pointwise("aten.logical_or", inputs="own")
def logical_or(x: Element, y: Element) -> Element:
    return x.to(dtypes.bool_) | y.to(dtypes.bool_)


@pointwise("aten.logical_xor", inputs="own")
def logical_xor(x: Element, y: Element) -> Element:
    return x.to(dtypes.bool_) ^ y.to(dtypes.bool_)


@pointwise("aten.logical_not", inputs="own")
def logical_not(x: Element) -> Element:
    return ~x.to(dtypes.bool_)


@pointwise("aten.bitwise_and.Tensor", "aten.bitwise_and.Scalar", "aten.__and__.Tensor", "aten.__and__.Scalar")
def bitwise_and(x: Element, y: Any) -> Element:
    return x & y


@pointwise("aten.bitwise_or.Tensor", "aten.bitwise_or.Scalar", "aten.__or__.Tensor", "aten.__or__.Scalar")
def bitwise_or(x: Element, y: Any) -> Element:
    return x | y


@pointwise("aten.bitwise_xor.Tensor", "aten.bitwise_xor.Scalar", "aten.__xor__.Tensor", "aten.__xor__.Scalar")
def bitwise_xor(x: Element, y: Any) -> Element:
    return x ^ y


@pointwise("aten.bitwise_not")
def bitwise_not(x: Element) -> Element:
    return ~x


@pointwise(
    "aten.bitwise_left_shift.Tensor", "aten.bitwise_left_shift.Tensor_Scalar",
    "aten.__lshift__.Tensor", "aten.__lshift__.Scalar",
)  # fmt: skip
def left_shift(x: Element, y: Any) -> Element:
    return x << y


@pointwise(
    "aten.bitwise_right_shift.Tensor", "aten.bitwise_right_shift.Tensor_Scalar",
    "aten.__rshift__.Tensor", "aten.__rshift__.Scalar",
)  # fmt: skip
def right_shift(x: Element, y: Any) -> Element:
    return x >> y


# --- Kinds of numbers ---


@pointwise("aten.isnan", inputs="own")
def isnan(x: Element) -> Element:
    return x.isnan()


@pointwise("aten.isinf", inputs="own")
def isinf(x: Element) -> Element:
    return x.real.isinf() | x.imag.isinf() if x.dtype.is_complex else x.isinf()


@pointwise("aten.isfinite", inputs="own")
def isfinite(x: Element) -> Element:
    return ~(isinf(x) | x.isnan())


@pointwise("aten.isposinf", inputs="own")
def isposinf(x: Element) -> Element:
    return x == float("inf") if x.dtype.is_float else x.isnan()


@pointwise("aten.isneginf", inputs="own")
def isneginf(x: Element) -> Element:
    return x == float("-inf") if x.dtype.is_float else x.isnan()


@pointwise("aten.signbit", inputs="own")
def signbit(x: Element) -> Element:
    return x.like(1).copysign(x) < 0 if x.dtype.is_float else x < 0


# --- Choice ---


def _in(dtype: dtypes.DType, condition: Element, value: Any) -> Any:
    """Convert a branch of a choice to the result's dtype; a number becomes a constant of it."""
    if isinstance(value, Element):
        return value.to(dtype)
    return Element(condition.b, condition.b.constant(value, dtype), dtype)


@pointwise("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar", inputs="own")
def where(condition: Element, x: Any, y: Any) -> Element:
    dtype = condition.b.out_dtype
    return condition.to(dtypes.bool_).select(_in(dtype, condition, x), _in(dtype, condition, y))


@pointwise("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", inputs="own")
def masked_fill(x: Element, mask: Element, value: Any) -> Element:
    return mask.to(dtypes.bool_).select(_in(x.dtype, mask, value), x)


@pointwise("aten.clamp", "aten.clamp.Tensor", "aten.clip", "aten.clip.Tensor")
def clamp(x: Element, low: Any, high: Any) -> Element:
    x = x if low is None else x.maximum(low)
    return x if high is None else x.minimum(high)


@pointwise("aten.clamp_min", "aten.clamp_min.Tensor")
def clamp_min(x: Element, low: Any) -> Element:
    return x.maximum(low)


@pointwise("aten.clamp_max", "aten.clamp_max.Tensor")
def clamp_max(x: Element, high: Any) -> Element:
    return x.minimum(high)


@pointwise("aten.nan_to_num")
def nan_to_num(x: Element, nan: Any, posinf: Any, neginf: Any) -> Element:
    if not x.dtype.is_float:
        return x
    largest = x.b.out_dtype.largest
    x = (x == float("inf")).select(largest if posinf is None else posinf, x)
    x = (x == float("-inf")).select(-largest if neginf is None else neginf, x)
    return x.isnan().select(nan or 0.0, x)
