"""The dialects stablehlo and chlo: text as the real ones', ops and attributes by name."""

# ruff: noqa: E501

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from dialects.wrong_programs import iree
from xdsl.dialects.builtin import ModuleOp, TensorType, f32, i64
from xdsl.ir import Block, Region
from xdsl.transforms.dead_code_elimination import dce

from flambeau.dialects import stablehlo
from flambeau.dialects.context import parse_module
from flambeau.ir.builder import OpBuilder
from flambeau.ir.printing import generic_text, pretty_text

EXAMPLES = """
func.func private @callee(tensor<2x3xf32>) -> tensor<2x3xf32>
func.func @unary(%f: tensor<2x3xf32>, %i: tensor<2x3xi32>, %c: tensor<2x3xcomplex<f32>>, %p: tensor<2x3xi1>) {
  %0 = stablehlo.abs %f : tensor<2x3xf32>
  %1 = stablehlo.abs %c : (tensor<2x3xcomplex<f32>>) -> tensor<2x3xf32>
  %2 = stablehlo.cbrt %f : tensor<2x3xf32>
  %3 = stablehlo.ceil %f : tensor<2x3xf32>
  %4 = stablehlo.convert %f : (tensor<2x3xf32>) -> tensor<2x3xi32>
  %bits = stablehlo.bitcast_convert %f : (tensor<2x3xf32>) -> tensor<2x3xi32>
  %5 = stablehlo.cosine %f : tensor<2x3xf32>
  %6 = stablehlo.count_leading_zeros %i : tensor<2x3xi32>
  %7 = stablehlo.exponential %f : tensor<2x3xf32>
  %8 = stablehlo.exponential_minus_one %f : tensor<2x3xf32>
  %9 = stablehlo.floor %f : tensor<2x3xf32>
  %10 = stablehlo.imag %c : (tensor<2x3xcomplex<f32>>) -> tensor<2x3xf32>
  %11 = stablehlo.is_finite %f : (tensor<2x3xf32>) -> tensor<2x3xi1>
  %12 = stablehlo.log %f : tensor<2x3xf32>
  %13 = stablehlo.log_plus_one %f : tensor<2x3xf32>
  %14 = stablehlo.logistic %f : tensor<2x3xf32>
  %15 = stablehlo.negate %f : tensor<2x3xf32>
  %16 = stablehlo.not %p : tensor<2x3xi1>
  %17 = stablehlo.popcnt %i : tensor<2x3xi32>
  %18 = stablehlo.real %c : (tensor<2x3xcomplex<f32>>) -> tensor<2x3xf32>
  %19 = stablehlo.reduce_precision %f, format = e5m10 : tensor<2x3xf32>
  %20 = stablehlo.round_nearest_afz %f : tensor<2x3xf32>
  %21 = stablehlo.round_nearest_even %f : tensor<2x3xf32>
  %22 = stablehlo.rsqrt %f : tensor<2x3xf32>
  %23 = stablehlo.sign %f : tensor<2x3xf32>
  %24 = stablehlo.sine %f : tensor<2x3xf32>
  %25 = stablehlo.sqrt %f : tensor<2x3xf32>
  %26 = stablehlo.tan %f : tensor<2x3xf32>
  %27 = stablehlo.tanh %f : tensor<2x3xf32>
  %28 = "stablehlo.tanh"(%f) <{result_accuracy = #stablehlo.result_accuracy<atol = 0.000000e+00, rtol = 0.000000e+00, ulps = 10, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>}> : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %29 = stablehlo.tanh %f {note = "x"} : tensor<2x3xf32>
  return
}
func.func @binary(%f: tensor<2x3xf32>, %i: tensor<2x3xi32>, %p: tensor<2x3xi1>, %d: tensor<?x3xf32>, %s: tensor<f32>) {
  %0 = stablehlo.add %f, %f : tensor<2x3xf32>
  %1 = stablehlo.and %p, %p : tensor<2x3xi1>
  %2 = stablehlo.atan2 %f, %f : tensor<2x3xf32>
  %3 = stablehlo.complex %f, %f : tensor<2x3xcomplex<f32>>
  %4 = stablehlo.divide %f, %f : tensor<2x3xf32>
  %5 = stablehlo.maximum %f, %f : tensor<2x3xf32>
  %6 = stablehlo.minimum %f, %f : tensor<2x3xf32>
  %7 = stablehlo.multiply %f, %f : tensor<2x3xf32>
  %8 = stablehlo.or %i, %i : tensor<2x3xi32>
  %9 = stablehlo.power %f, %f : tensor<2x3xf32>
  %10 = stablehlo.remainder %f, %f : tensor<2x3xf32>
  %11 = stablehlo.shift_left %i, %i : tensor<2x3xi32>
  %12 = stablehlo.shift_right_arithmetic %i, %i : tensor<2x3xi32>
  %13 = stablehlo.shift_right_logical %i, %i : tensor<2x3xi32>
  %14 = stablehlo.subtract %f, %f : tensor<2x3xf32>
  %15 = stablehlo.xor %i, %i : tensor<2x3xi32>
  %16 = "stablehlo.add"(%f, %d) : (tensor<2x3xf32>, tensor<?x3xf32>) -> tensor<2x3xf32>
  %17 = stablehlo.compare LT, %f, %f, FLOAT : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
  %18 = stablehlo.compare EQ, %i, %i : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi1>
  %19 = stablehlo.select %p, %f, %f : tensor<2x3xi1>, tensor<2x3xf32>
  %20 = "stablehlo.select"(%p, %f, %d) : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<?x3xf32>) -> tensor<2x3xf32>
  %21 = stablehlo.clamp %f, %f, %f : tensor<2x3xf32>
  %22 = "stablehlo.clamp"(%s, %f, %s) : (tensor<f32>, tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %23:2 = stablehlo.optimization_barrier %f, %i : tensor<2x3xf32>, tensor<2x3xi32>
  return
}
func.func @shapes(%f: tensor<2x3xf32>, %d: tensor<?x3xf32>, %s: tensor<f32>, %v: tensor<2xi64>, %i: tensor<i32>) {
  %0 = stablehlo.broadcast_in_dim %f, dims = [0, 2] : (tensor<2x3xf32>) -> tensor<2x4x3xf32>
  %1 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<2x4x3xf32>
  %2 = stablehlo.concatenate %f, %f, dim = 1 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>
  %3 = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
  %4 = stablehlo.iota dim = 1 : tensor<2x3xf32>
  %5 = stablehlo.pad %f, %s, low = [1, 0], high = [0, 2], interior = [0, 0] : (tensor<2x3xf32>, tensor<f32>) -> tensor<3x5xf32>
  %6 = stablehlo.reshape %f : (tensor<2x3xf32>) -> tensor<6xf32>
  %7 = stablehlo.reverse %f, dims = [0] : tensor<2x3xf32>
  %8 = stablehlo.slice %f [0:1, 1:3:2] : (tensor<2x3xf32>) -> tensor<1x1xf32>
  %9 = stablehlo.transpose %f, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %10 = stablehlo.dynamic_slice %f, %i, %i, sizes = [1, 2] : (tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
  %11 = stablehlo.dynamic_update_slice %f, %f, %i, %i : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
  %12 = stablehlo.dynamic_broadcast_in_dim %d, %v, dims = [0, 1] : (tensor<?x3xf32>, tensor<2xi64>) -> tensor<?x3xf32>
  %13 = stablehlo.dynamic_iota %v, dim = 0 : (tensor<2xi64>) -> tensor<?x3xi64>
  %14 = stablehlo.dynamic_pad %d, %s, %v, %v, %v : (tensor<?x3xf32>, tensor<f32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x?xf32>
  %15 = stablehlo.dynamic_reshape %d, %v : (tensor<?x3xf32>, tensor<2xi64>) -> tensor<3x?xf32>
  %16 = stablehlo.real_dynamic_slice %d, %v, %v, %v : (tensor<?x3xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x?xf32>
  %17 = stablehlo.get_dimension_size %d, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
  %18 = "stablehlo.dynamic_broadcast_in_dim"(%d, %v) <{broadcast_dimensions = array<i64: 0, 1>, known_expanding_dimensions = array<i64>, known_nonexpanding_dimensions = array<i64: 1>}> : (tensor<?x3xf32>, tensor<2xi64>) -> tensor<?x3xf32>
  %19 = stablehlo.constant dense<> : tensor<0x3xf32>
  %20 = stablehlo.constant dense<(1.0, 2.0)> : tensor<2xcomplex<f32>>
  %21 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
  %22 = stablehlo.constant {note = "x"} dense<true> : tensor<2xi1>
  return
}
func.func @products(%a: tensor<5x2x3xf32>, %b: tensor<5x3x4xf32>, %x: tensor<1x3x8x8xf32>, %w: tensor<6x3x3x3xf32>, %pad: tensor<2x2xi32>, %c: tensor<8xcomplex<f32>>, %f: tensor<8xf32>, %s: tensor<f32>, %sh: tensor<2xi64>, %xd: tensor<?x3x?x8xf32>) {
  %0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, HIGHEST] : (tensor<5x2x3xf32>, tensor<5x3x4xf32>) -> tensor<5x2x4xf32>
  %8 = stablehlo.dot_general %f, %f, contracting_dims = [] x [] : (tensor<8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
  %1 = stablehlo.dot_general %a, %b, contracting_dims = [2] x [1] : (tensor<5x2x3xf32>, tensor<5x3x4xf32>) -> tensor<5x2x5x4xf32>
  %2 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [2, 2], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x3x8x8xf32>, tensor<6x3x3x3xf32>) -> tensor<1x6x4x4xf32>
  %3 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x3x8x8xf32>, tensor<6x3x3x3xf32>) -> tensor<1x6x6x6xf32>
  %4 = "stablehlo.dynamic_conv"(%xd, %w, %pad) <{dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>, batch_group_count = 1 : i64, feature_group_count = 1 : i64, window_strides = array<i64: 1, 1>, lhs_dilation = array<i64: 1, 1>, rhs_dilation = array<i64: 1, 1>, window_reversal = array<i1: false, false>}> : (tensor<?x3x?x8xf32>, tensor<6x3x3x3xf32>, tensor<2x2xi32>) -> tensor<?x6x?x?xf32>
  %5 = stablehlo.fft %c, type = FFT, length = [8] : (tensor<8xcomplex<f32>>) -> tensor<8xcomplex<f32>>
  %6 = stablehlo.fft %f, type = RFFT, length = [8] : (tensor<8xf32>) -> tensor<5xcomplex<f32>>
  %7 = stablehlo.rng %s, %s, %sh, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<2x3xf32>
  return
}
func.func @index(%f: tensor<4x3xf32>, %i: tensor<2x1xi64>, %u: tensor<2x3xf32>, %sz: tensor<2xi64>, %b: tensor<5x4x3xf32>, %bi: tensor<5x2x1xi64>, %u3: tensor<5x2x3xf32>) {
  %0 = "stablehlo.gather"(%f, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 3>}> : (tensor<4x3xf32>, tensor<2x1xi64>) -> tensor<2x3xf32>
  %1 = "stablehlo.gather"(%b, %bi) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1, 3>}> : (tensor<5x4x3xf32>, tensor<5x2x1xi64>) -> tensor<5x2x3xf32>
  %2 = "stablehlo.dynamic_gather"(%f, %i, %sz) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false}> : (tensor<4x3xf32>, tensor<2x1xi64>, tensor<2xi64>) -> tensor<2x?xf32>
  %6 = "stablehlo.gather"(%f, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0, 1]>, slice_sizes = array<i64: 1, 3>}> : (tensor<4x3xf32>, tensor<2x1xi64>) -> tensor<1x3xf32>
  %3 = "stablehlo.scatter"(%f, %i, %u) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
  ^bb0(%a: tensor<f32>, %c: tensor<f32>):
    %5 = stablehlo.add %a, %c : tensor<f32>
    stablehlo.return %5 : tensor<f32>
  }) : (tensor<4x3xf32>, tensor<2x1xi64>, tensor<2x3xf32>) -> tensor<4x3xf32>
  %4 = "stablehlo.scatter"(%b, %bi, %u3) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2>}> ({
  ^bb0(%a: tensor<f32>, %c: tensor<f32>):
    stablehlo.return %c : tensor<f32>
  }) : (tensor<5x4x3xf32>, tensor<5x2x1xi64>, tensor<5x2x3xf32>) -> tensor<5x4x3xf32>
  return
}
func.func @regions(%f: tensor<2x3xf32>, %i: tensor<2x3xi32>, %s: tensor<f32>, %k: tensor<i32>, %p: tensor<i1>, %x: tensor<1x4x4x1xf32>) {
  %0 = stablehlo.reduce(%f init: %s) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
  %1:2 = stablehlo.reduce(%f init: %s), (%i init: %k) across dimensions = [0] : (tensor<2x3xf32>, tensor<2x3xi32>, tensor<f32>, tensor<i32>) -> (tensor<3xf32>, tensor<3xi32>)
   reducer(%a: tensor<f32>, %b: tensor<f32>) (%c: tensor<i32>, %d: tensor<i32>) {
    %10 = stablehlo.maximum %a, %b : tensor<f32>
    %11 = stablehlo.add %c, %d : tensor<i32>
    stablehlo.return %10, %11 : tensor<f32>, tensor<i32>
  }
  %2 = "stablehlo.reduce_window"(%x, %s) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<[[0, 0], [1, 1], [1, 1], [0, 0]]> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %10 = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %10 : tensor<f32>
  }) : (tensor<1x4x4x1xf32>, tensor<f32>) -> tensor<1x3x3x1xf32>
  %3:2 = "stablehlo.sort"(%f, %i) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %10 = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %10 : tensor<i1>
  }) : (tensor<2x3xf32>, tensor<2x3xi32>) -> (tensor<2x3xf32>, tensor<2x3xi32>)
  %4 = "stablehlo.if"(%p) ({
    stablehlo.return %f : tensor<2x3xf32>
  }, {
    %10 = stablehlo.negate %f : tensor<2x3xf32>
    stablehlo.return %10 : tensor<2x3xf32>
  }) : (tensor<i1>) -> tensor<2x3xf32>
  %5 = "stablehlo.case"(%k) ({
    stablehlo.return %f : tensor<2x3xf32>
  }, {
    stablehlo.return %f : tensor<2x3xf32>
  }, {
    stablehlo.return %f : tensor<2x3xf32>
  }) : (tensor<i32>) -> tensor<2x3xf32>
  %6:2 = stablehlo.while(%it = %k, %acc = %f) : tensor<i32>, tensor<2x3xf32>
  cond {
    %10 = stablehlo.compare LT, %it, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %10 : tensor<i1>
  } do {
    %10 = stablehlo.add %it, %it : tensor<i32>
    stablehlo.return %10, %acc : tensor<i32>, tensor<2x3xf32>
  }
  %7 = stablehlo.custom_call @foo(%f) {backend_config = "x", api_version = 2 : i32} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %8 = stablehlo.composite "my.op" %f {composite_attributes = {n = 1 : i64}, decomposition = @callee, version = 1 : i32} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  stablehlo.custom_call @bar(%f) {has_side_effect = true} : (tensor<2x3xf32>) -> ()
  %9 = stablehlo.reduce(%i init: %k) across dimensions = [0, 1] : (tensor<2x3xi32>, tensor<i32>) -> tensor<i32>
   reducer(%a: tensor<i32>, %b: tensor<i32>)  {
    %11 = stablehlo.multiply %a, %b : tensor<i32>
    %10 = stablehlo.multiply %11, %b : tensor<i32>
    stablehlo.return %10 : tensor<i32>
  }
  return
}
func.func @chlo(%f: tensor<2x3xf32>, %d: tensor<?x3xf32>, %v: tensor<3xf32>) {
  %0 = chlo.erf %f : tensor<2x3xf32> -> tensor<2x3xf32>
  %1 = chlo.erfc %f : tensor<2x3xf32> -> tensor<2x3xf32>
  %2 = chlo.erf_inv %f : tensor<2x3xf32> -> tensor<2x3xf32>
  %3 = chlo.lgamma %f : tensor<2x3xf32> -> tensor<2x3xf32>
  %4 = chlo.digamma %f : tensor<2x3xf32> -> tensor<2x3xf32>
  %5 = chlo.polygamma %f, %f : tensor<2x3xf32>, tensor<2x3xf32> -> tensor<2x3xf32>
  %6 = chlo.zeta %f, %f : tensor<2x3xf32>, tensor<2x3xf32> -> tensor<2x3xf32>
  %7 = chlo.bessel_i1e %f : tensor<2x3xf32> -> tensor<2x3xf32>
  %8 = chlo.tan %f : tensor<2x3xf32> -> tensor<2x3xf32>
  %9 = chlo.sinh %f : tensor<2x3xf32> -> tensor<2x3xf32>
  %10 = chlo.cosh %f : tensor<2x3xf32> -> tensor<2x3xf32>
  %11 = chlo.asin %f : tensor<2x3xf32> -> tensor<2x3xf32>
  %12 = chlo.acos %f : tensor<2x3xf32> -> tensor<2x3xf32>
  %13 = chlo.atan %f : tensor<2x3xf32> -> tensor<2x3xf32>
  %14 = chlo.asinh %f : tensor<2x3xf32> -> tensor<2x3xf32>
  %15 = chlo.acosh %f : tensor<2x3xf32> -> tensor<2x3xf32>
  %16 = chlo.atanh %f : tensor<2x3xf32> -> tensor<2x3xf32>
  %17 = chlo.next_after %f, %f : tensor<2x3xf32>, tensor<2x3xf32> -> tensor<2x3xf32>
  %18 = chlo.square %f : tensor<2x3xf32> -> tensor<2x3xf32>
  %19 = chlo.is_inf %f : tensor<2x3xf32> -> tensor<2x3xi1>
  %20:2 = "chlo.top_k"(%f) <{k = 2 : i64}> : (tensor<2x3xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)
  %21 = chlo.constant dense<1.0> : tensor<2xf32>
  %22 = "chlo.broadcast_add"(%f, %v) <{broadcast_dimensions = array<i64: 1>}> : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %23 = chlo.broadcast_add %d, %v : (tensor<?x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
  return
}
func.func @between_devices(%f: tensor<4x6xf32>) {
  %0 = "stablehlo.all_reduce"(%f) <{replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %2 = "stablehlo.all_gather"(%f) <{all_gather_dim = 1 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>, use_global_device_ids}> : (tensor<4x6xf32>) -> tensor<4x12xf32>
  %3 = "stablehlo.reduce_scatter"(%f) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>, use_global_device_ids}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %4 = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %4 : tensor<f32>
  }) : (tensor<4x6xf32>) -> tensor<2x6xf32>
  %5 = "stablehlo.all_to_all"(%f) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}> : (tensor<4x6xf32>) -> tensor<2x12xf32>
  %6 = "stablehlo.collective_permute"(%f) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 4, type = 1>}> : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %7 = "stablehlo.collective_broadcast"(%f) <{replica_groups = dense<[[1, 0], [3, 2]]> : tensor<2x2xi64>}> : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}
"""


def torch_mlir_opt(text: str, *flags: str) -> str:
    """Print the program by the torch-mlir wheel's tool."""
    tool = Path(sys.executable).with_name("torch-mlir-opt")
    done = subprocess.run([tool, "-", *flags], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def examples() -> ModuleOp:
    module = parse_module(EXAMPLES)
    module.verify()
    return module


def test_every_op_has_an_example(examples: ModuleOp) -> None:
    found = {op.name for op in examples.walk()}
    declared = {f"stablehlo.{name}" for name in stablehlo.TABLE} | {f"chlo.{name}" for name in stablehlo.CHLO_TABLE}
    assert declared <= found


def test_what_is_printed_reads_back(examples: ModuleOp) -> None:
    generic, pretty = generic_text(examples), pretty_text(examples)
    for text in (generic, pretty):
        again = parse_module(text)
        again.verify()
        assert generic_text(again) == generic
    assert pretty_text(again) == pretty


@pytest.mark.peer
def test_torch_mlir_reads_both_forms(examples: ModuleOp) -> None:
    expected = torch_mlir_opt(EXAMPLES)
    assert torch_mlir_opt(generic_text(examples)) == expected
    assert torch_mlir_opt(pretty_text(examples)) == expected


@pytest.mark.peer
def test_we_read_what_torch_mlir_prints() -> None:
    expected = torch_mlir_opt(EXAMPLES)
    for text in (expected, torch_mlir_opt(EXAMPLES, "--mlir-print-op-generic")):
        module = parse_module(text)
        module.verify()
        assert torch_mlir_opt(generic_text(module)) == expected


def test_iree_reads_both_forms(examples: ModuleOp) -> None:
    expected = iree(EXAMPLES)
    assert iree(generic_text(examples)) == expected
    assert iree(pretty_text(examples)) == expected


def test_ops_by_name() -> None:
    assert stablehlo.op("add").name == "stablehlo.add"
    assert stablehlo.op("chlo.erf").name == "chlo.erf"
    assert stablehlo.op("add") is stablehlo.op("add")
    for name in ("plus", "chlo.add", "stablehlo.add"):
        with pytest.raises(ValueError, match="has no op"):
            stablehlo.op(name)


def test_attributes_are_made_once() -> None:
    for make in (
        lambda: stablehlo.comparison("LT", "FLOAT"),
        lambda: stablehlo.dot_dimension_numbers([0], [0], [2], [1]),
        lambda: stablehlo.conv_dimension_numbers(0, 1, [2, 3], 1, 0, [2, 3], 0, 1, [2, 3]),
        lambda: stablehlo.gather_dimension_numbers([1], [0], [], [], [0], 1),
        lambda: stablehlo.scatter_dimension_numbers([1], [0], [], [], [0], 1),
        stablehlo.precision_config,
        lambda: stablehlo.fft_type("RFFT"),
        lambda: stablehlo.rng_distribution("UNIFORM"),
        lambda: stablehlo.ints([1, 2]),
        lambda: stablehlo.flags([True]),
        lambda: stablehlo.pairs([(0, 1)]),
        lambda: stablehlo.integer(1),
        lambda: stablehlo.flag(True),
    ):
        assert make() is make()
    with pytest.raises(ValueError, match="got 'UP'"):
        stablehlo.comparison("UP")


def test_attributes_are_spelled_as_upstream() -> None:
    for attribute, text in (
        (stablehlo.comparison("LT")["comparison_direction"], "#stablehlo<comparison_direction LT>"),
        (stablehlo.precision_config(), "[#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]"),
        (
            stablehlo.dot_dimension_numbers([], [], [1], [0]),
            "#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>",
        ),
        (
            stablehlo.conv_dimension_numbers(0, 3, [1, 2], 2, 3, [0, 1], 0, 1, [2, 3]),
            "#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, f, 0, 1]>",
        ),
        (
            stablehlo.gather_dimension_numbers([1], [0], [], [], [0], 1),
            "#stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>",
        ),
        (stablehlo.pairs([(0, 1), (2, 3)]), "dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>"),
        (stablehlo.flags([True, False]), "array<i1: true, false>"),
    ):
        assert str(attribute) == text


def test_a_built_program_is_read_by_iree() -> None:
    """Every factory is used as a lowering uses it."""
    text = "func.func @f(%x: tensor<1x3x8x8xf32>, %w: tensor<6x3x3x3xf32>, %i: tensor<2x1xi64>) {\n  return\n}"
    module = parse_module(text)
    (function,) = module.ops
    block = function.regions[0].blocks[0]
    x, w, i = block.args
    b = OpBuilder(block)
    b.before = block.last_op
    conv = {
        "dimension_numbers": stablehlo.conv_dimension_numbers(0, 1, [2, 3], 1, 0, [2, 3], 0, 1, [2, 3]),
        "feature_group_count": stablehlo.integer(1),
        "batch_group_count": stablehlo.integer(1),
        "window_strides": stablehlo.ints([2, 2]),
        "padding": stablehlo.pairs([(1, 1), (1, 1)]),
        "window_reversal": stablehlo.flags([False, False]),
        "precision_config": stablehlo.precision_config(),
    }
    y = b.value(stablehlo.op("convolution"), (x, w), TensorType(f32, [1, 6, 4, 4]), conv)
    dot = {"dot_dimension_numbers": stablehlo.dot_dimension_numbers([0], [0], [1, 2, 3], [1, 2, 3])}
    b.value(stablehlo.op("dot_general"), (y, y), TensorType(f32, [1]), dot)
    gather = {
        "dimension_numbers": stablehlo.gather_dimension_numbers([1, 2, 3], [0], [], [], [0], 1),
        "slice_sizes": stablehlo.ints([1, 3, 3, 3]),
        "indices_are_sorted": stablehlo.flag(False),
    }
    rows = b.value(stablehlo.op("gather"), (w, i), TensorType(f32, [2, 3, 3, 3]), gather)
    b.value(stablehlo.op("compare"), (i, i), parse_type("tensor<2x1xi1>"), stablehlo.comparison("LT", "SIGNED"))
    body = Block(arg_types=[TensorType(f32, [])] * 2)
    body.add_op(stablehlo.op("return").create(operands=[body.args[1]]))
    numbers = stablehlo.scatter_dimension_numbers([1, 2, 3], [0], [], [], [0], 1)
    b.emit(
        stablehlo.op("scatter"), (w, i, rows), (w.type,), {"scatter_dimension_numbers": numbers}, regions=[Region(body)]
    )
    b.emit(stablehlo.op("iota"), (), (TensorType(i64, [3]),), {"iota_dimension": stablehlo.integer(0)})
    module.verify()
    assert iree(generic_text(module)) == iree(pretty_text(module))


def parse_type(text: str) -> TensorType:
    module = parse_module(f"func.func private @f({text})")
    (function,) = module.ops
    return function.properties["function_type"].inputs.data[0]


def test_dead_ops_go_and_calls_stay() -> None:
    line = "%0 = stablehlo.add %f, %f : tensor<2x3xf32>\n  stablehlo.custom_call @foo(%f) : (tensor<2x3xf32>) -> ()"
    module = parse_module(f"func.func @f(%f: tensor<2x3xf32>) {{\n  {line}\n  return\n}}")
    dce(module)
    assert [op.name for op in module.walk()][2:] == ["stablehlo.custom_call", "func.return"]
