"""FX graphs to the torch dialect: one walk over the nodes, every op by its schema."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Node
from xdsl.dialects import func
from xdsl.dialects.builtin import DenseResourceAttr, FunctionType
from xdsl.ir import Attribute, Block, Region, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.dialects.torch import registry
from flambeau.dialects.torch.emitter import Device, TorchEmitter
from flambeau.dialects.torch.ops import (
    CopyToNonValueTensorOp,
    CopyToValueTensorOp,
    IfOp,
    IfYieldOp,
    ListUnpackOp,
    LoopConditionOp,
    LoopOp,
    StaticInfoCastOp,
)
from flambeau.dialects.torch.schema import Argument, Schema
from flambeau.dialects.torch.types import (
    BOOL,
    DEVICE,
    FLOAT,
    GENERATOR,
    INT,
    NUMBER,
    STR,
    NonValueTensorType,
    TensorType,
    VTensorType,
    list_of,
    to_non_value,
    to_value,
    vtensor,
)
from flambeau.frontends.fx.aliasing import (
    DEPEND_ON_STRIDES,
    HARMLESS,
    PERHAPS_VIEWS,
    RESHAPING,
    UNSAFE_VIEWS,
    Aliasing,
    analyze,
    gives_back,
    is_view,
    is_written_later,
    op_name,
    overlaps,
    statistics_of,
    updates_statistics,
)
from flambeau.frontends.fx.arithmetic import emit_arithmetic, is_arithmetic
from flambeau.frontends.fx.autocast import Autocast, autocast_of, call_in_region, under_autocast
from flambeau.frontends.fx.expansion import IN_TRAINING, expand, kernel_of, trace
from flambeau.frontends.fx.guards import emit_rank_guards, emit_view_guards
from flambeau.frontends.fx.quantized import inline_bytes
from flambeau.frontends.fx.regions import attribute_of, without_regions
from flambeau.frontends.fx.schemas import (
    SEVERAL_VIEWS,
    bind,
    first_argument,
    foreign_schema,
    without_out,
    writes_results,
)
from flambeau.frontends.fx.shape_changes import refuse_shape_change
from flambeau.frontends.fx.strided import SCATTERED, STRIDED, require_order, strided_arguments
from flambeau.frontends.fx.symbols import Symbols
from flambeau.frontends.fx.types import (
    Problem,
    join_types,
    known_number,
    list_element_type,
    location_of_node,
    type_of,
)
from flambeau.frontends.fx.view_or_copy import deciding_dims, layout_sources, makes_difference
from flambeau.frontends.tensors import INLINE_BYTES, TensorTable
from flambeau.ir import dtypes
from flambeau.ir.module import Weights

# Ops that state facts which held when the program was exported. They compute nothing.
_FACTS = frozenset({
    "aten._assert_tensor_metadata", "aten.sym_constrain_range", "aten.sym_constrain_range_for_size",
    "aten._functional_assert_async.msg", "aten._assert_async", "aten._assert_async.msg",
})  # fmt: skip


class GraphImporter:
    """Imports one FX graph as a function body."""

    def __init__(
        self,
        block: Block,
        weights: Weights,
        keep: Callable[[str], bool],
        ranges: Mapping[Any, Any] | None = None,
    ) -> None:
        self.emitter = TorchEmitter(block)
        self.symbols = Symbols(self.emitter, ranges)
        self.tensors = TensorTable(weights)
        self.keep = keep
        self.values: dict[Node, Any] = {}
        self.aliasing = Aliasing()
        self.written_outside: Sequence[Node] = ()
        """Nodes that are written behind the graph: it is an op of another, which is expanded."""
        self.problems: list[Diagnostic] = []
        self.lying: set[Node] = set()
        """Nodes that somebody writes, or a copy of which, as they lie in memory."""
        self._literals: dict[Attribute, SSAValue] = {}
        self._shapes: dict[SSAValue, Any] = {}

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
            self.values[node] = self._mutable(value)

    def as_strided(self, memory: SSAValue, tensor: torch.Tensor, place: tuple[list[int], list[int], int]) -> SSAValue:
        """A tensor as a view of memory that it shares with others."""
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
            self.values[node] = self._placeholder(node)

    def report(self, problem: Problem, name: str) -> None:
        """Keep a problem for the end of the import."""
        place = self.emitter.location
        self.problems.append(Diagnostic("import", problem.reason, op=name, location=place, hint=problem.hint))

    def _placeholder(self, node: Node) -> Any:
        """Some value in place of a node that could not be imported, so that the walk finds further problems."""
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
            self.values[node] = parts[index] if isinstance(parts, (list, dict)) else self._placeholder(node)
            return
        if hasattr(target, "_schema"):
            self._call_operator(node, target)
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
            raise Problem("a conditional on symbolic sizes is not imported yet", "")
        if name == "cond":
            self._cond(node, owner)
            return
        if name == "while_loop":
            self._while_loop(node, owner)
            return
        raise Problem(
            f"{name} is not an ATen op",
            "If it is a custom op, register it with torch.library and give a decomposition; "
            "if it is a higher-order op, it is not imported yet.",
        )

    # --- Branches and loops ---

    def _cond(self, node: Node, owner: Any) -> None:
        """`torch.cond` as a branch."""
        flag, *branches, operands = node.args
        arguments = self.resolve(operands)
        regions = []
        for branch in branches:
            block = Block()
            results = self._in_region(block, owner, branch, arguments, autocast_of(node))
            with self._inside(block):
                self.emitter.emit(IfYieldOp, results)
            regions.append(Region(block))
        types = [type_of(m) for m in _metas(node)]
        for region in regions:
            end = region.block.last_op
            assert end is not None
            with self._inside(region.block):
                self.emitter.before = end
                end.operands = [self._as(v, t) for v, t in zip(end.operands, types, strict=True)]
                self.emitter.before = None
        op = self.emitter.emit(IfOp, (self._flag(self.resolve(flag)),), types, regions=regions)
        self.values[node] = self._bound(node, op.results)

    def _while_loop(self, node: Node, owner: Any) -> None:
        """`torch.while_loop` as a loop that goes on while its condition holds."""
        condition, body, carried, extra = (*node.args, ())[:4]
        first, more = _map_values(self.resolve(carried), self.value), _map_values(self.resolve(extra), self.value)
        types = [type_of(m) for m in _metas(node)]
        inits = [self._as(v, t) for v, t in zip(first, types, strict=True)]
        autocast = autocast_of(node)
        (going,) = self._import_body(owner, condition, [*inits, *more], autocast)
        start = self._flag(going)
        block = Block(arg_types=[INT, *types])
        nexts = self._in_region(block, owner, body, [*block.args[1:], *more], autocast)
        with self._inside(block):
            nexts = [self._as(v, t) for v, t in zip(nexts, types, strict=True)]
            (going,) = self._import_body(owner, condition, [*nexts, *more], autocast)
            self.emitter.emit(LoopConditionOp, (self._flag(going), *nexts))
        trip = self.emitter.constant((1 << 63) - 1)
        op = self.emitter.emit(LoopOp, (trip, start, *inits), types, regions=[Region(block)])
        self.values[node] = self._bound(node, op.results)

    def _in_region(
        self, block: Block, owner: Any, body: Any, arguments: Sequence[Any], autocast: Autocast
    ) -> list[SSAValue]:
        with self._inside(block):
            return [self.operand(v) for v in self._import_body(owner, body, arguments, autocast)]

    def _import_body(self, owner: Any, body: Any, arguments: Sequence[Any], autocast: Autocast) -> list[Any]:
        """Import a graph where the emitter stands; gives its outputs."""
        module = attribute_of(owner, str(body.target))
        graph = without_regions(module.graph, module, autocast)
        aliasing = analyze(graph)
        for node in graph.nodes:
            if node.op in ("placeholder", "get_attr") and aliasing.is_mutable(node):
                raise Problem(
                    f"a branch or the body of a loop writes to {node.name!r}, which is not its own",
                    "Return the new value and write it outside, or clone() before writing.",
                )
        inner = [n for n in graph.nodes if n.op == "placeholder"]
        for placeholder, value in zip(inner, arguments, strict=True):
            # The body sees what is there when it is entered.
            self.values[placeholder] = _map_values(value, self.value)
        location = self.emitter.location
        results = self.resolve(self.import_nodes(graph, module, aliasing))
        self.emitter.location = location
        found = _map_values(results, self.value)
        return found if isinstance(found, list) else [found]

    @contextmanager
    def _inside(self, block: Block) -> Iterator[None]:
        outer = self.emitter.block
        self.emitter.block = block
        try:
            yield
        finally:
            self.emitter.block = outer

    def _flag(self, value: Any) -> SSAValue:
        """A condition as a bool; it may be a tensor."""
        value = self.operand(value)
        return (
            self.emitter.op("aten.Bool.Tensor", (value,), (BOOL,))[0] if isinstance(value.type, TensorType) else value
        )

    def _as(self, value: SSAValue, type_: Attribute) -> SSAValue:
        return value if value.type == type_ else self.emitter.value(StaticInfoCastOp, (value,), type_)

    def _bound(self, node: Node, results: Sequence[SSAValue]) -> list[SSAValue]:
        for value, meta in zip(results, _metas(node), strict=True):
            self.bind_shape(value, meta)
        return list(results)

    # --- Values ---

    def resolve(self, value: Any) -> Any:
        """FX arguments with nodes replaced by what they were imported as."""
        if isinstance(value, Node):
            return self.values[value]
        if isinstance(value, (list, tuple)):
            return [self.resolve(v) for v in value]
        if isinstance(value, dict):
            return {k: self.resolve(v) for k, v in value.items()}
        return value

    def operand(self, value: Any) -> SSAValue:
        """A resolved scalar as an SSA value."""
        return value if isinstance(value, SSAValue) else self.emitter.constant(value)

    def _attribute(self, owner: Any, target: str, inline: int) -> Any:
        found = attribute_of(owner, target)
        if isinstance(found, torch.Tensor):
            return self.tensor(found, target, inline)
        return found

    def tensor(self, tensor: torch.Tensor, name: str, inline: int = INLINE_BYTES) -> SSAValue:
        """A literal for a tensor of the program: in the text when small, else one resource for each storage."""
        value, dtype = self.tensors.contents(tensor, name, inline)
        shape = [int(d) for d in tensor.shape]
        if not isinstance(value, DenseResourceAttr):
            return self.emitter.literal(value, dtype, shape)
        if value not in self._literals:
            self._literals[value] = self.emitter.literal(value, dtype, shape)
        return self._literals[value]

    # --- Ops ---

    def _call_operator(self, node: Node, target: Any) -> None:
        name = op_name(target)
        if name in _FACTS:
            self.values[node] = None
            return
        if name in HARMLESS:
            self.values[node] = self.resolve(node.args[0])
            return
        refuse_shape_change(node, name)
        name = RESHAPING.get(name, name)
        if self.aliasing.is_mutable(node):
            name = UNSAFE_VIEWS.get(name, name)
        if name == "aten.sym_size.int":
            name = "aten.size.int"
        elif name == "aten.sym_numel":
            name = "aten.numel"
        schema = registry.schema(name)
        given = bind(schema, node) if schema is not None else None
        if schema is None or given is None:
            schema, given = foreign_schema(name, target, node)
        schema, given = registry.scalar_twin(schema, given)
        name = schema.name
        if name in STRIDED:
            given = strided_arguments(node, given, self.values, self.emitter, self.aliasing.is_mutable(node))
        elif name in SCATTERED:
            require_order(given[0])
        if updates_statistics(schema, node):
            self._norm_in_training(schema, node)
            return
        if writes_results(schema):
            self._write_results(schema, node, target)
            return
        if schema.is_mutable and (kernel := kernel_of(target)) is not None:
            # Nobody knows what it writes but its own kernel.
            inner = trace(node, under_autocast(autocast_of(node), kernel))
            if inner is None:
                raise Problem("its kernel looks at the values of tensors", "Write it with ops of PyTorch.")
            self._inline_expansion(node, *inner, aliased=True)
            return
        if autocast_of(node) is not None:
            inner = trace(node, call_in_region(node))
            if inner is None:
                raise Problem(
                    "it looks at the values of tensors, and what autocast does inside of it is not known",
                    "Call it in a region of its own: with torch.autocast('cpu', enabled=False).",
                )
            self._inline_expansion(node, *inner)
            return
        mutable = self.aliasing.is_mutable(node)
        if mutable and name in STRIDED:
            self.lying.add(first_argument(node))
        shares = mutable
        if name in DEPEND_ON_STRIDES and self.aliasing.written:
            shares = self._require_same_view(name, node) and mutable  # What nobody tells from a copy can be one.
        of_view = shares and not schema.is_mutable and self._is_perhaps_view(schema, node)
        # What is given back as it is can as well be a copy, if nobody writes to it any more.
        of_view = of_view and (schema.is_view or is_written_later(node, self.aliasing))
        if of_view and self._as_view(node):
            return
        if of_view and name == "aten.reshape":
            name = "aten.view"  # Which says that it shares storage.
        if name.startswith("aten.squeeze"):
            emit_rank_guards(self.emitter, node, self.resolve(node.args[0]))
        aliased = of_view or (shares and schema.is_view and is_view(node, first_argument(node)))
        hidden = of_view and not schema.is_view
        # The dialect has no complex numbers for arguments; PyTorch's decompositions make tensors of them.
        numbers = [v for a, v in zip(schema.arguments, given, strict=True) if not a.type.is_tensor]
        is_taken = self.keep(name) and not any(isinstance(number, complex) for number in numbers)
        if not schema.is_mutable and (not is_taken or hidden or (mutable and name in SEVERAL_VIEWS)):
            expanded = expand(node, target)
            if hidden and expanded is None:
                raise Problem("it gives its argument back, and somebody writes to it", "clone() its result.")
            if expanded is not None:
                self._inline_expansion(node, *expanded, aliased=aliased)
                if "output_mask" in schema.index:  # Some decompositions compute what was not asked for.
                    mask = given[schema.index["output_mask"]]
                    self.values[node] = [v if m else None for v, m in zip(self.values[node], mask, strict=True)]
                return
        is_alias = schema.is_mutable or aliased
        written = [v for a, v in zip(schema.arguments, given, strict=True) if a.alias is not None and a.alias.is_write]
        operands = [
            self._argument(argument, self.resolve(value), is_alias and not overlaps(value, written, self.aliasing))
            for argument, value in zip(schema.arguments, given, strict=True)
        ]
        if schema.is_mutable:
            operands = [self._mutable(o) for o in operands]
        self.values[node] = self._results(node, name, schema, operands, is_alias)
        if op_name(target) in RESHAPING and isinstance(node.args[0], Node):
            self.values[node.args[0]] = self.values[node]

    def _require_same_view(self, name: str, node: Node) -> bool:
        """Note that an op must give a view at run time if it did so where it was traced, and a copy if it did not.

        Gives whether that makes a difference.
        """
        source = first_argument(node)
        if not makes_difference(node, source, self.aliasing, self.written_outside):
            return False
        self.lying |= layout_sources(source)
        emit_view_guards(self.emitter, name, self.resolve(source), deciding_dims(node, source))
        return True

    def _is_perhaps_view(self, schema: Schema, node: Node) -> bool:
        """Whether an op that need not give a view does so here."""
        if schema.name in PERHAPS_VIEWS:
            return is_view(node, first_argument(node))
        if schema.is_view or not any(gives_back(schema, node, n) for n in node.all_input_nodes):
            return False
        if node.all_input_nodes != [node.args[0]] or not isinstance(node.meta.get("val"), torch.Tensor):
            raise Problem("it gives a part of its arguments back, and somebody writes to it", "clone() its result.")
        return True

    def _as_view(self, node: Node) -> bool:
        """Import an op that turns out to give a view (a `reshape`, a `to` of the same dtype) as one that is."""
        source = self.resolve(node.args[0])
        old, new = node.args[0].meta["val"], node.meta["val"]  # type: ignore[union-attr]
        if old.shape == new.shape and old.stride() == new.stride():
            self.values[node] = source
            return True
        if not all(isinstance(d, int) for d in new.shape):
            return False
        if old.numel() != new.numel() or (old.is_contiguous() and not new.is_contiguous()):
            raise Problem("it gives a part of its argument back, and somebody writes to it", "clone() its result.")
        operands = (self._mutable(source), self.emitter.ints([int(d) for d in new.shape]))
        self.values[node] = self.emitter.op("aten.view", operands, [type_of(new, value_semantics=False)])[0]
        return True

    def _write_results(self, schema: Schema, node: Node, target: Any) -> None:
        """`torch.add(x, y, out=z)`: compute, and write what comes out where it is wanted."""
        written = [a.name for a in schema.arguments if a.alias is not None and a.alias.is_write]
        expanded = trace(node, lambda *args, **kwargs: without_out(target, written)(*args, **kwargs))
        if expanded is None:
            raise Problem("an op with `out` whose input types are unknown", "Trace the graph with torch.export.")
        self._inline_expansion(node, *expanded)
        results = self.values[node] if isinstance(self.values[node], list) else [self.values[node]]
        places = []
        for name, result in zip(written, results, strict=True):
            place = self._mutable(self.resolve(node.kwargs[name]))
            result = self.value(result)
            shapes = [str(self._shapes.get(v, v.type.shape)) for v in (place, result)]  # type: ignore[attr-defined]
            if place.type.shape != result.type.shape or shapes[0] != shapes[1]:  # type: ignore[attr-defined]
                raise Problem("`out` does not have the shape of the result", "Give it one of the right shape.")
            self.emitter.op("aten.copy_", [place, result, self.emitter.constant(False)], [place.type])
            places.append(place)
        self.values[node] = places[0] if len(places) == 1 else places

    def _norm_in_training(self, schema: Schema, node: Node) -> None:
        expanded = trace(node, IN_TRAINING[schema.name])
        if expanded is None:
            raise Problem("a norm whose input types are unknown", "Trace the graph with torch.export.")
        self._inline_expansion(node, *expanded)
        count = len(schema.returns)
        results, statistics = self.values[node][:count], self.values[node][count:]
        for written, new in zip(statistics_of(schema, node), statistics):
            old = self.resolve(written)
            self.emitter.op("aten.copy_", [old, self._mutable(new), self.emitter.constant(False)], [old.type])
        self.values[node] = results if count > 1 else results[0]

    def _mutable(self, value: SSAValue) -> SSAValue:
        if not isinstance(value.type, VTensorType):
            return value
        result = self.emitter.value(CopyToNonValueTensorOp, (value,), to_non_value(value.type))
        if value in self._shapes:
            self._shapes[result] = self._shapes[value]
        return result

    def _results(self, node: Node, name: str, schema: Schema, operands: Sequence[SSAValue], is_alias: bool) -> Any:
        meta = node.meta.get("val")
        returns = schema.returns
        if not returns:
            self.emitter.op(name, operands, ())
            return None
        metas = meta if len(returns) > 1 and isinstance(meta, (list, tuple)) else [meta]
        types: list[Attribute] = []
        for declared, m in zip(returns, metas, strict=True):
            if declared.type.is_list:
                elements = [type_of(e, not is_alias) for e in m]
                types.append(list_of(join_types(elements)))
            else:
                types.append(self._scalar_or_tensor_type(declared, m, is_alias))
        results = list(self.emitter.op(name, operands, types))
        out: list[Any] = []
        for declared, m, result in zip(returns, metas, results, strict=True):
            if declared.type.is_list:
                unpacked = self.emitter.emit(ListUnpackOp, (result,), [type_of(e, not is_alias) for e in m])
                for value, e in zip(unpacked.results, m, strict=True):
                    self.bind_shape(value, e)
                out.append(list(unpacked.results))
            else:
                self.bind_shape(result, m)
                out.append(None if m is None and declared.type.is_tensor else result)
        final = out[0] if len(returns) == 1 else out
        if self.aliasing.is_mutable(node) and not is_alias:
            final = _map_values(final, self._mutable)
        return final

    def _scalar_or_tensor_type(self, declared: Argument, meta: Any, is_alias: bool) -> Attribute:
        if declared.type.is_tensor:
            if meta is None:
                return vtensor()
            return type_of(meta, not is_alias)
        if declared.type.base == "Scalar":
            return FLOAT if isinstance(meta, (float, torch.SymFloat)) else INT
        return {"int": INT, "float": FLOAT, "bool": BOOL, "str": STR, "Device": DEVICE}.get(declared.type.base, NUMBER)

    def bind_shape(self, value: SSAValue, meta: Any) -> None:
        type_ = value.type
        if not isinstance(type_, TensorType) or type_.shape is None or None not in type_.shape:
            return
        self._shapes[value] = meta.shape
        if isinstance(type_, VTensorType):
            self.symbols.bind(value, meta.shape)

    def value(self, value: SSAValue) -> SSAValue:
        """The contents at this point of a tensor that may be mutable; other values as they are."""
        return self.read(value) if isinstance(value.type, NonValueTensorType) else value

    def read(self, value: SSAValue) -> SSAValue:
        """The contents of a mutable tensor at this point."""
        result = self.emitter.value(CopyToValueTensorOp, (value,), to_value(value.type))
        if value in self._shapes:
            self.symbols.bind(result, self._shapes[value])
        return result

    def _argument(self, argument: Argument, value: Any, keep_mutable: bool) -> SSAValue:
        t = argument.type
        if value is None:
            return self.emitter.constant(None)
        if t.is_list:
            if not isinstance(value, (list, tuple)):
                value = [value] * (t.size or 1)
            return self._list(argument, list(value), keep_mutable)
        return self._scalar(t.base, value, keep_mutable)

    def _scalar(self, base: str, value: Any, keep_mutable: bool) -> SSAValue:
        if isinstance(value, SSAValue):
            if isinstance(value.type, NonValueTensorType) and not keep_mutable:
                return self.read(value)
            return value
        if base == "Tensor":
            return self._number_as_tensor(value)
        if isinstance(value, torch.dtype):
            dtype = dtypes.from_torch(value)
            if dtype is None:
                raise Problem(f"dtype {value} has no MLIR type", "Use a standard dtype.")
            return self.emitter.constant(dtype)
        if isinstance(value, torch.layout):
            return self.emitter.constant(0)
        if isinstance(value, torch.memory_format):
            return self.emitter.constant(_MEMORY_FORMATS.get(value, 0))
        if isinstance(value, torch.device):
            return self.emitter.constant(Device(str(value)))
        if isinstance(value, complex):
            raise Problem("a complex number as an argument is not imported", "Use a complex tensor instead.")
        if isinstance(value, (torch.SymBool, torch.SymInt, torch.SymFloat)):
            value = known_number(value)
        if base == "float" and isinstance(value, int):
            value = float(value)
        return self.emitter.constant(value)

    def _number_as_tensor(self, value: Any) -> SSAValue:
        tensor = torch.tensor(value)
        return self.tensor(tensor, "_number")

    def _list(self, argument: Argument, values: list[Any], keep_mutable: bool) -> SSAValue:
        t = argument.type
        if t.is_tensor:
            elements = [self._argument_element(v, keep_mutable) for v in values]
            types = [e.type for e in elements]
            return self.emitter.list(elements, list_element_type(types, t.elements_optional))
        element_type = {"int": INT, "float": FLOAT, "bool": BOOL, "str": STR, "Scalar": NUMBER, "Generator": GENERATOR}
        return self.emitter.list([self._scalar(t.base, v, keep_mutable) for v in values], element_type.get(t.base, INT))

    def _argument_element(self, value: Any, keep_mutable: bool) -> SSAValue:
        return self.emitter.constant(None) if value is None else self._scalar("Tensor", value, keep_mutable)

    def _inline_expansion(
        self, node: Node, graph_module: GraphModule, arguments: Sequence[Any], aliased: bool = False
    ) -> None:
        """Import PyTorch's own decomposition of a node in its place; `aliased` if it is a view that is written."""
        placeholders = [n for n in graph_module.graph.nodes if n.op == "placeholder"]
        for placeholder, argument in zip(placeholders, arguments, strict=True):
            value = self.resolve(argument)
            if isinstance(value, SSAValue) and isinstance(value.type, NonValueTensorType) and not aliased:
                value = self.read(value)
            self.values[placeholder] = value
        location = self.emitter.location
        for inner in graph_module.graph.nodes:
            inner.meta["stack_trace"] = node.meta.get("stack_trace")
            inner.meta["nn_module_stack"] = node.meta.get("nn_module_stack")
        outside = placeholders if aliased else ()
        inner = analyze(graph_module.graph, outside)
        result = self.resolve(self.import_nodes(graph_module.graph, graph_module, inner, outside))
        self.emitter.location = location
        if self.aliasing.is_mutable(node):
            result = _map_values(result, self._mutable)
        self.values[node] = result


_MEMORY_FORMATS = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}


def _map_values(value: Any, f: Callable[[SSAValue], SSAValue]) -> Any:
    if isinstance(value, SSAValue):
        return f(value)
    return [_map_values(v, f) for v in value] if isinstance(value, list) else value


def _metas(node: Node) -> list[Any]:
    meta = node.meta.get("val")
    return list(meta) if isinstance(meta, (list, tuple)) else [meta]


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
