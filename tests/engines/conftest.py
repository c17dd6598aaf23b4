"""Programs written by hand, batched into few modules because each compilation has a price."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from flambeau.engines.iree import IreeEngine
from flambeau.engines.iree.compiler import compile_mlir
from flambeau.engines.iree.executable import IreeExecutable
from flambeau.engines.iree.runtime import Program
from flambeau.ir import dtypes
from flambeau.ir.module import Argument, Mutation, Output, ScalarSpec, Signature, TensorSpec

# Twice each element (for bool, the negation), on a static and a dynamic dimension.
ELEMENTS = {
    dtypes.float32: ("f32", "arith.addf %a, %a : f32"),
    dtypes.float64: ("f64", "arith.addf %a, %a : f64"),
    dtypes.float16: ("f16", "arith.addf %a, %a : f16"),
    dtypes.bfloat16: ("bf16", "arith.addf %a, %a : bf16"),
    dtypes.int8: ("i8", "arith.addi %a, %a : i8"),
    dtypes.int16: ("i16", "arith.addi %a, %a : i16"),
    dtypes.int32: ("i32", "arith.addi %a, %a : i32"),
    dtypes.int64: ("i64", "arith.addi %a, %a : i64"),
    dtypes.uint8: ("i8", "arith.addi %a, %a : i8"),
    dtypes.uint16: ("i16", "arith.addi %a, %a : i16"),
    dtypes.bool_: ("i1", "arith.cmpi eq, %a, %zero : i1"),
    dtypes.complex64: ("complex<f32>", "complex.add %a, %a : complex<f32>"),
    dtypes.complex128: ("complex<f64>", "complex.add %a, %a : complex<f64>"),
}

MAPS = """
#scalar = affine_map<() -> ()>
#row = affine_map<(i) -> (i)>
#cell = affine_map<(i, j) -> (i, j)>
"""


def double(name: str, element: str, op: str) -> str:
    return f"""
func.func @double_{name}(%x: tensor<2x?x{element}>) -> tensor<2x?x{element}> {{
  %one = arith.constant 1 : index
  %zero = arith.constant false
  %n = tensor.dim %x, %one : tensor<2x?x{element}>
  %init = tensor.empty(%n) : tensor<2x?x{element}>
  %y = linalg.generic {{indexing_maps = [#cell, #cell], iterator_types = ["parallel", "parallel"]}}
      ins(%x : tensor<2x?x{element}>) outs(%init : tensor<2x?x{element}>) {{
    ^bb0(%a: {element}, %b: {element}):
      %c = {op}
      linalg.yield %c : {element}
  }} -> tensor<2x?x{element}>
  return %y : tensor<2x?x{element}>
}}
"""


def binary(name: str, op: str = "arith.addf", left: str = "%x: tensor<4xf32>", load: str = "") -> str:
    return f"""
func.func @{name}({left + ", " if left else ""}%y: tensor<4xf32>) -> tensor<4xf32> {{
  {load}
  %init = tensor.empty() : tensor<4xf32>
  %z = linalg.generic {{indexing_maps = [#row, #row, #row], iterator_types = ["parallel"]}}
      ins(%x, %y : tensor<4xf32>, tensor<4xf32>) outs(%init : tensor<4xf32>) {{
    ^bb0(%a: f32, %b: f32, %c: f32):
      %d = {op} %a, %b : f32
      linalg.yield %d : f32
  }} -> tensor<4xf32>
  return %z : tensor<4xf32>
}}
"""


OTHERS = """
func.func @zero_d(%x: tensor<f32>) -> tensor<f32> {
  %init = tensor.empty() : tensor<f32>
  %y = linalg.generic {indexing_maps = [#scalar, #scalar], iterator_types = []}
      ins(%x : tensor<f32>) outs(%init : tensor<f32>) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.mulf %a, %a : f32
      linalg.yield %c : f32
  } -> tensor<f32>
  return %y : tensor<f32>
}
func.func @same(%x: tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>) {
  return %x, %x : tensor<?x?xf32>, tensor<?x?xf32>
}
func.func @swap(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  return %y, %x : tensor<4xf32>, tensor<4xf32>
}
func.func @scalars(%i: i64, %f: f64, %b: i1) -> (i64, f64, i1) {
  %one = arith.constant 1 : i64
  %half = arith.constant 0.5 : f64
  %true = arith.constant true
  %j = arith.addi %i, %one : i64
  %g = arith.mulf %f, %half : f64
  %c = arith.xori %b, %true : i1
  return %j, %g, %c : i64, f64, i1
}
func.func @needs_four(%x: tensor<?xf32>) -> tensor<?xf32> {
  %zero = arith.constant 0 : index
  %four = arith.constant 4 : index
  %n = tensor.dim %x, %zero : tensor<?xf32>
  %ok = arith.cmpi eq, %n, %four : index
  cf.assert %ok, "expected 4 elements; while running: [x]"
  return %x : tensor<?xf32>
}
func.func @constant() -> tensor<3xf32> {
  %c = arith.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  return %c : tensor<3xf32>
}
"""

WEIGHTED = (
    'util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<4xf32>\n'
    + binary("plus_weight", left="", load="%x = util.global.load immutable @w : tensor<4xf32>")
    + 'util.global private @b = #flow.parameter.named<"model"::"layer.b"> : tensor<3xbf16>\n'
    "func.func @weight() -> tensor<3xbf16> {\n"
    "  %b = util.global.load immutable @b : tensor<3xbf16>\n"
    "  return %b : tensor<3xbf16>\n}\n"
)

VECTOR = TensorSpec((4,), dtypes.float32)


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Set a cache of the tests' own, so that they neither find nor leave anything in the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAMBEAU_CACHE_DIR", str(folder))
        patch.delenv("FLAMBEAU_CACHE", raising=False)
        yield folder


@pytest.fixture(scope="session")
def program() -> Program:
    """Functions without weights: `double_<dtype>` for all dtypes, and those of `OTHERS`."""
    text = MAPS + "".join(double(d.name, *e) for d, e in ELEMENTS.items()) + OTHERS
    return Program(compile_mlir(text.encode(), profile="quick").vmfb, {}, "local-sync")


@pytest.fixture(scope="session")
def weighted() -> bytes:
    """`plus_weight(y) = w + y` and `weight() = layer.b`, before any weights are given."""
    return compile_mlir((MAPS + WEIGHTED).encode(), profile="quick").vmfb


@pytest.fixture(scope="session")
def binary_text() -> Callable[..., bytes]:
    """Make the text of a program with one function of two vectors."""
    return lambda name, op: (MAPS + binary(name, op)).encode()


@pytest.fixture(scope="session")
def sin_text() -> bytes:
    """Make a program that needs the system's libm."""
    return (MAPS + double("sin", "f64", "math.sin %a : f64")).encode()


@dataclass
class HandWritten:
    """The part of a module that an engine sees."""

    text: str
    signatures: dict[str, Signature]
    weights: dict[str, Any] = field(default_factory=dict)

    @property
    def op(self) -> str:
        return MAPS + self.text


def signature(*names: str, results: int = 1, **fields: Any) -> Signature:
    """Make the signature of a function of vectors that returns all its results."""
    arguments = tuple(Argument(name, VECTOR) for name in names)
    fields.setdefault("outputs", tuple(Output(i) for i in range(results)))
    return Signature(arguments, (VECTOR,) * results, **fields)


@pytest.fixture(scope="session")
def vectors() -> Callable[..., Signature]:
    """Make signatures of functions of vectors."""
    return signature


@pytest.fixture(scope="session")
def counter() -> Callable[..., IreeExecutable]:
    """Make `main(*, x)`, which adds to the weight `total` and returns it, with `plus_weight` beside it."""

    def make(weights: dict[str, Any]) -> IreeExecutable:
        _, tree = pytree.tree_flatten(((), {"x": 0}))
        main = replace(
            signature("t", "y", mutations=(Mutation(0, 0),), in_spec=tree),
            arguments=(Argument("t", VECTOR, state="total"), Argument("y", VECTOR)),
        )
        module = HandWritten(WEIGHTED + binary("main"), {"main": main, "plus_weight": signature("y")}, weights)
        return IreeEngine().compile(module, profile="quick", device="local-sync")

    return make


@pytest.fixture(scope="session")
def executable() -> IreeExecutable:
    """Make a program with one function for each way of being called."""
    text = (
        binary("add")
        + binary("sub", "arith.subf")
        + OTHERS
        + double("bfloat16", *ELEMENTS[dtypes.bfloat16])
        + binary("accumulate")
    )
    _, tree = pytree.tree_flatten((([torch.ones(4)], {"b": 1, "a": 2}), {"scale": 1}))
    _, out = pytree.tree_flatten({"sum": 0, "pair": (0, [None])})
    outputs = (Output(0), Output(None, 7), Output(0))
    matrix = TensorSpec((None, None), dtypes.float32)
    halves = TensorSpec((2, None), dtypes.bfloat16)
    numbers = tuple(map(ScalarSpec, ("int", "float", "bool")))
    signatures = {
        "add": signature("x", "y"),
        "sub": signature("x", "y", in_spec=tree, inputs=(1, None, 0, None)),
        "swap": signature("x", "y", results=2, outputs=(), mutations=(Mutation(0, 0), Mutation(1, 1))),
        "accumulate": replace(
            signature("x", "y", mutations=(Mutation(0, 0),), out_spec=out, outputs=outputs),
            arguments=(Argument("total", VECTOR, state="total"), Argument("y", VECTOR)),
        ),
        "same": Signature((Argument("x", matrix),), (matrix, matrix), (Output(0), Output(1))),
        "scalars": Signature(
            tuple(Argument(n, k) for n, k in zip("ifb", numbers)), numbers, tuple(Output(i) for i in range(3))
        ),
        "constant": Signature((), (TensorSpec((3,), dtypes.float32),), (Output(0),)),
        "double_bfloat16": Signature((Argument("x", halves),), (halves,), (Output(0),)),
    }
    module = HandWritten(text, signatures, {"total": torch.zeros(4)})
    return IreeEngine().compile(module, profile="quick", device="local-sync")
