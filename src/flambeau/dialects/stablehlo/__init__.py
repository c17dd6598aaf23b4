"""The StableHLO dialect and CHLO, its dialect of functions that decompose: a table with a line for every op."""

from __future__ import annotations

from functools import cache

from xdsl.dialects.builtin import ArrayAttr, UnitAttr
from xdsl.ir import Dialect, Operation

from flambeau.dialects.declared.attributes import flag, flags, integer, ints, pairs
from flambeau.dialects.declared.checks import of, same_count, same_shapes, same_types
from flambeau.dialects.declared.forms import Form, Template
from flambeau.dialects.declared.ops import EFFECTS, KINDS, REGIONS, TERMINATOR, Row, declare, instance, row
from flambeau.dialects.stablehlo import checks, collective_checks, region_checks
from flambeau.dialects.stablehlo import fields as _fields  # noqa: F401  adds the fields of the forms below
from flambeau.dialects.stablehlo.attributes import (
    ATTRIBUTES,
    DEFAULT_ACCURACY,
    ChannelHandle,
    ComparisonDirection,
    ComparisonType,
    ConvDimensionNumbers,
    DotDimensionNumbers,
    FftType,
    GatherDimensionNumbers,
    Precision,
    ResultAccuracy,
    RngDistribution,
    ScatterDimensionNumbers,
    channel,
    comparison,
    conv_dimension_numbers,
    dot_dimension_numbers,
    fft_type,
    gather_dimension_numbers,
    precision_config,
    rng_distribution,
    scatter_dimension_numbers,
)
from flambeau.dialects.stablehlo.checks import same_element, scalars
from flambeau.dialects.stablehlo.region_forms import ReduceForm, WhileForm

__all__ = [
    "Chlo",
    "Stablehlo",
    "channel",
    "comparison",
    "conv_dimension_numbers",
    "dot_dimension_numbers",
    "fft_type",
    "flag",
    "flags",
    "gather_dimension_numbers",
    "integer",
    "ints",
    "op",
    "pairs",
    "precision_config",
    "rng_distribution",
    "scatter_dimension_numbers",
]

_KINDS = KINDS | {
    "direction": instance(ComparisonDirection),
    "comparison": instance(ComparisonType),
    "accuracy": instance(ResultAccuracy),
    "dot": instance(DotDimensionNumbers),
    "conv": instance(ConvDimensionNumbers),
    "gather": instance(GatherDimensionNumbers),
    "scatter": instance(ScatterDimensionNumbers),
    "fft_type": instance(FftType),
    "distribution": instance(RngDistribution),
    "channel": instance(ChannelHandle),
    "unit": instance(UnitAttr),
    "precisions": lambda a: isinstance(a, ArrayAttr) and all(isinstance(p, Precision) for p in a.data),
}

_SAME = Template("{operands}{attrs} : {same}", {"result_accuracy": DEFAULT_ACCURACY})
_FUNCTION = Template("{operands}{attrs} : {function}")
_ARROW = Template("{operands}{attrs} : {arrow}")
_EACH = Template("{operands}{attrs}{each}")


def _form(text: str) -> Form:
    """Make the form of ops whose operands come first and whose types are a function type."""
    return Template(f"{{operands}}, {text}{{attrs}} : {{function}}")


def _unary(kinds: str, properties: str = "", form: Form = _SAME) -> Row:
    return row("operand", properties, of(kinds), same_types, form=form)


def _function(kinds: str) -> Row:
    """Declare a unary function with a property for its accuracy."""
    return _unary(kinds, "result_accuracy?: accuracy")


def _binary(kinds: str) -> Row:
    return row("lhs rhs", "", of(kinds), same_types, form=_SAME)


_CONV = (
    "dimension_numbers: conv, feature_group_count: i64, batch_group_count: i64, window_strides?: i64s, "
    "padding?: elements, lhs_dilation?: i64s, rhs_dilation?: i64s, window_reversal?: flags, "
    "precision_config?: precisions"
)

_GROUPS = "replica_groups: elements, channel_handle?: channel"
_GLOBAL = f"{_GROUPS}, use_global_device_ids?: unit"

TABLE: dict[str, Row] = {
    # Elementwise, one operand.
    "abs": row("operand", "", of("ifc"), checks.has_sign, same_shapes, checks.real_result, form=_SAME),
    "cbrt": _function("fc"),
    "ceil": _unary("f"),
    "bitcast_convert": row("operand", "", same_shapes, form=_SAME),
    "convert": row("operand", "", of("bifc"), same_shapes, form=_SAME),
    "cosine": _function("fc"),
    "count_leading_zeros": _unary("i"),
    "exponential": _function("fc"),
    "exponential_minus_one": _function("fc"),
    "floor": _unary("f"),
    "imag": row("operand", "", of("fc"), same_shapes, checks.real_result, form=_SAME),
    "is_finite": row("x", "", of("f"), same_shapes, checks.boolean_result, form=_FUNCTION),
    "log": _function("fc"),
    "log_plus_one": _function("fc"),
    "logistic": _function("fc"),
    "negate": _unary("ifc"),
    "not": _unary("bi"),
    "popcnt": _unary("i"),
    "real": row("operand", "", of("fc"), same_shapes, checks.real_result, form=_SAME),
    "reduce_precision": _unary(
        "f", "exponent_bits: i32, mantissa_bits: i32", Template("{operands}, format = {format}{attrs} : {same}")
    ),
    "round_nearest_afz": _unary("f"),
    "round_nearest_even": _unary("f"),
    "rsqrt": _function("fc"),
    "sign": row("operand", "", of("ifc"), checks.has_sign, same_types, form=_SAME),
    "sine": _function("fc"),
    "sqrt": _function("fc"),
    "tan": _function("fc"),
    "tanh": _function("fc"),
    # Elementwise, two and three.
    "add": _binary("bifc"),
    "and": _binary("bi"),
    "atan2": _binary("fc"),
    "complex": row(
        "lhs rhs", "", of("f"), checks.same_operand_types, same_shapes, checks.complex_result,
        form=Template("{operands}{attrs} : {complex}"),
    ),
    "divide": _binary("ifc"),
    "maximum": _binary("bifc"),
    "minimum": _binary("bifc"),
    "multiply": _binary("bifc"),
    "or": _binary("bi"),
    "power": _binary("ifc"),
    "remainder": _binary("ifc"),
    "shift_left": _binary("i"),
    "shift_right_arithmetic": _binary("i"),
    "shift_right_logical": _binary("i"),
    "subtract": _binary("ifc"),
    "xor": _binary("bi"),
    "compare": row(
        "lhs rhs", "comparison_direction: direction, compare_type?: comparison",
        of("bifc"), checks.same_operand_types, same_shapes, checks.boolean_result,
        form=Template(" {enum comparison_direction},{operands}{enum? compare_type}{attrs} : {function}"),
    ),
    "select": row(
        "pred on_true on_false", "", of("bifc", 1), checks.select, form=Template("{operands}{attrs} : {select}")
    ),
    "clamp": row("min operand max", "", of("bifc", 1), checks.clamp, form=_SAME),
    "optimization_barrier": row("operands*", "", checks.results_as_operands, results=None, form=_EACH),
    # Shapes.
    "broadcast_in_dim": row(
        "operand", "broadcast_dimensions: i64s", same_element, checks.broadcast_in_dim,
        form=_form("dims = {ints broadcast_dimensions}"),
    ),
    "concatenate": row(
        "inputs*", "dimension: i64", checks.concatenate, same_element, form=_form("dim = {integer dimension}")
    ),
    "constant": row("", "value: elements", checks.constant, form=Template("{attrs} {value value}")),
    "iota": row(
        "", "iota_dimension: i64", checks.iota, form=Template(" dim = {integer iota_dimension}{attrs} : {result}")
    ),
    "pad": row(
        "operand padding_value", "edge_padding_low: i64s, edge_padding_high: i64s, interior_padding: i64s",
        same_element, scalars(1), checks.pad,
        form=_form(
            "low = {ints edge_padding_low}, high = {ints edge_padding_high}, interior = {ints interior_padding}"
        ),
    ),
    "reshape": row("operand", "", same_element, same_count, form=_FUNCTION),
    "reverse": row(
        "operand", "dimensions: i64s", same_types, checks.reverse,
        form=Template("{operands}, dims = {ints dimensions}{attrs} : {same}"),
    ),
    "slice": row(
        "operand", "start_indices: i64s, limit_indices: i64s, strides: i64s", same_element, checks.slice_,
        form=Template("{operands}{slice}{attrs} : {function}"),
    ),
    "transpose": row(
        "operand", "permutation: i64s", of("bifc"), same_element, checks.transpose,
        form=_form("dims = {ints permutation}"),
    ),
    "dynamic_slice": row(
        "operand start_indices*", "slice_sizes: i64s", same_element, checks.dynamic_slice,
        form=_form("sizes = {ints slice_sizes}"),
    ),
    "dynamic_update_slice": row(
        "operand update start_indices*", "", same_element, checks.dynamic_update_slice, form=_FUNCTION
    ),
    "dynamic_broadcast_in_dim": row(
        "operand output_dimensions",
        "broadcast_dimensions: i64s, known_expanding_dimensions?: i64s, known_nonexpanding_dimensions?: i64s",
        same_element, checks.integers_of_rank(1, 1), checks.result_rank, checks.broadcast_in_dim,
        form=_form("dims = {ints broadcast_dimensions}"),
    ),
    "dynamic_iota": row(
        "output_shape", "iota_dimension: i64", checks.integers_of_rank(0, 1), checks.result_rank, checks.iota,
        form=_form("dim = {integer iota_dimension}"),
    ),
    "dynamic_pad": row(
        "operand padding_value edge_padding_low edge_padding_high interior_padding", "",
        same_element, scalars(1), *(checks.integers_of_rank(i, 1) for i in (2, 3, 4)), checks.dynamic_pad,
        form=_FUNCTION,
    ),
    "dynamic_reshape": row(
        "operand output_shape", "", same_element, checks.integers_of_rank(1, 1), checks.result_rank, form=_FUNCTION
    ),
    "real_dynamic_slice": row(
        "operand start_indices limit_indices strides", "",
        same_element, *(checks.integers_of_rank(i, 1) for i in (1, 2, 3)), checks.dynamic_pad, form=_FUNCTION,
    ),
    "get_dimension_size": row(
        "operand", "dimension: i64", checks.get_dimension_size, form=_form("dim = {integer dimension}")
    ),
    # Products.
    "dot_general": row(
        "lhs rhs", "dot_dimension_numbers: dot, precision_config?: precisions", checks.dot_general,
        form=_form("{dot}{precision}"),
    ),
    "convolution": row(
        "lhs rhs", _CONV, checks.convolution,
        form=Template("{arguments} dim_numbers = {conv}, window = {window}{attrs} : {function}"),
    ),
    "dynamic_conv": row("lhs rhs padding", _CONV, checks.integers_of_rank(2, 2), checks.convolution),
    "fft": row(
        "operand", "fft_type: fft_type, fft_length: i64s", checks.fft,
        form=_form("type = {enum fft_type}, length = {ints fft_length}"),
    ),
    "rng": row(
        "a b shape", "rng_distribution: distribution", same_element, scalars(0, 1), checks.integers_of_rank(2, 1),
        form=_form("distribution = {enum rng_distribution}"), traits=EFFECTS,
    ),
    # Indexing.
    "gather": row(
        "operand start_indices", "dimension_numbers: gather, slice_sizes: i64s, indices_are_sorted?: flag",
        same_element, of("i", 1), checks.gather,
    ),
    "dynamic_gather": row(
        "operand start_indices slice_sizes", "dimension_numbers: gather, indices_are_sorted?: flag",
        same_element, of("i", 1), checks.integers_of_rank(2, 1), checks.gather,
    ),
    "scatter": row(
        "inputs* scatter_indices updates*",
        "scatter_dimension_numbers: scatter, indices_are_sorted?: flag, unique_indices?: flag",
        region_checks.scatter, results=None, regions=1,
    ),
    # With regions.
    "reduce": row(
        "inputs* init_values*", "dimensions: i64s", region_checks.reduce, results=None, regions=1, form=ReduceForm()
    ),
    "reduce_window": row(
        "inputs* init_values*",
        "window_dimensions: i64s, window_strides?: i64s, base_dilations?: i64s, window_dilations?: i64s, "
        "padding?: elements",
        region_checks.reduce_window, results=None, regions=1,
    ),
    "sort": row("inputs*", "dimension?: i64, is_stable?: flag", region_checks.sort, results=None, regions=1),
    "if": row("pred", "", region_checks.branches, results=None, regions=2, traits=REGIONS),
    "case": row("index", "", region_checks.branches, results=None, regions=None, traits=REGIONS),
    "while": row("operand*", "", region_checks.while_, results=None, regions=2, form=WhileForm(), traits=REGIONS),
    "return": row("results*", "", results=0, form=_EACH, traits=TERMINATOR),
    # Between devices.
    "all_gather": row(
        "operands*", f"all_gather_dim: i64, {_GLOBAL}", collective_checks.all_gather, results=None
    ),
    "all_reduce": row("operands*", _GLOBAL, collective_checks.all_reduce, results=None, regions=1),
    "all_to_all": row(
        "operands*", f"split_dimension: i64, concat_dimension: i64, split_count: i64, {_GROUPS}",
        collective_checks.all_to_all, results=None,
    ),
    "collective_broadcast": row("operand", _GROUPS, same_types),
    "collective_permute": row(
        "operand", "source_target_pairs: elements, channel_handle?: channel", same_types,
        collective_checks.collective_permute,
    ),
    "reduce_scatter": row(
        "operand", f"scatter_dimension: i64, {_GLOBAL}", collective_checks.reduce_scatter, regions=1
    ),
    # Calls.
    "custom_call": row(
        "inputs*",
        "call_target_name: str, has_side_effect?: flag, backend_config?: any, api_version?: i32, "
        "called_computations?: list, operand_layouts?: list, result_layouts?: list, output_operand_aliases?: list",
        results=None, form=Template(" {symbol call_target_name}{arguments}{attrs} : {function}"), traits=EFFECTS,
    ),
    "composite": row(
        "inputs*", "name: str, decomposition: symbol, composite_attributes?: dict, version?: i32",
        checks.composite, results=None, form=Template(" {str name}{operands}{attrs} : {function}"), traits=EFFECTS,
    ),
}  # fmt: skip


def _chlo(operands: str, kinds: str) -> Row:
    return row(operands, "", of(kinds), same_types, form=_ARROW)


CHLO_TABLE: dict[str, Row] = {
    **dict.fromkeys(
        ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "square", "tan", "bessel_i1e"),
        _chlo("operand", "fc"),
    ),
    **dict.fromkeys(("digamma", "erf", "erf_inv", "erfc", "lgamma"), _chlo("operand", "f")),
    "next_after": _chlo("x y", "f"),
    "polygamma": _chlo("n x", "f"),
    "zeta": _chlo("x q", "f"),
    "is_inf": row("operand", "", of("f"), same_shapes, checks.boolean_result, form=_ARROW),
    "constant": row("", "value: elements", checks.constant, form=Template("{attrs} {value value}")),
    "broadcast_add": row("lhs rhs", "broadcast_dimensions?: i64s", of("bifc"), same_element, form=_FUNCTION),
    "top_k": row(
        "operand", "k: i64", checks.top_k, results=2, form=Template("({first}, k = {integer k}){attrs} : {arrow}")
    ),
}

_stablehlo = declare("stablehlo", TABLE, _KINDS)
_chlo_op = declare("chlo", CHLO_TABLE, _KINDS)


@cache
def op(name: str) -> type[Operation]:
    """Return the class of an op: `op("add")`, `op("chlo.erf")`; ValueError when there is none."""
    if name.startswith("chlo."):
        return _chlo_op(name.removeprefix("chlo."))
    return _stablehlo(name)


Stablehlo = Dialect("stablehlo", [_stablehlo(name) for name in TABLE], [*ATTRIBUTES])
Chlo = Dialect("chlo", [_chlo_op(name) for name in CHLO_TABLE])
