"""Ops of MLIR's own dialects that xDSL 0.74 lacks."""

from __future__ import annotations

from typing import Any, ClassVar, Self

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
    def parse(cls, parser: Parser) -> Self:
        a = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        b = parser.parse_unresolved_operand()
        parser.parse_punctuation(":")
        type_ = parser.parse_type()
        return cls.create(operands=parser.resolve_operands([a, b], [type_, type_], parser.pos), result_types=[type_])
