"""The backend contract: what every lowering may rely on. `docs/backend-contract.md` explains each constraint."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation

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

CONSTRAINTS = {
    "C1": "a function has one block and ends in a return; branches and loops are torch.prim.If and torch.prim.Loop",
    "C2": "tensors are values (!torch.vtensor): nothing is written in place",
    "C3": "the rank of every tensor is static",
    "C4": "the dtype of every tensor is known",
    "C5": "there are no tuples, dictionaries, unions or module objects; lists are only operands of ops",
    "C6": "all ops are torch ops, or the return of a function",
}
"""The numbered constraints, in words."""


def violations(module: ModuleOp) -> Iterator[Diagnostic]:
    """Every place where a module breaks the contract."""
    for function in module.ops:
        if not isinstance(function, func.FuncOp):
            yield _broken(function, "C6")
            continue
        if len(function.body.blocks) != 1:
            yield _broken(function, "C1")
            continue
        block = function.body.block
        for argument in block.args:
            yield from (_broken(function, c, str(argument.type)) for c in _of_type(argument.type, at_border=True))
        for op in block.walk():
            if isinstance(op, func.ReturnOp):
                for operand in op.operands:
                    yield from (_broken(op, c, str(operand.type)) for c in _of_type(operand.type, at_border=True))
            elif not isinstance(op, TorchOp):
                yield _broken(op, "C6")
            else:
                for result in op.results:
                    yield from (_broken(op, c, str(result.type)) for c in _of_type(result.type, at_border=False))


def _of_type(type_: Attribute, at_border: bool) -> Iterator[str]:
    if isinstance(type_, TensorType):
        if isinstance(type_, NonValueTensorType):
            yield "C2"
        if type_.shape is None:
            yield "C3"
        if type_.element_type is None:
            yield "C4"
    elif isinstance(type_, (TupleType, DictType, UnionType, NnModuleType)) or (
        at_border and isinstance(type_, ListType)
    ):
        yield "C5"


def _broken(op: Operation, constraint: str, detail: str = "") -> Diagnostic:
    reason = f"{constraint}: {CONSTRAINTS[constraint]}" + (f"; here is {detail}" if detail else "")
    return diagnostic_for(op, "backend contract", reason)


def require_backend_contract(module: ModuleOp) -> ModuleOp:
    """The module itself; raises CompileError with every broken constraint."""
    found = list(violations(module))
    if found:
        raise CompileError(found, summary="the program does not satisfy the backend contract")
    return module
