"""`torch.export` programs and plain FX graphs as functions: no retrace, no copy of a weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.dialects.specs import spec_of
from flambeau.dialects.torch.types import NonValueTensorType, TensorType
from flambeau.frontends.fx.aliasing import analyze
from flambeau.frontends.fx.importer import (
    GraphImporter,
    Problem,
    finish_function,
    raise_problems,
    type_of,
)
from flambeau.frontends.fx.quantized import inline_bytes
from flambeau.frontends.tensors import INLINE_BYTES
from flambeau.ir.locations import UNKNOWN
from flambeau.ir.module import Argument, Mutation, Output, Signature, Weights

Keep = Callable[[str], bool]
"""Whether an op is left whole, by its name."""

Imported = tuple[ModuleOp, Weights, Signature]


class FunctionImporter:
    """Imports a graph as a function and keeps account of how Python calls it."""

    def __init__(self, graph: Graph, keep: Keep, ranges: Any = None) -> None:
        self.weights = Weights()
        self.block = Block()
        self.importer = GraphImporter(self.block, self.weights, keep, ranges)
        self.written = analyze(graph)
        self.arguments: list[Argument] = []
        self.inputs: list[int | None] = []
        self.results: list[SSAValue] = []
        self.outputs: list[Output] = []
        self.mutations: list[Mutation] = []
        self._mutated: list[tuple[Node, int]] = []

    # --- What comes in ---

    def add_constant_input(self, node: Node, value: Any) -> None:
        """An input that the program was specialised to."""
        self.importer.values[node] = value
        self.inputs.append(None)

    def add_weight(self, node: Node, tensor: torch.Tensor, name: str, inline: int) -> None:
        """A tensor of the model that the program only reads."""
        try:
            self.importer.values[node] = self.importer.tensor(tensor, name, inline)
        except Problem as problem:
            self.importer.report(problem, name)

    def add_argument(self, node: Node, meta: Any, name: str, state: torch.Tensor | None = None) -> None:
        """An argument of the function: an input, or a tensor of the model that the program writes."""
        try:
            type_ = type_of(meta)
        except Problem as problem:
            self.importer.report(problem, node.name)
            return
        value = self.block.insert_arg(type_, len(self.block.args))
        value.name_hint = node.name if node.name and not node.name[0].isdigit() else None
        self.importer.values[node] = value
        self.importer.bind_shape(value, meta)
        resource = None
        if state is not None:
            resource = self.importer.tensors.resource_name(name)
            self.weights.tensors[resource] = state
        else:
            self.inputs.append(len(self.arguments))
        if self.written.is_mutable(node) and isinstance(type_, TensorType):
            self._mutated.append((node, len(self.arguments)))
        self.arguments.append(Argument(name, spec_of(type_), resource))

    # --- What goes out ---

    def add_output(self, value: Any) -> None:
        """A leaf of what the function gives back."""
        if isinstance(value, SSAValue):
            self.outputs.append(Output(self._add_result(value)))
        else:
            self.outputs.append(Output(None, value))

    def add_mutation(self, value: SSAValue, target: str | None) -> None:
        """A result that is the new contents of an argument."""
        names = [a.name for a in self.arguments]
        if target not in names:
            raise CompileError([Diagnostic("import", f"the program writes {target!r}, which is not an input")])
        self.mutations.append(Mutation(self._add_result(value), names.index(target)))

    def _add_result(self, value: SSAValue) -> int:
        if isinstance(value.type, NonValueTensorType):
            value = self.importer.read(value)
        self.results.append(value)
        return len(self.results) - 1

    def finish(self, name: str, in_spec: Any = None, out_spec: Any = None) -> Imported:
        """The module; raises if anything could not be imported."""
        for node, position in self._mutated:
            self.mutations.append(Mutation(self._add_result(self.importer.values[node]), position))
        raise_problems(self.importer.problems)
        function = finish_function(name, self.importer, self.block, self.results)
        signature = Signature(
            arguments=tuple(self.arguments),
            results=tuple(spec_of(r.type) for r in self.results),
            outputs=tuple(self.outputs),
            mutations=tuple(self.mutations),
            in_spec=in_spec,
            out_spec=out_spec,
            inputs=tuple(self.inputs) if in_spec is not None else None,
        )
        return ModuleOp([function]), self.weights, signature


def import_exported_program(program: ExportedProgram, keep: Keep, name: str = "main") -> Imported:
    """Import an exported program as one function; weights are referred to, those that it writes are arguments."""
    signature = program.graph_signature
    function = FunctionImporter(program.graph, keep, program.range_constraints)
    importer = function.importer
    kinds = {spec.arg.name: spec for spec in signature.input_specs}
    # In a functional program, what was written is a result.
    updated = {s.target for s in signature.output_specs if s.kind is OutputKind.BUFFER_MUTATION}

    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        spec = kinds[node.name]
        is_constant = spec.kind is InputKind.CONSTANT_TENSOR
        if is_constant or spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            tensor, target = _state(program, spec), spec.target or node.name
            if not is_constant and (function.written.is_mutable(node) or target in updated):
                function.add_argument(node, node.meta["val"], target, tensor)
            else:
                function.add_weight(node, tensor, target, inline_bytes(node, INLINE_BYTES if is_constant else 0))
        elif spec.kind is not InputKind.USER_INPUT:
            raise CompileError([Diagnostic("import", f"input {node.name!r} of kind {spec.kind.name} is not imported")])
        elif isinstance(spec.arg, ConstantArgument):
            function.add_constant_input(node, spec.arg.value)
        elif isinstance(node.meta["val"], (bool, int, float, str, type(None))):
            function.add_constant_input(node, node.meta["val"])
        else:
            function.add_argument(node, node.meta["val"], node.name)

    raise_problems(importer.problems)
    outputs = importer.import_nodes(program.graph, program.graph_module)
    importer.emitter.location = UNKNOWN
    for value, output in zip(outputs or (), signature.output_specs, strict=True):
        resolved = importer.resolve(value)
        if output.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            function.add_mutation(resolved, output.target)
        else:
            function.add_output(resolved)
    return function.finish(name, program.call_spec.in_spec, program.call_spec.out_spec)


def import_graph_module(graph_module: GraphModule, keep: Keep, name: str = "main") -> Imported:
    """Import a plain FX graph of ATen ops; placeholders need `meta["val"]` (make_fx gives it)."""
    function = FunctionImporter(graph_module.graph, keep)
    importer = function.importer
    for node in graph_module.graph.nodes:
        if node.op != "placeholder":
            continue
        meta = node.meta.get("val", node.meta.get("example_value"))
        if meta is None:
            reason = f"input {node.name!r} has no meta['val'], so its shape and dtype are unknown"
            hint = "Trace the graph with make_fx or torch.export, or run FakeTensorProp over it."
            raise CompileError([Diagnostic("import", reason, hint=hint)])
        function.add_argument(node, meta, node.name)
    raise_problems(importer.problems)
    output = importer.import_nodes(graph_module.graph, graph_module)
    leaves, spec = pytree.tree_flatten(output)
    for leaf in leaves:
        function.add_output(importer.resolve(leaf))
    return function.finish(name, out_spec=spec)


def _state(program: ExportedProgram, spec: Any) -> torch.Tensor:
    target = spec.target
    if target in program.state_dict:
        return program.state_dict[target]
    if target in program.constants:
        return program.constants[target]
    raise CompileError([Diagnostic("import", f"the exported program refers to {target!r} but does not hold it")])
