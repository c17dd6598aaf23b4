"""Ops of MLIR's own dialects that xDSL 0.74 lacks, and linalg's named ops in the form that real parsers take."""

from __future__ import annotations

from typing import Any, ClassVar

from xdsl.dialects.builtin import IndexType
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

PURE: frozenset[Any] = frozenset({Pure()})


class RemFOp(Operation):
    """The floating-point remainder with the sign of the dividend."""

    name = "arith.remf"
    traits: ClassVar[Any] = PURE

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_operand)
        printer.print_string(" : ")
        printer.print_attribute(self.results[0].type)

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        a = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        b = parser.parse_unresolved_operand()
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        return cls.create(operands=parser.resolve_operands([a, b], [type_, type_], parser.pos), result_types=[type_])


class GlobalLoadOp(Operation):
    """IREE's load of a global."""

    name = "util.global.load"
    traits: ClassVar[Any] = PURE


class GlobalOp(Operation):
    """IREE's global."""

    name = "util.global"


_ = IndexType
