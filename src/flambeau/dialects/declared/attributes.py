"""Attributes that several dialects have: words, numbers and lists of them, each value made once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, TypeVar

import numpy as np
from xdsl.dialects.builtin import BytesAttr, DenseArrayBase, DenseIntOrFPElementsAttr, IntegerAttr, TensorType, i1, i64
from xdsl.ir import Data, SpacedOpaqueSyntaxAttribute
from xdsl.parser import AttrParser
from xdsl.printer import Printer

Ints = Sequence[int]


class EnumAttr(Data[str]):
    """One of a few words."""

    words: ClassVar[tuple[str, ...]]

    @classmethod
    def parse_word(cls, parser: AttrParser) -> str:
        word = parser.parse_identifier()
        if word not in cls.words:
            parser.raise_error(f"{cls.name} is one of {', '.join(cls.words)}, got '{word}'")
        return word


E = TypeVar("E", bound=EnumAttr)


class BareEnum(EnumAttr, SpacedOpaqueSyntaxAttribute):
    """`#stablehlo<precision DEFAULT>`."""

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        return cls.parse_word(parser)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(self.data)


class BracketEnum(EnumAttr):
    """`#stablehlo.result_accuracy_mode<DEFAULT>`."""

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        with parser.in_angle_brackets():
            return cls.parse_word(parser)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data}>")


@cache
def word(class_: type[E], value: str) -> E:
    """Return an enumeration's attribute for this word; ValueError when it has no such word."""
    if value not in class_.words:
        raise ValueError(f"{class_.name} is one of {', '.join(class_.words)}, got {value!r}")
    return class_(value)


def parse_ints(parser: AttrParser) -> tuple[int, ...]:
    """Parse `[1, -2]`."""
    return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer))


@cache
def integer(value: int) -> IntegerAttr[Any]:
    """Make `1 : i64`."""
    return IntegerAttr(value, i64)


@cache
def flag(value: bool) -> IntegerAttr[Any]:
    """Make `true` or `false`, an i1 attribute."""
    return IntegerAttr.from_bool(value)


def ints(values: Ints) -> DenseArrayBase[Any]:
    """Make `array<i64: 1, 2>`."""
    return _ints(tuple(values))


@cache
def _ints(values: tuple[int, ...]) -> DenseArrayBase[Any]:
    return DenseArrayBase.from_list(i64, list(values))


def flags(values: Sequence[bool]) -> DenseArrayBase[Any]:
    """Make `array<i1: true, false>`."""
    return _flags(tuple(values))


@cache
def _flags(values: tuple[bool, ...]) -> DenseArrayBase[Any]:
    return DenseArrayBase.from_list(i1, [bool(v) for v in values])


def pairs(values: Sequence[tuple[int, int]]) -> DenseIntOrFPElementsAttr[Any]:
    """Make `dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>`, as the padding of windows is given."""
    return _pairs(tuple(values))


@cache
def _pairs(values: tuple[tuple[int, int], ...]) -> DenseIntOrFPElementsAttr[Any]:
    numbers = np.array(values, dtype=np.int64).reshape(len(values), 2)
    return DenseIntOrFPElementsAttr(TensorType(i64, [len(values), 2]), BytesAttr(numbers.tobytes()))
