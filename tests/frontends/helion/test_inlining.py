"""Inlining: on IR, and on text to the letter of the document's examples (S117 to S119, S121)."""

from __future__ import annotations

import pytest
import torch
from frontends.helion.test_nodes import NODES, node_of, x
from xdsl.builder import Builder, InsertPoint
from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import Block, Region

import flambeau
from flambeau import OutputType, helion
from flambeau.dialects.context import parse_module
from flambeau.ir.builder import OpBuilder

aten = torch.ops.aten

# --- Text: the document's examples ---

ADD = """\
module {
  #map = affine_map<(d0, d1) -> (d0, d1)>
  func.func @aten_op(%arg0: tensor<32x64xf32>, %arg1: tensor<32x64xf32>) -> tensor<32x64xf32> {
    %0 = linalg.generic {...} ins(%arg0, %arg1 : ...) outs(...) {
      ^bb0(%in: f32, %in_0: f32, %out: f32):
        %1 = arith.addf %in, %in_0 : f32
        linalg.yield %1 : f32
    } -> tensor<32x64xf32>
    return %0 : tensor<32x64xf32>
  }
}
"""

ADD_BODY = """\
%0 = linalg.generic {...} ins(%arg0, %arg1 : ...) outs(...) {
  ^bb0(%in: f32, %in_0: f32, %out: f32):
    %1 = arith.addf %in, %in_0 : f32
    linalg.yield %1 : f32
} -> tensor<32x64xf32>
"""

ADD_INLINED = """\
%t0 = linalg.generic {...} ins(%tensor_a, %tensor_b : ...) outs(...) {
  ^bb0(%blk_arg0: f32, %blk_arg1: f32, %blk_arg2: f32):
    %t1 = arith.addf %blk_arg0, %blk_arg1 : f32
    linalg.yield %t1 : f32
} -> tensor<32x64xf32>"""

MAPS = """\
#map = affine_map<(d0, d1) -> (d0, d1)>
%0 = linalg.generic {indexing_maps = [#map, #map], ...}
"""

# The document breaks this line behind the comma, to fit its page.
MAPS_INLINED = (
    "%t0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], ...}"
)

ADDMM = """\
module {
  func.func @aten_op(%arg0: tensor<64xf32>, %arg1: tensor<32x64xf32>, 
                      %arg2: tensor<64x128xf32>) -> tensor<32x128xf32> {
    %0 = linalg.matmul ins(%arg1, %arg2 : ...) outs(...) -> tensor<32x128xf32>
    %1 = linalg.generic {...} ins(%0, %arg0 : ...) outs(...) {
      ^bb0(%in: f32, %in_0: f32, %out: f32):
        %2 = arith.addf %in, %in_0 : f32
        linalg.yield %2 : f32
    } -> tensor<32x128xf32>
    return %1 : tensor<32x128xf32>
  }
}
"""  # noqa: W291

ADDMM_INLINED = """\
%t0 = linalg.matmul ins(%input_ssa, %weight_ssa : ...) outs(...) -> tensor<32x128xf32>
%t1 = linalg.generic {...} ins(%t0, %bias_ssa : ...) outs(...) {
  ^bb0(%blk_arg0: f32, %blk_arg1: f32, %blk_arg2: f32):
    %t2 = arith.addf %blk_arg0, %blk_arg1 : f32
    linalg.yield %t2 : f32
} -> tensor<32x128xf32>"""


@pytest.mark.parametrize(
    ("text", "operands", "expected", "result"),
    [
        (ADD, ["%tensor_a", "%tensor_b"], ADD_INLINED, "%t0"),
        (ADD_BODY, ["%tensor_a", "%tensor_b"], ADD_INLINED, "%t0"),
        (MAPS, [], MAPS_INLINED, "%t0"),
        (ADDMM, ["%bias_ssa", "%input_ssa", "%weight_ssa"], ADDMM_INLINED, "%t1"),
    ],
    ids=["module", "ssa_renaming", "affine_maps", "addmm"],
)
def test_s117_s121_the_documents_examples(text: str, operands: list[str], expected: str, result: str) -> None:
    builder = helion.TextBuilder()
    assert helion.inline_text(text, operands, builder) == result
    assert builder.text() == expected


# --- Text: what the document's regular expressions would get wrong ---


def test_s118_an_operand_called_t0_is_not_captured() -> None:
    builder = helion.TextBuilder()
    result = helion.inline_text(ADD, ["%t0", "%blk_arg0"], builder)
    assert result == "%t1"
    assert builder.lines[0] == "%t1 = linalg.generic {...} ins(%t0, %blk_arg0 : ...) outs(...) {"
    assert builder.lines[1] == "  ^bb0(%blk_arg1: f32, %blk_arg2: f32, %blk_arg3: f32):"
    assert builder.lines[2] == "    %t2 = arith.addf %blk_arg1, %blk_arg2 : f32"


def test_s118_arguments_that_are_swapped_are_swapped_once() -> None:
    text = "%0 = arith.subf %arg0, %arg1 : f32\n"
    builder = helion.TextBuilder()
    helion.inline_text(text, ["%arg1", "%arg0"], builder)
    assert builder.text() == "%t0 = arith.subf %arg1, %arg0 : f32"


def test_s118_names_that_begin_alike_and_strings_are_told_apart() -> None:
    text = """
    func.func @aten_op(%arg1: f32, %arg10: f32) -> f32 {
      %0 = "my.op"(%arg10, %arg1) {note = "%arg1 #map"} : (f32, f32) -> f32
      return %0 : f32
    }
    """
    builder = helion.TextBuilder()
    helion.inline_text(text, ["%a", "%b"], builder)
    assert builder.text() == '%t0 = "my.op"(%b, %a) {note = "%arg1 #map"} : (f32, f32) -> f32'


def test_s118_several_results() -> None:
    text = """
    func.func @aten_op(%arg0: f32) -> (f32, i64) {
      %0:2 = "my.split"(%arg0) : (f32) -> (f32, i64)
      %1, %2 = "my.split"(%0#0) : (f32) -> (f32, i64)
      return %1, %0#1 : f32, i64
    }
    """
    builder = helion.TextBuilder()
    assert helion.inline_text(text, ["%x"], builder) == ("%t1", "%t0#1")
    assert builder.lines == [
        '%t0:2 = "my.split"(%x) : (f32) -> (f32, i64)',
        '%t1, %t2 = "my.split"(%t0#0) : (f32) -> (f32, i64)',
    ]


def test_s118_loops_and_names_that_two_regions_share() -> None:
    text = """
    %0 = scf.for %i = %arg0 to %arg1 step %arg2 iter_args(%acc = %arg3) -> (f32) {
      %s = arith.addf %acc, %acc : f32
      scf.yield %s : f32
    }
    %1 = linalg.reduce ins(%arg4 : tensor<4xf32>) outs(%arg5 : tensor<f32>) dimensions = [0]
      (%in: f32, %init: f32) {
        %s = arith.addf %in, %init : f32
        linalg.yield %s : f32
      }
    """
    builder = helion.TextBuilder()
    names = ["%lo", "%hi", "%step", "%x", "%v", "%o"]
    assert helion.inline_text(text, names, builder) == "%t2"
    assert builder.lines == [
        "%t0 = scf.for %blk_arg0 = %lo to %hi step %step iter_args(%blk_arg1 = %x) -> (f32) {",
        "  %t1 = arith.addf %blk_arg1, %blk_arg1 : f32",
        "  scf.yield %t1 : f32",
        "}",
        "%t2 = linalg.reduce ins(%v : tensor<4xf32>) outs(%o : tensor<f32>) dimensions = [0]",
        "  (%blk_arg2: f32, %blk_arg3: f32) {",
        "    %t3 = arith.addf %blk_arg2, %blk_arg3 : f32",
        "    linalg.yield %t3 : f32",
        "  }",
    ]


def test_s119_no_alias_is_left() -> None:
    text = """
    #map = affine_map<(d0) -> (d0)>
    #map1 = affine_map<(d0) -> ()>
    module {
      func.func @aten_op(%arg0: tensor<4xf32>) -> tensor<4xf32> attributes {note = #map1} {
        %0 = "my.op"(%arg0) {maps = [#map1, #map], kind = #my.kind} : (tensor<4xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32>
      }
    }
    """
    builder = helion.TextBuilder()
    helion.inline_text(text, ["%x"], builder)
    assert "[affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>], kind = #my.kind" in builder.text()


def test_a_builder_of_ones_own_will_do() -> None:
    class Mine:
        def __init__(self) -> None:
            self.out: list[str] = []

        def emit(self, line: str) -> None:
            self.out.append(line)

        def fresh(self, prefix: str) -> str:
            return f"%{prefix}{len(self.out)}"

    mine = Mine()
    assert helion.inline_text("%0 = arith.negf %arg0 : f32", ["%x"], mine) == "%t0"
    assert mine.out == ["%t0 = arith.negf %x : f32"]


@pytest.mark.parametrize(
    ("text", "operands", "message"),
    [
        (ADD, ["%x"], "takes 2 arguments, not 1"),
        ("%0 = arith.negf %y : f32", ["%x"], "%y is used before it is defined"),
        ("func.func @f(%arg0: f32) -> f32", ["%x"], "no body"),
        ("func.func @f(%arg0: f32) -> f32 {\n", ["%x"], "is not closed"),
    ],
)
def test_wrong_text_is_refused(text: str, operands: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        helion.inline_text(text, operands, helion.TextBuilder())


@pytest.mark.parametrize("output_type", list(OutputType))
@pytest.mark.parametrize("name", NODES)
def test_the_text_of_every_op_inlines_to_text_that_parses(name: str, output_type: OutputType) -> None:
    node = NODES[name]()
    function = helion.NodeImporter(output_type).import_node(node)
    text = helion.import_aten_node_to_mlir(node, output_type)
    builder = helion.TextBuilder(indent=1)
    names = [f"%operand_{i}" for i in range(len(function.body.block.args))]
    results = helion.inline_text(text, names, builder)
    results = (results,) if isinstance(results, str) else results
    arguments = ", ".join(f"{n}: {a.type}" for n, a in zip(names, function.body.block.args))
    types = ", ".join(map(str, function.function_type.outputs))
    builder.lines.insert(0, f"func.func @caller({arguments}) -> ({types}) {{")
    builder.lines += [f"  func.return {', '.join(results)} : {types}", "}"]
    module = parse_module(builder.text(), "inlined.mlir")
    module.verify()
    (caller,) = module.ops
    assert isinstance(caller, func.FuncOp)
    assert [op.name for op in caller.walk()][1:] == [op.name for op in function.walk()][1:]


# --- IR ---


def test_inline_puts_copies_where_the_builder_stands() -> None:
    function = helion.NodeImporter("linalg-on-tensors").import_node(NODES["addmm"]())
    before = str(function)
    block = Block(arg_types=[a.type for a in function.body.block.args])
    bias, left, right = block.args
    builder = OpBuilder(block)
    first = helion.inline(function, [bias, left, right], builder)
    second = helion.inline(function, [bias, left, right], builder)
    assert len(first) == 1
    assert first[0].type == second[0].type
    assert first[0] is not second[0]
    assert str(function) == before
    builder.emit(func.ReturnOp, (first[0], second[0]))
    types = FunctionType.from_lists([a.type for a in block.args], [v.type for v in (*first, *second)])
    module = ModuleOp([func.FuncOp("main", types, Region(block))])
    module.verify()
    generics = [op for op in block.ops if op.name == "linalg.generic"]
    assert [g.operands[1] for g in generics] == [bias, bias]
    assert "affine_map" in str(generics[0].properties["indexing_maps"])


def test_inline_gives_all_results_and_takes_xdsls_builder() -> None:
    function = helion.NodeImporter("stablehlo").import_node(NODES["max.dim"]())
    block = Block(arg_types=[a.type for a in function.body.block.args])
    values, places = helion.inline(function, block.args, Builder(InsertPoint.at_end(block)))
    assert [str(values.type), str(places.type)] == ["tensor<4xf32>", "tensor<4xi64>"]


def test_inline_checks_the_operands() -> None:
    function = helion.NodeImporter().import_node(NODES["exp2"]())
    block = Block(arg_types=[a.type for a in helion.NodeImporter().import_node(NODES["bmm"]()).body.block.args])
    with pytest.raises(ValueError, match=r"@aten_op takes \(!torch.vtensor<\[4,8\],f32>\), not"):
        helion.inline(function, block.args[:1], OpBuilder(block))


@pytest.mark.engine
def test_what_is_inlined_runs() -> None:
    """Two nodes of a caller's own function: `exp2(x + x)`."""
    importer = helion.NodeImporter("linalg-on-tensors")
    add = importer.import_node(node_of(aten.add.Tensor, x(3, 5), x(3, 5)))
    exp2 = importer.import_node(node_of(aten.exp2.default, x(3, 5)))
    block = Block(arg_types=[exp2.body.block.args[0].type])
    builder = OpBuilder(block)
    (sum_,) = helion.inline(add, [block.args[0], block.args[0]], builder)
    (result,) = helion.inline(exp2, [sum_], builder)
    builder.emit(func.ReturnOp, (result,))
    types = FunctionType.from_lists([block.args[0].type], [result.type])
    op = ModuleOp([func.FuncOp("main", types, Region(block))])
    from flambeau.files import signature_of
    from flambeau.ir.module import Weights

    signatures = {"main": signature_of(next(iter(op.ops)))}
    module = flambeau.Module(op, Weights(), signatures, OutputType.LINALG_ON_TENSORS)
    value = x(3, 5)
    run = flambeau.load(module, profile="quick", device="local-sync")
    torch.testing.assert_close(run(value), torch.exp2(value + value))
