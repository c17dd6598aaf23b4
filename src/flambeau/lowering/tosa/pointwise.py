"""Elementwise ops that TOSA says better, or must say otherwise because its division is not exact."""

from __future__ import annotations

from typing import Any

from flambeau.lowering.builder import Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.pointwise import guard_divisor
from flambeau.lowering.linalg.rules import apply_pointwise
from flambeau.lowering.tosa.ops import TosaBuilder
from flambeau.lowering.tosa.rules import tosa_rule
from flambeau.lowering.whole.builder import WholeBuilder
from flambeau.lowering.whole.values import element_of


def sigmoid_of(x: Element) -> Element:
    assert isinstance(x.b, WholeBuilder)
    return Element(x.b, x.b.target.on("sigmoid", (x.value,), element_of(x.value)), x.dtype)


@tosa_rule("aten.sigmoid")
def sigmoid(b: TosaBuilder, x: Tensor) -> Tensor:
    return apply_pointwise(b, (x,), sigmoid_of)


@tosa_rule("aten.silu")
def silu(b: TosaBuilder, x: Tensor) -> Tensor:
    return apply_pointwise(b, (x,), lambda e: e * sigmoid_of(e))


@tosa_rule("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(b: TosaBuilder, x: Tensor, y: Any, mode: str | None) -> Tensor:
    def body(p: Element, q: Any, mode: str | None) -> Element:
        q = p.like(q)
        if mode is None:
            return p / q
        if mode == "floor":
            return p.floor_divide(q)
        return whole(p, q) if p.dtype.is_float else p.trunc_divide(q)

    guard_divisor(b, x, y, mode)
    return apply_pointwise(b, (x, y, mode), body)


def whole(x: Element, y: Element) -> Element:
    """Compute trunc(x / y) from the remainder, as the rounded quotient may lie on the other side of an integer."""
    quotient = x / y
    exact = ((x - x.fmod(y)) / y).round()
    return (quotient.isinf() | quotient.isnan()).select(quotient, exact)
