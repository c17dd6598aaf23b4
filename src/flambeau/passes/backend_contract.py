"""The backend contract: what every lowering may rely on. `docs/backend-contract.md` explains each constraint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic, diagnostic_for
from flambeau.dialects.torch.ops import TorchOp
from flambeau.dialects.torch.types import (
    DictType,
    ListType,
    NnModuleType,
    NonValueTensorType,
    TensorType,
    TupleType,
    UnionType,
)
from flambeau.ir.module_pass import TorchPass


class Constraint(Enum):
    """The numbered constraints, in words."""

    C1 = "a function has one block and ends in a return; branches and loops are torch.prim.If and torch.prim.Loop"
    C2 = "tensors are values (!torch.vtensor): nothing is written in place"
    C3 = "the rank of every tensor is static"
    C4 = "the dtype of every tensor is known"
    C5 = "there are no tuples, dictionaries, unions or module objects; lists are only operands of ops"
    C6 = "all ops are torch ops, or the return of a function"


@dataclass(frozen=True)
class Violation:
    """A place where a program breaks the contract."""

    constraint: Constraint
    op: Operation
    """The op that breaks it; for an argument, the function."""
    type: Attribute | None = None
    """The type of the argument or result that breaks it, where it is one."""
    value: str = ""
    """The name of that argument or result, where it has one: `%x`."""

    @property
    def reason(self) -> str:
        """The constraint in words, with its number and the type that breaks it."""
        name = f"{self.value}: " if self.value else ""
        here = f"; here is {name}{self.type}" if self.type is not None else ""
        return f"{self.constraint.name}: {self.constraint.value}{here}"

    @property
    def diagnostic(self) -> Diagnostic:
        return diagnostic_for(self.op, "backend contract", self.reason)


def violations(module: ModuleOp) -> Iterator[Violation]:
    """Find every place where a module breaks the contract."""
    for function in module.ops:
        if not isinstance(function, func.FuncOp):
            yield Violation(Constraint.C6, function)
        elif len(function.body.blocks) != 1:
            yield Violation(Constraint.C1, function)
        else:
            yield from _of_values(function, function.body.block.args, at_border=True)
            for op in function.body.block.walk():
                if isinstance(op, func.ReturnOp):
                    yield from _of_values(op, op.operands, at_border=True)
                elif isinstance(op, TorchOp):
                    yield from _of_values(op, op.results, at_border=False)
                else:
                    yield Violation(Constraint.C6, op)


def _of_values(op: Operation, values: Iterable[SSAValue], at_border: bool) -> Iterator[Violation]:
    """Find what the types of an op's values break; lists may not cross the border of a function."""
    for value in values:
        type_, name = value.type, f"%{value.name_hint}" if value.name_hint else ""
        if isinstance(type_, TensorType):
            if isinstance(type_, NonValueTensorType):
                yield Violation(Constraint.C2, op, type_, name)
            if type_.shape is None:
                yield Violation(Constraint.C3, op, type_, name)
            if type_.element_type is None:
                yield Violation(Constraint.C4, op, type_, name)
        elif isinstance(type_, (TupleType, DictType, UnionType, NnModuleType)) or (
            at_border and isinstance(type_, ListType)
        ):
            yield Violation(Constraint.C5, op, type_, name)


def require_backend_contract(module: ModuleOp) -> ModuleOp:
    """Return the module itself, or raise CompileError with every constraint that it breaks."""
    found = [violation.diagnostic for violation in violations(module)]
    if found:
        raise CompileError(found, summary="the program does not satisfy the backend contract")
    return module


class VerifyBackendContract(TorchPass):
    """Check that a lowering may take the program."""

    name = "torch-verify-backend-contract"
    run = staticmethod(require_backend_contract)
