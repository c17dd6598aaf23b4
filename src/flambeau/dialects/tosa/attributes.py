"""TOSA's enumerations and its type of shapes, spelled as upstream's, and functions that make each value once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from xdsl.dialects.builtin import (
    BytesAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    IndexType,
    IntegerAttr,
    TensorType,
    i32,
)
from xdsl.ir import Attribute, Data, TypeAttribute
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from flambeau.dialects.declared.attributes import BracketEnum, word


class NanMode(BracketEnum):
    """Whether a NaN wins or loses against a number."""

    name = "tosa.nan_mode"
    words = ("PROPAGATE", "IGNORE")


class RoundingMode(BracketEnum):
    """How a product is rounded when it is scaled."""

    name = "tosa.rounding_mode"
    words = ("SINGLE_ROUND", "INEXACT_ROUND", "DOUBLE_ROUND")


class ResizeMode(BracketEnum):
    """How the points between pixels are filled."""

    name = "tosa.resize_mode"
    words = ("NEAREST_NEIGHBOR", "BILINEAR")


class ShapeType(Data[int], TypeAttribute):
    """`!tosa.shape<n>`: the sizes of n dimensions."""

    name = "tosa.shape"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> int:
        with parser.in_angle_brackets():
            return parser.parse_integer(allow_boolean=False, allow_negative=False)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data}>")


ENUMS: dict[str, type[BracketEnum]] = {"nan_mode": NanMode, "rounding_mode": RoundingMode, "mode": ResizeMode}
"""Enumerations by the properties that have them; the pretty form shows only the word."""
ATTRIBUTES: tuple[type[Attribute], ...] = (NanMode, RoundingMode, ResizeMode, ShapeType)


@cache
def shape_type(rank: int) -> ShapeType:
    """Make `!tosa.shape<rank>`."""
    return ShapeType(rank)


def nan_mode(mode: str = "PROPAGATE") -> NanMode:
    """Make a NaN mode: PROPAGATE or IGNORE."""
    return word(NanMode, mode)


def rounding_mode(mode: str) -> RoundingMode:
    """Make a rounding mode: SINGLE_ROUND, INEXACT_ROUND or DOUBLE_ROUND."""
    return word(RoundingMode, mode)


def resize_mode(mode: str) -> ResizeMode:
    """Make a resize mode: NEAREST_NEIGHBOR or BILINEAR."""
    return word(ResizeMode, mode)


@cache
def axis(value: int) -> IntegerAttr[Any]:
    """Make `1 : i32`."""
    return IntegerAttr(value, i32)


def perms(values: Sequence[int]) -> DenseArrayBase[Any]:
    """Make `array<i32: 1, 0>`, as permutations are given."""
    return _perms(tuple(values))


@cache
def _perms(values: tuple[int, ...]) -> DenseArrayBase[Any]:
    return DenseArrayBase.from_list(i32, list(values))


def shape_values(sizes: Sequence[int]) -> DenseIntOrFPElementsAttr[Any]:
    """Make `dense<[2, 3]> : tensor<2xindex>`, the value of `const_shape`."""
    return _shape_values(tuple(sizes))


@cache
def _shape_values(sizes: tuple[int, ...]) -> DenseIntOrFPElementsAttr[Any]:
    data = np.array(sizes, dtype=np.int64).tobytes()
    return DenseIntOrFPElementsAttr(TensorType(IndexType(), [len(sizes)]), BytesAttr(data))
