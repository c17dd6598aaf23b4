"""Helion kernels: single nodes of the Device IR to any output type, and whole kernels to linalg."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.transforms.dead_code_elimination import dce

from flambeau import api
from flambeau.api import Module, OutputType
from flambeau.diagnostics import CompileError
from flambeau.frontends.helion import nodes
from flambeau.frontends.helion.inlining import TextBuilder, inline, inline_text
from flambeau.frontends.helion.nodes import inputs_of, normalize_node, synthesize_tensor_meta
from flambeau.ir.module import Signature, Weights
from flambeau.ir.printing import pretty_text
from flambeau.keeping import kept_ops

if TYPE_CHECKING:
    from flambeau.frontends.helion.program import Program

__all__ = [
    "NodeImporter",
    "TextBuilder",
    "compile",
    "import_aten_node_to_mlir",
    "inline",
    "inline_text",
    "inputs_of",
    "lower_mlir_module",
    "normalize_node",
    "run_pipeline_with_repro_report",
    "synthesize_tensor_meta",
    "trace",
]


# --- Single nodes ---


class NodeImporter(nodes.NodeImporter):
    """Imports single nodes as functions `@aten_op`, as far down as `output_type` says."""

    def __init__(self, output_type: str | OutputType = OutputType.RAW) -> None:
        self.output_type = OutputType.get(output_type)
        self._keeps = kept_ops(())

    def keeps(self, name: str) -> bool:
        return self._keeps(name)

    def lower(self, module: ModuleOp, weights: Weights, signature: Signature) -> ModuleOp:
        raw = Module(module, weights, {nodes.FUNCTION: signature}, OutputType.RAW)
        with api.paused_gc():
            return api.lower(raw, OutputType.get(self.output_type)).op


def import_aten_node_to_mlir(
    node: Any, output_type: str | OutputType = OutputType.RAW, inputs: Sequence[Any] | None = None
) -> str:
    """Import a node and print it as the text of a module, for those who go on with text."""
    function = NodeImporter(output_type).import_node(node, inputs)
    module = function.parent_op()
    assert isinstance(module, ModuleOp)
    return pretty_text(module)


# --- The two stages, under the names that torch-mlir's users know ---


def run_pipeline_with_repro_report(
    module: ModuleOp, pipeline: str, description: str, enable_ir_printing: bool = False
) -> ModuleOp:
    """Run passes by name. Where that fails, the program is kept in a file that the error names."""
    from flambeau.opt import run_pipeline

    before = module.clone()
    try:
        after = run_pipeline(module, pipeline)
    except CompileError as error:
        with tempfile.NamedTemporaryFile(prefix="flambeau-repro-", suffix=".mlir", delete=False) as file:
            path = Path(file.name)
        error.context.update(module=before, pipeline=pipeline)
        error.save_repro(path)
        error.add_note(f"{description} failed; the program before it is in {path}")
        raise
    if enable_ir_printing:
        print(pretty_text(after))
    return after


def lower_mlir_module(verbose: bool, output_type: str | OutputType, module: ModuleOp) -> ModuleOp:
    """Take a module in the torch dialect under the backend contract to a target."""
    lowered = api.lower(Module(module, Weights(), {}, OutputType.TORCH), OutputType.get(output_type)).op
    if verbose:
        print(pretty_text(lowered))
    return lowered


# --- Whole kernels ---


def trace(kernel: Any, args: Sequence[Any], config: Any = None) -> Program:
    """Trace the graphs of a kernel bound to these arguments, with the block sizes of a config.

    By default the config is the kernel's own, where it has one, or Helion's default.
    """
    try:
        from flambeau.frontends.helion.program import Program
    except ModuleNotFoundError as error:
        if error.name not in ("helion", "triton"):
            raise
        raise ModuleNotFoundError("Helion is not installed: pip install 'flambeau[helion]'", name=error.name) from None
    return Program(kernel, args, config)


def compile(
    kernel: Any,
    args: Sequence[Any],
    output_type: str | OutputType = OutputType.LINALG_ON_TENSORS,
    *,
    config: Any = None,
    function: str = "main",
) -> Module:
    """Take a whole Helion kernel to linalg, for these arguments: tile loops become `scf.for` on tiles.

    `config` is as for `trace`. The sizes of the arguments are the sizes of the program. Raises `CompileError` with
    every op that is not supported.
    """
    if OutputType.get(output_type) is not OutputType.LINALG_ON_TENSORS:
        raise ValueError(f"a whole kernel is compiled to {OutputType.LINALG_ON_TENSORS}, not to {output_type}")
    timings: dict[str, float] = {}
    with api.stage(timings, "trace"):
        program = trace(kernel, args, config)
        from flambeau.frontends.helion.host import trace_host
        from flambeau.frontends.helion.kernel import Target, import_kernel
        from flambeau.lowering.builder import Tensor
        from flambeau.lowering.linalg.builder import LinalgBuilder

        host = trace_host(program, args)
    with api.stage(timings, "import"), api.paused_gc():
        target = Target(LinalgBuilder, Tensor, NodeImporter(OutputType.LINALG_ON_TENSORS))
        op, signature = import_kernel(program, host, target, function)
        dce(op)
    return Module(op, Weights(), {function: signature}, OutputType.LINALG_ON_TENSORS, timings)
