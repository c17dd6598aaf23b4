"""FX graphs to the torch dialect: one walk over the nodes, every op by its schema."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch._ops import HigherOrderOperator
from torch.fx import Graph, Node
from xdsl.dialects import func
from xdsl.dialects.builtin import DenseResourceAttr, FunctionType
from xdsl.ir import Attribute, Block, Region, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.dialects.torch.emitter import TorchEmitter
from flambeau.dialects.torch.ops import CopyToNonValueTensorOp, CopyToValueTensorOp
from flambeau.dialects.torch.types import NonValueTensorType, TensorType, VTensorType, to_non_value, to_value
from flambeau.frontends.fx.aliasing import Aliasing, analyze, op_name
from flambeau.frontends.fx.arithmetic import emit_arithmetic, emit_choice, is_arithmetic
from flambeau.frontends.fx.control_flow import HIGHER_ORDER, import_definition
from flambeau.frontends.fx.dims import DimNames
from flambeau.frontends.fx.guards import is_of_definition
from flambeau.frontends.fx.operators import import_operator
from flambeau.frontends.fx.quantized import inline_bytes
from flambeau.frontends.fx.regions import attribute_of
from flambeau.frontends.fx.state import is_made_of_others
from flambeau.frontends.fx.symbols import Symbols
from flambeau.frontends.fx.types import Problem, location_of_node, type_of
from flambeau.frontends.tensors import INLINE_BYTES, TensorTable
from flambeau.ir.module import Weights

_INTEGERS = (bool, int, torch.SymBool, torch.SymInt)


class GraphImporter:
    """Imports one FX graph as a function body."""

    def __init__(
        self,
        block: Block,
        weights: Weights,
        keep: Callable[[str], bool],
        names: DimNames | None = None,
    ) -> None:
        self.emitter = TorchEmitter(block)
        self.symbols = Symbols(self.emitter, names or DimNames())
        self.tensors = TensorTable(weights)
        self.keep = keep
        self.values: dict[Node, Any] = {}
        self.aliasing = Aliasing()
        self.written_outside: Sequence[Node] = ()
        """Nodes that are written behind the graph: it is an op of another, which is expanded."""
        self.problems: list[Diagnostic] = []
        self.lying: set[Node] = set()
        """Nodes that somebody writes, or a copy of which, as they lie in memory."""
        self.wrapped: dict[Node, tuple[torch.Tensor, str]] = {}
        """Weights that are tensors made of others (quantised ones, say), with their names."""
        self._literals: dict[Attribute, SSAValue] = {}
        self.shapes: dict[SSAValue, Any] = {}
        """The symbolic shapes of tensors, mutable ones too."""

    # --- Walking ---

    def import_nodes(
        self, graph: Graph, owner: Any, aliasing: Aliasing | None = None, written_outside: Sequence[Node] = ()
    ) -> Any:
        """Import all nodes but placeholders, which the caller has bound; gives the graph's output."""
        outer = self.aliasing, self.written_outside
        self.aliasing, self.written_outside = aliasing or analyze(graph), written_outside
        try:
            for node in graph.nodes:
                if node.op == "placeholder":
                    self.note_mutable(node, self.aliasing)
                elif node.op == "output":
                    return node.args[0]
                else:
                    self.import_node(node, owner)
            return None
        finally:
            self.aliasing, self.written_outside = outer

    def note_mutable(self, node: Node, aliasing: Aliasing) -> None:
        """Make the value of a node one that can be written, if somebody writes it."""
        value = self.values.get(node)
        if isinstance(value, SSAValue) and isinstance(value.type, VTensorType) and aliasing.is_mutable(node):
            self.values[node] = self.mutable(value)

    def as_strided(self, memory: SSAValue, tensor: torch.Tensor, place: tuple[list[int], list[int], int]) -> SSAValue:
        """Emit `aten.as_strided` for a tensor that is a view of memory that it shares with others."""
        sizes, strides, offset = place
        emitter = self.emitter
        operands = (memory, emitter.ints(sizes), emitter.ints(strides), emitter.constant(offset))
        return emitter.op("aten.as_strided", operands, [type_of(tensor, value_semantics=False)])[0]

    def import_node(self, node: Node, owner: Any) -> None:
        self.emitter.location = location_of_node(node)
        try:
            if node.op == "get_attr":
                if node not in self.values:  # It is there if it is state.
                    self.values[node] = self._attribute(owner, str(node.target), inline_bytes(node))
                    self.note_mutable(node, self.aliasing)
            elif node.op == "call_function":
                self._call_function(node, owner)
            else:
                raise Problem(
                    f"FX node kind {node.op!r} is not imported",
                    "Export the model with torch.export, or trace it with make_fx, so that it calls ATen ops only.",
                )
        except Problem as problem:
            self.report(problem, _target_name(node))
            self.values[node] = self.placeholder(node)

    def report(self, problem: Problem, name: str) -> None:
        """Keep a problem for the end of the import."""
        place = self.emitter.location
        self.problems.append(Diagnostic("import", problem.reason, op=name, location=place, hint=problem.hint))

    def placeholder(self, node: Node) -> Any:
        """Make values of the types of a node that could not be imported, so that the walk finds further problems."""
        return _map_meta(node.meta.get("val"), lambda t: self._unknown(t))

    def _unknown(self, meta: Any) -> SSAValue | None:
        try:
            type_ = type_of(meta)
        except Problem:
            return None
        return self.emitter.op("aten.empty.memory_format", [self.emitter.constant(None)] * 6, [type_])[0]

    def _call_function(self, node: Node, owner: Any) -> None:
        target = node.target
        if target is operator.getitem:
            source, index = node.args[0], cast(Any, node.args[1])
            parts = self.resolve(source)
            # Without parts, the source was a problem.
            self.values[node] = parts[index] if isinstance(parts, (list, dict)) else self.placeholder(node)
            return
        if hasattr(target, "_schema"):
            if is_of_definition(node):
                self.values[node] = None
            elif op_name(target) == "export.access_subclass_inner_tensor":
                self._inner_tensor(node)
            else:
                import_operator(self, node, target)
            return
        if is_arithmetic(target):
            self.values[node] = emit_arithmetic(self.emitter, target, [self.resolve(a) for a in node.args])
            return
        name = getattr(target, "__name__", str(target))
        if target is getattr(torch, "sym_sum", None):
            (terms,) = node.args
            total: Any = 0
            for term in self.resolve(terms):
                total = emit_arithmetic(self.emitter, operator.add, [total, term])
            self.values[node] = total
            return
        if target is getattr(torch, "sym_ite", None):
            if not all(
                isinstance(part.meta["val"] if isinstance(part, Node) else part, _INTEGERS) for part in node.args[1:]
            ):
                raise Problem("a choice between symbolic numbers that are no integers is not imported", "")
            self.values[node] = emit_choice(self.emitter, *(self.resolve(a) for a in node.args))
            return
        if name in HIGHER_ORDER:
            HIGHER_ORDER[name](self, node, owner)
            return
        if isinstance(target, HigherOrderOperator):
            import_definition(self, node, owner)
            return
        raise Problem(
            f"{name} is not an ATen op",
            "If it is a custom op, register it with torch.library and give a decomposition.",
        )

    def _inner_tensor(self, node: Node) -> None:
        """Import one of the tensors that a weight is made of: `weight.qdata`, `weight.scale`."""
        source, attribute = node.args
        if source not in self.wrapped:
            reason = f"{source} is a tensor made of others, and no weight of the model"
            raise Problem(reason, "Give the program plain tensors, or make it a parameter or buffer.")
        outer, name = self.wrapped[cast(Node, source)]
        inner, path = getattr(outer, str(attribute)), f"{name}.{attribute}"
        if is_made_of_others(inner):
            self.wrapped[node] = inner, path
        else:
            self.values[node] = self.tensor(inner, path)

    @contextmanager
    def inside(self, block: Block) -> Iterator[None]:
        outer = self.emitter.block
        self.emitter.block = block
        try:
            yield
        finally:
            self.emitter.block = outer

    # --- Values ---

    def resolve(self, value: Any) -> Any:
        """Replace the nodes in FX arguments by the SSA values or constants that they were imported as."""
        if isinstance(value, Node):
            return self.values[value]
        if isinstance(value, (list, tuple)):
            return [self.resolve(v) for v in value]
        if isinstance(value, dict):
            return {k: self.resolve(v) for k, v in value.items()}
        return value

    def operand(self, value: Any) -> SSAValue:
        """Materialise a resolved scalar: an SSA value as it is, a Python number as a constant op."""
        return value if isinstance(value, SSAValue) else self.emitter.constant(value)

    def _attribute(self, owner: Any, target: str, inline: int) -> Any:
        found = attribute_of(owner, target)
        if isinstance(found, torch.Tensor):
            return self.tensor(found, target, inline)
        return found

    def tensor(self, tensor: torch.Tensor, name: str, inline: int = INLINE_BYTES) -> SSAValue:
        """Emit a literal for a tensor: `dense` in the text when it is small, else one resource for each storage."""
        value, dtype = self.tensors.contents(tensor, name, inline)
        shape = [int(d) for d in tensor.shape]
        if not isinstance(value, DenseResourceAttr):
            return self.emitter.literal(value, dtype, shape)
        if value not in self._literals:
            self._literals[value] = self.emitter.literal(value, dtype, shape)
        return self._literals[value]

    def mutable(self, value: SSAValue) -> SSAValue:
        """Copy a value tensor to a mutable one (`!torch.tensor`); a mutable tensor is returned as it is."""
        if not isinstance(value.type, VTensorType):
            return value
        result = self.emitter.value(CopyToNonValueTensorOp, (value,), to_non_value(value.type))
        if value in self.shapes:
            self.shapes[result] = self.shapes[value]
        return result

    def bind_shape(self, value: SSAValue, meta: Any) -> None:
        type_ = value.type
        if not isinstance(type_, TensorType) or type_.shape is None or None not in type_.shape:
            return
        self.shapes[value] = meta.shape
        if isinstance(type_, VTensorType):
            self.symbols.bind(value, meta.shape)

    def value(self, value: SSAValue) -> SSAValue:
        """Read a mutable tensor's contents at this point as a value; return other values as they are."""
        return self.read(value) if isinstance(value.type, NonValueTensorType) else value

    def read(self, value: SSAValue) -> SSAValue:
        """Copy a mutable tensor's contents at this point to a value tensor (`!torch.vtensor`)."""
        result = self.emitter.value(CopyToValueTensorOp, (value,), to_value(value.type))
        if value in self.shapes:
            self.symbols.bind(result, self.shapes[value])
        return result


def _map_meta(meta: Any, f: Callable[[Any], Any]) -> Any:
    if isinstance(meta, torch.Tensor):
        return f(meta)
    return [_map_meta(m, f) for m in meta] if isinstance(meta, (list, tuple)) else meta


def _target_name(node: Node) -> str:
    target = node.target
    return op_name(target) if hasattr(target, "_schema") else getattr(target, "__name__", str(target))


def finish_function(name: str, importer: GraphImporter, block: Block, results: Sequence[SSAValue]) -> func.FuncOp:
    """Close a function body with its return."""
    importer.emitter.emit(func.ReturnOp, results, ())
    type_ = FunctionType.from_lists([a.type for a in block.args], [r.type for r in results])
    return func.FuncOp(name, type_, Region(block))


def raise_problems(problems: Sequence[Diagnostic]) -> None:
    if problems:
        ops = ", ".join(sorted({p.op for p in problems}))
        raise CompileError(problems, summary=f"cannot import the program: {len(problems)} not supported ({ops})")
