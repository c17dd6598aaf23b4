"""`torch.export` programs and plain FX graphs as functions: no retrace, no copy of a weight."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
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
from flambeau.frontends.fx.aliasing import Aliasing, analyze
from flambeau.frontends.fx.assignments import assigned_buffers, copies_into_buffers
from flambeau.frontends.fx.autocast import Autocast
from flambeau.frontends.fx.dims import DimNames
from flambeau.frontends.fx.guards import emit_guards
from flambeau.frontends.fx.importer import GraphImporter, finish_function, raise_problems
from flambeau.frontends.fx.quantized import inline_bytes
from flambeau.frontends.fx.regions import attribute_of, flattened, without_regions
from flambeau.frontends.fx.state import State, are_one, is_made_of_others, place_in, refusal, sharing, whole_of
from flambeau.frontends.fx.types import Problem, location_of_node, type_of
from flambeau.frontends.tensors import INLINE_BYTES, identity
from flambeau.ir.locations import UNKNOWN
from flambeau.ir.module import Argument, Fixed, Mutation, Output, Signature, Weights
from flambeau.ir.symbolic import Dims

Keep = Callable[[str], bool]
"""Whether an op is left whole, by its name."""

Imported = tuple[ModuleOp, Weights, Signature]


class FunctionImporter:
    """Imports a graph as a function and keeps account of how Python calls it."""

    def __init__(self, graph: Graph, keep: Keep, ranges: Any = None) -> None:
        self.weights = Weights()
        self.block = Block()
        self.names = DimNames(ranges)
        self.importer = GraphImporter(self.block, self.weights, keep, self.names)
        self.conditions: list[str] = []
        self.written = analyze(graph)
        self.arguments: list[Argument] = []
        self.inputs: list[int | None] = []
        self.fixed: list[Fixed] = []
        self.results: list[SSAValue] = []
        self.result_dims: list[Dims] = []
        self.outputs: list[Output] = []
        self.mutations: list[Mutation] = []
        self.written_states: dict[str, int] = {}
        self._inputs: dict[str, int] = {}
        self._input_nodes: dict[Node, int] = {}
        self._mutated: list[tuple[Node | SSAValue, int]] = []

    # --- What comes in ---

    def add_constant_input(self, node: Node, value: Any) -> None:
        """Record an input whose value the program was specialised to; it is checked at the call and is no argument."""
        self.importer.values[node] = value
        self.fixed.append(Fixed(len(self.inputs), node.name, value))
        self.inputs.append(None)

    def add_states(self, states: Sequence[State], updated: Collection[str] = ()) -> None:
        """Add the model's own tensors: as weights if the program only reads them, else as named arguments.

        `updated` are those that a functional program gives a new value as a result.
        """
        weights = {id(state) for state in states}
        if updated or self.written.written:
            for group in sharing(states):
                for state in group[1:]:
                    self.written.join(group[0].node, state.node)
                if self.written.is_mutable(group[0].node) or any(s.name in updated for s in group):
                    weights -= {id(state) for state in group}
                    self._add_written_states(group, updated)
        for state in states:
            if id(state) in weights:
                self._add_weight(state)

    def add_written_attributes(self, graph: Graph, owner: Any) -> None:
        """Add as arguments the tensors that a plain graph takes from its module and writes."""
        if not self.written.written:
            return
        found = [(node, attribute_of(owner, str(node.target))) for node in graph.nodes if node.op == "get_attr"]
        states = [State(n, t, str(n.target), 0) for n, t in found if isinstance(t, torch.Tensor)]
        for group in sharing(states):
            for state in group[1:]:
                self.written.join(group[0].node, state.node)
            if self.written.is_mutable(group[0].node):
                self._add_written_states(group, ())

    def _add_weight(self, state: State) -> None:
        if is_made_of_others(state.tensor):
            self.importer.wrapped[state.node] = state.tensor, state.name
            return
        try:
            self.importer.values[state.node] = self.importer.tensor(state.tensor, state.name, state.inline)
        except Problem as problem:
            self.importer.report(problem, state.name)

    def _add_written_states(self, group: Sequence[State], updated: Collection[str]) -> None:
        """Add one argument for states in one memory, so that a write through one of them is seen through the others."""
        named = next((s for s in group if s.name in updated), group[0])
        is_assigned = any(s.name in updated for s in group)
        if are_one(group) and not (is_assigned and len(group) > 1):
            self.add_argument(named.node, named.node.meta["val"], named.name, named.tensor)
            if named.node not in self.importer.values:
                return
            if self.written.is_mutable(named.node):
                self.importer.note_mutable(named.node, self.written)
            for state in group:
                self.importer.values[state.node] = self.importer.values[named.node]
                self.written_states[state.name] = self.written_states[named.name]
            return
        if is_assigned:
            raise refusal(group, "and gives one of them a new value, which the others do not get")
        whole = whole_of(group)
        self.add_argument(named.node, whole, named.name, whole)
        if named.node not in self.importer.values:
            return
        self.importer.note_mutable(named.node, self.written)
        memory = self.importer.values[named.node]
        self._mutated[-1] = (memory, self._mutated[-1][1])
        for state in group:
            self.written_states[state.name] = self.written_states[named.name]
            self.importer.values[state.node] = self.importer.as_strided(
                memory, state.tensor, place_in(whole, state.tensor)
            )

    def add_argument(self, node: Node, meta: Any, name: str, state: torch.Tensor | None = None) -> None:
        """Add an argument to the function: an input, or a tensor of the model that the program writes."""
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
            self.written_states[name] = len(self.arguments)
        else:
            self.inputs.append(len(self.arguments))
            self._inputs[node.name] = len(self.arguments)
            self._input_nodes[node] = len(self.arguments)
        if self.written.is_mutable(node) and isinstance(type_, TensorType):
            self._mutated.append((node, len(self.arguments)))
        dims = self.names.dims(meta.shape) if state is None and isinstance(meta, torch.Tensor) else ()
        self.arguments.append(Argument(name, spec_of(type_), resource, dims=dims))

    def add_conditions(self, conditions: Iterable[Any]) -> None:
        """Note what must hold of symbolic sizes, beside the range of each."""
        for expr in conditions:
            left, right = expr.args
            if not (left.is_Symbol and right.is_Integer):
                self.conditions.append(self.names.text(expr))

    # --- What goes out ---

    def add_output(self, value: Any) -> None:
        """Record one leaf of the program's return value: a result of the function, or a constant."""
        if isinstance(value, SSAValue):
            self.outputs.append(Output(self._add_result(value)))
        else:
            self.outputs.append(Output(None, value))

    def add_mutation(self, value: SSAValue, target: str | None, of_input: bool) -> None:
        """Add a result that holds the new contents of an argument; CompileError if `target` is not an argument."""
        position = (self._inputs if of_input else self.written_states).get(target or "")
        if position is None:
            raise CompileError([Diagnostic("import", f"the program writes {target!r}, which is not an input")])
        self.mutations.append(Mutation(self._add_result(value), position))

    def add_assignment(self, value: SSAValue, target: str) -> None:
        """Add a result that replaces the model's buffer of that name; CompileError if its shape or dtype differs."""
        position = self.written_states[target]
        old, result = self.arguments[position].spec, self._add_result(value)
        new = spec_of(self.results[result].type)
        if old != new:
            reason = f"forward() assigns a tensor {new} to the buffer {target!r}, which is {old}"
            hint = "A buffer of a compiled program keeps its shape and dtype."
            raise CompileError([Diagnostic("import", reason, hint=hint)])
        # What was written into the old tensor before is not in the new one.
        self._mutated = [(v, p) for v, p in self._mutated if p != position]
        self.mutations.append(Mutation(result, position))

    def _add_result(self, value: SSAValue) -> int:
        self.result_dims.append(self.names.dims(self.importer.shapes.get(value, ())))
        if isinstance(value.type, NonValueTensorType):
            value = self.importer.read(value)
        self.results.append(value)
        return len(self.results) - 1

    def finish(self, name: str, in_spec: Any = None, out_spec: Any = None) -> Imported:
        """Build the module with its signature and weights; raise if anything could not be imported."""
        for written, position in self._mutated:
            value = self.importer.values[written] if isinstance(written, Node) else written
            self.mutations.append(Mutation(self._add_result(value), position))
        self._require_layouts()
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
            fixed=tuple(self.fixed) if in_spec is not None else (),
            symbols=self.names.symbols(a.dims for a in self.arguments),
            result_dims=tuple(self.result_dims),
            conditions=tuple(self.conditions),
        )
        return ModuleOp([function]), self.weights, signature

    def _require_layouts(self) -> None:
        """Note of which inputs it matters how they lie in memory."""
        roots = {self.written.root(node) for node in self.importer.lying}
        for node, position in self._input_nodes.items():
            if self.written.root(node) not in roots:
                continue
            meta: Any = node.meta.get("val", node.meta.get("example_value"))
            if meta.is_contiguous():
                strides: Any = "contiguous"
            elif all(isinstance(n, int) for n in meta.stride()):
                strides = tuple(meta.stride())
            else:
                reason = f"the program writes through a reshape of {node.name!r}, whose strides only the run time knows"
                self.importer.report(Problem(reason, "Call contiguous() on it first."), "reshape")
                continue
            self.arguments[position] = replace(self.arguments[position], strides=strides)


def import_exported_program(
    program: ExportedProgram,
    keep: Keep,
    name: str = "main",
    autocast: Autocast = None,
    shared: Sequence[torch.Tensor] = (),
) -> Imported:
    """Import an exported program as one function; weights are referred to, those that it writes are arguments.

    `autocast` is the region in which the program was exported, of which it does not tell itself. `shared` are tensors
    that other functions of the module write: they are arguments here too.
    """
    signature = program.graph_signature
    copies = copies_into_buffers(program)
    graph, now = flattened(program.graph, program.graph_module, autocast, copies)
    assigned = assigned_buffers(graph) | {name: now[new] for name, new in copies.values()}
    function = FunctionImporter(graph, keep, program.range_constraints)
    importer = function.importer
    kinds = {spec.arg.name: spec for spec in signature.input_specs}
    # In a functional program, what was written is a result.
    updated = {s.target for s in signature.output_specs if s.kind in _STATE_MUTATIONS and s.target is not None}
    updated |= assigned.keys()
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    states = [_state(program, node, kinds[node.name]) for node in placeholders if kinds[node.name].kind in _STATES]
    function.add_states(states, updated | _written_elsewhere(states, shared))
    _refuse_decisions(graph, function.written)
    for node in placeholders:
        spec = kinds[node.name]
        if spec.kind in _STATES:
            continue
        if spec.kind is not InputKind.USER_INPUT:
            raise CompileError([Diagnostic("import", f"input {node.name!r} of kind {spec.kind.name} is not imported")])
        if isinstance(spec.arg, ConstantArgument):
            function.add_constant_input(node, spec.arg.value)
        elif isinstance(node.meta["val"], (bool, int, float, str, type(None))):
            function.add_constant_input(node, node.meta["val"])
        else:
            function.add_argument(node, node.meta["val"], node.name)

    raise_problems(importer.problems)
    function.add_conditions(emit_guards(importer.emitter, placeholders, importer.values, graph.nodes))
    outputs = importer.import_nodes(graph, program.graph_module, function.written)
    importer.emitter.location = UNKNOWN
    for value, output in zip(outputs or (), signature.output_specs, strict=True):
        resolved = importer.resolve(value)
        if output.kind in _STATE_MUTATIONS or output.kind is OutputKind.USER_INPUT_MUTATION:
            function.add_mutation(resolved, output.target, output.kind is OutputKind.USER_INPUT_MUTATION)
        else:
            function.add_output(resolved)
    for target, node in assigned.items():
        function.add_assignment(importer.resolve(node), target)
    return function.finish(name, program.call_spec.in_spec, program.call_spec.out_spec)


def _written_elsewhere(states: Sequence[State], shared: Sequence[torch.Tensor]) -> set[str]:
    """Name the states that are tensors of `shared`; CompileError for one that only has some memory in common."""
    others = {identity(tensor) for tensor in shared}
    mine = {id(s.tensor): s for s in states if identity(s.tensor) in others}
    rest = [s for s in states if id(s.tensor) not in mine]
    for group in sharing([*rest, *(replace(rest[0], tensor=t) for t in shared if rest)]):
        if len(group) > 1 and any(s.tensor is t for s in group for t in shared):
            raise refusal(group, "in another function, and sees it otherwise")
    return {s.name for s in mine.values()}


def _refuse_decisions(graph: Graph, written: Aliasing) -> None:
    """Raise if Python has looked at the value of state that is written: what it did then stands in the graph."""
    made_of: dict[Node, set[Node]] = {}
    for node in graph.nodes if written.written else ():
        if node.op in ("placeholder", "get_attr"):
            made_of[node] = {node} if written.is_mutable(node) else set()
            continue
        made_of[node] = set().union(*(made_of[n] for n in node.all_input_nodes))
        seen = node.meta.get("val")
        if made_of[node] and node.target in _ASKING and not isinstance(seen, _SYMBOLIC):
            state = min(made_of[node], key=lambda n: n.name)
            reason = (
                f"{state.name!r} is written, and Python looks at its value ({seen}): a further call would see another"
            )
            place = location_of_node(node)
            hint = "Decide with torch.where or torch.cond, and compute with the tensor itself."
            raise CompileError([Diagnostic("import", reason, op="item", location=place, hint=hint)])


_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_ASKING = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)


_STATES = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_STATE_MUTATIONS = tuple(kind for kind in OutputKind if kind.name in ("BUFFER_MUTATION", "PARAMETER_MUTATION"))


def import_graph_module(graph_module: GraphModule, keep: Keep, name: str = "main") -> Imported:
    """Import a plain FX graph of ATen ops; placeholders need `meta["val"]` (make_fx gives it)."""
    graph = without_regions(graph_module.graph, graph_module)
    function = FunctionImporter(graph, keep)
    importer = function.importer
    for node in graph.nodes:
        if node.op != "placeholder":
            continue
        meta = node.meta.get("val", node.meta.get("example_value"))
        if meta is None:
            reason = f"input {node.name!r} has no meta['val'], so its shape and dtype are unknown"
            hint = "Trace the graph with make_fx or torch.export, or run FakeTensorProp over it."
            raise CompileError([Diagnostic("import", reason, hint=hint)])
        function.add_argument(node, meta, node.name)
    function.add_written_attributes(graph, graph_module)
    raise_problems(importer.problems)
    output = importer.import_nodes(graph, graph_module, function.written)
    leaves, spec = pytree.tree_flatten(output)
    for leaf in leaves:
        function.add_output(importer.resolve(leaf))
    return function.finish(name, out_spec=spec)


def _state(program: ExportedProgram, node: Node, spec: Any) -> State:
    target = spec.target
    if target in program.state_dict:
        tensor = program.state_dict[target]
    elif target in program.constants:
        tensor = program.constants[target]
    else:
        raise CompileError([Diagnostic("import", f"the exported program refers to {target!r} but does not hold it")])
    inline = INLINE_BYTES if spec.kind is InputKind.CONSTANT_TENSOR else 0
    return State(node, tensor, target or node.name, inline_bytes(node, inline))
