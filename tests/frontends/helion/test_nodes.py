"""Single nodes: brought into FX's form, imported as `@aten_op`, for every output type (S107 to S116, S122)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support import assert_same
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

import flambeau
from flambeau import OutputType, helion
from flambeau.dialects.context import parse_module
from flambeau.frontends.helion import NodeImporter as RawImporter
from flambeau.ir.module import Weights

aten = torch.ops.aten


def node_of(target: Any, *args: Any, **kwargs: Any) -> Node:
    """Make a node as Helion has it: its inputs are nodes with real tensors."""
    graph = Graph()

    def as_node(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        placeholder = graph.placeholder("p")
        placeholder.meta["val"] = value
        return placeholder

    nodes = torch.utils._pytree.tree_map(as_node, (args, kwargs))
    node = graph.call_function(target, *nodes)
    node.meta["val"] = target(*args, **kwargs)
    return node


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


# The document's five ops; its bias has 64 elements where its result has 128 columns, which cannot be.
NODES = {
    "addmm": lambda: node_of(aten.addmm.default, x(128), x(32, 64), x(64, 128)),
    "exp2": lambda: node_of(aten.exp2.default, x(4, 8)),
    "amax": lambda: node_of(aten.amax.default, x(4, 8), [1], True),
    "bmm": lambda: node_of(aten.bmm.default, x(2, 4, 8), x(2, 8, 3)),
    "max.dim": lambda: node_of(aten.max.dim, x(4, 8), 1),
}


# --- Before the import ---


def test_s107_a_real_tensor_becomes_a_fake_one() -> None:
    node = node_of(aten.exp2.default, x(2, 3))
    assert helion.normalize_node(node) is node
    assert isinstance(node.meta["val"], FakeTensor)
    assert node.meta["val"].shape == (2, 3)
    assert node.meta["tensor_meta"] == helion.synthesize_tensor_meta(x(2, 3))


def test_s107_a_meta_tensor_becomes_a_fake_one() -> None:
    node = Graph().placeholder("p")
    node.meta["val"] = torch.empty_strided((2, 3), (1, 2), device="meta")
    value = helion.normalize_node(node).meta["val"]
    assert isinstance(value, FakeTensor)
    assert value.stride() == (1, 2)
    assert value.device.type == "cpu"


def test_a_number_is_left_alone() -> None:
    node = Graph().placeholder("p")
    node.meta["val"] = 3
    assert helion.normalize_node(node).meta == {"val": 3}


def test_s108_tensor_meta_of_a_contiguous_tensor() -> None:
    value = torch.ones(2, 3, dtype=torch.float16, requires_grad=True)
    assert helion.synthesize_tensor_meta(value) == {
        "shape": (2, 3),
        "dtype": torch.float16,
        "requires_grad": True,
        "stride": (3, 1),
        "memory_format": torch.contiguous_format,
        "is_quantized": False,
    }


@pytest.mark.parametrize(
    ("shape", "format_"), [((2, 3, 4, 5), torch.channels_last), ((2, 3, 4, 5, 6), torch.channels_last_3d)]
)
def test_s108_tensor_meta_knows_channels_last(shape: tuple[int, ...], format_: torch.memory_format) -> None:
    value = torch.ones(shape).to(memory_format=format_)
    meta = helion.synthesize_tensor_meta(value)
    assert meta["memory_format"] is format_
    assert meta["stride"] == value.stride()
    # One channel is contiguous in both formats, and the plain one counts.
    assert helion.synthesize_tensor_meta(torch.ones(2, 1, 4, 5))["memory_format"] is torch.contiguous_format


def test_s109_a_tuple_has_a_tuple_of_fakes_and_metas() -> None:
    node = helion.normalize_node(NODES["max.dim"]())
    values, metas = node.meta["val"], node.meta["tensor_meta"]
    assert isinstance(values, tuple)
    assert all(isinstance(v, FakeTensor) for v in values)
    assert [m["dtype"] for m in metas] == [torch.float32, torch.int64]
    assert [m["shape"] for m in metas] == [(4,), (4,)]


# --- The import ---


def module_of(function: func.FuncOp) -> ModuleOp:
    module = function.parent_op()
    assert isinstance(module, ModuleOp)
    return module


@pytest.mark.parametrize("output_type", list(OutputType))
@pytest.mark.parametrize("name", NODES)
def test_s110_each_op_has_every_output_type(name: str, output_type: OutputType) -> None:
    function = helion.NodeImporter(output_type=str(output_type)).import_node(NODES[name]())
    module_of(function).verify()
    assert function.sym_name.data == "aten_op"
    dialects = {op.name.split(".")[0] for op in function.walk()} - {"func"}
    expected = {
        "raw": "torch",
        "torch": "torch",
        "linalg-on-tensors": "linalg",
        "tosa": "tosa",
        "stablehlo": "stablehlo",
    }
    assert expected[output_type] in dialects
    assert ("torch" in dialects) == (expected[output_type] == "torch")


@pytest.mark.engine
@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "tosa", "stablehlo"])
def test_s110_each_op_computes_what_pytorch_does(output_type: str) -> None:
    from flambeau.files import signature_of

    for name, make in NODES.items():
        node = make()
        inputs = [n.meta["val"] for n in helion.inputs_of(node)]
        function = helion.NodeImporter(output_type).import_node(node)
        signatures = {"aten_op": signature_of(function)}
        module = flambeau.Module(module_of(function), Weights(), signatures, OutputType.get(output_type))
        run = flambeau.load(module, profile="quick", device="local-sync")
        actual = run(*inputs)
        # TOSA counts in 32 bits.
        got = list(actual) if isinstance(actual, (list, tuple)) else [actual]
        expected = node.meta["val"] if isinstance(node.meta["val"], tuple) else [node.meta["val"]]
        assert_same([g.to(e.dtype) for g, e in zip(got, expected)], list(expected), name, rtol=1e-4, atol=1e-4)


def test_s110_the_output_type_has_torch_mlirs_spelling_too() -> None:
    assert helion.NodeImporter("LINALG_ON_TENSORS").output_type is OutputType.LINALG_ON_TENSORS
    with pytest.raises(ValueError, match="unknown output type 'llvm'"):
        helion.NodeImporter("llvm")


def test_s111_nested_lists_scalars_and_kwargs() -> None:
    a, b = x(2, 3), x(2, 3)
    text = helion.import_aten_node_to_mlir(node_of(aten.cat.default, [a, b], 1))
    assert "torch.prim.ListConstruct %arg0, %arg1" in text
    text = helion.import_aten_node_to_mlir(node_of(aten.add.Tensor, a, b, alpha=3))
    assert "torch.aten.add.Tensor %arg0, %arg1, %int3" in text
    text = helion.import_aten_node_to_mlir(node_of(aten.clamp.Tensor, a, max=b))
    assert "torch.aten.clamp.Tensor %arg0, %none, %arg1" in text


def test_s111_the_same_node_twice_is_two_arguments() -> None:
    graph = Graph()
    p = graph.placeholder("p")
    p.meta["val"] = x(2)
    node = graph.call_function(aten.mul.Tensor, (p, p))
    assert helion.inputs_of(node) == [p, p]
    assert "torch.aten.mul.Tensor %arg0, %arg1" in helion.import_aten_node_to_mlir(node)


def test_s111_inputs_may_be_given_and_numbers_among_them_stay_in_the_function() -> None:
    graph = Graph()
    a, n = graph.placeholder("a"), graph.placeholder("n")
    node = graph.call_function(aten.add.Tensor, (a, n))
    function = helion.NodeImporter().import_node(node, [x(2, 5), 7])
    assert len(function.body.block.args) == 1
    assert "torch.constant.int 7" in str(function)
    with pytest.raises(ValueError, match="takes 2 inputs, not 1"):
        helion.NodeImporter().import_node(node, [x(2)])
    with pytest.raises(flambeau.CompileError, match="input 0 has no meta"):
        helion.NodeImporter().import_node(node)


def test_s112_a_tuple_has_its_results_in_order() -> None:
    function = helion.NodeImporter().import_node(NODES["max.dim"]())
    types = [str(t) for t in function.function_type.outputs]
    assert types == ["!torch.vtensor<[4],f32>", "!torch.vtensor<[4],si64>"]


def test_s113_the_text_of_addmm() -> None:
    """Today's MLIR writes `func.return` where the document has `return`."""
    assert helion.import_aten_node_to_mlir(NODES["addmm"]()) == (
        "builtin.module {\n"
        "  func.func @aten_op(%arg0: !torch.vtensor<[128],f32>, %arg1: !torch.vtensor<[32,64],f32>, "
        "%arg2: !torch.vtensor<[64,128],f32>) -> !torch.vtensor<[32,128],f32> {\n"
        "    %int1 = torch.constant.int 1\n"
        "    %0 = torch.aten.addmm %arg0, %arg1, %arg2, %int1, %int1 : !torch.vtensor<[128],f32>, "
        "!torch.vtensor<[32,64],f32>, !torch.vtensor<[64,128],f32>, !torch.int, !torch.int "
        "-> !torch.vtensor<[32,128],f32>\n"
        "    func.return %0 : !torch.vtensor<[32,128],f32>\n"
        "  }\n"
        "}\n"
    )


def test_s113_linalg_of_addmm_is_the_documents_ops() -> None:
    function = helion.NodeImporter("linalg-on-tensors").import_node(NODES["addmm"]())
    ops = [op.name for op in function.body.block.ops if op.name.startswith("linalg.")]
    assert ops == ["linalg.fill", "linalg.matmul", "linalg.generic"]
    matmul, generic = [op for op in function.body.block.ops if op.name in ("linalg.matmul", "linalg.generic")]
    bias, left, right = function.body.block.args
    assert list(matmul.operands[:2]) == [left, right]
    assert list(generic.operands[:2]) == [matmul.results[0], bias]


def test_the_frontend_alone_imports_to_the_torch_dialect() -> None:
    function = RawImporter().import_node(NODES["bmm"]())
    assert "torch.aten.bmm %arg0, %arg1" in str(function)
    with pytest.raises(ValueError, match="NodeImporter\\('tosa'\\) goes on"):
        RawImporter("tosa")


def test_an_op_that_does_not_take_these_inputs_says_so() -> None:
    node = node_of(aten.mm.default, x(2, 3), x(3, 4))
    with pytest.raises(flambeau.CompileError, match="mm"):
        helion.NodeImporter().import_node(node, [x(2, 3), x(2, 3)])


# --- The stages, under torch-mlir's names ---

STAGE_1 = (
    "builtin.module(func.func(torch-match-quantized-custom-ops), "
    "torchdynamo-export-to-torch-backend-pipeline{ extra-library=})"
)


def test_s114_s115_the_documents_two_stages() -> None:
    module = module_of(helion.NodeImporter().import_node(NODES["addmm"]()))
    module = helion.run_pipeline_with_repro_report(module, STAGE_1, "Lowering TorchFX IR -> Torch Backend IR")
    assert "torch.aten.addmm" in str(module)
    output = OutputType.get("linalg-on-tensors")
    lowered = helion.lower_mlir_module(verbose=False, output_type=output, module=module)
    assert "linalg.matmul" in str(lowered)


def test_s115_verbose_prints(capsys: pytest.CaptureFixture[str]) -> None:
    module = module_of(helion.NodeImporter("torch").import_node(NODES["exp2"]()))
    helion.lower_mlir_module(True, "stablehlo", module)
    assert "stablehlo.power" in capsys.readouterr().out


def test_s116_a_failure_leaves_a_repro_and_its_reason() -> None:
    text = """
    func.func @main(%x: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32> {
      %0 = torch.operator "torch.aten.no_such_op"(%x) : (!torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32>
      return %0 : !torch.vtensor<[2],f32>
    }
    """
    paths = []
    for _ in range(2):
        module = parse_module(text, "x.mlir")
        with pytest.raises(flambeau.CompileError, match="no_such_op") as caught:
            helion.run_pipeline_with_repro_report(
                module, "torch-backend-to-linalg-on-tensors-backend-pipeline", "Lowering"
            )
        (note,) = caught.value.__notes__
        assert note.startswith("Lowering failed")
        paths.append(Path(note.split()[-1]))
    assert len(set(paths)) == 2
    for path in paths:
        assert "torch.aten.no_such_op" in path.read_text()
        path.unlink()


def test_s122_the_page_lists_the_output_types() -> None:
    page = (Path(__file__).parents[3] / "docs" / "helion.md").read_text()
    assert re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE) == [str(o) for o in OutputType]


@pytest.mark.long
def test_single_nodes_need_no_helion_and_whole_kernels_say_that_they_do() -> None:
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("helion", "triton"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
import torch
from flambeau import helion
graph = torch.fx.Graph()
node = graph.call_function(torch.ops.aten.exp2.default, (graph.placeholder("x"),))
print(helion.import_aten_node_to_mlir(node, "linalg-on-tensors", [torch.ones(2)]))
try:
    helion.compile(None, ())
except ModuleNotFoundError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "math.exp2" in result.stdout
    assert "Helion is not installed: pip install 'flambeau[helion]'" in result.stdout
