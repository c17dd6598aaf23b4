"""`torch.export` programs to the torch dialect, imported directly: no retrace, no copy of a weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import GraphModule, Node
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.dialects.torch.types import BOOL, FLOAT, NonValueTensorType, TensorType
from flambeau.frontends.fx.aliasing import analyze
from flambeau.frontends.fx.importer import (
    GraphImporter,
    Problem,
    finish_function,
    raise_problems,
    type_of,
)
from flambeau.ir.locations import UNKNOWN
from flambeau.ir.module import Argument, Mutation, Output, ScalarSpec, Signature, TensorSpec, Weights

Keep = Callable[[str], bool]


def import_exported_program(
    program: ExportedProgram, keep: Keep, name: str = "main"
) -> tuple[ModuleOp, Weights, Signature]:
    """Import an exported program as one function; weights are referred to, buffers that it writes are arguments."""
    graph = program.graph
    weights = Weights()
    block = Block()
    importer = GraphImporter(block, weights, keep, program.range_constraints)
    written = analyze(graph)
    arguments: list[Argument] = []
    inputs: list[int | None] = []
    mutated: list[tuple[Node, int]] = []
    kinds = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    # In a functional program, what was written is a result.
    updated = {s.target for s in program.graph_signature.output_specs if s.kind is OutputKind.BUFFER_MUTATION}

    for node in graph.nodes:
        if node.op != "placeholder":
            continue
        spec = kinds[node.name]
        is_constant = spec.kind is InputKind.CONSTANT_TENSOR
        is_state = is_constant or spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)
        if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, ConstantArgument):
            importer.values[node] = spec.arg.value
            inputs.append(None)
        elif is_state and (is_constant or not (written.is_mutable(node) or spec.target in updated)):
            tensor = _state(program, spec)
            try:
                importer.values[node] = importer.tensor(tensor, spec.target or node.name, inline=is_constant)
            except Problem as problem:
                importer.report(problem, spec.target or node.name)
        elif is_state or spec.kind is InputKind.USER_INPUT:
            meta = node.meta["val"]
            if isinstance(meta, (bool, int, float, str)) or meta is None:
                importer.values[node] = meta
                inputs.append(None)
                continue
            value = _argument(importer, node, meta)
            if value is None:
                continue
            state = None
            if is_state:
                state = importer._resource_name(spec.target or node.name)
                weights.tensors[state] = _state(program, spec)
            else:
                inputs.append(len(arguments))
            if written.is_mutable(node) and isinstance(value.type, TensorType):
                mutated.append((node, len(arguments)))
            arguments.append(Argument(spec.target or node.name if is_state else node.name, _spec(value), state))
        else:
            raise CompileError([Diagnostic("import", f"input {node.name!r} of kind {spec.kind.name} is not imported")])

    raise_problems(importer.problems)
    outputs_of_graph = importer.import_nodes(graph, program.graph_module)
    results: list[SSAValue] = []
    outputs: list[Output] = []
    mutations: list[Mutation] = []
    importer.emitter.location = UNKNOWN
    specs = program.graph_signature.output_specs
    names = [a.name for a in arguments]
    flat = list(outputs_of_graph or ())
    for value, spec in zip(flat, specs, strict=True):
        resolved = importer.resolve(value)
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            target = spec.target if spec.target in names else None
            if target is None:
                raise CompileError([Diagnostic("import", f"the program writes {spec.target!r}, which is not an input")])
            mutations.append(Mutation(_add_result(importer, results, resolved), names.index(target)))
        elif isinstance(resolved, SSAValue):
            outputs.append(Output(_add_result(importer, results, resolved)))
        else:
            outputs.append(Output(None, resolved))
    for node, position in mutated:
        mutations.append(Mutation(_add_result(importer, results, importer.values[node]), position))
    raise_problems(importer.problems)
    function = finish_function(name, importer, block, results)
    signature = Signature(
        arguments=tuple(arguments),
        results=tuple(_spec(r) for r in results),
        outputs=tuple(outputs),
        mutations=tuple(mutations),
        in_spec=program.call_spec.in_spec,
        out_spec=program.call_spec.out_spec,
        inputs=tuple(inputs),
    )
    return ModuleOp([function]), weights, signature


def import_graph_module(
    graph_module: GraphModule, keep: Keep, name: str = "main"
) -> tuple[ModuleOp, Weights, Signature]:
    """Import a plain FX graph of ATen ops; placeholders need `meta["val"]` (make_fx gives it)."""
    graph = graph_module.graph
    weights = Weights()
    block = Block()
    importer = GraphImporter(block, weights, keep)
    written = analyze(graph)
    arguments: list[Argument] = []
    mutated: list[tuple[Node, int]] = []
    for node in graph.nodes:
        if node.op != "placeholder":
            continue
        meta = node.meta.get("val", node.meta.get("example_value"))
        if meta is None:
            raise CompileError(
                [
                    Diagnostic(
                        "import",
                        f"input {node.name!r} has no meta['val'], so its shape and dtype are unknown",
                        hint="Trace the graph with make_fx or torch.export, or run FakeTensorProp over it.",
                    )
                ]
            )
        value = _argument(importer, node, meta)
        if value is None:
            continue
        if written.is_mutable(node):
            mutated.append((node, len(arguments)))
        arguments.append(Argument(node.name, _spec(value)))
    raise_problems(importer.problems)
    output = importer.resolve(importer.import_nodes(graph, graph_module))
    flat = output if isinstance(output, list) else [output]
    results: list[SSAValue] = []
    outputs = [Output(_add_result(importer, results, v)) if isinstance(v, SSAValue) else Output(None, v) for v in flat]
    mutations = [Mutation(_add_result(importer, results, importer.values[n]), at) for n, at in mutated]
    raise_problems(importer.problems)
    function = finish_function(name, importer, block, results)
    signature = Signature(tuple(arguments), tuple(_spec(r) for r in results), tuple(outputs), tuple(mutations))
    return ModuleOp([function]), weights, signature


def _argument(importer: GraphImporter, node: Node, meta: Any) -> SSAValue | None:
    """A new argument of the function for a placeholder; None if it has no type, which is reported."""
    try:
        type_ = type_of(meta)
    except Problem as problem:
        importer.report(problem, node.name)
        return None
    block = importer.emitter.block
    value = block.insert_arg(type_, len(block.args))
    value.name_hint = _hint(node.name)
    importer.values[node] = value
    importer._bind_shape(value, meta)
    return value


def _add_result(importer: GraphImporter, results: list[SSAValue], value: SSAValue) -> int:
    if isinstance(value.type, NonValueTensorType):
        value = importer.read(value)
    results.append(value)
    return len(results) - 1


def _state(program: ExportedProgram, spec: Any) -> torch.Tensor:
    target = spec.target
    if target in program.state_dict:
        return program.state_dict[target]
    if target in program.constants:
        return program.constants[target]
    raise CompileError([Diagnostic("import", f"the exported program refers to {target!r} but does not hold it")])


def _spec(value: SSAValue) -> TensorSpec | ScalarSpec:
    type_ = value.type
    if isinstance(type_, TensorType) and type_.shape is not None and type_.dtype is not None:
        return TensorSpec(type_.shape, type_.dtype)
    return ScalarSpec("bool" if type_ == BOOL else "float" if type_ == FLOAT else "int")


def _hint(name: str) -> str | None:
    return name if name and not name[0].isdigit() else None
