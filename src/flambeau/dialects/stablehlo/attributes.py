"""StableHLO's attributes, spelled as upstream's, and functions that make each value once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Data
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from flambeau.dialects.declared.attributes import BareEnum, BracketEnum, Ints, parse_ints, word


class ComparisonDirection(BareEnum):
    """Which comparison."""

    name = "stablehlo.comparison_direction"
    words = ("EQ", "NE", "GE", "GT", "LE", "LT")


class ComparisonType(BareEnum):
    """What is compared."""

    name = "stablehlo.comparison_type"
    words = ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")


class Precision(BareEnum):
    """How exactly a product is computed."""

    name = "stablehlo.precision"
    words = ("DEFAULT", "HIGH", "HIGHEST")


class FftType(BareEnum):
    """Which Fourier transform."""

    name = "stablehlo.fft_type"
    words = ("FFT", "IFFT", "RFFT", "IRFFT")


class RngDistribution(BareEnum):
    """Which random numbers."""

    name = "stablehlo.rng_distribution"
    words = ("UNIFORM", "NORMAL")


class ResultAccuracyMode(BracketEnum):
    """How the accuracy of a function is stated."""

    name = "stablehlo.result_accuracy_mode"
    words = ("DEFAULT", "HIGHEST", "TOLERANCE")


@dataclass(frozen=True)
class Accuracy:
    """How far a result may be off."""

    atol: float
    rtol: float
    ulps: int
    mode: ResultAccuracyMode


class ResultAccuracy(Data[Accuracy]):
    """`#stablehlo.result_accuracy<ulps = 10, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>`."""

    name = "stablehlo.result_accuracy"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Accuracy:
        found: dict[str, Any] = {"atol": 0.0, "rtol": 0.0, "ulps": 0, "mode": ResultAccuracyMode("DEFAULT")}

        def field() -> None:
            key = parser.parse_identifier()
            if key not in found:
                parser.raise_error(f"{cls.name} has no field '{key}'")
            parser.parse_punctuation("=")
            found[key] = parser.parse_attribute() if key == "mode" else parser.parse_number()

        parser.parse_comma_separated_list(parser.Delimiter.ANGLE, field)
        return Accuracy(**found)

    def print_parameter(self, printer: Printer) -> None:
        numbers = [f"{k} = {getattr(self.data, k):e}" for k in ("atol", "rtol") if getattr(self.data, k)]
        if self.data.ulps:
            numbers.append(f"ulps = {self.data.ulps}")
        printer.print_string("<" + "".join(f"{n}, " for n in numbers) + "mode = ")
        printer.print_attribute(self.data.mode)
        printer.print_string(">")


@dataclass(frozen=True)
class Channel:
    """What tells one exchange between devices from the others of a program."""

    handle: int
    type: int
    """1 for an exchange among devices."""


class ChannelHandle(Data[Channel]):
    """`#stablehlo.channel_handle<handle = 1, type = 1>`."""

    name = "stablehlo.channel_handle"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Channel:
        found = {"handle": 0, "type": 0}

        def field() -> None:
            key = parser.parse_identifier()
            if key not in found:
                parser.raise_error(f"{cls.name} has no field '{key}'")
            parser.parse_punctuation("=")
            found[key] = parser.parse_integer()

        parser.parse_comma_separated_list(parser.Delimiter.ANGLE, field)
        return Channel(**found)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<handle = {self.data.handle}, type = {self.data.type}>")


class Numbers(Data[tuple[tuple[int, ...] | int, ...]]):
    """Named lists of dimensions, `#stablehlo.dot<lhs_contracting_dimensions = [1], ...>`; what is empty is left out."""

    fields: ClassVar[tuple[str, ...]]
    """Their names; `index_vector_dim` is one number and not a list."""

    def __getitem__(self, field: str) -> Any:
        return self.data[self.fields.index(field)]

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[tuple[int, ...] | int, ...]:
        found: dict[str, tuple[int, ...] | int] = {f: 0 if f == "index_vector_dim" else () for f in cls.fields}

        def field() -> None:
            key = parser.parse_identifier()
            if key not in found:
                parser.raise_error(f"{cls.name} has no field '{key}'")
            parser.parse_punctuation("=")
            found[key] = parser.parse_integer() if key == "index_vector_dim" else parse_ints(parser)

        parser.parse_comma_separated_list(parser.Delimiter.ANGLE, field)
        return tuple(found.values())

    def print_parameter(self, printer: Printer) -> None:
        shown = [
            f"{k} = {v if isinstance(v, int) else list(v)}" for k, v in zip(self.fields, self.data, strict=True) if v
        ]
        printer.print_string(f"<{', '.join(shown)}>")


class DotDimensionNumbers(Numbers):
    """Which dimensions of a product are batches and which are summed over."""

    name = "stablehlo.dot"
    fields = (
        "lhs_batching_dimensions",
        "rhs_batching_dimensions",
        "lhs_contracting_dimensions",
        "rhs_contracting_dimensions",
    )


class GatherDimensionNumbers(Numbers):
    """How indices pick slices."""

    name = "stablehlo.gather"
    fields = (
        "offset_dims",
        "collapsed_slice_dims",
        "operand_batching_dims",
        "start_indices_batching_dims",
        "start_index_map",
        "index_vector_dim",
    )


class ScatterDimensionNumbers(Numbers):
    """How indices say where slices go."""

    name = "stablehlo.scatter"
    fields = (
        "update_window_dims",
        "inserted_window_dims",
        "input_batching_dims",
        "scatter_indices_batching_dims",
        "scatter_dims_to_operand_dims",
        "index_vector_dim",
    )


@dataclass(frozen=True)
class Layout:
    """Where a convolution's tensor has its two named dimensions, and its spatial ones in order."""

    first: int
    """The batch, or the kernel's output feature."""
    feature: int
    """The feature, or the kernel's input feature."""
    spatial: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.spatial) + 2

    def show(self, first: str, feature: str) -> str:
        """Format the layout: `[b, f, 0, 1]`."""
        names = {self.first: first, self.feature: feature, **{d: str(i) for i, d in enumerate(self.spatial)}}
        return f"[{', '.join(names.get(d, '?') for d in range(self.rank))}]"


class ConvDimensionNumbers(Data[tuple[Layout, Layout, Layout]]):
    """`#stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>`: the layouts of input, kernel and output."""

    name = "stablehlo.conv"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Layout, Layout, Layout]:
        with parser.in_angle_brackets():
            return cls.parse_layouts(parser)

    @classmethod
    def parse_layouts(cls, parser: AttrParser) -> tuple[Layout, Layout, Layout]:
        """Parse what is between the angle brackets; an op's pretty form has it without them."""
        lhs = _parse_layout(parser, "b", "f")
        parser.parse_keyword("x")
        kernel = _parse_layout(parser, "o", "i")
        parser.parse_punctuation("->")
        return lhs, kernel, _parse_layout(parser, "b", "f")

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.show()}>")

    def show(self) -> str:
        lhs, kernel, out = self.data
        return f"{lhs.show('b', 'f')}x{kernel.show('o', 'i')}->{out.show('b', 'f')}"


def _parse_layout(parser: AttrParser, first: str, feature: str) -> Layout:
    def entry() -> str:
        number = parser.parse_optional_integer(allow_boolean=False, allow_negative=False)
        return parser.parse_identifier() if number is None else str(number)

    entries = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, entry)
    wanted = [first, feature, *(str(i) for i in range(len(entries) - 2))]
    if sorted(entries) != sorted(wanted):
        parser.raise_error(f"the dimensions of a convolution are {', '.join(wanted)}, got {', '.join(entries)}")
    return Layout(entries.index(first), entries.index(feature), tuple(entries.index(n) for n in wanted[2:]))


ATTRIBUTES: tuple[type[Attribute], ...] = (
    ComparisonDirection,
    ComparisonType,
    Precision,
    FftType,
    RngDistribution,
    ResultAccuracyMode,
    ResultAccuracy,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
    ConvDimensionNumbers,
    ChannelHandle,
)

DEFAULT_ACCURACY = ResultAccuracy(Accuracy(0.0, 0.0, 0, ResultAccuracyMode("DEFAULT")))


# --- Making them ---


def comparison(direction: str, kind: str | None = None) -> dict[str, Attribute]:
    """Make the properties of `compare`; kind is FLOAT, TOTALORDER, SIGNED or UNSIGNED."""
    return _comparison(direction, kind)


@cache
def _comparison(direction: str, kind: str | None) -> dict[str, Attribute]:
    properties: dict[str, Attribute] = {"comparison_direction": word(ComparisonDirection, direction)}
    if kind is not None:
        properties["compare_type"] = word(ComparisonType, kind)
    return properties


def fft_type(kind: str) -> FftType:
    """Make the type of a transform: FFT, IFFT, RFFT or IRFFT."""
    return word(FftType, kind)


def rng_distribution(kind: str) -> RngDistribution:
    """Make a distribution: UNIFORM or NORMAL."""
    return word(RngDistribution, kind)


@cache
def channel(handle: int) -> ChannelHandle:
    """Make the handle of an exchange among devices; each exchange of a program has its own number, from 1."""
    return ChannelHandle(Channel(handle, 1))


@cache
def precision_config(precision: str = "DEFAULT", operands: int = 2) -> ArrayAttr[Attribute]:
    """Make a `precision_config` with the same precision for all operands of a product."""
    return ArrayAttr([word(Precision, precision)] * operands)


@cache
def _numbers(class_: type[Numbers], data: tuple[tuple[int, ...] | int, ...]) -> Any:
    return class_(data)


def dot_dimension_numbers(
    lhs_batch: Ints, rhs_batch: Ints, lhs_contract: Ints, rhs_contract: Ints
) -> DotDimensionNumbers:
    """Make the dimension numbers of `dot_general`."""
    lists = (tuple(lhs_batch), tuple(rhs_batch), tuple(lhs_contract), tuple(rhs_contract))
    return _numbers(DotDimensionNumbers, lists)


def gather_dimension_numbers(
    offset_dims: Ints,
    collapsed_slice_dims: Ints,
    operand_batching_dims: Ints,
    start_indices_batching_dims: Ints,
    start_index_map: Ints,
    index_vector_dim: int,
) -> GatherDimensionNumbers:
    """Make the dimension numbers of `gather`."""
    lists = (offset_dims, collapsed_slice_dims, operand_batching_dims, start_indices_batching_dims, start_index_map)
    return _numbers(GatherDimensionNumbers, (*map(tuple, lists), index_vector_dim))


def scatter_dimension_numbers(
    update_window_dims: Ints,
    inserted_window_dims: Ints,
    input_batching_dims: Ints,
    scatter_indices_batching_dims: Ints,
    scatter_dims_to_operand_dims: Ints,
    index_vector_dim: int,
) -> ScatterDimensionNumbers:
    """Make the dimension numbers of `scatter`."""
    lists = (
        update_window_dims,
        inserted_window_dims,
        input_batching_dims,
        scatter_indices_batching_dims,
        scatter_dims_to_operand_dims,
    )
    return _numbers(ScatterDimensionNumbers, (*map(tuple, lists), index_vector_dim))


def conv_dimension_numbers(
    input_batch: int,
    input_feature: int,
    input_spatial: Ints,
    kernel_input_feature: int,
    kernel_output_feature: int,
    kernel_spatial: Ints,
    output_batch: int,
    output_feature: int,
    output_spatial: Ints,
) -> ConvDimensionNumbers:
    """Make the layouts of a convolution's input, kernel and output."""
    return _conv(
        Layout(input_batch, input_feature, tuple(input_spatial)),
        Layout(kernel_output_feature, kernel_input_feature, tuple(kernel_spatial)),
        Layout(output_batch, output_feature, tuple(output_spatial)),
    )


@cache
def _conv(*layouts: Layout) -> ConvDimensionNumbers:
    lhs, kernel, out = layouts
    return ConvDimensionNumbers((lhs, kernel, out))
