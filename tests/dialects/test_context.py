"""Reading MLIR text as torch-mlir prints it."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from io import StringIO

import pytest
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError

from flambeau.dialects.context import blobs, make_context, parse_module

LINALG = """
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
module attributes {torch.debug_module_name = "M"} {
  ml_program.global private mutable @global_seed(dense<0> : tensor<i64>) : tensor<i64>
  func.func @main(%arg0: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4xi64>) {
    %cst = arith.constant 0xFF800000 : f32
    %c0_i64 = arith.constant 0 : i64
    %0 = tensor.empty() : tensor<4x4xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0 : tensor<4x4xf32>) outs(%0 : tensor<4x4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %7 = arith.maximumf %in, %cst : f32
      linalg.yield %7 : f32
    } -> tensor<4x4xf32>
    %2 = tensor.empty() : tensor<4xf32>
    %3 = tensor.empty() : tensor<4xi64>
    %4:2 = linalg.generic {indexing_maps = [#map, #map1, #map1], iterator_types = ["parallel", "reduction"]} ins(%1 : tensor<4x4xf32>) outs(%2, %3 : tensor<4xf32>, tensor<4xi64>) {
    ^bb0(%in: f32, %out: f32, %out_0: i64):
      %7 = linalg.index 1 : index
      %8 = arith.index_cast %7 : index to i64
      %9 = arith.maximumf %in, %out : f32
      linalg.yield %9, %8 : f32, i64
    } -> (tensor<4xf32>, tensor<4xi64>)
    %5 = linalg.fill ins(%cst : f32) outs(%0 : tensor<4x4xf32>) -> tensor<4x4xf32>
    %6 = linalg.matmul ins(%arg0, %1 : tensor<4x4xf32>, tensor<4x4xf32>) outs(%5 : tensor<4x4xf32>) -> tensor<4x4xf32>
    return %6, %4#1 : tensor<4x4xf32>, tensor<4xi64>
  }
}
"""  # noqa: E501


@pytest.mark.peer
def test_linalg_text_is_read(ours, upstream) -> None:
    """`module {`, `return`, `#map`, bits of floats, several results."""
    assert upstream.text(ours.text(LINALG)) == upstream.text(LINALG)


@pytest.mark.parametrize(
    "text, values",
    [
        ("dense<0x7F800000> : tensor<2xf32>", [float("inf")] * 2),
        ("dense<[0xFF800000, 1.0]> : tensor<2xf32>", [float("-inf"), 1.0]),
        ("dense<0xFF80> : tensor<1xbf16>", [float("-inf")]),
        ("dense<0x3C00> : tensor<1xf16>", [1.0]),
        ("dense<0x7FF0000000000000> : tensor<1xf64>", [float("inf")]),
        ("dense<0x7F> : tensor<1xi8>", [127]),
        ("dense<[(0x7F800000,1.0)]> : tensor<1xcomplex<f32>>", [(float("inf"), 1.0)]),
        ("dense<[(1.0,2.0)]> : tensor<1xcomplex<f32>>", [(1.0, 2.0)]),
        ("dense<(1,2)> : tensor<1xcomplex<i32>>", [(1, 2)]),
    ],
)
def test_bits_in_dense_literals(text: str, values: list[object]) -> None:
    """Hexadecimal digits are the bits of a float, not a number."""
    constant = parse_module(f"%0 = arith.constant {text}").body.block.first_op
    assert constant is not None
    value = constant.properties["value"]
    assert isinstance(value, DenseIntOrFPElementsAttr)
    assert list(value.get_values()) == values


RESOURCE = """
module {{
  %0 = torch.vtensor.literal(dense_resource<weight> : tensor<2xf32>) : !torch.vtensor<[2],f32>
}}

{{-#
  dialect_resources: {{
    builtin: {{
      weight: "0x04000000{}"
    }}
  }}
#-}}
"""


@pytest.mark.peer
def test_resources_are_read_per_program(ours, upstream) -> None:
    """Two programs may use one key: neither loses its weights."""
    for numbers in ((1.0, 2.0), (3.0, 4.0)):
        data = struct.pack("<2f", *numbers)
        text = RESOURCE.format(data.hex().upper())
        context = make_context()
        module = ours.parse(text, context)
        assert blobs(context) == {"weight": data}
        printed = ours.print(module, context=context)
        assert "dense_resource<weight>" in printed
        assert upstream.text(printed) == upstream.text(text)


def test_quoted_resource_keys_are_read() -> None:
    context = make_context()
    text = RESOURCE.format("0000803F00000040").replace("weight", '"layer/0 weight"')
    parse_module(text, context=context)
    assert blobs(context) == {"layer/0 weight": struct.pack("<2f", 1.0, 2.0)}


@pytest.mark.peer
def test_locations_survive(upstream) -> None:
    """Aliases of locations stand behind the program that uses them."""
    text = """
    func.func @f(%a: !torch.int loc("arg")) -> !torch.int {
      %0 = torch.aten.neg.int %a : !torch.int -> !torch.int loc(callsite("neg"("model.py":3:4) at "train.py":10:2))
      return %0 : !torch.int loc(fused["model.py":4:1, unknown])
    } loc("model.py":2:0)
    """
    theirs = upstream.text(text, enable_debug_info=True)
    assert theirs.rindex("#loc") > theirs.index("return")
    out = StringIO()
    Printer(out, print_debuginfo=True).print_op(parse_module(theirs))
    local = upstream.text(out.getvalue(), enable_debug_info=True, use_local_scope=True)
    assert local == upstream.text(text, enable_debug_info=True, use_local_scope=True)


def test_undefined_location_aliases_are_errors() -> None:
    with pytest.raises(ParseError, match="undefined location alias #loc7"):
        parse_module("module {\n} loc(#loc7)\n#loc = loc(unknown)")


def test_errors_name_the_file_and_the_line() -> None:
    with pytest.raises(ParseError, match=r"model\.mlir:2:3"):
        parse_module("module {\n  torch.aten.no_such_op\n}", "model.mlir")


def test_functions_of_2021_are_read() -> None:
    """`func @f` without its dialect."""
    text = "func private @g(i64)\nfunc @f(%a: i64) -> i64 {\n  return %a : i64\n}"
    names = [op.name for op in parse_module(text).ops]
    assert names == ["func.func", "func.func"]


@pytest.mark.peer
def test_a_real_model_survives(ours, upstream) -> None:
    """What torch-mlir's own importer gives for a model with weights, lists and constants."""
    torch = pytest.importorskip("torch")
    fx = pytest.importorskip("torch_mlir.fx")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3)
            self.register_buffer("mask", torch.full((6, 6), float("-inf")).triu(1))

        def forward(self, x):
            y = self.conv(x).relu()
            values, places = torch.topk(y + self.mask, 2)
            return values.clamp(-1e-3, 1e10), places, y.split(1, 1), torch.where(y > 0, y, float("nan"))

    imported = fx.export_and_import(Model().eval(), torch.ones(1, 3, 8, 8))
    theirs = imported.operation.get_asm()
    for generic in (False, True):
        text = imported.operation.get_asm(print_generic_op_form=generic)
        assert upstream.text(ours.text(text, generic)) == theirs


def test_making_a_context_imports_no_dialect() -> None:
    code = (
        "import sys; from flambeau.dialects.context import make_context; make_context(); "
        "print([m for m in sys.modules if m.startswith('torch') or m.startswith('flambeau.dialects.torch')"
        " or m == 'xdsl.dialects.linalg'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment())
    assert done.stdout.strip() == "[]"


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_reading_text_needs_no_torch() -> None:
    """The dialects work where PyTorch is not installed."""
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['torch_mlir'] = None\n"
        "from flambeau.dialects.context import parse_module\n"
        "module = parse_module('%0 = torch.constant.int 1 %1 = torch.aten.neg.int %0 : !torch.int -> !torch.int')\n"
        "module.verify(); print(len(list(module.walk())))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment())
    assert done.stdout.strip() == "3"


def test_an_implicit_module_is_made() -> None:
    assert isinstance(parse_module("%0 = torch.constant.int 1"), ModuleOp)
