"""The walk: blocks are run in order, each op by its rule, on torch tensors and Python values.

Note [Values and aliases]. A mutable tensor (`!torch.tensor`) is a torch tensor with all its aliases, and a write is a
write. A value (`!torch.vtensor`) is a torch tensor that nobody writes, so it may share memory with other values, with
arguments and with weights. The two meet only in copies, which copy; what a caller gets back shares memory with nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from flambeau.diagnostics import diagnostic_for
from flambeau.dialects.torch.ops import (
    ClassTypeOp,
    GlobalSlotModuleInitializerOp,
    GlobalSlotOp,
    NnModuleOp,
)
from flambeau.dialects.torch.types import VTensorType
from flambeau.engines.errors import EngineError, RunError
from flambeau.ir.arrays import is_numpy, to_torch

Rule = Callable[["Frame", Operation, Sequence[Any]], Any]
"""Takes the op and its operands' values, gives its result, or a sequence of them if there are several."""

_DIALECTS = frozenset({"torch", "func", "builtin"})


@dataclass(eq=False)
class ScriptObject:
    """An object of the program."""

    class_name: str
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Frame:
    """A function that is being run."""

    run: Interpreter
    values: dict[SSAValue, Any] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    """TorchScript variables, where they have not become values."""

    def block(self, block: Block, arguments: Sequence[Any] = ()) -> list[Any]:
        """Run a block and give what its last op hands on."""
        values = self.values
        values.update(zip(block.args, arguments, strict=True))
        op, last = block.first_op, block.last_op
        while op is not last:
            assert op is not None
            self.op(op)
            op = op.next_op
        return [] if last is None else [values[o] for o in last.operands]

    def op(self, op: Operation) -> None:
        """Run one op and record its results."""
        values = self.values
        try:
            result = self.run.rule(op)(self, op, [values[o] for o in op.operands])
        except RunError:
            raise
        except Exception as error:
            raise RunError(explain(op, str(error).strip() or type(error).__name__)) from error
        results = op.results
        if len(results) == 1:
            values[results[0]] = result
        elif results:
            values.update(zip(results, result, strict=True))


def explain(op: Operation, reason: str) -> str:
    """Describe what went wrong in an op, with its types and its line."""
    d = diagnostic_for(op, "run", reason)
    lines = [f"{d.op}: {reason}", f"  called with ({', '.join(d.operands)}) -> ({', '.join(d.results)})"]
    return "\n".join([*lines, d.place()] if d.place() else lines)


class Interpreter:
    """A program with the state of its objects and slots, which lasts from call to call."""

    def __init__(self, module: ModuleOp, weights: Mapping[str, Any]) -> None:
        from flambeau.engines.eager.rules import find_rule

        self._find_rule = find_rule
        self.weights = weights
        self.functions = {op.sym_name.data: op for op in module.ops if isinstance(op, func.FuncOp)}
        self.methods = {
            op.sym_name: {m.method_name: m.function_name for m in op.methods}
            for op in module.ops
            if isinstance(op, ClassTypeOp)
        }
        self.slots: dict[str, Any] = {}
        self.literals: dict[Operation, torch.Tensor] = {}
        """Constants and weights, each made once: nobody writes them."""
        self._rules: dict[Operation, Rule] = {}
        self._root: ScriptObject | None = None
        _check_dialects(module)
        with torch.no_grad():
            self._run_top_level(module)

    def _run_top_level(self, module: ModuleOp) -> None:
        frame = Frame(self)
        for op in module.ops:
            if isinstance(op, GlobalSlotModuleInitializerOp):
                values = Frame(self).block(op.regions[0].block)
                self.slots.update(zip(op.initialization.slot_names, values, strict=True))
            elif not isinstance(op, func.FuncOp | ClassTypeOp | GlobalSlotOp):
                frame.op(op)
                if isinstance(op, NnModuleOp) and not op.results[0].uses:
                    self._root = frame.values[op.results[0]]

    def rule(self, op: Operation) -> Rule:
        """Return the rule for an op, which is looked up once."""
        found = self._rules.get(op)
        if found is None:
            found = self._rules[op] = self._find_rule(op)
        return found

    def call(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """Call a function, or a method of the root object, from outside."""
        function, receiver = self._entry(name)
        wanted = function.function_type.inputs.data[len(receiver) :]
        if len(wanted) != len(arguments):
            raise RunError(f"{name!r} takes {len(wanted)} arguments, got {len(arguments)}")
        given = [
            a.detach() if isinstance(a, torch.Tensor) and isinstance(t, VTensorType) else a
            for a, t in zip(arguments, wanted, strict=True)
        ]
        # The casts of a region are ops of the program; the region that the caller stands in adds none.
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            results = self.run(function, [*receiver, *given])
            return self._apart(function, given, results)

    def _entry(self, name: str) -> tuple[func.FuncOp, list[ScriptObject]]:
        if name in self.functions:
            return self.functions[name], []
        methods = {} if self._root is None else self.methods.get(self._root.class_name, {})
        if name in methods and methods[name] in self.functions:
            assert self._root is not None
            return self.functions[methods[name]], [self._root]
        known = ", ".join([*self.functions, *methods]) or "none"
        raise ValueError(f"the program has no function {name!r}; it has {known}")

    def run(self, function: func.FuncOp, arguments: Sequence[Any]) -> list[Any]:
        """Run a function's body."""
        if len(function.body.blocks) != 1:
            count = len(function.body.blocks)
            raise RunError(f"@{function.sym_name.data} has {count} blocks; the eager engine runs functions of one")
        return Frame(self).block(function.body.block, arguments)

    def _apart(self, function: func.FuncOp, arguments: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """Copy those results that are values but share memory with an argument, a weight or another result."""
        taken = {_memory(t) for given in (arguments, list(self.literals.values())) for t in _tensors(given)}
        apart = []
        for result, type_ in zip(results, function.function_type.outputs.data, strict=True):
            if isinstance(result, torch.Tensor) and isinstance(type_, VTensorType):
                if _memory(result) in taken:
                    result = result.clone()
                taken.add(_memory(result))
            apart.append(result)
        return apart

    def weight(self, name: str) -> torch.Tensor:
        """Return the weight of this name, in its own memory; RunError if it is missing."""
        if name not in self.weights:
            raise RunError(f"the weight {name!r} is missing")
        found = self.weights[name]
        tensor: torch.Tensor = to_torch(found) if is_numpy(found) else found
        return tensor.detach()


def _check_dialects(module: ModuleOp) -> None:
    for op in module.walk():
        if op.name.split(".")[0] not in _DIALECTS:
            raise EngineError(
                f"the engine 'eager' runs the torch dialect, and the program has {op.name}; "
                "compile with output_type='raw' or 'torch'"
            )


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from _tensors(value)
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors(value)
