"""Symbolic ints: sizes that are known only at run time, and the shapes that follow from them."""

from __future__ import annotations

from typing import Self

from xdsl.dialects.builtin import AffineMapAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from flambeau.dialects.torch.base import PURE, TorchOp, print_attributes
from flambeau.dialects.torch.types import INT, TensorType


class SymbolicIntOp(TorchOp):
    """A size that is known at run time, with its name and range."""

    name = "torch.symbolic_int"
    traits = PURE
    property_names = ("symbol_name", "min_val", "max_val")

    def print(self, printer: Printer) -> None:
        low, high = self.bounds
        printer.print_string(" ")
        printer.print_string_literal(self.symbol)
        printer.print_string(f" {{min_val = {low}, max_val = {high}}}")
        print_attributes(printer, self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.results[0].type)

    @property
    def symbol(self) -> str:
        return str(self.require("symbol_name", StringAttr).data)

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value that the size may have."""
        low, high = (self.require(name, IntegerAttr) for name in ("min_val", "max_val"))
        return low.value.data, high.value.data

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        symbol = StringAttr(parser.parse_str_literal())
        with parser.in_braces():
            parser.parse_keyword("min_val")
            parser.parse_punctuation("=")
            low = IntegerAttr(parser.parse_integer(), i64)
            parser.parse_punctuation(",")
            parser.parse_keyword("max_val")
            parser.parse_punctuation("=")
            high = IntegerAttr(parser.parse_integer(), i64)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        properties = {"symbol_name": symbol, "min_val": low, "max_val": high}
        return cls.create(result_types=(parser.parse_type(),), properties=properties, attributes=attributes)

    def verify_(self) -> None:
        self.expect_counts(0, 1)
        low, high = self.bounds
        if low > high:
            raise VerifyException(f"{self.name}: no {self.symbol} lies between {low} and {high}")


class BindSymbolicShapeOp(TorchOp):
    """Says how a tensor's dimensions follow from symbolic ints."""

    name = "torch.bind_symbolic_shape"
    property_names = ("shape_expressions",)

    @property
    def expressions(self) -> AffineMapAttr:
        found: AffineMapAttr = self.require("shape_expressions", AffineMapAttr)
        return found

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.operands[0])
        printer.print_string(", ")
        with printer.in_square_brackets():
            printer.print_list(self.operands[1:], printer.print_operand)
        printer.print_string(", ")
        printer.print_attribute(self.expressions)
        print_attributes(printer, self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.operands[0].type)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        tensor = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        symbols = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        parser.parse_punctuation(",")
        expressions: Attribute = parser.parse_attribute()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        operands = [parser.resolve_operand(tensor, parser.parse_type())]
        operands += [parser.resolve_operand(s, INT) for s in symbols]
        return cls.create(operands=operands, properties={"shape_expressions": expressions}, attributes=attributes)

    def verify_(self) -> None:
        if not self.operands or self.results:
            raise VerifyException(f"{self.name} takes a tensor and its symbols and gives nothing")
        shape = self.operands[0].type
        if not isinstance(shape, TensorType):
            raise VerifyException(f"{self.name} binds the shape of a tensor, not of {shape}")
        affine_map = self.expressions.data
        if affine_map.num_dims or affine_map.num_symbols != len(self.operands) - 1:
            raise VerifyException(f"{self.name}: {affine_map} does not take {len(self.operands) - 1} symbols")
        if shape.rank is not None and len(affine_map.results) != shape.rank:
            raise VerifyException(f"{self.name}: {affine_map} does not give the {shape.rank} dimensions of {shape}")
        for symbol in self._operands[1:]:
            if not isinstance(symbol.owner, SymbolicIntOp):
                raise VerifyException(f"{self.name}: a symbol must come from torch.symbolic_int")


SYMBOLS: tuple[type[TorchOp], ...] = (SymbolicIntOp, BindSymbolicShapeOp)
