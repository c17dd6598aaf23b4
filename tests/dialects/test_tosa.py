"""The dialect tosa: text as the real one's, and refusal of what it refuses."""

# ruff: noqa: E501

from __future__ import annotations

import pytest
from dialects.wrong_programs import iree, iree_agrees, is_refused
from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.transforms.dead_code_elimination import dce
from xdsl.utils.exceptions import ParseError

from flambeau.dialects import tosa
from flambeau.dialects.context import parse_module
from flambeau.ir.builder import OpBuilder
from flambeau.ir.printing import generic_text, pretty_text

EXAMPLES = """
func.func @elementwise(%f: tensor<2x3xf32>, %o: tensor<1x3xf32>, %i: tensor<2x3xi32>, %p: tensor<2x3xi1>, %b: tensor<2x3xi8>, %d: tensor<?x3xf32>, %t: tensor<256xi8>) {
  %zp = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %sh = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %0 = tosa.abs %f : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %1 = tosa.bitwise_not %i : (tensor<2x3xi32>) -> tensor<2x3xi32>
  %2 = tosa.ceil %f : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %3 = tosa.clz %i : (tensor<2x3xi32>) -> tensor<2x3xi32>
  %4 = tosa.cos %f : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %5 = tosa.exp %f : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %6 = tosa.floor %f : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %7 = tosa.log %f : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %8 = tosa.logical_not %p : (tensor<2x3xi1>) -> tensor<2x3xi1>
  %9 = tosa.negate %f, %zp, %zp : (tensor<2x3xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<2x3xf32>
  %10 = tosa.reciprocal %f : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %11 = tosa.rsqrt %f : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %12 = tosa.sin %f : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %13 = tosa.erf %f : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %14 = tosa.sigmoid %f : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %15 = tosa.tanh %f : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %16 = tosa.identity %f : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %17 = tosa.cast %f : (tensor<2x3xf32>) -> tensor<2x3xi32>
  %18 = "tosa.clamp"(%f) <{min_val = 0.0 : f32, max_val = 6.0 : f32, nan_mode = #tosa.nan_mode<IGNORE>}> : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %19 = "tosa.clamp"(%b) <{min_val = 0 : i8, max_val = 6 : i8}> : (tensor<2x3xi8>) -> tensor<2x3xi8>
  %20 = tosa.table %b, %t : (tensor<2x3xi8>, tensor<256xi8>) -> tensor<2x3xi8>
  %21 = tosa.add %f, %o : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<2x3xf32>
  %22 = "tosa.arithmetic_right_shift"(%i, %i) <{round = true}> : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
  %23 = tosa.bitwise_and %i, %i : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
  %24 = tosa.bitwise_or %i, %i : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
  %25 = tosa.bitwise_xor %i, %i : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
  %26 = tosa.intdiv %i, %i : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
  %27 = tosa.logical_and %p, %p : (tensor<2x3xi1>, tensor<2x3xi1>) -> tensor<2x3xi1>
  %28 = tosa.logical_left_shift %i, %i : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
  %29 = tosa.logical_right_shift %i, %i : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
  %30 = tosa.logical_or %p, %p : (tensor<2x3xi1>, tensor<2x3xi1>) -> tensor<2x3xi1>
  %31 = tosa.logical_xor %p, %p : (tensor<2x3xi1>, tensor<2x3xi1>) -> tensor<2x3xi1>
  %32 = tosa.maximum %f, %o : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<2x3xf32>
  %33 = "tosa.minimum"(%f, %o) <{nan_mode = #tosa.nan_mode<IGNORE>}> : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<2x3xf32>
  %34 = tosa.mul %f, %f, %sh : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<1xi8>) -> tensor<2x3xf32>
  %35 = tosa.pow %f, %o : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<2x3xf32>
  %36 = tosa.sub %f, %o : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<2x3xf32>
  %37 = tosa.select %p, %f, %o : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<2x3xf32>
  %38 = tosa.equal %f, %o : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<2x3xi1>
  %39 = tosa.greater %f, %o : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<2x3xi1>
  %40 = tosa.greater_equal %f, %o : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<2x3xi1>
  %41 = tosa.add %d, %o : (tensor<?x3xf32>, tensor<1x3xf32>) -> tensor<?x3xf32>
  %42 = tosa.mul %i, %i, %sh {note = "x"} : (tensor<2x3xi32>, tensor<2x3xi32>, tensor<1xi8>) -> tensor<2x3xi32>
  return
}
func.func @tensors(%x: tensor<1x8x8x4xf32>, %w: tensor<6x3x3x4xf32>, %bias: tensor<6xf32>, %dw: tensor<3x3x4x2xf32>, %db: tensor<8xf32>, %x3: tensor<1x4x8x8x4xf32>, %w3: tensor<6x1x1x1x4xf32>, %a: tensor<5x2x3xf32>, %b: tensor<5x3x4xf32>, %r: tensor<1x8x8xf32>, %qx: tensor<1x8x8x4xi8>, %qw: tensor<6x3x3x4xi8>, %qb: tensor<6xi32>) {
  %zp = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %qzp = "tosa.const"() <{values = dense<1> : tensor<1xi8>}> : () -> tensor<1xi8>
  %0 = tosa.conv2d %x, %w, %bias, %zp, %zp {acc_type = f32, dilation = array<i64: 1, 1>, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>} : (tensor<1x8x8x4xf32>, tensor<6x3x3x4xf32>, tensor<6xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x8x8x6xf32>
  %1 = tosa.conv2d %qx, %qw, %qb, %qzp, %qzp {acc_type = i32, dilation = array<i64: 1, 1>, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>, local_bound = true} : (tensor<1x8x8x4xi8>, tensor<6x3x3x4xi8>, tensor<6xi32>, tensor<1xi8>, tensor<1xi8>) -> tensor<1x8x8x6xi32>
  %2 = tosa.conv3d %x3, %w3, %bias, %zp, %zp {acc_type = f32, dilation = array<i64: 1, 1, 1>, pad = array<i64: 0, 0, 0, 0, 0, 0>, stride = array<i64: 1, 1, 1>} : (tensor<1x4x8x8x4xf32>, tensor<6x1x1x1x4xf32>, tensor<6xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x8x8x6xf32>
  %3 = tosa.depthwise_conv2d %x, %dw, %db, %zp, %zp {acc_type = f32, dilation = array<i64: 1, 1>, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>} : (tensor<1x8x8x4xf32>, tensor<3x3x4x2xf32>, tensor<8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x8x8x8xf32>
  %4 = tosa.transpose_conv2d %x, %w, %bias, %zp, %zp {acc_type = f32, out_pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<1x8x8x4xf32>, tensor<6x3x3x4xf32>, tensor<6xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x10x10x6xf32>
  %5 = tosa.matmul %a, %b, %zp, %zp : (tensor<5x2x3xf32>, tensor<5x3x4xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<5x2x4xf32>
  %6 = tosa.avg_pool2d %x, %zp, %zp {acc_type = f32, kernel = array<i64: 2, 2>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>} : (tensor<1x8x8x4xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x4x4xf32>
  %7 = tosa.max_pool2d %x {kernel = array<i64: 2, 2>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>, nan_mode = #tosa.nan_mode<IGNORE>} : (tensor<1x8x8x4xf32>) -> tensor<1x4x4x4xf32>
  %8 = tosa.argmax %a {axis = 1 : i32} : (tensor<5x2x3xf32>) -> tensor<5x3xi32>
  %9:2 = "tosa.fft2d"(%r, %r) <{inverse = false}> : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> (tensor<1x8x8xf32>, tensor<1x8x8xf32>)
  %10:2 = "tosa.rfft2d"(%r) : (tensor<1x8x8xf32>) -> (tensor<1x8x5xf32>, tensor<1x8x5xf32>)
  return
}
func.func @shapes(%f: tensor<2x3xf32>, %p: tensor<2x3xi1>, %v: tensor<1x4x3xf32>, %i: tensor<1x2xi32>, %u: tensor<1x2x3xf32>, %x: tensor<1x2x2x1xf32>, %q: tensor<2x3xi8>, %d: tensor<?x3xf32>) {
  %zp = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %s2 = tosa.const_shape {values = dense<[3, 2]> : tensor<2xindex>} : () -> !tosa.shape<2>
  %s1 = tosa.const_shape {values = dense<[1, 1]> : tensor<2xindex>} : () -> !tosa.shape<2>
  %z2 = tosa.const_shape {values = dense<0> : tensor<2xindex>} : () -> !tosa.shape<2>
  %s4 = tosa.const_shape {values = dense<[0, 0, 1, 2]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %sc = tosa.const_shape {values = dense<[4, 2, 4, 2]> : tensor<4xindex>} : () -> !tosa.shape<4>
  %off = tosa.const_shape {values = dense<[0, 0]> : tensor<2xindex>} : () -> !tosa.shape<2>
  %bd = tosa.const_shape {values = dense<[2, 2]> : tensor<2xindex>} : () -> !tosa.shape<2>
  %s0 = tosa.const_shape {values = dense<> : tensor<0xindex>} : () -> !tosa.shape<0>
  %one = "tosa.const"() <{values = dense<0.0> : tensor<1x1xf32>}> : () -> tensor<1x1xf32>
  %mul = "tosa.const"() <{values = dense<1073741824> : tensor<1xi32>}> : () -> tensor<1xi32>
  %shift = "tosa.const"() <{values = dense<30> : tensor<1xi8>}> : () -> tensor<1xi8>
  %qzp = "tosa.const"() <{values = dense<1> : tensor<1xi8>}> : () -> tensor<1xi8>
  %0 = tosa.reshape %f, %s2 : (tensor<2x3xf32>, !tosa.shape<2>) -> tensor<3x2xf32>
  %1 = tosa.reduce_all %p {axis = 1 : i32} : (tensor<2x3xi1>) -> tensor<2x1xi1>
  %2 = tosa.reduce_any %p {axis = 1 : i32} : (tensor<2x3xi1>) -> tensor<2x1xi1>
  %3 = tosa.reduce_max %f {axis = 1 : i32, nan_mode = #tosa.nan_mode<IGNORE>} : (tensor<2x3xf32>) -> tensor<2x1xf32>
  %4 = tosa.reduce_min %f {axis = 1 : i32} : (tensor<2x3xf32>) -> tensor<2x1xf32>
  %5 = tosa.reduce_product %f {axis = 0 : i32} : (tensor<2x3xf32>) -> tensor<1x3xf32>
  %6 = tosa.reduce_sum %f {axis = 1 : i32} : (tensor<2x3xf32>) -> tensor<2x1xf32>
  %7 = tosa.concat %f, %f {axis = 0 : i32} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  %8 = tosa.pad %f, %s4, %zp : (tensor<2x3xf32>, !tosa.shape<4>, tensor<1xf32>) -> tensor<2x6xf32>
  %9 = tosa.reverse %f {axis = 1 : i32} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %10 = tosa.slice %f, %z2, %s1 : (tensor<2x3xf32>, !tosa.shape<2>, !tosa.shape<2>) -> tensor<1x1xf32>
  %11 = tosa.tile %f, %s2 : (tensor<2x3xf32>, !tosa.shape<2>) -> tensor<6x6xf32>
  %12 = tosa.transpose %f {perms = array<i32: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %13 = tosa.gather %v, %i : (tensor<1x4x3xf32>, tensor<1x2xi32>) -> tensor<1x2x3xf32>
  %14 = tosa.scatter %v, %i, %u : (tensor<1x4x3xf32>, tensor<1x2xi32>, tensor<1x2x3xf32>) -> tensor<1x4x3xf32>
  %15 = "tosa.resize"(%x, %sc, %off, %bd) <{mode = #tosa.resize_mode<BILINEAR>}> : (tensor<1x2x2x1xf32>, !tosa.shape<4>, !tosa.shape<2>, !tosa.shape<2>) -> tensor<1x4x4x1xf32>
  %16 = "tosa.rescale"(%q, %mul, %shift, %qzp, %qzp) <{scale32 = true, rounding_mode = #tosa.rounding_mode<DOUBLE_ROUND>, per_channel = false, input_unsigned = false, output_unsigned = false}> : (tensor<2x3xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<2x3xi8>
  return
}
func.func @control(%c: tensor<i1>, %f: tensor<2x3xf32>, %i: tensor<i32>) {
  %0 = "tosa.cond_if"(%c, %f) ({
  ^bb0(%a: tensor<2x3xf32>):
    %1 = "tosa.abs"(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    "tosa.yield"(%1) : (tensor<2x3xf32>) -> ()
  }, {
  ^bb0(%a: tensor<2x3xf32>):
    "tosa.yield"(%a) : (tensor<2x3xf32>) -> ()
  }) : (tensor<i1>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %2:2 = "tosa.while_loop"(%i, %f) ({
  ^bb0(%k: tensor<i32>, %a: tensor<2x3xf32>):
    %3 = "tosa.greater"(%i, %k) : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "tosa.yield"(%3) : (tensor<i1>) -> ()
  }, {
  ^bb0(%k: tensor<i32>, %a: tensor<2x3xf32>):
    %3 = "tosa.add"(%k, %k) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    "tosa.yield"(%3, %a) : (tensor<i32>, tensor<2x3xf32>) -> ()
  }) : (tensor<i32>, tensor<2x3xf32>) -> (tensor<i32>, tensor<2x3xf32>)
  %5:2 = tosa.custom %f {domain_name = "mylib", implementation_attrs = "", operator_name = "halves"} : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>)
  %4 = "tosa.cond_if"(%c) ({
    "tosa.yield"(%f) : (tensor<2x3xf32>) -> ()
  }, {
    "tosa.yield"(%f) : (tensor<2x3xf32>) -> ()
  }) : (tensor<i1>) -> tensor<2x3xf32>
  return
}
"""


@pytest.fixture(scope="module")
def examples() -> ModuleOp:
    module = parse_module(EXAMPLES)
    module.verify()
    return module


def test_every_op_has_an_example(examples: ModuleOp) -> None:
    found = {op.name for op in examples.walk()}
    assert {f"tosa.{name}" for name in tosa.TABLE} <= found


def test_what_is_printed_reads_back(examples: ModuleOp) -> None:
    generic, pretty = generic_text(examples), pretty_text(examples)
    for text in (generic, pretty):
        again = parse_module(text)
        again.verify()
        assert generic_text(again) == generic
    assert pretty_text(again) == pretty


@pytest.mark.peer
def test_torch_mlir_reads_both_forms(examples: ModuleOp, upstream) -> None:
    expected = upstream.text(EXAMPLES)
    assert upstream.text(generic_text(examples)) == expected
    assert upstream.text(pretty_text(examples)) == expected


@pytest.mark.peer
def test_we_read_what_torch_mlir_prints(upstream) -> None:
    module = parse_module(upstream.text(EXAMPLES, generic=True))
    module.verify()
    assert upstream.text(generic_text(module)) == upstream.text(EXAMPLES)
    # Of the pretty form, all but control flow.
    straight = EXAMPLES[: EXAMPLES.index("func.func @control")]
    module = parse_module(upstream.text(straight))
    module.verify()
    assert upstream.text(pretty_text(module)) == upstream.text(straight)


@pytest.mark.peer
def test_iree_reads_the_generic_form(examples: ModuleOp, upstream) -> None:
    assert iree(generic_text(examples)) == iree(upstream.text(EXAMPLES, generic=True))


ARGUMENTS = """
%f: tensor<2x3xf32>, %g: tensor<3x2xf32>, %o: tensor<3xf32>, %i: tensor<2x3xi32>, %b: tensor<2x3xi1>, %q: tensor<2x3xi8>, %p: tensor<i1>, %x: tensor<1x8x8x4xf32>, %w: tensor<6x3x3x4xf32>, %bias: tensor<6xf32>, %zp: tensor<1xf32>, %zi: tensor<1xi8>, %zq: tensor<1xi32>, %m: tensor<5x2x3xf32>, %v: tensor<1x4x3xf32>, %ix: tensor<1x2xi32>, %sh: !tosa.shape<2>
"""
SHAPE = '%s = "tosa.const_shape"() <{values = dense<[2, 2]> : tensor<2xindex>}> : () -> !tosa.shape<2>'

INVALID = [
    (
        '"tosa.add"(%f, %g) : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x3xf32>',
        "do not broadcast",
    ),
    (
        '"tosa.add"(%f, %o) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>',
        "operands have one rank",
    ),
    (
        '"tosa.add"(%f, %i) : (tensor<2x3xf32>, tensor<2x3xi32>) -> tensor<2x3xf32>',
        "operands have the same elements",
    ),
    (
        '"tosa.add"(%f, %f) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x1xf32>',
        "the result has the shape [2, 3]",
    ),
    (
        '"tosa.add"(%f) : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "takes 2 operands",
    ),
    (
        '"tosa.equal"(%f, %f) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>',
        "the elements of the result are i1",
    ),
    (
        '"tosa.select"(%f, %f, %f) : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>',
        "operand 0 is of i1",
    ),
    (
        '"tosa.logical_not"(%f) : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "is for booleans",
    ),
    (
        '"tosa.tanh"(%f) : (tensor<2x3xf32>) -> tensor<3x2xf32>',
        "one type",
    ),
    (
        '"tosa.mul"(%f, %f, %zp) : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<1xf32>) -> tensor<2x3xf32>',
        "operand 2 is of i8",
    ),
    (
        '"tosa.negate"(%f, %o, %zp) : (tensor<2x3xf32>, tensor<3xf32>, tensor<1xf32>) -> tensor<2x3xf32>',
        "operand 1 has the shape [1]",
    ),
    (
        '"tosa.clamp"(%f) <{min_val = 1.0 : f32, max_val = 0.0 : f32}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "the bounds are in order",
    ),
    (
        '"tosa.clamp"(%f) <{min_val = 0 : i32, max_val = 1 : i32}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "the bounds are of f32",
    ),
    (
        '"tosa.clamp"(%f) <{min_val = 0.0 : f32}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "needs a property 'max_val'",
    ),
    (
        '"tosa.cast"(%f) : (tensor<2x3xf32>) -> tensor<6xi32>',
        "one shape",
    ),
    (
        '"tosa.reduce_sum"(%f) <{axis = 1 : i32}> : (tensor<2x3xf32>) -> tensor<2xf32>',
        "the result has the shape [2, 1]",
    ),
    (
        '"tosa.reduce_sum"(%f) <{axis = 2 : i32}> : (tensor<2x3xf32>) -> tensor<2x1xf32>',
        "dimension 2 is out of range",
    ),
    (
        '"tosa.reduce_sum"(%f) <{axis = 1 : i64}> : (tensor<2x3xf32>) -> tensor<2x1xf32>',
        "is not of the kind i32",
    ),
    (
        '"tosa.argmax"(%f) <{axis = 1 : i32}> : (tensor<2x3xf32>) -> tensor<2x1xi32>',
        "the result has the shape [2]",
    ),
    (
        '"tosa.concat"(%f, %g) <{axis = 0 : i32}> : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<5x3xf32>',
        "differ in dimension 0 only",
    ),
    (
        '"tosa.concat"(%f, %f) <{axis = 0 : i32}> : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<5x3xf32>',
        "the result has the shape [4, 3]",
    ),
    (
        '"tosa.transpose"(%f) <{perms = array<i32: 0, 0>}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "[0, 0] is no permutation",
    ),
    (
        '"tosa.transpose"(%f) <{perms = array<i32: 1, 0>}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "the result has the shape [3, 2]",
    ),
    (
        '"tosa.reverse"(%f) <{axis = 2 : i32}> : (tensor<2x3xf32>) -> tensor<2x3xf32>',
        "dimension 2 is out of range",
    ),
    (
        '"tosa.reshape"(%f, %s) : (tensor<2x3xf32>, !tosa.shape<2>) -> tensor<2x2xf32>',
        "the number of elements stays",
    ),
    (
        '"tosa.reshape"(%f, %s) : (tensor<2x3xf32>, !tosa.shape<2>) -> tensor<3x2xf32>',
        "the result has the shape [2, 2]",
    ),
    (
        '"tosa.reshape"(%f, %sh) : (tensor<2x3xf32>, !tosa.shape<2>) -> tensor<3x2xf32>',
        "operand 1 comes from a tosa.const_shape",
    ),
    (
        '"tosa.reshape"(%f, %s) : (tensor<2x3xf32>, !tosa.shape<2>) -> tensor<6xf32>',
        "operand 1 is a !tosa.shape<1>",
    ),
    (
        '"tosa.slice"(%f, %s, %s) : (tensor<2x3xf32>, !tosa.shape<2>, !tosa.shape<2>) -> tensor<2x2xf32>',
        "is no slice of",
    ),
    (
        '"tosa.pad"(%f, %s, %zp) : (tensor<2x3xf32>, !tosa.shape<2>, tensor<1xf32>) -> tensor<2x3xf32>',
        "operand 1 is a !tosa.shape<4>",
    ),
    (
        '"tosa.const"() <{values = dense<1> : tensor<2xi64>}> : () -> tensor<3xi64>',
        "the value is tensor<2xi64>",
    ),
    (
        '"tosa.const_shape"() <{values = dense<1> : tensor<2xindex>}> : () -> !tosa.shape<3>',
        "the sizes of !tosa.shape<3>",
    ),
    (
        '"tosa.conv2d"(%x, %w, %bias, %zp, %zp) <{acc_type = f32, dilation = array<i64: 1, 1>, pad = array<i64: '
        "0, 0, 0, 0>, stride = array<i64: 1, 1>}> : (tensor<1x8x8x4xf32>, tensor<6x3x3x4xf32>, tensor<6xf32>, "
        "tensor<1xf32>, tensor<1xf32>) -> tensor<1x8x8x6xf32>",
        "the result has the shape [1, 6, 6, 6]",
    ),
    (
        '"tosa.conv2d"(%x, %w, %bias, %zp, %zp) <{acc_type = f32, dilation = array<i64: 1, 1>, pad = array<i64: '
        "0, 0, 0, 0>, stride = array<i64: 2, 2>}> : (tensor<1x8x8x4xf32>, tensor<6x3x3x4xf32>, tensor<6xf32>, "
        "tensor<1xf32>, tensor<1xf32>) -> tensor<1x3x3x6xf32>",
        "the last window does not end with the input",
    ),
    (
        '"tosa.conv2d"(%x, %w, %o, %zp, %zp) <{acc_type = f32, dilation = array<i64: 1, 1>, pad = array<i64: 0, '
        "0, 0, 0>, stride = array<i64: 1, 1>}> : (tensor<1x8x8x4xf32>, tensor<6x3x3x4xf32>, tensor<3xf32>, "
        "tensor<1xf32>, tensor<1xf32>) -> tensor<1x6x6x6xf32>",
        "the bias has 1 or 6 elements",
    ),
    (
        '"tosa.matmul"(%m, %m, %zp, %zp) : (tensor<5x2x3xf32>, tensor<5x2x3xf32>, tensor<1xf32>, tensor<1xf32>) '
        "-> tensor<5x2x3xf32>",
        "have no product",
    ),
    (
        '"tosa.max_pool2d"(%x) <{kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, pad = array<i64: 0, 0, 0, '
        "0>}> : (tensor<1x8x8x4xf32>) -> tensor<1x8x8x4xf32>",
        "the result has the shape [1, 4, 4, 4]",
    ),
    (
        '"tosa.max_pool2d"(%x) <{kernel = array<i64: 2, 2>, stride = array<i64: 2, 2>, pad = array<i64: 2, 0, 0, '
        "0>}> : (tensor<1x8x8x4xf32>) -> tensor<1x5x4x4xf32>",
        "paddings are smaller than the kernel",
    ),
    (
        '"tosa.gather"(%v, %ix) : (tensor<1x4x3xf32>, tensor<1x2xi32>) -> tensor<1x3x3xf32>',
        "the result has the shape [1, 2, 3]",
    ),
    (
        '"tosa.scatter"(%v, %ix, %v) : (tensor<1x4x3xf32>, tensor<1x2xi32>, tensor<1x4x3xf32>) -> tensor<1x4x3xf32>',
        "is not what",
    ),
    (
        '"tosa.rescale"(%q, %zq, %zi, %zi, %zi) <{scale32 = false, rounding_mode = '
        "#tosa.rounding_mode<SINGLE_ROUND>, per_channel = false, input_unsigned = false, output_unsigned = "
        "false}> : (tensor<2x3xi8>, tensor<1xi32>, tensor<1xi8>, tensor<1xi8>, tensor<1xi8>) -> tensor<2x3xi8>",
        "the multiplier is of i16",
    ),
    (
        '"tosa.cond_if"(%p) ({ "tosa.yield"(%f) : (tensor<2x3xf32>) -> () }, { "tosa.yield"(%i) : '
        "(tensor<2x3xi32>) -> () }) : (tensor<i1>) -> tensor<2x3xf32>",
        "region 1 gives (tensor<2x3xf32>)",
    ),
    (
        '"tosa.while_loop"(%f) ({ ^bb0(%a: tensor<2x3xf32>): "tosa.yield"(%a) : (tensor<2x3xf32>) -> () }, { '
        '^bb0(%a: tensor<2x3xf32>): "tosa.yield"(%a) : (tensor<2x3xf32>) -> () }) : (tensor<2x3xf32>) -> '
        "tensor<2x3xf32>",
        "the condition gives one boolean",
    ),
]

STRICTER = [
    (
        '"tosa.table"(%q, %zi) : (tensor<2x3xi8>, tensor<1xi8>) -> tensor<2x3xi8>',
        "is not looked up in",
    ),
    (
        '"tosa.tile"(%f, %s) : (tensor<2x3xf32>, !tosa.shape<2>) -> tensor<2x3xf32>',
        "the result has the shape [4, 6]",
    ),
    (
        '"tosa.matmul"(%f, %g, %zp, %zp) : (tensor<2x3xf32>, tensor<3x2xf32>, tensor<1xf32>, tensor<1xf32>) -> '
        "tensor<2x2xf32>",
        "operand 0 has rank 3",
    ),
    (
        '"tosa.exp"(%i) : (tensor<2x3xi32>) -> tensor<2x3xi32>',
        "is for floats",
    ),
    (
        '"tosa.bitwise_and"(%f, %f) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>',
        "is for booleans or integers",
    ),
]
"""What IREE's verifier lets pass, though TOSA does not."""


def program(line: str) -> str:
    return f"func.func @f({ARGUMENTS}) {{\n  {SHAPE}\n  %0 = {line}\n  return\n}}"


@pytest.mark.parametrize(("line", "message"), INVALID + STRICTER)
def test_what_is_wrong_is_refused(line: str, message: str) -> None:
    is_refused(program, line, message)


def test_iree_refuses_the_same() -> None:
    iree_agrees(program, INVALID, STRICTER)


def test_what_cannot_be_read_is_said() -> None:
    for line, message in (
        ("tosa.maximum %f, %f {nan_mode = MAYBE} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>", "MAYBE"),
        ('"tosa.argmax"(%f) <{axis = 1 : i32, nan_mode = #tosa.nan_mode<MAYBE>}> :', "got 'MAYBE'"),
        ("tosa.nothing %f : (tensor<2x3xf32>) -> tensor<2x3xf32>", "tosa.nothing is not registered"),
    ):
        with pytest.raises(ParseError) as caught:
            parse_module(program(line))
        assert message in str(caught.value)


def test_defaults_go_without_saying() -> None:
    line = '"tosa.reduce_max"(%f) <{axis = 1 : i32, nan_mode = #tosa.nan_mode<PROPAGATE>}> : (tensor<2x3xf32>) -> tensor<2x1xf32>'
    module = parse_module(program(line))
    assert "tosa.reduce_max %f {axis = 1 : i32} : (tensor<2x3xf32>) -> tensor<2x1xf32>" in pretty_text(module)
    assert "nan_mode = #tosa.nan_mode<PROPAGATE>" in generic_text(module)


def test_ops_by_name() -> None:
    assert tosa.op("add").name == "tosa.add"
    assert tosa.op("add") is tosa.op("add")
    with pytest.raises(ValueError, match="tosa has no op 'plus'"):
        tosa.op("plus")


def test_attributes_are_made_once_and_spelled_as_upstream() -> None:
    for make, text in (
        (lambda: tosa.shape_type(2), "!tosa.shape<2>"),
        (lambda: tosa.shape_values([2, 3]), "dense<[2, 3]> : tensor<2xindex>"),
        (lambda: tosa.shape_values([]), "dense<> : tensor<0xindex>"),
        (lambda: tosa.nan_mode("IGNORE"), "#tosa.nan_mode<IGNORE>"),
        (lambda: tosa.rounding_mode("DOUBLE_ROUND"), "#tosa.rounding_mode<DOUBLE_ROUND>"),
        (lambda: tosa.resize_mode("BILINEAR"), "#tosa.resize_mode<BILINEAR>"),
        (lambda: tosa.axis(1), "1 : i32"),
        (lambda: tosa.flag(True), "true"),
        (lambda: tosa.ints([1, 2]), "array<i64: 1, 2>"),
        (lambda: tosa.perms([1, 0]), "array<i32: 1, 0>"),
    ):
        assert make() is make()
        assert str(make()) == text
    with pytest.raises(ValueError, match="got 'MAYBE'"):
        tosa.nan_mode("MAYBE")


def test_a_built_program_is_read_by_iree() -> None:
    module = parse_module("func.func @f(%x: tensor<2x3xf32>) {\n  return\n}")
    (function,) = module.ops
    block = function.regions[0].blocks[0]
    b = OpBuilder(block)
    b.before = block.last_op
    (x,) = block.args
    sizes = b.value(tosa.op("const_shape"), (), tosa.shape_type(2), {"values": tosa.shape_values([3, 2])})
    y = b.value(tosa.op("reshape"), (x, sizes), TensorType(f32, [3, 2]))
    z = b.value(tosa.op("transpose"), (y,), TensorType(f32, [2, 3]), {"perms": tosa.perms([1, 0])})
    m = b.value(tosa.op("maximum"), (x, z), x.type, {"nan_mode": tosa.nan_mode("IGNORE")})
    b.emit(tosa.op("reduce_sum"), (m,), (TensorType(f32, [2, 1]),), {"axis": tosa.axis(1)})
    module.verify()
    assert "tosa.reduce_sum" in iree(generic_text(module))


def test_dead_ops_go() -> None:
    module = parse_module(program("tosa.abs %f : (tensor<2x3xf32>) -> tensor<2x3xf32>"))
    dce(module)
    assert [op.name for op in module.walk()][2:] == ["func.return"]


def test_a_refused_op_can_be_shown() -> None:
    module = parse_module(program('"tosa.argmax"(%f) : (tensor<2x3xf32>) -> tensor<2xi32>'))
    assert "tosa.argmax(%f) : (tensor<2x3xf32>) -> tensor<2xi32>" in pretty_text(module)
