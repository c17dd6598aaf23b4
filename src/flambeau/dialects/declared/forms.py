"""Pretty forms of ops: templates such as ` {operands}, dims = {ints dimensions}{attrs} : {function}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, DenseResourceAttr, StringAttr
from xdsl.ir import Attribute
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from flambeau.dialects.declared.attributes import EnumAttr, integer, ints, parse_ints, word
from flambeau.dialects.declared.ops import DeclaredOp, elements_type

Parts = dict[str, Any]
"""What an op is created from."""


@dataclass
class Reading:
    """What has been read of an op so far."""

    op: type[DeclaredOp]
    parser: Parser
    names: list[UnresolvedOperand] = field(default_factory=list)
    comma: bool = False
    """Whether the comma after the operands has been read: only what follows it says if they are at their end."""
    operand_types: Sequence[Attribute] = ()
    result_types: Sequence[Attribute] = ()
    properties: dict[str, Attribute] = field(default_factory=dict)
    attributes: dict[str, Attribute] = field(default_factory=dict)

    def literal(self, text: str) -> None:
        """Read fixed text."""
        for token in _TOKEN.findall(text):
            if token == "," and self.comma:
                self.comma = False
            elif token[0].isalpha():
                self.parser.parse_keyword(token)
            else:
                self.parser.parse_punctuation(token)

    def parts(self) -> Parts:
        operands = self.parser.resolve_operands(self.names, self.operand_types, self.parser.pos)
        return {
            "operands": operands,
            "result_types": self.result_types,
            "properties": self.properties,
            "attributes": self.attributes,
        }


@dataclass(frozen=True)
class Field:
    """A part of a template: how it is printed and read. Both get the words after its name."""

    print: Callable[..., None]
    parse: Callable[..., None]


class Form:
    """How an op looks to people."""

    def shows(self, op: DeclaredOp) -> bool:
        """Tell whether this form can express all of the op; otherwise it is printed in generic form."""
        return True

    def print(self, op: DeclaredOp, printer: Printer) -> None:
        raise NotImplementedError

    def parse(self, op: type[DeclaredOp], parser: Parser) -> Parts:
        raise NotImplementedError


_FIELD = re.compile(r"\{([^}]*)\}")
_TOKEN = re.compile(r"->|\w+|[^\s\w]")


class Template(Form):
    """Fixed text and fields. Properties that no field shows are shown with the attributes."""

    def __init__(self, text: str, defaults: dict[str, Attribute] | None = None) -> None:
        self.pieces: list[tuple[str, Field | None, list[str]]] = []
        self.shown: set[str] = set()
        self.defaults = defaults or {}
        """Values of properties that go without saying."""
        for i, part in enumerate(_FIELD.split(text)):
            if i % 2:
                name, *words = part.split()
                self.pieces.append(("", FIELDS[name], words))
                self.shown.update(SHOWS.get(name, words))
            elif part:
                self.pieces.append((part, None, []))

    def print(self, op: DeclaredOp, printer: Printer) -> None:
        for literal, found, words in self.pieces:
            if found is None:
                printer.print_string(literal)
            elif found is FIELDS["attrs"]:
                self.print_attributes(op, printer)
            else:
                found.print(op, printer, *words)

    def parse(self, op: type[DeclaredOp], parser: Parser) -> Parts:
        reading = Reading(op, parser)
        for literal, found, words in self.pieces:
            if found is None:
                reading.literal(literal)
            elif found is FIELDS["attrs"]:
                self.read_attributes(reading)
            else:
                found.parse(reading, *words)
        return reading.parts()

    def print_attributes(self, op: DeclaredOp, printer: Printer) -> None:
        rest = {k: v for k, v in op.properties.items() if k not in self.shown and self.defaults.get(k) != v}
        printer.print_op_attributes(dict(sorted({**rest, **op.attributes}.items())))

    def read_attributes(self, reading: Reading) -> None:
        reading.attributes |= reading.parser.parse_optional_attr_dict()


# --- Operands and types ---


def _print_operands(op: DeclaredOp, printer: Printer) -> None:
    if op.operands:
        printer.print_string(" ")
        printer.print_list(op.operands, printer.print_operand)


def _read_operands(r: Reading) -> None:
    while (name := r.parser.parse_optional_unresolved_operand()) is not None:
        r.names.append(name)
        r.comma = r.parser.parse_optional_punctuation(",") is not None
        if not r.comma:
            return


def _print_first(op: DeclaredOp, printer: Printer) -> None:
    printer.print_operand(op.operands[0])


def _read_first(r: Reading) -> None:
    r.names.append(r.parser.parse_unresolved_operand())


def _print_arguments(op: DeclaredOp, printer: Printer) -> None:
    with printer.in_parens():
        printer.print_list(op.operands, printer.print_operand)


def _read_arguments(r: Reading) -> None:
    r.names = r.parser.parse_op_args_list()


def print_function(op: DeclaredOp, printer: Printer) -> None:
    printer.print_function_type(op.operand_types, op.result_types)


def read_function(r: Reading) -> None:
    type_ = r.parser.parse_function_type()
    r.operand_types, r.result_types = type_.inputs.data, type_.outputs.data


def _print_same(op: DeclaredOp, printer: Printer) -> None:
    types = {*op.operand_types, *op.result_types}
    if len(types) == 1:
        printer.print_attribute(types.pop())
    else:
        print_function(op, printer)


def read_either(r: Reading, short: Callable[[Attribute], None]) -> None:
    """Read a function type in parentheses, or call `short` with the one type that stands there."""
    if r.parser.parse_optional_punctuation("(") is None:
        short(r.parser.parse_type())
        return
    types: list[Attribute] = []
    if r.parser.parse_optional_punctuation(")") is None:
        types = read_types(r)
        r.parser.parse_punctuation(")")
    r.parser.parse_punctuation("->")
    r.operand_types, r.result_types = types, _read_result_types(r)


def _read_same(r: Reading) -> None:
    def short(type_: Attribute) -> None:
        r.operand_types, r.result_types = [type_] * len(r.names), [type_]

    read_either(r, short)


def print_types(types: Iterable[Attribute], printer: Printer) -> None:
    printer.print_list(types, printer.print_attribute)


def read_types(r: Reading) -> list[Attribute]:
    return r.parser.parse_comma_separated_list(r.parser.Delimiter.NONE, r.parser.parse_type)


def _read_result_types(r: Reading) -> list[Attribute]:
    types = r.parser.parse_optional_comma_separated_list(r.parser.Delimiter.PAREN, r.parser.parse_type)
    return [r.parser.parse_type()] if types is None else [*types]


def _print_arrow(op: DeclaredOp, printer: Printer) -> None:
    print_types(op.operand_types, printer)
    printer.print_string(" -> ")
    if len(op.results) == 1:
        printer.print_attribute(op.results[0].type)
    else:
        with printer.in_parens():
            print_types(op.result_types, printer)


def _read_arrow(r: Reading) -> None:
    r.operand_types = read_types(r)
    r.parser.parse_punctuation("->")
    r.result_types = _read_result_types(r)


def _print_result(op: DeclaredOp, printer: Printer) -> None:
    printer.print_attribute(op.results[0].type)


def _read_result(r: Reading) -> None:
    r.result_types = [r.parser.parse_type()]


def print_each(op: DeclaredOp, printer: Printer) -> None:
    if op.operands:
        printer.print_string(" : ")
        print_types(op.operand_types, printer)


def read_each(r: Reading) -> None:
    if r.names:
        r.parser.parse_punctuation(":")
        r.operand_types = read_types(r)
    if r.op.row.results is None:
        r.result_types = r.operand_types


# --- Properties ---


def print_ints(op: DeclaredOp, printer: Printer, name: str) -> None:
    printer.print_string(str(list(op.ints(name) or ())))


def read_ints(r: Reading, name: str) -> None:
    r.properties[name] = ints(parse_ints(r.parser))


def _print_integer(op: DeclaredOp, printer: Printer, name: str) -> None:
    printer.print_string(str(op.integer(name)))


def _read_integer(r: Reading, name: str) -> None:
    r.properties[name] = integer(r.parser.parse_integer())


ENUMS: dict[str, type[EnumAttr]] = {}
"""Properties that are one of a few words; a dialect adds its own."""


def _print_enum(op: DeclaredOp, printer: Printer, name: str) -> None:
    printer.print_string(op.word(name))


def _read_enum(r: Reading, name: str) -> None:
    kind = ENUMS[name]
    r.properties[name] = word(kind, kind.parse_word(r.parser))


def _print_optional_enum(op: DeclaredOp, printer: Printer, name: str) -> None:
    if name in op.properties:
        printer.print_string(", ")
        _print_enum(op, printer, name)


def _read_optional_enum(r: Reading, name: str) -> None:
    if r.comma:
        r.comma = False
        _read_enum(r, name)


def _print_str(op: DeclaredOp, printer: Printer, name: str) -> None:
    printer.print_string_literal(op.word(name))


def _read_str(r: Reading, name: str) -> None:
    r.properties[name] = StringAttr(r.parser.parse_str_literal())


def _print_symbol(op: DeclaredOp, printer: Printer, name: str) -> None:
    printer.print_symbol_name(op.word(name))


def _read_symbol(r: Reading, name: str) -> None:
    r.properties[name] = r.parser.parse_symbol_name()


def _print_value(op: DeclaredOp, printer: Printer, name: str) -> None:
    printer.print_attribute(op.properties[name])


def _read_value(r: Reading, name: str) -> None:
    value = r.parser.parse_attribute()
    if not isinstance(value, DenseIntOrFPElementsAttr | DenseResourceAttr):
        r.parser.raise_error(f"expected the elements of a tensor, got {value}")
    r.properties[name], r.result_types = value, [elements_type(value)]


def _by_template(*_: object) -> None:
    """Do nothing: a template reads and prints the attributes itself."""


FIELDS: dict[str, Field] = {
    "operands": Field(_print_operands, _read_operands),
    "first": Field(_print_first, _read_first),
    "arguments": Field(_print_arguments, _read_arguments),
    "attrs": Field(_by_template, _by_template),
    "function": Field(print_function, read_function),
    "same": Field(_print_same, _read_same),
    "arrow": Field(_print_arrow, _read_arrow),
    "result": Field(_print_result, _read_result),
    "each": Field(print_each, read_each),
    "ints": Field(print_ints, read_ints),
    "integer": Field(_print_integer, _read_integer),
    "enum": Field(_print_enum, _read_enum),
    "enum?": Field(_print_optional_enum, _read_optional_enum),
    "str": Field(_print_str, _read_str),
    "symbol": Field(_print_symbol, _read_symbol),
    "value": Field(_print_value, _read_value),
}
"""What a template may hold; a dialect adds its own."""

SHOWS: dict[str, Sequence[str]] = {}
"""The properties that a field shows, where they are not its words; a dialect adds its own."""
