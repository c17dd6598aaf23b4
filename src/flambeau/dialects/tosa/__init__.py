"""The TOSA dialect as of TOSA 1.0: a table with a line for every op."""

from __future__ import annotations

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, UnitAttr, i1, i8
from xdsl.ir import Attribute, Dialect
from xdsl.printer import Printer

from flambeau.dialects.declared.attributes import EnumAttr, flag, ints, word
from flambeau.dialects.declared.checks import of, same_shapes, same_types
from flambeau.dialects.declared.forms import Reading, Template
from flambeau.dialects.declared.ops import EFFECTS, KINDS, REGIONS, TERMINATOR, DeclaredOp, Row, declare, instance, row
from flambeau.dialects.tosa import checks
from flambeau.dialects.tosa.attributes import (
    ATTRIBUTES,
    ENUMS,
    NanMode,
    ResizeMode,
    RoundingMode,
    axis,
    nan_mode,
    perms,
    resize_mode,
    rounding_mode,
    shape_type,
    shape_values,
)
from flambeau.dialects.tosa.checks import (
    boolean_result,
    broadcast,
    element_is,
    rank,
    result_element,
    same_elements,
    single,
)

__all__ = [
    "Tosa",
    "axis",
    "flag",
    "ints",
    "nan_mode",
    "op",
    "perms",
    "resize_mode",
    "rounding_mode",
    "shape_type",
    "shape_values",
]

_KINDS = KINDS | {
    "nan_mode": instance(NanMode),
    "rounding_mode": instance(RoundingMode),
    "resize_mode": instance(ResizeMode),
    "numbers": instance(DenseIntOrFPElementsAttr),
}


class TosaForm(Template):
    """`tosa.argmax %x {axis = 1 : i32, nan_mode = IGNORE} : (T) -> U`: of enumerations, only the word is shown."""

    def print_attributes(self, op: DeclaredOp, printer: Printer) -> None:
        shown = {k: v for k, v in op.properties.items() if self.defaults.get(k) != v} | op.attributes
        if not shown:
            return

        def entry(item: tuple[str, Attribute]) -> None:
            name, value = item
            printer.print_string(f"{name} = ")
            if isinstance(value, EnumAttr) and name in op.row.properties:
                printer.print_string(value.data)
            else:
                printer.print_attribute(value)

        printer.print_string(" ")
        with printer.in_braces():
            printer.print_list(sorted(shown.items()), entry)

    def read_attributes(self, reading: Reading) -> None:
        parser = reading.parser

        def entry() -> None:
            name = parser.parse_identifier_or_str_literal()
            if parser.parse_optional_punctuation("=") is None:
                reading.attributes[name] = UnitAttr()
                return
            words = ENUMS[name].words if name in ENUMS and name in reading.op.row.properties else ()
            found = next((w for w in words if parser.parse_optional_keyword(w) is not None), None)
            reading.attributes[name] = parser.parse_attribute() if found is None else word(ENUMS[name], found)

        parser.parse_optional_comma_separated_list(parser.Delimiter.BRACES, entry)


_FORM = TosaForm("{operands}{attrs} : {function}", {"nan_mode": nan_mode(), "local_bound": flag(False)})


def _unary(kinds: str) -> Row:
    return row("input", "", of(kinds), same_types, form=_FORM)


def _binary(kinds: str, properties: str = "") -> Row:
    return row(
        "input1 input2", properties, of(kinds), same_elements(0, 1), broadcast(0, 1), result_element(0), form=_FORM
    )


def _comparison(kinds: str) -> Row:
    return row("input1 input2", "", of(kinds), same_elements(0, 1), broadcast(0, 1), boolean_result, form=_FORM)


def _reduction(kinds: str, properties: str = "axis: i32") -> Row:
    return row("input", properties, of(kinds), checks.reduce, result_element(0), form=_FORM)


def _convolution(rank_: int, properties: str) -> Row:
    return row(
        "input weight bias input_zp weight_zp", f"{properties}, acc_type: type, local_bound?: flag",
        of("if"), result_element(2), rank(0, rank_), rank(1, rank_), single(3, 4), checks.convolution, form=_FORM,
    )  # fmt: skip


_WINDOW = "pad: i64s, stride: i64s, dilation: i64s"
_NAN = "nan_mode?: nan_mode"

TABLE: dict[str, Row] = {
    # Tensor operators.
    "argmax": row("input", f"axis: i32, {_NAN}", of("if"), checks.argmax, form=_FORM),
    "avg_pool2d": row(
        "input input_zp output_zp", "kernel: i64s, stride: i64s, pad: i64s, acc_type: type",
        of("if"), rank(0, 4), single(1, 2), checks.pool, result_element(0), form=_FORM,
    ),
    "conv2d": _convolution(4, _WINDOW),
    "conv3d": _convolution(5, _WINDOW),
    "depthwise_conv2d": _convolution(4, _WINDOW),
    "transpose_conv2d": _convolution(4, "out_pad: i64s, stride: i64s"),
    "fft2d": row(
        "input_real input_imag", "inverse: flag, local_bound?: flag", of("f"), rank(0, 3), checks.fft,
        results=2, form=_FORM,
    ),
    "rfft2d": row("input_real", "local_bound?: flag", of("f"), rank(0, 3), checks.fft, results=2, form=_FORM),
    "matmul": row("a b a_zp b_zp", "", of("if"), rank(0, 3), rank(1, 3), single(2, 3), checks.matmul, form=_FORM),
    "max_pool2d": row(
        "input", f"kernel: i64s, stride: i64s, pad: i64s, {_NAN}", of("if"), rank(0, 4), checks.pool,
        result_element(0), form=_FORM,
    ),
    # Elementwise, one operand.
    "clamp": row("input", f"min_val: number, max_val: number, {_NAN}", of("if"), same_types, checks.clamp, form=_FORM),
    "erf": _unary("f"),
    "sigmoid": _unary("if"),
    "tanh": _unary("if"),
    "abs": _unary("if"),
    "bitwise_not": _unary("bi"),
    "ceil": _unary("f"),
    "clz": _unary("i"),
    "cos": _unary("f"),
    "exp": _unary("f"),
    "floor": _unary("f"),
    "log": _unary("f"),
    "logical_not": _unary("b"),
    "negate": row("input input_zp output_zp", "", of("if"), checks.as_input, single(1, 2), form=_FORM),
    "reciprocal": _unary("f"),
    "rsqrt": _unary("f"),
    "sin": _unary("f"),
    "identity": _unary("bif"),
    "cast": row("input", "", of("bif"), checks.result_of_numbers, same_shapes, form=_FORM),
    "table": row("input table", "", of("i"), rank(1, 1), checks.table, form=_FORM),
    "rescale": row(
        "input multiplier shift input_zp output_zp",
        "scale32: flag, rounding_mode: rounding_mode, per_channel: flag, input_unsigned: flag, output_unsigned: flag",
        of("i"), checks.result_shape, rank(1, 1), rank(2, 1), element_is(2, i8), single(3, 4), checks.rescale,
        form=_FORM,
    ),
    # Elementwise, two and three.
    "add": _binary("if"),
    "arithmetic_right_shift": _binary("i", "round: flag"),
    "bitwise_and": _binary("bi"),
    "bitwise_or": _binary("bi"),
    "bitwise_xor": _binary("bi"),
    "intdiv": row(
        "input1 input2", "", checks.wide, same_elements(0, 1), broadcast(0, 1), result_element(0), form=_FORM
    ),
    "logical_and": _binary("b"),
    "logical_left_shift": _binary("i"),
    "logical_right_shift": _binary("i"),
    "logical_or": _binary("b"),
    "logical_xor": _binary("b"),
    "maximum": _binary("bif", _NAN),
    "minimum": _binary("bif", _NAN),
    "mul": row(
        "input1 input2 shift", "", of("if"), checks.mul, broadcast(0, 1), single(2), element_is(2, i8), form=_FORM
    ),
    "pow": _binary("f"),
    "sub": _binary("if"),
    "select": row(
        "condition on_true on_false", "", element_is(0, i1), of("bif", 1), same_elements(1, 2), broadcast(0, 1, 2),
        result_element(1), form=_FORM,
    ),
    "equal": _comparison("bif"),
    "greater": _comparison("if"),
    "greater_equal": _comparison("if"),
    # Reductions.
    "reduce_all": _reduction("b"),
    "reduce_any": _reduction("b"),
    "reduce_max": _reduction("if", f"axis: i32, {_NAN}"),
    "reduce_min": _reduction("if", f"axis: i32, {_NAN}"),
    "reduce_product": _reduction("if"),
    "reduce_sum": _reduction("if"),
    # Data layout.
    "concat": row("inputs*", "axis: i32", of("bif"), checks.concat, result_element(0), form=_FORM),
    "pad": row(
        "input padding pad_const", "", of("bif"), same_elements(0, 2), single(2), checks.pad, result_element(0),
        form=_FORM,
    ),
    "reshape": row("input shape", "", of("bif"), checks.reshape, result_element(0), form=_FORM),
    "reverse": row("input", "axis: i32", of("bif"), same_types, checks.reverse, form=_FORM),
    "slice": row("input start size", "", of("bif"), checks.slice_, result_element(0), form=_FORM),
    "tile": row("input multiples", "", of("bif"), checks.tile, result_element(0), form=_FORM),
    "transpose": row("input", "perms: i32s", of("bif"), checks.transpose, result_element(0), form=_FORM),
    "gather": row(
        "values indices", "", of("bif"), rank(0, 3), rank(1, 2), of("i", 1), checks.gather, result_element(0),
        form=_FORM,
    ),
    "scatter": row(
        "values_in indices input", "", of("bif"), rank(0, 3), rank(1, 2), rank(2, 3), of("i", 1),
        same_elements(0, 2), checks.scatter, result_element(0), form=_FORM,
    ),
    "resize": row("input scale offset border", "mode: resize_mode", of("if"), rank(0, 4), checks.resize, form=_FORM),
    # Constants.
    "const": row("", "values: elements", checks.const),
    "const_shape": row("", "values: numbers", checks.const_shape, form=_FORM),
    # What others define.
    "custom": row(
        "input_list*", "operator_name: str, domain_name: str, implementation_attrs: str", results=None, form=_FORM,
        traits=EFFECTS,
    ),
    # Control flow.
    "cond_if": row("condition inputs*", "", checks.cond_if, results=None, regions=2, traits=REGIONS),
    "while_loop": row("inputs*", "", checks.while_loop, results=None, regions=2, traits=REGIONS),
    "yield": row("inputs*", "", results=0, form=Template("{operands}{attrs}{each}"), traits=TERMINATOR),
}  # fmt: skip

op = declare("tosa", TABLE, _KINDS)
"""The class of an op: `op("add")`; ValueError when there is none."""

Tosa = Dialect("tosa", [op(name) for name in TABLE], [*ATTRIBUTES])
