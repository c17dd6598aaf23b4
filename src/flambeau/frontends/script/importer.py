"""TorchScript graphs to the torch dialect: one walk over the nodes, every op by its schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, SymbolRefAttr, i64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch import ops
from flambeau.dialects.torch.emitter import Device, TorchEmitter
from flambeau.dialects.torch.types import ANY, BOOL, INT, NnModuleType, TensorType, is_subtype, tensor
from flambeau.dialects.torch.values import EnterOp
from flambeau.frontends.script.locations import location_of_node
from flambeau.frontends.script.types import is_importable, type_of
from flambeau.frontends.tensors import INLINE_BYTES, TensorTable, identity
from flambeau.ir.locations import UNKNOWN

if TYPE_CHECKING:
    from flambeau.frontends.script.objects import ObjectGraphImporter


@dataclass
class Function:
    """A TorchScript function or method, with the types that its callers see."""

    symbol: str
    graph: Any
    inputs: list[Attribute]
    returns: list[Attribute]

    @property
    def name(self) -> str:
        return self.symbol.rsplit(".", 1)[-1]


class ValueImporter:
    """Python values as SSA values, typed by TorchScript."""

    def __init__(self, block: Block, tensors: TensorTable) -> None:
        self.emitter = TorchEmitter(block)
        self.tensors = tensors
        self._literals: dict[Any, SSAValue] = {}

    def value(self, value: Any, type_: Any, name: str, inline: bool = True) -> SSAValue:
        """Import a value of a TorchScript type as an SSA value; `name` is what a tensor in it is called."""
        if type_.kind() == "OptionalType" and value is not None:
            return self.value(value, type_.getElementType(), name, inline)
        if isinstance(value, torch.Tensor):
            return self.literal(value, name, inline)
        if isinstance(value, torch.device):
            return self.emitter.constant(Device(str(value)))
        if value is None or isinstance(value, (bool, int, float, str)):
            return self.emitter.constant(value)
        if isinstance(value, Enum):
            place = list(type(value)).index(value)
            parts = [self.emitter.constant(part) for part in (place, value.name, value.value)]
            return self.emitter.value(ops.TupleConstructOp, parts, type_of(type_))
        if isinstance(value, complex):
            raise Unsupported("a complex number is not imported", "Use a complex tensor instead.")
        if type_.kind() not in _CONTAINERS:
            raise Unsupported(f"a value of type {type_.annotation_str} is not imported")
        op_class, parts_of = _CONTAINERS[type_.kind()]
        elements = [self.value(v, t, f"{name}.{key}", inline) for key, v, t in parts_of(value, type_)]
        return self.emitter.value(op_class, elements, type_of(type_))

    def literal(self, value: torch.Tensor, name: str, inline: bool) -> SSAValue:
        """Import a tensor as one literal at the start of the function; tensors of equal `identity` share it."""
        key = identity(value)
        if key not in self._literals:
            contents, dtype = self.tensors.contents(value, name, INLINE_BYTES if inline else 0)
            result = tensor(tuple(value.shape), dtype.torch_type)
            op = ops.NonValueTensorLiteralOp.create(
                result_types=(result,), properties={"value": contents}, location=self.emitter.location
            )
            self.emitter.insert_first(op)
            self._literals[key] = op.results[0]
        return self._literals[key]


Parts = list[tuple[Any, Any, Any]]
"""For each part of a container: what it is called, the value, and its TorchScript type."""


_CONTAINERS: dict[str, tuple[type[Operation], Callable[[Any, Any], Parts]]] = {
    "ListType": (ops.ListConstructOp, lambda v, t: [(i, e, t.getElementType()) for i, e in enumerate(v)]),
    "TupleType": (ops.TupleConstructOp, lambda v, t: [(i, e, u) for i, (e, u) in enumerate(zip(v, t.elements()))]),
    "DictType": (
        ops.DictConstructOp,
        lambda v, t: [("", k, t.getKeyType()) for k in v] + [(k, v[k], t.getValueType()) for k in v],
    ),
}


class ScriptImporter(ValueImporter):
    """Imports one TorchScript graph as a function body."""

    def __init__(self, block: Block, program: ObjectGraphImporter, function: str) -> None:
        super().__init__(block, program.tensors)
        self.program = program
        self.function = function
        self.values: dict[int, SSAValue] = {}

    def bind(self, values: Sequence[Any], ssa_values: Sequence[SSAValue]) -> None:
        """Record what TorchScript values are."""
        for value, ssa in zip(values, ssa_values, strict=True):
            self.values[value.unique()] = ssa

    def operands(self, values: Iterable[Any]) -> list[SSAValue]:
        found = [self.values.get(v.unique()) for v in values]
        if None in found:
            raise Unsupported("a function is used as a value", "Call the function where it is named.")
        return found  # type: ignore[return-value]

    def fit(self, value: SSAValue, wanted: Attribute) -> SSAValue:
        """Cast a value to exactly the type that is asked for, by the weakest op that does it."""
        if value.type == wanted:
            return value
        if isinstance(wanted, TensorType) and type(value.type) is type(wanted):
            return self.emitter.value(ops.StaticInfoCastOp, (value,), wanted)
        if is_subtype(value.type, wanted):
            return self.emitter.value(ops.DerefineOp, (value,), wanted)
        if not is_subtype(wanted, value.type):
            value = self.fit(value, ANY)
        return self.emitter.op("prim.unchecked_cast", (value,), (wanted,))[0]

    def fit_all(self, values: Iterable[Any], wanted: Sequence[Attribute]) -> list[SSAValue]:
        """Import TorchScript values and cast each to exactly the type that is asked for."""
        return [self.fit(v, t) for v, t in zip(self.operands(values), wanted, strict=True)]

    # --- Walking ---

    def import_nodes(self, block: Any, enclosing: Attribute = UNKNOWN) -> None:
        """Import the nodes of a block whose inputs are bound; problems are kept for the end."""
        for node in block.nodes():
            location = self.emitter.location = location_of_node(node, self.function, enclosing)
            try:
                results = _RULES.get(node.kind(), ScriptImporter.operator)(self, node)
            except Unsupported as problem:
                self.program.report(problem, op=node.kind().replace("::", "."), location=location)
                results = [self._stand_in(output) for output in node.outputs()]
            if results is not None:
                self.bind(list(node.outputs()), results)
        self.emitter.location = enclosing

    def _stand_in(self, output: Any) -> SSAValue:
        """Make a value in place of one that could not be imported, so that the walk finds further problems."""
        type_ = type_of(output.type()) if is_importable(output.type()) else ANY
        return self.emitter.value(ops.UninitializedOp, (), type_)

    def region(
        self, block: Any, arguments: Sequence[Attribute], end: type[Operation], results: Sequence[Attribute]
    ) -> Region:
        """Import a block of a node as a region; `end` is the terminator that yields its results."""
        body, outer, location = Block(arg_types=arguments), self.emitter.block, self.emitter.location
        self.bind(list(block.inputs()), body.args)
        self.emitter.block = body
        self.import_nodes(block, location)
        self.emitter.emit(end, self.fit_all(block.outputs(), results))
        self.emitter.block = outer
        return Region(body)

    # --- Nodes ---

    def operator(self, node: Any) -> Sequence[SSAValue]:
        """Import a node as the op of its schema, or else of its name alone; Unsupported if it has blocks."""
        kind, declaration = node.kind(), node.schema()
        if kind in _REFUSED or list(node.blocks()):
            raise Unsupported(f"{kind} is not imported", _REFUSED.get(kind, ""))
        operands, results = self.operands(node.inputs()), _result_types(node)
        if declaration.startswith("("):
            op = ops.create_op(kind.replace("::", "."), operands, results, self.emitter.location)
            op.attributes.update({name: _attribute(node, name) for name in node.attributeNames()})
            self.emitter.insert(op)
            return op.results
        overload = declaration.split("(", 1)[0].replace("::", ".")
        if overload.endswith(".enum"):
            places = [self.emitter.op("prim.TupleIndex", (x, self.emitter.constant(0)), (INT,))[0] for x in operands]
            return self.emitter.op(overload.replace(".enum", ".int"), places, results)
        return self.emitter.op(overload, operands, results)

    def constant(self, node: Any) -> Sequence[SSAValue] | None:
        type_ = node.output().type()
        if type_.kind() == "FunctionType":
            # Calls look at the node itself.
            return None
        # PyTorch would give a tensor without dimensions as a number.
        is_tensor = node.hasAttribute("value") and node.kindOf("value") == "t"
        return [self.value(node.t("value") if is_tensor else node.output().toIValue(), type_, "constant")]

    def branch(self, node: Any) -> Sequence[SSAValue]:
        results = _result_types(node)
        regions = [self.region(block, (), ops.IfYieldOp, results) for block in node.blocks()]
        return self.emitter.emit(ops.IfOp, self.operands(node.inputs()), results, regions=regions).results

    def loop(self, node: Any) -> Sequence[SSAValue]:
        results = _result_types(node)
        operands = self.fit_all(node.inputs(), (INT, BOOL, *results))
        (block,) = node.blocks()
        region = self.region(block, (INT, *results), ops.LoopConditionOp, (BOOL, *results))
        return self.emitter.emit(ops.LoopOp, operands, results, regions=(region,)).results

    def dictionary(self, node: Any) -> Sequence[SSAValue]:
        operands = self.operands(node.inputs())
        return self.emitter.emit(ops.DictConstructOp, operands[::2] + operands[1::2], _result_types(node)).results

    def member(self, node: Any) -> Sequence[SSAValue]:
        """Import `prim::GetAttr` and `prim::SetAttr`, and note that the attribute is used."""
        operands, name = self.operands(node.inputs()), node.s("name")
        if not isinstance(operands[0].type, NnModuleType):
            raise Unsupported(f"attribute {name!r} of a {operands[0].type} is not imported")
        self.program.class_of(next(node.inputs()).type()).accessed.add(name)
        op_class = ops.GetAttrOp if node.kind() == "prim::GetAttr" else ops.SetAttrOp
        return self.emitter.emit(op_class, operands, _result_types(node), {"name": StringAttr(name)}).results

    def part_of_member(self, node: Any) -> Sequence[SSAValue]:
        """Import `prim::EnumName` and `prim::EnumValue` as the second and the third part of a tuple."""
        index = self.emitter.constant(1 + (node.kind() == "prim::EnumValue"))
        return self.emitter.op("prim.TupleIndex", (*self.operands(node.inputs()), index), _result_types(node))

    def call(self, node: Any) -> Sequence[SSAValue]:
        callee = self.program.callee(node)
        operands = self.fit_all([v for v in node.inputs() if v.type().kind() != "FunctionType"], callee.inputs)
        if node.kind() == "prim::CallMethod":
            receiver = callee.inputs[0]
            assert isinstance(receiver, NnModuleType)
            name = self.program.method_name(receiver.data, callee.name)
            return self.emitter.emit(ops.CallMethodOp, operands, callee.returns, {"name": StringAttr(name)}).results
        return self.emitter.emit(
            func.CallOp, operands, callee.returns, {"callee": SymbolRefAttr(callee.symbol)}
        ).results


def _as_is(op_class: type[Operation]) -> Callable[[ScriptImporter, Any], Sequence[SSAValue]]:
    """Make the rule of a node that is an op of the torch dialect with the same operands and results."""

    def rule(importer: ScriptImporter, node: Any) -> Sequence[SSAValue]:
        return importer.emitter.emit(op_class, importer.operands(node.inputs()), _result_types(node)).results

    return rule


_RULES: Mapping[str, Callable[[ScriptImporter, Any], Sequence[SSAValue] | None]] = {
    "prim::CallFunction": ScriptImporter.call,
    "prim::CallMethod": ScriptImporter.call,
    "prim::Constant": ScriptImporter.constant,
    "prim::CreateObject": _as_is(ops.CreateObjectOp),
    "prim::DictConstruct": ScriptImporter.dictionary,
    "prim::Enter": _as_is(EnterOp),
    "prim::EnumName": ScriptImporter.part_of_member,
    "prim::EnumValue": ScriptImporter.part_of_member,
    "prim::GetAttr": ScriptImporter.member,
    "prim::If": ScriptImporter.branch,
    "prim::ListConstruct": _as_is(ops.ListConstructOp),
    "prim::ListUnpack": _as_is(ops.ListUnpackOp),
    "prim::Loop": ScriptImporter.loop,
    "prim::SetAttr": ScriptImporter.member,
    "prim::TupleConstruct": _as_is(ops.TupleConstructOp),
    "prim::TupleUnpack": _as_is(ops.TupleUnpackOp),
    "prim::Uninitialized": _as_is(ops.UninitializedOp),
    "prim::unchecked_cast": lambda importer, node: importer.fit_all(node.inputs(), _result_types(node)),
}
"""Nodes that are more than an op with a schema."""

_REFUSED = {
    "prim::PythonOp": "The function stays in Python: let TorchScript compile it, without @torch.jit.ignore.",
    "prim::fork": "Call the function directly instead of torch.jit.fork.",
    "aten::wait": "Call the function directly instead of torch.jit.fork.",
    "prim::rpc_async": "Run the program on one machine.",
}
"""Nodes that have no meaning in a compiled program, and what to do about them."""


def _result_types(node: Any) -> list[Attribute]:
    return [type_of(output.type()) for output in node.outputs()]


_ATTRIBUTES: Mapping[str, Callable[[Any, str], Attribute]] = {
    "s": lambda node, name: StringAttr(node.s(name)),
    "i": lambda node, name: IntegerAttr(node.i(name), i64),
    "tys": lambda node, name: ArrayAttr([type_of(t) for t in node.tys(name)]),
}


def _attribute(node: Any, name: str) -> Attribute:
    convert = _ATTRIBUTES.get(node.kindOf(name))
    if convert is None:
        raise Unsupported(f"the attribute {name!r} of {node.kind()} is not imported")
    return convert(node, name)
