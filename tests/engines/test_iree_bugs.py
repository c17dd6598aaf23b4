"""What IREE 3.13 gets wrong, each in as few lines as show it.

These tests say what would be right, and are expected to fail. When one passes, IREE is mended: what avoids the bug,
named beside it, can go. What is right and only slow is in bench/engine_bugs.py: times do not belong into tests.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
import torch

import flambeau
from flambeau.engines.errors import EngineError, RunError
from flambeau.engines.host import host_cpu
from flambeau.engines.iree import (
    bfloat16,
    compiler,
    flags,
    host_target,
    loop_starts,
    prepare,
    roundings,
    slice_writes,
    small_floats,
    stored_truths,
    truth_reductions,
    whole_ops,
)
from flambeau.engines.iree.compiler import compile_mlir
from flambeau.engines.iree.runtime import Program
from flambeau.ir import dtypes
from flambeau.ir.module import TensorSpec
from flambeau.ir.printing import generic_text

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("_verifying_compiler")]

BIASED_PRODUCT = b"""
#all = affine_map<(b, i, j) -> (b, i, j)>
#last = affine_map<(b, i, j) -> (j)>
func.func @main(%x: tensor<4x7x16xf32>, %bias: tensor<16xf32>, %w: tensor<4x16x8xf32>) -> tensor<4x7x8xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x7x16xf32>
  %sum = linalg.generic {
      indexing_maps = [#all, #last, #all],
      iterator_types = ["parallel", "parallel", "parallel"]
    } ins(%x, %bias : tensor<4x7x16xf32>, tensor<16xf32>) outs(%empty : tensor<4x7x16xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %s = arith.addf %a, %b : f32
      linalg.yield %s : f32
  } -> tensor<4x7x16xf32>
  %out = tensor.empty() : tensor<4x7x8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%out : tensor<4x7x8xf32>) -> tensor<4x7x8xf32>
  %y = linalg.batch_matmul ins(%sum, %w : tensor<4x7x16xf32>, tensor<4x16x8xf32>)
      outs(%init : tensor<4x7x8xf32>) -> tensor<4x7x8xf32>
  return %y : tensor<4x7x8xf32>
}
"""


def product_error(flag: str) -> float:
    """How far off a batch of products is whose left side has a bias."""
    x, bias, w = (np.random.default_rng(0).standard_normal(s, np.float32) for s in ((4, 7, 16), (16,), (4, 16, 8)))
    artefact = compile_mlir(BIASED_PRODUCT, profile="host", extra_flags=[flag])
    spec = TensorSpec((4, 7, 8), dtypes.float32)
    (y,) = Program(artefact.vmfb, {}, "local-sync").call("main", [x, bias, w], [spec])
    return float(np.abs(y - (x + bias) @ w).max())


@pytest.mark.xfail(reason="tiles run across the matrices of a batch (profile `model` in engines/iree/flags.py)")
def test_data_tiling_keeps_the_matrices_of_a_batch_apart():
    assert product_error("--iree-opt-data-tiling") < 1e-4


@pytest.mark.xfail(reason="read with the size of another tensor (profile `quick` in engines/iree/flags.py)")
def test_a_sort_of_constants_that_is_hoisted():
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.ones(1, dtype=torch.int32).sort(stable=True)[1].to(torch.int32) + x

    module = flambeau.compile(program, (torch.zeros(1, dtype=torch.int32),))
    source = generic_text(prepare.for_iree(module.op)).encode()
    compile_mlir(source, profile="quick", extra_flags=["--iree-opt-const-expr-hoisting=true"])


def test_the_data_tiling_that_the_profile_has_is_right():
    assert product_error("--iree-global-opt-data-tiling") < 1e-4


TO_BFLOAT16 = """
import numpy as np
import flambeau
from flambeau.engines.errors import EngineError
from flambeau.engines.iree import loop_starts, prepare
from flambeau.engines.iree.compiler import compile_mlir
from flambeau.engines.iree.runtime import Program
from flambeau.ir import dtypes
from flambeau.ir.module import TensorSpec
from flambeau.ir.printing import generic_text

source = b'''
func.func @main(%x: tensor<8xi64>) -> tensor<8xbf16> {
  %empty = tensor.empty() : tensor<8xbf16>
  %y = linalg.generic {
      indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]
    } ins(%x : tensor<8xi64>) outs(%empty : tensor<8xbf16>) {
    ^bb0(%a: i64, %b: bf16):
      %c = arith.sitofp %a : i64 to f32
      %d = arith.truncf %c : f32 to bf16
      linalg.yield %d : bf16
  } -> tensor<8xbf16>
  return %y : tensor<8xbf16>
}
'''
flags = ["--iree-llvmcpu-target-cpu=haswell"]  # which has no rounding to bfloat16 of its own
artefact = compile_mlir(source, profile="quick", extra_flags=flags, use_cache=False)
program = Program(artefact.vmfb, {}, "local-sync")
program.call("main", [np.arange(8)], [TensorSpec((8,), dtypes.bfloat16)])
print("done")
"""

needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="about code for x86 processors")


def to_bfloat16() -> subprocess.CompletedProcess[str]:
    """Convert integers to bfloat16 in a process of its own, on a CPU without an instruction for it."""
    command = [sys.executable, "-c", textwrap.dedent(TO_BFLOAT16)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@needs_x86
@pytest.mark.xfail(reason="calls __truncsfbf2, which no library has (engines/iree/bfloat16.py)")
def test_integers_to_bfloat16():
    assert to_bfloat16().stdout == "done\n"


@needs_x86
def test_a_function_that_no_library_has_is_an_error_and_not_the_end_of_the_process():
    ended = to_bfloat16()
    assert ended.returncode == 1
    assert "EngineError: IREE could not load the program: the compiled code needs a function" in ended.stderr


COMPLEX_CONSTANT = b"""
func.func @main() -> tensor<2xcomplex<f64>> {
  %0 = arith.constant dense<[(1.0, 2.0), (0.0, 3.0)]> : tensor<2xcomplex<f64>>
  return %0 : tensor<2xcomplex<f64>>
}
"""


@pytest.mark.xfail(raises=EngineError, reason="divides by zero (engines/iree/complex_constants.py)")
def test_a_constant_of_complex128():
    compile_mlir(COMPLEX_CONSTANT, profile="quick", use_cache=False)


WIDE_FILL = b"""
func.func @main() -> tensor<3xcomplex<f64>> {
  %one = complex.constant [1.0 : f64, 0.0 : f64] : complex<f64>
  %empty = tensor.empty() : tensor<3xcomplex<f64>>
  %ones = linalg.fill ins(%one : complex<f64>) outs(%empty : tensor<3xcomplex<f64>>) -> tensor<3xcomplex<f64>>
  return %ones : tensor<3xcomplex<f64>>
}
"""


@pytest.mark.xfail(raises=EngineError, reason="no fill of 16 bytes (engines/iree/complex_constants.py)")
def test_a_fill_of_complex128():
    compile_mlir(WIDE_FILL, profile="quick", use_cache=False)


@pytest.mark.xfail(raises=EngineError, reason="complex.constant stays (engines/iree/complex_constants.py)")
def test_a_constant_of_complex32():
    one = COMPLEX_CONSTANT.replace(b"(1.0, 2.0), ", b"").replace(b"2xcomplex<f64>", b"1xcomplex<f16>")
    compile_mlir(one, profile="quick", use_cache=False)


def test_a_compiler_that_dies_is_an_error():
    with pytest.raises(EngineError, match="IREE's compiler ended with SIGFPE"):
        compile_mlir(COMPLEX_CONSTANT, profile="quick", use_cache=False)


FLAG = b"""
func.func @main(%x: tensor<?xf32>) -> tensor<1xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %size = tensor.dim %x, %zero : tensor<?xf32>
  %is_one = arith.cmpi eq, %size, %one : index
  %flag = tensor.from_elements %is_one : tensor<1xi1>
  %number = tosa.cast %flag : (tensor<1xi1>) -> tensor<1xf32>
  return %number : tensor<1xf32>
}
"""


@pytest.mark.xfail(raises=EngineError, reason="a tensor of the wrong type (engines/iree/truth_values.py)")
def test_a_tensor_that_is_made_of_a_truth_value():
    compile_mlir(FLAG, profile="quick", use_cache=False)


SUMMED_PRODUCT = b"""
#all = affine_map<(i, j) -> (i, j)>
func.func @main(%x: tensor<3x2xf32>, %w: tensor<2xf32>, %start: tensor<f32>) -> tensor<f32> {
  %y = linalg.generic {
      indexing_maps = [#all, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> ()>],
      iterator_types = ["reduction", "reduction"]
    } ins(%x, %w : tensor<3x2xf32>, tensor<2xf32>) outs(%start : tensor<f32>) {
    ^bb0(%a: f32, %b: f32, %sum: f32):
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %sum, %p : f32
      linalg.yield %s : f32
  } -> tensor<f32>
  return %y : tensor<f32>
}
"""


@pytest.mark.xfail(raises=EngineError, reason="an invalid vector.contract (engines/iree/products.py)")
def test_a_product_with_a_row_that_is_summed_over_two_dims():
    compile_mlir(SUMMED_PRODUCT, profile="quick", use_cache=False)


OPEN_ROW = b"""
func.func @main(%x: tensor<1x3xf32>, %w: tensor<3x?xf32>) -> tensor<f32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1 : index
  %width = tensor.dim %w, %one : tensor<3x?xf32>
  %empty = tensor.empty(%width) : tensor<1x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<1x?xf32>) -> tensor<1x?xf32>
  %row = linalg.matmul ins(%x, %w : tensor<1x3xf32>, tensor<3x?xf32>) outs(%init : tensor<1x?xf32>) -> tensor<1x?xf32>
  %scalar = tensor.empty() : tensor<f32>
  %start = linalg.fill ins(%zero : f32) outs(%scalar : tensor<f32>) -> tensor<f32>
  %y = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>],
      iterator_types = ["reduction", "reduction"]
    } ins(%row : tensor<1x?xf32>) outs(%start : tensor<f32>) {
    ^bb0(%a: f32, %sum: f32):
      %e = math.exp %a : f32
      %s = arith.addf %sum, %e : f32
      linalg.yield %s : f32
  } -> tensor<f32>
  return %y : tensor<f32>
}
"""


@pytest.mark.xfail(reason="the padding of tiles stays in the row (engines/iree/rows.py)")
def test_a_row_of_unknown_width_is_cut_to_its_size():
    program = Program(compile_mlir(OPEN_ROW, profile="model").vmfb, {}, "local-sync")
    (y,) = program.call(
        "main", [np.zeros((1, 3), np.float32), np.zeros((3, 5), np.float32)], [TensorSpec((), dtypes.float32)]
    )
    assert y == 5


SLICE_GATHER = b"""
func.func @main(%x: tensor<2x2x2xf32>, %at: tensor<1x7xi32>) -> tensor<1x7x2xf32> {
  %start = tosa.const_shape {values = dense<[0, 0, 1]> : tensor<3xindex>} : () -> !tosa.shape<3>
  %size = tosa.const_shape {values = dense<[2, 2, 1]> : tensor<3xindex>} : () -> !tosa.shape<3>
  %shape = tosa.const_shape {values = dense<[1, 2, 2]> : tensor<3xindex>} : () -> !tosa.shape<3>
  %0 = tosa.slice %x, %start, %size : (tensor<2x2x2xf32>, !tosa.shape<3>, !tosa.shape<3>) -> tensor<2x2x1xf32>
  %1 = tosa.reshape %0, %shape : (tensor<2x2x1xf32>, !tosa.shape<3>) -> tensor<1x2x2xf32>
  %2 = tosa.gather %1, %at : (tensor<1x2x2xf32>, tensor<1x7xi32>) -> tensor<1x7x2xf32>
  return %2 : tensor<1x7x2xf32>
}
"""


@pytest.mark.xfail(raises=EngineError, reason="a place that is not translated (engines/iree/gathers.py)")
def test_a_gather_from_a_slice():
    compile_mlir(SLICE_GATHER, profile="quick", use_cache=False)


ARGUMENT_WRITE = b"""
func.func @main(%x: tensor<4x16xf32>, %s: tensor<4x3xf32>) -> tensor<4x16xf32> {
  %y = tensor.insert_slice %s into %x[0, 2] [4, 3] [1, 1] : tensor<4x3xf32> into tensor<4x16xf32>
  return %y : tensor<4x16xf32>
}
"""


@pytest.mark.xfail(reason="the buffer of the caller is written (engines/iree/slice_writes.py)")
def test_a_slice_that_is_written_into_an_argument():
    memory = np.ones(64 + 16, np.float32)
    offset = -memory.ctypes.data // 4 % 16  # What is aligned is not copied.
    x = memory[offset : offset + 64].reshape(4, 16)
    program = Program(compile_mlir(ARGUMENT_WRITE, profile="quick").vmfb, {}, "local-sync")
    program.call("main", [x, np.zeros((4, 3), np.float32)], [TensorSpec((4, 16), dtypes.float32)])
    assert x.min() == 1


SELF_WRITE = b"""
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = tensor.extract_slice %x[0, 0] [4, 6] [1, 1] : tensor<4x8xf32> to tensor<4x6xf32>
  %1 = tensor.insert_slice %0 into %x[0, 2] [4, 6] [1, 1] : tensor<4x6xf32> into tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}
"""


@pytest.mark.xfail(reason="memory is copied onto itself (engines/iree/slice_writes.py)")
def test_a_slice_that_is_written_into_its_own_tensor():
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    expected = x.copy()
    expected[:, 2:] = x[:, :6]
    program = Program(compile_mlir(SELF_WRITE, profile="quick").vmfb, {}, "local-sync")
    (y,) = program.call("main", [x], [TensorSpec((4, 8), dtypes.float32)])
    assert np.array_equal(y, expected)


@pytest.mark.xfail(reason="a write comes before a read (engines/iree/slice_writes.py)")
def test_a_slice_that_is_written_into_a_constant(monkeypatch: pytest.MonkeyPatch):
    without(monkeypatch, slice_writes.REWRITE)

    def program(x: torch.Tensor) -> torch.Tensor:
        table = torch.arange(12.0).reshape(3, 4) * torch.ones(())
        cleared = torch.slice_scatter(table, torch.zeros(1, 4), 0, 2, 3)
        return cleared + torch.slice_scatter(torch.zeros(3, 4), table[2:3].clone(), 0, 0, 1) + x

    x = torch.zeros(3, 4)
    assert torch.equal(flambeau.load(flambeau.compile(program, (x,)), profile="quick")(x), program(x))


def _gradients_of_reflections(function: Any) -> list[torch.Tensor]:
    """Differentiate a product with reflections, which writes slices into a tensor that is read between the writes."""
    generator = torch.Generator().manual_seed(0)
    a, other = (torch.randn(5, 5, generator=generator) for _ in range(2))
    factors, tau = (x.requires_grad_() for x in torch.geqrf(a))
    y = function(factors, tau, other)
    return list(torch.autograd.grad((y * torch.arange(25.0).reshape(5, 5)).sum(), (factors, tau)))


def _reflect(factors: torch.Tensor, tau: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.ormqr(factors, tau, other, left=True, transpose=True)


@pytest.mark.xfail(reason="a write comes before a read (engines/iree/slice_writes.py)")
def test_slices_that_are_written_into_a_tensor_that_is_read_as_well(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(slice_writes, "_is_read_elsewhere", lambda value: False)
    _check_reflections()


def test_slices_are_written_when_all_have_read_the_tensor():
    _check_reflections()


def _check_reflections() -> None:
    torch._dynamo.reset()
    options = {"engine": "iree", "profile": "quick", "cache": False}
    found = _gradients_of_reflections(torch.compile(_reflect, backend="flambeau", options=options))
    for gradient, expected in zip(found, _gradients_of_reflections(_reflect), strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-3)


EMPTY_PRODUCT = b"""
func.func @main(%x: tensor<2x0xf32>, %y: tensor<0x3xf32>) -> tensor<2x3xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<2x3xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<2x3xf32>) -> tensor<2x3xf32>
  %0 = linalg.matmul ins(%x, %y : tensor<2x0xf32>, tensor<0x3xf32>) outs(%init : tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
"""


@pytest.mark.xfail(raises=EngineError, reason="a division by zero (engines/iree/empty_products.py)")
def test_a_product_over_an_empty_dim():
    compile_mlir(EMPTY_PRODUCT, profile="quick", use_cache=False)


COMPLEX_PAD = b"""
func.func @main(%x: tensor<2xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
  %zero = stablehlo.constant dense<(0.0, 0.0)> : tensor<complex<f32>>
  %0 = stablehlo.pad %x, %zero, low = [1], high = [1], interior = [0]
      : (tensor<2xcomplex<f32>>, tensor<complex<f32>>) -> tensor<4xcomplex<f32>>
  return %0 : tensor<4xcomplex<f32>>
}
"""


COMPLEX_TENSOR_PAD = b"""
func.func @main(%x: tensor<2xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
  %zero = complex.constant [0.0 : f32, 0.0 : f32] : complex<f32>
  %0 = tensor.pad %x low[1] high[1] {
  ^bb0(%i: index):
    tensor.yield %zero : complex<f32>
  } : tensor<2xcomplex<f32>> to tensor<4xcomplex<f32>>
  return %0 : tensor<4xcomplex<f32>>
}
"""


@pytest.mark.xfail(raises=EngineError, reason="a crash (engines/iree/complex_pads.py)")
@pytest.mark.parametrize("text", [COMPLEX_PAD, COMPLEX_TENSOR_PAD], ids=["stablehlo", "tensor"])
def test_a_pad_with_a_complex_constant(text: bytes):
    compile_mlir(text, profile="quick", use_cache=False)


WHOLE_NUMBER = b"""
func.func @main(%x: f64) -> i64 {
  %0 = arith.fptosi %x : f64 to i64
  return %0 : i64
}
"""


@pytest.mark.xfail(raises=EngineError, reason="not in the virtual machine (engines/iree/whole_numbers.py)")
def test_a_float_that_is_made_an_integer():
    compile_mlir(WHOLE_NUMBER, profile="quick", use_cache=False)


DILATED_GROUPS = b"""
func.func @main(%x: tensor<1x4x5xf32>, %w: tensor<2x2x2xf32>) -> tensor<1x2x3xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {rhs_dilate = [2]}
      {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
      : (tensor<1x4x5xf32>, tensor<2x2x2xf32>) -> tensor<1x2x3xf32>
  return %y : tensor<1x2x3xf32>
}
"""


@pytest.mark.xfail(reason="zeros in the kernel meet infinities (engines/iree/grouped_convolutions.py)")
def test_a_dilated_convolution_in_groups():
    x = np.ones((1, 4, 5), np.float32)
    x[0, 0, 1] = np.inf
    program = Program(compile_mlir(DILATED_GROUPS, profile="quick").vmfb, {}, "local-sync")
    (y,) = program.call("main", [x, np.ones((2, 2, 2), np.float32)], [TensorSpec((1, 2, 3), dtypes.float32)])
    assert np.array_equal(y, np.array([[[4, np.inf, 4], [4, 4, 4]]], np.float32))


UNIT_DIM = b"""
func.func @main(%x: tensor<1xf32>) -> tensor<1xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %size = arith.constant 4 : index
  %result = flow.dispatch.region -> (tensor<1xf32>) {
    %loop = scf.for %i = %zero to %size step %one iter_args(%into = %x) -> (tensor<1xf32>) {
      %old = tensor.extract %into[%zero] : tensor<1xf32>
      %new = arith.addf %old, %old : f32
      %next = tensor.insert %new into %into[%zero] : tensor<1xf32>
      scf.yield %next : tensor<1xf32>
    }
    flow.return %loop : tensor<1xf32>
  }
  return %result : tensor<1xf32>
}
"""


@pytest.mark.xfail(raises=EngineError, reason="does not dominate its use (engines/iree/serial_loops.py)")
def test_a_loop_that_writes_into_a_dim_of_size_1():
    compile_mlir(UNIT_DIM, profile="quick", use_cache=False)


@pytest.mark.xfail(raises=EngineError, reason="the type of the element (engines/iree/stored_truths.py)")
def test_a_loop_that_writes_truth_values(monkeypatch: pytest.MonkeyPatch):
    without(monkeypatch, stored_truths.REWRITE)
    x = torch.tensor([True, False, True])
    flambeau.load(flambeau.compile(torch.sort, (x,)), profile="quick", cache=False)


COMPUTED_PARTS = b"""
func.func @main(%x: tensor<?xf16>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.convert %x : (tensor<?xf16>) -> tensor<?xf32>
  %1 = stablehlo.concatenate %0, %y, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return %1 : tensor<?xf32>
}
"""


@pytest.mark.xfail(raises=EngineError, reason="2**55 bytes on the stack (engines/iree/stablehlo_ops.py)")
def test_parts_of_dynamic_size_that_are_computed():
    compile_mlir(COMPUTED_PARTS, profile="quick", use_cache=False)


def run(text: bytes, args: list[np.ndarray], spec: TensorSpec) -> np.ndarray:
    program = Program(compile_mlir(text, profile="quick", use_cache=False).vmfb, {}, "local-sync")
    (result,) = program.call("main", args, [spec])
    return np.asarray(result)


SINE = b"""
func.func @main(%x: tensor<1xf32>) -> tensor<1xf32> {
  %0 = math.sin %x : tensor<1xf32>
  return %0 : tensor<1xf32>
}
"""


@pytest.mark.xfail(reason="digits are lost (engines/iree/functions.py)")
@pytest.mark.parametrize("x", [1e6, -1e-12], ids=["great", "small"])
def test_the_sine_of_an_angle(x: float):
    angle = np.array([x], np.float32)
    sine = run(SINE, [angle], TensorSpec((1,), dtypes.float32))
    assert np.allclose(sine, np.sin(angle.astype(np.float64)), rtol=1e-6, atol=0)


WIDE_ERF = b"""
func.func @main(%x: tensor<1xf64>) -> tensor<1xf64> {
  %0 = math.erf %x : tensor<1xf64>
  return %0 : tensor<1xf64>
}
"""


@pytest.mark.xfail(raises=EngineError, reason="there is none (engines/iree/functions.py)")
def test_the_f64_error_function():
    compile_mlir(WIDE_ERF, profile="quick", use_cache=False)


SCATTER = b"""
func.func @main(%x: tensor<SIZEx1xf32>, %at: tensor<SIZEx1xi32>, %y: tensor<SIZEx1xf32>) -> tensor<SIZEx1xf32> {
  %0 = "stablehlo.scatter"(%x, %at, %y) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>,
      indices_are_sorted = false, unique_indices = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<SIZEx1xf32>, tensor<SIZEx1xi32>, tensor<SIZEx1xf32>) -> tensor<SIZEx1xf32>
  return %0 : tensor<SIZEx1xf32>
}
"""


@pytest.mark.xfail(reason="the buffer of the caller is written (engines/iree/scatters.py)")
def test_a_scatter_into_an_argument():
    memory, at = np.zeros(4 + 16, np.float32), np.array([[0], [2], [2], [1]], np.int32)
    offset = -memory.ctypes.data // 4 % 16  # What is aligned is not copied.
    x = memory[offset : offset + 4].reshape(4, 1)
    program = Program(compile_mlir(SCATTER.replace(b"SIZE", b"4"), profile="quick").vmfb, {}, "local-sync")
    program.call("main", [x, at, np.ones((4, 1), np.float32)], [TensorSpec((4, 1), dtypes.float32)])
    assert not x.any()


FOURIER = b"""
func.func @main(%x: tensor<6xcomplex<f32>>) -> tensor<6xcomplex<f32>> {
  %0 = stablehlo.fft %x, type = FFT, length = [6] : (tensor<6xcomplex<f32>>) -> tensor<6xcomplex<f32>>
  return %0 : tensor<6xcomplex<f32>>
}
"""


@pytest.mark.xfail(raises=EngineError, reason="powers of 2 only (engines/iree/whole_ops.py)")
def test_a_fourier_transform_of_length_6():
    compile_mlir(FOURIER, profile="quick", use_cache=False)


DYNAMIC_WINDOW = b"""
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %zero) <{window_dimensions = array<i64: 2>, window_strides = array<i64: 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""

DYNAMIC_AVERAGE = b"""
func.func @main(%x: tensor<1x?x4x2xf32>) -> tensor<1x?x3x2xf32> {
  %zero = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %0 = tosa.avg_pool2d %x, %zero, %zero {acc_type = f32, kernel = array<i64: 2, 2>, pad = array<i64: 0, 0, 0, 0>,
      stride = array<i64: 1, 1>} : (tensor<1x?x4x2xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x?x3x2xf32>
  return %0 : tensor<1x?x3x2xf32>
}
"""

DYNAMIC_TILE = b"""
func.func @main(%x: tensor<?x?x1xf32>) -> tensor<?x?x3xf32> {
  %times = tosa.const_shape {values = dense<[1, 1, 3]> : tensor<3xindex>} : () -> !tosa.shape<3>
  %0 = tosa.tile %x, %times : (tensor<?x?x1xf32>, !tosa.shape<3>) -> tensor<?x?x3xf32>
  return %0 : tensor<?x?x3xf32>
}
"""

DYNAMIC_GROUPS = b"""
func.func @main(%x: tensor<?x4x5xf32>, %w: tensor<2x2x2xf32>) -> tensor<?x2x4xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {}
      {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
      : (tensor<?x4x5xf32>, tensor<2x2x2xf32>) -> tensor<?x2x4xf32>
  return %y : tensor<?x2x4xf32>
}
"""

WIDE_GROUPS = b"""
func.func @main(%x: tensor<1x4x5xf16>, %w: tensor<4x1x2xf16>) -> tensor<1x4x4xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {}
      {batch_group_count = 1 : i64, feature_group_count = 4 : i64}
      : (tensor<1x4x5xf16>, tensor<4x1x2xf16>) -> tensor<1x4x4xf32>
  return %y : tensor<1x4x4xf32>
}
"""

PADDED_COMPLEX = b"""
func.func @main(%x: tensor<1x1x5xcomplex<f32>>, %w: tensor<1x1x2xcomplex<f32>>) -> tensor<1x1x6xcomplex<f32>> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {pad = [[1, 1]]}
      {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
      : (tensor<1x1x5xcomplex<f32>>, tensor<1x1x2xcomplex<f32>>) -> tensor<1x1x6xcomplex<f32>>
  return %y : tensor<1x1x6xcomplex<f32>>
}
"""


@pytest.mark.xfail(raises=EngineError, reason="not taken (engines/iree/stablehlo_ops.py and tosa_ops.py)")
@pytest.mark.parametrize(
    "text",
    [DYNAMIC_WINDOW, DYNAMIC_AVERAGE, DYNAMIC_TILE, DYNAMIC_GROUPS, WIDE_GROUPS, PADDED_COMPLEX],
    ids=["window", "average", "tile", "groups", "wide groups", "padded complex"],
)
def test_an_op_of_this_form(text: bytes):
    compile_mlir(text, profile="quick", use_cache=False)


class TwoScans(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x + 1).cumsum(0), (x * 2).cumsum(1)


def without(monkeypatch: pytest.MonkeyPatch, *left_out: object) -> None:
    """Compile without some of the rewrites."""
    monkeypatch.setattr(prepare, "REWRITES", tuple(r for r in prepare.REWRITES if r not in left_out))


@pytest.mark.xfail(reason="the buffer of the caller is sorted (engines/iree/whole_ops.py)")
def test_a_sort_of_an_argument(monkeypatch: pytest.MonkeyPatch):
    without(monkeypatch, whole_ops.REWRITE)
    x = torch.tensor([3.0, 1.0, 2.0])
    flambeau.load(flambeau.compile(torch.sort, (x,), output_type="stablehlo"), profile="quick")(x)
    assert x.tolist() == [3.0, 1.0, 2.0]


@pytest.mark.xfail(reason="NaN is passed over (engines/iree/whole_ops.py)")
def test_the_largest_of_numbers_and_nan(monkeypatch: pytest.MonkeyPatch):
    without(monkeypatch, whole_ops.REWRITE)
    x = torch.tensor([3.0, float("nan"), 2.0])
    module = flambeau.compile(lambda x: x.topk(1), (x,), output_type="stablehlo")
    assert flambeau.load(module, profile="quick")(x)[0].isnan()


@pytest.mark.xfail(reason="the second starts with the first's tensor (engines/iree/loop_starts.py)")
def test_two_loops_that_start_with_computed_tensors(monkeypatch: pytest.MonkeyPatch):
    without(monkeypatch, loop_starts.REWRITE)
    x, dynamic = torch.arange(108).reshape(3, 4, 9), dict.fromkeys(range(3), torch.export.Dim.AUTO)
    module = flambeau.compile(TwoScans(), (x,), dynamic_shapes=(dynamic,), output_type="tosa")
    for result, expected in zip(flambeau.load(module, profile="quick")(x), TwoScans()(x), strict=True):
        assert torch.equal(result, expected)


CHECK_IN_A_LOOP = b"""
#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<3x4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant dense<0.0> : tensor<4xf32>
  %a = tensor.empty() : tensor<4xf32>
  %b = tensor.empty() : tensor<4xf32>
  %r:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%s = %a, %t = %b) -> (tensor<4xf32>, tensor<4xf32>) {
    %first = arith.cmpi eq, %i, %c0 : index
    %p = arith.select %first, %zero, %s : tensor<4xf32>
    %q = arith.select %first, %zero, %t : tensor<4xf32>
    %row = tensor.extract_slice %x[%i, 0] [1, 4] [1, 1] : tensor<3x4xf32> to tensor<4xf32>
    %e = tensor.empty() : tensor<4xf32>
    %sum = linalg.map { arith.addf } ins(%p, %row : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>)
    %one = tensor.extract %x[%i, %c0] : tensor<3x4xf32>
    %holds = arith.cmpf oge, %one, %one : f32
    cf.assert %holds, "it is NaN"
    %most = linalg.map { arith.maximumf } ins(%q, %row : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>)
    scf.yield %sum, %most : tensor<4xf32>, tensor<4xf32>
  }
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xf32>
}
"""


@pytest.mark.xfail(raises=RunError, reason="one of them is nowhere (engines/iree/moves.py)")
def test_a_buffer_that_a_branch_passes_twice(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compiler, "without_moves", lambda program: program)
    artefact = compile_mlir(CHECK_IN_A_LOOP, profile="quick", use_cache=False)
    x, spec = np.arange(12, dtype=np.float32).reshape(3, 4), TensorSpec((4,), dtypes.float32)
    total, most = Program(artefact.vmfb, {}, "local-sync").call("main", [x], [spec, spec])
    assert np.array_equal(total, x.sum(0))
    assert np.array_equal(most, x.max(0))


@pytest.mark.xfail(reason="it is 0 (engines/iree/small_floats.py)")
def test_a_number_that_rounds_to_the_least_normal_8_bit_float(monkeypatch: pytest.MonkeyPatch):
    without(monkeypatch, small_floats.REWRITE)
    x = torch.tensor([0.0155])
    module = flambeau.compile(lambda x: x.to(torch.float8_e4m3fn), (x,))
    assert flambeau.load(module, profile="quick")(x).float() == 0.015625


@pytest.mark.xfail(reason="it is not rounded (engines/iree/roundings.py)")
def test_a_sum_that_is_rounded_before_it_is_used(monkeypatch: pytest.MonkeyPatch):
    without(monkeypatch, roundings.REWRITE, bfloat16.REWRITE)
    x = torch.tensor([256.0]).bfloat16()
    assert flambeau.load(flambeau.compile(lambda x: (x + 1) - x, (x,)), profile="quick", cache=False)(x) == 0


@pytest.mark.xfail(
    condition="avx512_fp16" in host_cpu()[1],
    reason="the product is not rounded, on a CPU that computes with f16 (engines/iree/host_target.py)",
)
def test_a_product_in_half_that_is_rounded_before_it_is_added(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flags, "target_flags", lambda: (host_target.HOST,))
    x = torch.tensor([1027 / 1024]).half()  # Its square has more digits than f16.
    module = flambeau.compile(lambda x: x * x - 1, (x,))
    assert flambeau.load(module, profile="quick", cache=False)(x) == x * x - 1


class Sampled(torch.nn.Module):
    def forward(self, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.grid_sample(x, grid, align_corners=False)


@pytest.mark.xfail(raises=EngineError, reason="all of it on the stack (engines/iree/truth_reductions.py)")
def test_a_truth_value_of_computed_positions(monkeypatch: pytest.MonkeyPatch):
    without(monkeypatch, truth_reductions.REWRITE)
    args = torch.randn(10, 2, 12, 13, 14), torch.randn(10, 23, 22, 21, 3)
    flambeau.load(flambeau.compile(Sampled(), args, output_type="stablehlo"), profile="quick")


@pytest.mark.parametrize("target", ["stablehlo", "tosa"])
@pytest.mark.xfail(raises=EngineError, reason="2**53 bytes on the stack (engines/iree/truth_reductions.py)")
def test_a_truth_value_of_an_unknown_number_of_positions(target: str, monkeypatch: pytest.MonkeyPatch):
    without(monkeypatch, truth_reductions.REWRITE)
    size = torch.export.Dim("n")
    shapes = ({0: size, 1: size},)
    module = flambeau.compile(torch.linalg.det, (torch.eye(3),), output_type=target, dynamic_shapes=shapes)
    flambeau.load(module, profile="quick", cache=False)


CAST_BETWEEN_LOOPS = b"""
func.func @main(%x: f64) -> tensor<2xf32> {
  %narrow = arith.truncf %x : f64 to f32
  %empty = tensor.empty() : tensor<2xf32>
  %filled = linalg.fill ins(%narrow : f32) outs(%empty : tensor<2xf32>) -> tensor<2xf32>
  return %filled : tensor<2xf32>
}
"""


@pytest.mark.xfail(raises=EngineError, reason="no cast of f64 on the host (engines/iree/host_casts.py)")
def test_a_cast_between_loops():
    compile_mlir(CAST_BETWEEN_LOOPS, profile="host")
