"""Random bits where integers have 32 bits: products by halves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.random import draw
from flambeau.lowering.tosa.ops import TosaBuilder
from flambeau.lowering.tosa.rules import tosa_rule


def _upper(x: Element) -> Element:
    return (x >> 16) & 0xFFFF


def multiply_high(x: Element, factor: int) -> Element:
    """Multiply halves of 16 bits: products and sums of two of them fit into 32 bits without a sign."""
    x_high, x_low = _upper(x), x & 0xFFFF
    high, low = factor >> 16, factor & 0xFFFF
    middle = x_high * low + _upper(x_low * low)
    other = x_low * high + (middle & 0xFFFF)
    return x_high * high + _upper(middle) + _upper(other)


@tosa_rule("flambeau.philox")
def philox(b: TosaBuilder, state: Tensor, delta: Any, sizes: Sequence[Size]) -> Any:
    return draw(b, state, delta, sizes, (0,), multiply_high)


@tosa_rule("flambeau.philox.pair")
def philox_pair(b: TosaBuilder, state: Tensor, delta: Any, sizes: Sequence[Size], first: int) -> Any:
    return draw(b, state, delta, sizes, (first, first + 1), multiply_high)
