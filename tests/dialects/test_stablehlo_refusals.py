"""The dialects stablehlo and chlo: what the parser and the verifier refuse, and what they let pass."""

# ruff: noqa: E501

from __future__ import annotations

import pytest
from dialects.wrong_programs import iree_agrees, is_refused
from xdsl.utils.exceptions import ParseError

from flambeau.dialects.context import parse_module
from flambeau.ir.printing import pretty_text

ARGUMENTS = """
%f: tensor<2x3xf32>, %g: tensor<3x2xf32>, %i: tensor<2x3xi32>, %c: tensor<8xcomplex<f32>>, %s: tensor<f32>, %k: tensor<i32>, %v: tensor<2xi64>, %p: tensor<i1>, %x: tensor<1x3x8x8xf32>, %w: tensor<6x3x3x3xf32>
"""

INVALID = [
    (
        '"stablehlo.all_gather"(%f) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<2x3xf32>) -> tensor<3x3xf32>',
        "the result has the shape",
    ),
    (
        '"stablehlo.all_gather"(%f) <{all_gather_dim = 0 : i64}> : (tensor<2x3xf32>) -> tensor<4x3xf32>',
        "needs a property 'replica_groups'",
    ),
    (
        '"stablehlo.all_to_all"(%f) <{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<2x3xf32>) -> tensor<4x1xf32>',
        "has no 2 equal parts",
    ),
    (
        '"stablehlo.collective_permute"(%f) <{source_target_pairs = dense<[[0, 1], [0, 2]]> : tensor<2x2xi64>}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "a device is the source of one pair at most",
    ),
    (
        '"stablehlo.add"(%f, %g) : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x3xf32>',
        "operands and results have one type",
    ),
    (
        '"stablehlo.add"(%f) : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "takes 2 operands (lhs, rhs), got 1",
    ),
    (
        '"stablehlo.add"(%f, %f) : (tensor<2x3xf32>, tensor<2x3xf32>) -> ()',
        "has 1 result, got 0",
    ),
    (
        '"stablehlo.add"(%f, %i) : (tensor<2x3xf32>, tensor<2x3xi32>) -> tensor<2x3xf32>',
        "operands and results have one type",
    ),
    (
        '"stablehlo.exponential"(%i) : (tensor<2x3xi32>) -> tensor<2x3xi32>',
        "is for floats or complex numbers",
    ),
    (
        '"stablehlo.and"(%f, %f) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>',
        "is for booleans or integers",
    ),
    (
        '"stablehlo.convert"(%f) : (tensor<2x3xf32>) -> tensor<3x2xi32>',
        "one shape",
    ),
    (
        '"stablehlo.complex"(%f, %f) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xcomplex<f64>>',
        "elements of the result are complex<f32>",
    ),
    (
        '"stablehlo.real"(%c) : (tensor<8xcomplex<f32>>) -> tensor<8xf64>',
        "elements of the result are f32",
    ),
    (
        '"stablehlo.compare"(%f, %f) <{comparison_direction = #stablehlo<comparison_direction LT>}> : '
        "(tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
        "the elements of the result are i1",
    ),
    (
        '"stablehlo.compare"(%f, %f) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>',
        "needs a property 'comparison_direction'",
    ),
    (
        '"stablehlo.compare"(%f, %f) <{comparison_direction = 1 : i64}> : (tensor<2x3xf32>, tensor<2x3xf32>) -> '
        "tensor<2x3xi1>",
        "is not of the kind direction",
    ),
    (
        '"stablehlo.abs"(%f) <{speed = 1 : i64}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "has no property 'speed'",
    ),
    (
        '"stablehlo.select"(%f, %f, %f) : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>',
        "the condition is of booleans",
    ),
    (
        '"stablehlo.clamp"(%g, %f, %s) : (tensor<3x2xf32>, tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>',
        "a bound is a scalar or as",
    ),
    (
        '"stablehlo.constant"() <{value = dense<1> : tensor<2xi64>}> : () -> tensor<3xi64>',
        "the value is tensor<2xi64>, the result tensor<3xi64>",
    ),
    (
        '"stablehlo.iota"() <{iota_dimension = 2 : i64}> : () -> tensor<2x3xi64>',
        "dimension 2 is out of range for rank 2",
    ),
    (
        '"stablehlo.broadcast_in_dim"(%f) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<2x3xf32>) -> '
        "tensor<2x4xf32>",
        "does not broadcast",
    ),
    (
        '"stablehlo.broadcast_in_dim"(%f) <{broadcast_dimensions = array<i64: 0>}> : (tensor<2x3xf32>) -> '
        "tensor<2x3xf32>",
        "one dimension for each",
    ),
    (
        '"stablehlo.broadcast_in_dim"(%f) <{broadcast_dimensions = array<i64: 0, 0>}> : (tensor<2x3xf32>) -> '
        "tensor<2x3xf32>",
        "dimensions [0, 0] repeat",
    ),
    (
        '"stablehlo.concatenate"(%f, %f) <{dimension = 1 : i64}> : (tensor<2x3xf32>, tensor<2x3xf32>) -> '
        "tensor<2x5xf32>",
        "the result has the shape [2, 6]",
    ),
    (
        '"stablehlo.concatenate"(%f, %g) <{dimension = 1 : i64}> : (tensor<2x3xf32>, tensor<3x2xf32>) -> '
        "tensor<2x5xf32>",
        "differ in dimension 1 only",
    ),
    (
        '"stablehlo.concatenate"() <{dimension = 0 : i64}> : () -> tensor<2xf32>',
        "at least one operand",
    ),
    (
        '"stablehlo.pad"(%f, %s) <{edge_padding_low = array<i64: 1, 0>, edge_padding_high = array<i64: 0, 2>, '
        "interior_padding = array<i64: 0, 1>}> : (tensor<2x3xf32>, tensor<f32>) -> tensor<3x5xf32>",
        "the result has the shape [3, 7]",
    ),
    (
        '"stablehlo.pad"(%f, %s) <{edge_padding_low = array<i64: 1>, edge_padding_high = array<i64: 0, 2>, '
        "interior_padding = array<i64: 0, 0>}> : (tensor<2x3xf32>, tensor<f32>) -> tensor<3x5xf32>",
        "'edge_padding_low' has 2 numbers",
    ),
    (
        '"stablehlo.reshape"(%f) : (tensor<2x3xf32>) -> tensor<5xf32>',
        "the number of elements stays",
    ),
    (
        '"stablehlo.reverse"(%f) <{dimensions = array<i64: 2>}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "dimension 2 is out of range",
    ),
    (
        '"stablehlo.slice"(%f) <{start_indices = array<i64: 0, 1>, limit_indices = array<i64: 1, 4>, strides = '
        "array<i64: 1, 1>}> : (tensor<2x3xf32>) -> tensor<1x3xf32>",
        "1:4:1 is no slice of a dimension of 3",
    ),
    (
        '"stablehlo.slice"(%f) <{start_indices = array<i64: 0, 0>, limit_indices = array<i64: 1, 3>, strides = '
        "array<i64: 1, 2>}> : (tensor<2x3xf32>) -> tensor<1x1xf32>",
        "the result has the shape [1, 2]",
    ),
    (
        '"stablehlo.transpose"(%f) <{permutation = array<i64: 0, 0>}> : (tensor<2x3xf32>) -> tensor<2x2xf32>',
        "[0, 0] is no permutation",
    ),
    (
        '"stablehlo.transpose"(%f) <{permutation = array<i64: 1, 0>}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "the result has the shape [3, 2]",
    ),
    (
        '"stablehlo.dynamic_slice"(%f, %k) <{slice_sizes = array<i64: 1, 2>}> : (tensor<2x3xf32>, tensor<i32>) ->'
        " tensor<1x2xf32>",
        "one index for each of 2 dimensions, got 1",
    ),
    (
        '"stablehlo.dynamic_slice"(%f, %k, %k) <{slice_sizes = array<i64: 1, 4>}> : (tensor<2x3xf32>, '
        "tensor<i32>, tensor<i32>) -> tensor<1x4xf32>",
        "does not fit into",
    ),
    (
        '"stablehlo.dynamic_update_slice"(%f, %g, %k, %k) : (tensor<2x3xf32>, tensor<3x2xf32>, tensor<i32>, '
        "tensor<i32>) -> tensor<2x3xf32>",
        "does not fit into",
    ),
    (
        '"stablehlo.dynamic_reshape"(%f, %v) : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<?x?x?xf32>',
        "one for each of 3 dimensions",
    ),
    (
        '"stablehlo.get_dimension_size"(%f) <{dimension = 2 : i64}> : (tensor<2x3xf32>) -> tensor<i32>',
        "dimension 2 is out of range",
    ),
    (
        '"stablehlo.dot_general"(%f, %f) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = '
        "[1], rhs_contracting_dimensions = [0]>}> : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
        "the contracting dimensions [1]",
    ),
    (
        '"stablehlo.dot_general"(%f, %g) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = '
        "[1], rhs_contracting_dimensions = [0]>}> : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x3xf32>",
        "the result has the shape [2, 2]",
    ),
    (
        '"stablehlo.convolution"(%x, %w) <{dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, '
        "0, 1]>, feature_group_count = 3 : i64, batch_group_count = 1 : i64}> : (tensor<1x3x8x8xf32>, "
        "tensor<6x3x3x3xf32>) -> tensor<1x6x6x6xf32>",
        "3 groups of 3 input features make 9, the input has 3",
    ),
    (
        '"stablehlo.convolution"(%x, %w) <{dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, '
        "0, 1]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64, window_strides = array<i64: 2, 2>}> "
        ": (tensor<1x3x8x8xf32>, tensor<6x3x3x3xf32>) -> tensor<1x6x6x6xf32>",
        "sizes [1, 6, 3, 3]",
    ),
    (
        '"stablehlo.gather"(%f, %v) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], '
        "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, "
        "3>}> : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<2x2xf32>",
        "the result has the shape [2, 3]",
    ),
    (
        '"stablehlo.gather"(%f, %v) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], '
        "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, "
        "4>}> : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<2x4xf32>",
        "do not fit into",
    ),
    (
        '"stablehlo.gather"(%f, %v) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], '
        "collapsed_slice_dims = [0], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1,"
        " 3>}> : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<2x3xf32>",
        "an index has 2 numbers",
    ),
    (
        '"stablehlo.reduce"(%f, %s) <{dimensions = array<i64: 1>}> ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>): '
        '"stablehlo.return"(%a) : (tensor<f32>) -> () }) : (tensor<2x3xf32>, tensor<f32>) -> tensor<3xf32>',
        "the result has the shape [2]",
    ),
    (
        '"stablehlo.reduce"(%f, %s) <{dimensions = array<i64: 1>}> ({ ^bb0(%a: tensor<f32>): '
        '"stablehlo.return"(%a) : (tensor<f32>) -> () }) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>',
        "region 0 takes (tensor<f32>, tensor<f32>)",
    ),
    (
        '"stablehlo.reduce"(%f, %s) <{dimensions = array<i64: 1>}> ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>): '
        '"stablehlo.return"(%a, %b) : (tensor<f32>, tensor<f32>) -> () }) : (tensor<2x3xf32>, tensor<f32>) -> '
        "tensor<2xf32>",
        "region 0 gives (tensor<f32>)",
    ),
    (
        '"stablehlo.reduce_window"(%f, %s) <{window_dimensions = array<i64: 1, 2>}> ({ ^bb0(%a: tensor<f32>, %b: '
        'tensor<f32>): "stablehlo.return"(%a) : (tensor<f32>) -> () }) : (tensor<2x3xf32>, tensor<f32>) -> '
        "tensor<2x3xf32>",
        "the result has the shape [2, 2]",
    ),
    (
        '"stablehlo.sort"(%f) <{dimension = 2 : i64}> ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>): '
        '"stablehlo.return"(%p) : (tensor<i1>) -> () }) : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "dimension 2 is out of range",
    ),
    (
        '"stablehlo.if"(%p) ({ "stablehlo.return"(%f) : (tensor<2x3xf32>) -> () }, { "stablehlo.return"(%i) : '
        "(tensor<2x3xi32>) -> () }) : (tensor<i1>) -> tensor<2x3xf32>",
        "region 1 gives (tensor<2x3xf32>), got (tensor<2x3xi32>)",
    ),
    (
        '"stablehlo.while"(%f) ({ ^bb0(%a: tensor<2x3xf32>): "stablehlo.return"(%a) : (tensor<2x3xf32>) -> () }, '
        '{ ^bb0(%a: tensor<2x3xf32>): "stablehlo.return"(%a) : (tensor<2x3xf32>) -> () }) : (tensor<2x3xf32>) -> '
        "tensor<2x3xf32>",
        "region 0 gives (tensor<i1>)",
    ),
    (
        '"stablehlo.scatter"(%f, %v, %f) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = '
        "[1], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({ ^bb0(%a: tensor<f32>, %b: "
        'tensor<f32>): "stablehlo.return"(%b) : (tensor<f32>) -> () }) : (tensor<2x3xf32>, tensor<2xi64>, '
        "tensor<2x3xf32>) -> tensor<2x3xf32>",
        "window, inserted and batching dimensions",
    ),
    (
        '"stablehlo.composite"(%f) <{name = "my.op", decomposition = @nowhere}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "the decomposition @nowhere is not a function of the module",
    ),
    (
        '"stablehlo.composite"(%f) <{name = "my.op", decomposition = @f}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "the decomposition @f takes (tensor<2x3xf32>, ",
    ),
    (
        '"stablehlo.composite"(%f) <{name = "op", decomposition = @f}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "the name has a namespace, got 'op'",
    ),
    (
        '"chlo.erf"(%i) : (tensor<2x3xi32>) -> tensor<2x3xi32>',
        "is for floats",
    ),
    (
        '"chlo.top_k"(%f) <{k = 2 : i64}> : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x2xi32>)',
        "the result has the shape [2, 2]",
    ),
]

STRICTER = [
    (
        '"stablehlo.fft"(%c) <{fft_type = #stablehlo<fft_type FFT>, fft_length = array<i64: 7>}> : '
        "(tensor<8xcomplex<f32>>) -> tensor<8xcomplex<f32>>",
        "takes the sizes [7]",
    ),
]
"""What the real verifiers let pass, though it has no meaning."""


def program(line: str) -> str:
    results = "" if line.endswith("-> ()") else "%0:2 = " if "chlo.top_k" in line else "%0 = "
    return f"func.func @f({ARGUMENTS}) {{\n  {results}{line}\n  return\n}}"


@pytest.mark.parametrize(("line", "message"), INVALID + STRICTER)
def test_what_is_wrong_is_refused(line: str, message: str) -> None:
    is_refused(program, line, message)


def test_iree_refuses_the_same() -> None:
    iree_agrees(program, INVALID, STRICTER)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('"stablehlo.compare"(%f, %f) <{comparison_direction = #stablehlo<comparison_direction UP>}> :', "got 'UP'"),
        ('"stablehlo.dot_general"(%f, %f) <{dot_dimension_numbers = #stablehlo.dot<lhs = [1]>}> :', "no field 'lhs'"),
        ("stablehlo.convolution(%x, %w) dim_numbers = [b, b, 0]x[o, i, 0]->[b, f, 0]", "are b, f, 0, got b, b, 0"),
        (
            "stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {pad = [[1]]}",
            "padding is given in pairs, got [1]",
        ),
        ("stablehlo.reduce_precision %f, format = float : tensor<2x3xf32>", "a format such as e5m10, got 'float'"),
        (
            "stablehlo.reduce(%f init: %s) applies stablehlo.plus across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>",
            "Operation stablehlo.plus is not registered",
        ),
        ("stablehlo.constant 1 : i64", "expected the elements of a tensor"),
        ("stablehlo.nothing %f : tensor<2x3xf32>", "stablehlo.nothing is not registered"),
    ],
)
def test_what_cannot_be_read_is_said(line: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_module(program(line))
    assert message in str(caught.value)


def test_a_refused_op_can_be_shown() -> None:
    module = parse_module(program('"stablehlo.slice"(%f) : (tensor<2x3xf32>) -> tensor<2x3xf32>'))
    assert "stablehlo.slice(%f) : (tensor<2x3xf32>) -> tensor<2x3xf32>" in pretty_text(module)


def test_properties_among_the_attributes_are_found() -> None:
    line = '"stablehlo.reverse"(%f) {dimensions = array<i64: 0>, note = "x"} : (tensor<2x3xf32>) -> tensor<2x3xf32>'
    module = parse_module(program(line))
    module.verify()
    assert 'stablehlo.reverse %f, dims = [0] {note = "x"} : tensor<2x3xf32>' in pretty_text(module)


def test_weights_stay_outside() -> None:
    text = program("stablehlo.constant dense_resource<w> : tensor<2xf32>")
    text += '\n{-# dialect_resources: { builtin: { w: "0x040000000000803F00000040" } } #-}\n'
    module = parse_module(text)
    module.verify()
    assert "stablehlo.constant dense_resource<w> : tensor<2xf32>" in pretty_text(module)
