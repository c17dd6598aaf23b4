"""RefinePublicReturn: public functions return values, with all that is known of their types."""

from __future__ import annotations

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.dialects.torch.ops import CopyToNonValueTensorOp, CopyToValueTensorOp, StaticInfoCastOp
from flambeau.dialects.torch.types import NonValueTensorType, TensorType, is_subtype, to_value
from flambeau.ir.builder import OpBuilder
from flambeau.ir.module_pass import TorchPass
from flambeau.passes.inline_global_slots import written_values
from flambeau.passes.symbol_dce import callee_name, functions_of, is_public


def refine_public_return(module: ModuleOp) -> ModuleOp:
    """Rewrite the module in place."""
    functions = functions_of(module)
    refined = {}
    for name, function in functions.items():
        op = function.get_return_op()
        if op is not None and is_public(function) and any(isinstance(t, TensorType) for t in op.operand_types):
            refined[name] = op
    if not refined:
        return module
    written = written_values(module)
    problems: list[Diagnostic] = []
    for name, op in refined.items():
        if _refine(op, written):
            functions[name].update_function_type()  # type: ignore[no-untyped-call]
            problems += [
                Diagnostic(
                    "refine public return",
                    f"@{caller} calls the public function @{name}, whose results would get other types",
                    location=call.location,
                    hint="Run the pass 'inline' first.",
                )
                for caller, function in functions.items()
                for call in function.body.walk()
                if isinstance(call, func.CallOp) and callee_name(call) == name
            ]
    if problems:
        raise CompileError(problems, summary="public functions are called inside the program")
    return module


class RefinePublicReturn(TorchPass):
    """Let public functions return values of known type."""

    name = "torch-refine-public-return"
    run = staticmethod(refine_public_return)


def _refine(op: func.ReturnOp, written: set[SSAValue]) -> bool:
    """Return values instead of mutable tensors; tell whether any type has changed."""
    assert op.parent is not None
    builder = OpBuilder(op.parent)
    builder.before, builder.location = op, op.location
    copies: dict[SSAValue, SSAValue] = {}
    results = []
    for operand in op.operands:
        known = _origin(operand, written)
        if isinstance(known.type, NonValueTensorType):
            if known not in copies:
                copies[known] = builder.value(CopyToValueTensorOp, (known,), to_value(known.type))
            known = copies[known]
        results.append(known)
    before = list(op.operand_types)
    op.operands = results
    return before != list(op.operand_types)


def _origin(value: SSAValue, written: set[SSAValue]) -> SSAValue:
    """Find the same tensor where most is known of it."""
    found, is_copy = value, False
    while True:
        owner = value.owner
        if isinstance(owner, CopyToNonValueTensorOp) and value not in written:
            is_copy = False
        elif isinstance(owner, CopyToValueTensorOp):
            # What it copies may be written later, unless it turns out to be a copy itself that nobody writes.
            is_copy = True
        elif not isinstance(owner, StaticInfoCastOp):
            return found
        value = owner.operands[0]
        if not is_copy and is_subtype(to_value(value.type), to_value(found.type)):
            found = value
