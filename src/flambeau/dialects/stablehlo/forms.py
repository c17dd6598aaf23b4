"""Pretty forms of ops: templates such as ` {operands}, dims = {ints dimensions}{attrs} : {function}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import (
    ArrayAttr,
    ComplexType,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    i32,
)
from xdsl.ir import Attribute
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from flambeau.dialects.stablehlo.attributes import (
    ComparisonDirection,
    ComparisonType,
    ConvDimensionNumbers,
    DotDimensionNumbers,
    EnumAttr,
    FftType,
    Precision,
    RngDistribution,
    dot_dimension_numbers,
    flags,
    integer,
    ints,
    pairs,
    parse_ints,
    word,
)
from flambeau.dialects.stablehlo.declared import DeclaredOp, elements_type

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
        """Whether the op is such that this form can say all of it."""
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
                self.shown.update(_SHOWS.get(name, words))
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


def _print_function(op: DeclaredOp, printer: Printer) -> None:
    printer.print_function_type(op.operand_types, op.result_types)


def read_function(r: Reading) -> None:
    type_ = r.parser.parse_function_type()
    r.operand_types, r.result_types = type_.inputs.data, type_.outputs.data


def _print_same(op: DeclaredOp, printer: Printer) -> None:
    types = {*op.operand_types, *op.result_types}
    if len(types) == 1:
        printer.print_attribute(types.pop())
    else:
        _print_function(op, printer)


def _read_either(r: Reading, short: Callable[[Attribute], None]) -> None:
    """A function type in parentheses, or what `short` makes of the one type that stands there."""
    if r.parser.parse_optional_punctuation("(") is None:
        short(r.parser.parse_type())
        return
    types: list[Attribute] = []
    if r.parser.parse_optional_punctuation(")") is None:
        types = _read_types(r)
        r.parser.parse_punctuation(")")
    r.parser.parse_punctuation("->")
    r.operand_types, r.result_types = types, _read_result_types(r)


def _read_same(r: Reading) -> None:
    def short(type_: Attribute) -> None:
        r.operand_types, r.result_types = [type_] * len(r.names), [type_]

    _read_either(r, short)


def _print_types(types: Iterable[Attribute], printer: Printer) -> None:
    printer.print_list(types, printer.print_attribute)


def _read_types(r: Reading) -> list[Attribute]:
    return r.parser.parse_comma_separated_list(r.parser.Delimiter.NONE, r.parser.parse_type)


def _read_result_types(r: Reading) -> list[Attribute]:
    types = r.parser.parse_optional_comma_separated_list(r.parser.Delimiter.PAREN, r.parser.parse_type)
    return [r.parser.parse_type()] if types is None else [*types]


def _print_arrow(op: DeclaredOp, printer: Printer) -> None:
    _print_types(op.operand_types, printer)
    printer.print_string(" -> ")
    if len(op.results) == 1:
        printer.print_attribute(op.results[0].type)
    else:
        with printer.in_parens():
            _print_types(op.result_types, printer)


def _read_arrow(r: Reading) -> None:
    r.operand_types = _read_types(r)
    r.parser.parse_punctuation("->")
    r.result_types = _read_result_types(r)


def _print_result(op: DeclaredOp, printer: Printer) -> None:
    printer.print_attribute(op.results[0].type)


def _read_result(r: Reading) -> None:
    r.result_types = [r.parser.parse_type()]


def _part(whole: Attribute) -> Attribute:
    """The type of the real or the imaginary parts of a tensor."""
    if not isinstance(whole, TensorType) or not isinstance(whole.element_type, ComplexType):
        return whole
    return TensorType(whole.element_type.element_type, whole.get_shape())


def _print_complex(op: DeclaredOp, printer: Printer) -> None:
    whole = op.results[0].type
    if set(op.operand_types) == {_part(whole)}:
        printer.print_attribute(whole)
    else:
        _print_function(op, printer)


def _read_complex(r: Reading) -> None:
    def short(whole: Attribute) -> None:
        r.operand_types, r.result_types = [_part(whole)] * 2, [whole]

    _read_either(r, short)


def _print_select(op: DeclaredOp, printer: Printer) -> None:
    types = [*op.operand_types, *op.result_types]
    if len(types) == 4 and types[1] == types[2] == types[3]:
        _print_types(types[:2], printer)
    else:
        _print_function(op, printer)


def _read_select(r: Reading) -> None:
    def short(condition: Attribute) -> None:
        r.parser.parse_punctuation(",")
        type_ = r.parser.parse_type()
        r.operand_types, r.result_types = [condition, type_, type_], [type_]

    _read_either(r, short)


def print_each(op: DeclaredOp, printer: Printer) -> None:
    if op.operands:
        printer.print_string(" : ")
        _print_types(op.operand_types, printer)


def read_each(r: Reading) -> None:
    if r.names:
        r.parser.parse_punctuation(":")
        r.operand_types = _read_types(r)
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


ENUMS: dict[str, type[EnumAttr]] = {
    "comparison_direction": ComparisonDirection,
    "compare_type": ComparisonType,
    "fft_type": FftType,
    "rng_distribution": RngDistribution,
}


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


def _print_format(op: DeclaredOp, printer: Printer) -> None:
    printer.print_string(f"e{op.integer('exponent_bits')}m{op.integer('mantissa_bits')}")


def _read_format(r: Reading) -> None:
    text = r.parser.parse_identifier()
    found = re.fullmatch(r"e(\d+)m(\d+)", text)
    if found is None:
        r.parser.raise_error(f"expected a format such as e5m10, got '{text}'")
    for name, digits in zip(("exponent_bits", "mantissa_bits"), found.groups(), strict=True):
        r.properties[name] = IntegerAttr(int(digits), i32)


def _print_slice(op: DeclaredOp, printer: Printer) -> None:
    starts, limits, strides = (op.ints(name) or () for name in ("start_indices", "limit_indices", "strides"))
    parts = [f"{a}:{b}" + (f":{s}" if s != 1 else "") for a, b, s in zip(starts, limits, strides, strict=False)]
    printer.print_string(f" [{', '.join(parts)}]")


def _read_slice(r: Reading) -> None:
    def bounds() -> tuple[int, int, int]:
        start = r.parser.parse_integer()
        r.parser.parse_punctuation(":")
        limit = r.parser.parse_integer()
        stride = r.parser.parse_integer() if r.parser.parse_optional_punctuation(":") is not None else 1
        return start, limit, stride

    found = r.parser.parse_comma_separated_list(r.parser.Delimiter.SQUARE, bounds)
    for i, name in enumerate(("start_indices", "limit_indices", "strides")):
        r.properties[name] = ints([f[i] for f in found])


def _print_dot(op: DeclaredOp, printer: Printer) -> None:
    numbers = op.properties["dot_dimension_numbers"]
    assert isinstance(numbers, DotDimensionNumbers)
    lhs_batch, rhs_batch, lhs, rhs = (list(numbers[name]) for name in numbers.fields)
    if lhs_batch or rhs_batch:
        printer.print_string(f"batching_dims = {lhs_batch} x {rhs_batch}, ")
    printer.print_string(f"contracting_dims = {lhs} x {rhs}")


def _read_dot(r: Reading) -> None:
    def sides() -> tuple[tuple[int, ...], tuple[int, ...]]:
        r.parser.parse_punctuation("=")
        lhs = parse_ints(r.parser)
        r.parser.parse_keyword("x")
        return lhs, parse_ints(r.parser)

    batch: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    if r.parser.parse_optional_keyword("batching_dims") is not None:
        batch = sides()
        r.parser.parse_punctuation(",")
    r.parser.parse_keyword("contracting_dims")
    r.properties["dot_dimension_numbers"] = dot_dimension_numbers(*batch, *sides())


def _print_precision(op: DeclaredOp, printer: Printer) -> None:
    config = op.properties.get("precision_config")
    if isinstance(config, ArrayAttr):
        names = [p.data for p in config.data if isinstance(p, Precision)]
        printer.print_string(f", precision = [{', '.join(names)}]")


def _read_precision(r: Reading) -> None:
    if r.parser.parse_optional_punctuation(",") is None:
        return
    r.parser.parse_keyword("precision")
    r.parser.parse_punctuation("=")
    names = r.parser.parse_comma_separated_list(r.parser.Delimiter.SQUARE, lambda: Precision.parse_word(r.parser))
    r.properties["precision_config"] = ArrayAttr([word(Precision, name) for name in names])


def _print_conv(op: DeclaredOp, printer: Printer) -> None:
    numbers = op.properties["dimension_numbers"]
    assert isinstance(numbers, ConvDimensionNumbers)
    printer.print_string(numbers.show())


def _read_conv(r: Reading) -> None:
    r.properties["dimension_numbers"] = ConvDimensionNumbers(ConvDimensionNumbers.parse_layouts(r.parser))


_WINDOW = {
    "stride": "window_strides",
    "pad": "padding",
    "lhs_dilate": "lhs_dilation",
    "rhs_dilate": "rhs_dilation",
    "reverse": "window_reversal",
}


def _print_window(op: DeclaredOp, printer: Printer) -> None:
    shown: list[str] = []
    for key, name in _WINDOW.items():
        value = op.properties.get(name)
        if value is None:
            continue
        if isinstance(value, DenseIntOrFPElementsAttr):
            numbers = list(value.get_values())
            text = str([numbers[i : i + 2] for i in range(0, len(numbers), 2)])
        elif key == "reverse":
            text = f"[{', '.join('true' if v else 'false' for v in op.ints(name) or ())}]"
        else:
            text = str(list(op.ints(name) or ()))
        shown.append(f"{key} = {text}")
    printer.print_string(f"{{{', '.join(shown)}}}")


def _read_window(r: Reading) -> None:
    square = r.parser.Delimiter.SQUARE

    def pair() -> tuple[int, int]:
        found = parse_ints(r.parser)
        if len(found) != 2:
            r.parser.raise_error(f"padding is given in pairs, got {list(found)}")
        return found[0], found[1]

    def entry() -> None:
        key = r.parser.parse_identifier()
        if key not in _WINDOW:
            r.parser.raise_error(f"a window has {', '.join(_WINDOW)}, not '{key}'")
        r.parser.parse_punctuation("=")
        if key == "pad":
            value: Attribute = pairs(r.parser.parse_comma_separated_list(square, pair))
        elif key == "reverse":
            value = flags(r.parser.parse_comma_separated_list(square, r.parser.parse_boolean))
        else:
            value = ints(parse_ints(r.parser))
        r.properties[_WINDOW[key]] = value

    r.parser.parse_comma_separated_list(r.parser.Delimiter.BRACES, entry)


def _by_template(*_: object) -> None:
    """A template does its attributes itself."""


FIELDS: dict[str, Field] = {
    "operands": Field(_print_operands, _read_operands),
    "first": Field(_print_first, _read_first),
    "arguments": Field(_print_arguments, _read_arguments),
    "attrs": Field(_by_template, _by_template),
    "function": Field(_print_function, read_function),
    "same": Field(_print_same, _read_same),
    "arrow": Field(_print_arrow, _read_arrow),
    "result": Field(_print_result, _read_result),
    "complex": Field(_print_complex, _read_complex),
    "select": Field(_print_select, _read_select),
    "each": Field(print_each, read_each),
    "ints": Field(print_ints, read_ints),
    "integer": Field(_print_integer, _read_integer),
    "enum": Field(_print_enum, _read_enum),
    "enum?": Field(_print_optional_enum, _read_optional_enum),
    "str": Field(_print_str, _read_str),
    "symbol": Field(_print_symbol, _read_symbol),
    "value": Field(_print_value, _read_value),
    "format": Field(_print_format, _read_format),
    "slice": Field(_print_slice, _read_slice),
    "dot": Field(_print_dot, _read_dot),
    "precision": Field(_print_precision, _read_precision),
    "conv": Field(_print_conv, _read_conv),
    "window": Field(_print_window, _read_window),
}

_SHOWS: dict[str, Sequence[str]] = {
    "format": ("exponent_bits", "mantissa_bits"),
    "slice": ("start_indices", "limit_indices", "strides"),
    "dot": ("dot_dimension_numbers",),
    "precision": ("precision_config",),
    "conv": ("dimension_numbers",),
    "window": tuple(_WINDOW.values()),
}
"""The properties that a field shows, where they are not its words."""
