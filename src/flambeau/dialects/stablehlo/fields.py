"""What StableHLO adds to the fields of a template: dimension numbers, windows, precision and the like."""

from __future__ import annotations

import re

from xdsl.dialects.builtin import ArrayAttr, ComplexType, DenseIntOrFPElementsAttr, IntegerAttr, TensorType, i32
from xdsl.ir import Attribute
from xdsl.printer import Printer

from flambeau.dialects.declared.attributes import flags, ints, pairs, parse_ints, word
from flambeau.dialects.declared.forms import (
    ENUMS,
    FIELDS,
    SHOWS,
    Field,
    Reading,
    print_function,
    print_types,
    read_either,
)
from flambeau.dialects.declared.ops import DeclaredOp
from flambeau.dialects.stablehlo.attributes import (
    ComparisonDirection,
    ComparisonType,
    ConvDimensionNumbers,
    DotDimensionNumbers,
    FftType,
    Precision,
    RngDistribution,
    dot_dimension_numbers,
)


def _part(whole: Attribute) -> Attribute:
    """Return the type of the real or the imaginary parts of a tensor."""
    if not isinstance(whole, TensorType) or not isinstance(whole.element_type, ComplexType):
        return whole
    return TensorType(whole.element_type.element_type, whole.get_shape())


def _print_complex(op: DeclaredOp, printer: Printer) -> None:
    whole = op.results[0].type
    if set(op.operand_types) == {_part(whole)}:
        printer.print_attribute(whole)
    else:
        print_function(op, printer)


def _read_complex(r: Reading) -> None:
    def short(whole: Attribute) -> None:
        r.operand_types, r.result_types = [_part(whole)] * 2, [whole]

    read_either(r, short)


def _print_select(op: DeclaredOp, printer: Printer) -> None:
    types = [*op.operand_types, *op.result_types]
    if len(types) == 4 and types[1] == types[2] == types[3]:
        print_types(types[:2], printer)
    else:
        print_function(op, printer)


def _read_select(r: Reading) -> None:
    def short(condition: Attribute) -> None:
        r.parser.parse_punctuation(",")
        type_ = r.parser.parse_type()
        r.operand_types, r.result_types = [condition, type_, type_], [type_]

    read_either(r, short)


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


ENUMS.update(
    comparison_direction=ComparisonDirection,
    compare_type=ComparisonType,
    fft_type=FftType,
    rng_distribution=RngDistribution,
)
FIELDS.update(
    {
        "complex": Field(_print_complex, _read_complex),
        "select": Field(_print_select, _read_select),
        "format": Field(_print_format, _read_format),
        "slice": Field(_print_slice, _read_slice),
        "dot": Field(_print_dot, _read_dot),
        "precision": Field(_print_precision, _read_precision),
        "conv": Field(_print_conv, _read_conv),
        "window": Field(_print_window, _read_window),
    }
)
SHOWS.update(
    {
        "format": ("exponent_bits", "mantissa_bits"),
        "slice": ("start_indices", "limit_indices", "strides"),
        "dot": ("dot_dimension_numbers",),
        "precision": ("precision_config",),
        "conv": ("dimension_numbers",),
        "window": tuple(_WINDOW.values()),
    }
)
