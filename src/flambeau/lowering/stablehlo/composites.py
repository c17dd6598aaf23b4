"""Kept ops as composites: an op that a backend knows by its name, beside what it is in StableHLO's own ops.

`stablehlo.composite "aten.layer_norm" %x, %w, %b {composite_attributes = {eps = 1.0e-05, ...}, decomposition = @f}` has
the tensors of the op as operands and its other arguments as attributes. The private function @f holds what lowering
gives for that op; ops with equal attributes and types share one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FloatAttr,
    FunctionType,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from flambeau.diagnostics import CompileError, Unsupported
from flambeau.dialects import stablehlo
from flambeau.dialects.torch.emitter import TorchEmitter
from flambeau.dialects.torch.ops import ListConstructOp, ListUnpackOp, TorchOp
from flambeau.dialects.torch.schema import Argument, Schema, parse_schema, selects
from flambeau.dialects.torch.types import ListType, TensorType
from flambeau.ir.conversion import RuleTable
from flambeau.ir.dtypes import BY_CODE
from flambeau.ir.plugins import over
from flambeau.lowering.builder import LoweringBuilder, Tensor
from flambeau.lowering.conversion import POISONED, Lowering, convert_type
from flambeau.passes.decompose import decompose, decompositions

Operands = Sequence[tuple[Argument, SSAValue, Any]]
"""The arguments of an op: their declarations, their values in the torch dialect, what these have become."""


class CompositeLowering(Lowering):
    """Lowers the ops named in `keep` to composites, and all others by their rules."""

    def __init__(
        self,
        stage: str,
        rules: RuleTable,
        make_builder: Callable[[Block], LoweringBuilder],
        keep: Collection[str],
        external: RuleTable | None = None,
    ) -> None:
        super().__init__(stage, rules, make_builder, external)
        self.is_kept = selects(keep)
        self.functions: dict[Any, func.FuncOp] = {}
        """The decompositions, by what tells them apart."""
        self.taken: set[str] = set()
        """The names of functions."""

    def convert_module(self, module: ModuleOp) -> ModuleOp:
        self.taken = {op.sym_name.data for op in module.ops if isinstance(op, func.FuncOp)}
        converted = super().convert_module(module)
        converted.body.block.add_ops(self.functions.values())
        return converted

    def _apply(self, op: TorchOp) -> None:
        schema = (op.schema or self._declared(op)) if self.is_kept(op.overload) else None
        values = [self.values[v] for v in op.operands]
        if schema is None or any(v is POISONED for v in values):
            super()._apply(op)
            return
        operands = list(zip(schema.arguments, op.operands, values, strict=True))
        results = _results(op)
        attributes = DictionaryAttr(dict(_attributes(operands)))
        inputs = [pair for _, old, new in operands for pair in _tensors(old, new)]
        types = [old.type for old, _ in inputs]
        key = (op.overload, attributes, tuple(types), tuple(r.type for r in results))
        function = self.functions.get(key)
        if function is None:
            try:
                function = self.functions[key] = self._decomposition(op, schema, operands, types, results)
            except CompileError as e:
                self.problems.extend(e.diagnostics)
                self.poison(op)
                return
        composite = self.builder.emit(
            stablehlo.op("composite"),
            [self._operand(new, old.type) for old, new in inputs],
            [convert_type(r.type) for r in results],
            {
                "name": StringAttr(op.overload),
                "composite_attributes": attributes,
                "decomposition": SymbolRefAttr(function.sym_name.data),
            },
        )
        made = self._carried(composite.results, results)
        self.record(op, made if len(op.results) > 1 or isinstance(op.results[0].type, ListType) else made[0])

    def _declared(self, op: TorchOp) -> Schema | None:
        """Take the names of a custom op's arguments from the rule or decomposition that it has; None without one."""
        rule = self.rules.get(op.overload) or over(decompositions()).get(op.overload)
        if rule is None:
            return None
        _, *parameters = inspect.signature(rule).parameters.values()
        names = [p.name.strip("_") for p in parameters if p.kind is not inspect.Parameter.VAR_POSITIONAL]
        names += [f"arg{i}" for i in range(len(names), len(op.operands))]
        return parse_schema(op.overload, f"({', '.join(f'Tensor {name}' for name in names)}) -> ()")

    def _decomposition(
        self, op: TorchOp, schema: Schema, operands: Operands, types: Sequence[Attribute], results: Sequence[SSAValue]
    ) -> func.FuncOp:
        """Lower an op to a function of its tensors, by its rule or by its decomposition in the torch dialect."""
        block = Block(arg_types=types)
        emitter = TorchEmitter(block)
        emitter.location = op.location
        given = iter(block.args)
        inner = [_passed(emitter, argument, old, new, given) for argument, old, new in operands]
        made = emitter.op(op.overload, inner, op.result_types)
        if isinstance(op.results[0].type, ListType):
            made = emitter.emit(ListUnpackOp, made, [r.type for r in results]).results
        emitter.emit(func.ReturnOp, made)
        type_ = FunctionType.from_lists(list(types), [r.type for r in results])
        name = self._free_name(op.overload)
        module = ModuleOp([func.FuncOp(name, type_, Region(block), StringAttr("private"))])
        lowered = Lowering(self.stage, self.rules, self.make_builder).convert_module(decompose(module))
        function = lowered.body.block.first_op
        assert isinstance(function, func.FuncOp)
        function.detach()  # type: ignore[no-untyped-call]
        return function

    def _free_name(self, overload: str) -> str:
        number = 0
        while (name := f"{overload}.impl_{number}") in self.taken:
            number += 1
        self.taken.add(name)
        return name


def _results(op: TorchOp) -> Sequence[SSAValue]:
    """Return the tensors that an op gives; for a list, the results of its `ListUnpack`."""
    results: Sequence[SSAValue] = op.results
    if len(results) == 1 and isinstance(results[0].type, ListType):
        users: list[Operation] = [use.operation for use in results[0].uses]
        if len(users) != 1 or not isinstance(users[0], ListUnpackOp):
            raise Unsupported("a composite gives tensors, and this op a list whose length is not known")
        results = users[0].results
    if not results or not all(isinstance(r.type, TensorType) for r in results):
        raise Unsupported("a composite gives tensors, and this op something else", "Leave it out of `keep`.")
    return results


def _tensors(old: SSAValue, new: Any) -> list[tuple[SSAValue, Tensor]]:
    """List the tensors of an argument, as torch values and as lowered ones."""
    if isinstance(new, Tensor):
        return [(old, new)]
    if isinstance(new, list) and any(isinstance(v, Tensor) for v in new):
        owner = old.owner
        if not isinstance(owner, ListConstructOp) or not all(isinstance(v, Tensor) for v in new):
            raise Unsupported("a composite takes lists only of tensors, all of them given")
        return list(zip(owner.operands, new, strict=True))
    return []


def _attributes(operands: Operands) -> Iterator[tuple[str, Attribute]]:
    """Yield the arguments that are neither tensors nor None, by their names."""
    for argument, old, new in operands:
        if new is not None and not _tensors(old, new):
            yield argument.name, _attribute(argument, new)


def _attribute(argument: Argument, value: Any) -> Attribute:
    if argument.type.base == "ScalarType" and isinstance(value, int) and value in BY_CODE:
        return StringAttr(BY_CODE[value].name)
    match value:
        case bool():
            return IntegerAttr(int(value), i1)
        case int():
            return IntegerAttr(value, i64)
        case float():
            return FloatAttr(value, f64)
        case str():
            return StringAttr(str(value))
        case list() | tuple():
            return ArrayAttr([_attribute(argument, v) for v in value])
    if isinstance(value, SSAValue):
        raise Unsupported(
            f"a composite holds constants, and only the run time knows the argument '{argument.name}'",
            "Leave the op out of `keep`, or compile for static shapes.",
        )
    raise Unsupported(f"a composite cannot hold the argument '{argument.name}'", "Leave the op out of `keep`.")


def _passed(emitter: TorchEmitter, argument: Argument, old: SSAValue, new: Any, given: Iterator[SSAValue]) -> SSAValue:
    """Return an argument inside the decomposition: the function's own, or a constant."""
    tensors = _tensors(old, new)
    taken = [next(given) for _ in tensors]
    for value in taken:
        value.name_hint = argument.name
    if isinstance(new, Tensor):
        return taken[0]
    if isinstance(old.type, ListType) and new is not None:
        return emitter.list(taken or [emitter.constant(v) for v in new], old.type.element_type)
    return emitter.constant(new)
