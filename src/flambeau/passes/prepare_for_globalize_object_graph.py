"""PrepareForGlobalizeObjectGraph: method calls become calls of the functions that the methods are."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from flambeau.diagnostics import CompileError, Diagnostic, Unsupported, diagnostic_for
from flambeau.dialects.torch.emitter import TorchEmitter
from flambeau.dialects.torch.ops import CallMethodOp, ClassTypeOp
from flambeau.dialects.torch.types import NnModuleType, is_subtype
from flambeau.ir.builder import erase
from flambeau.ir.module_pass import TorchPass
from flambeau.passes.symbol_dce import functions_of, is_public, references

STAGE = "globalize object graph"

Methods = Mapping[str, Mapping[str, str]]
"""Class names to method names to function names."""


def prepare_for_globalize_object_graph(module: ModuleOp) -> ModuleOp:
    """Rewrite the module in place. Private functions that neither a class nor another function needs are dropped."""
    functions = functions_of(module)
    methods = methods_of(module)
    problems: list[Diagnostic] = []
    for function in functions.values():
        for op in list(function.body.walk()):
            if isinstance(op, CallMethodOp):
                try:
                    _call_function(op, methods, functions)
                except Unsupported as e:
                    problems.append(diagnostic_for(op, STAGE, e.reason, e.hint))
    if problems:
        raise CompileError(problems, summary="method calls that cannot be resolved")
    _drop_unused(module, functions)
    return module


class PrepareForGlobalizeObjectGraph(TorchPass):
    """Turn method calls into function calls."""

    name = "torch-prepare-for-globalize-object-graph"
    run = staticmethod(prepare_for_globalize_object_graph)


def methods_of(module: ModuleOp) -> Methods:
    """List the methods of all classes."""
    return {
        op.sym_name: {m.method_name: m.function_name for m in op.methods}
        for op in module.ops
        if isinstance(op, ClassTypeOp)
    }


def _call_function(op: CallMethodOp, methods: Methods, functions: Mapping[str, func.FuncOp]) -> None:
    type_ = op.receiver.type
    if not isinstance(type_, NnModuleType):
        raise Unsupported(f"the method '{op.member}' is called on a {type_}, which is not an object")
    if type_.data not in methods:
        raise Unsupported(f"the program does not declare the class {type_.data}")
    name = methods[type_.data].get(op.member)
    if name is None:
        known = ", ".join(methods[type_.data]) or "none"
        raise Unsupported(f"the class {type_.data} has no method '{op.member}'; its methods: {known}")
    if name not in functions:
        raise Unsupported(f"the method '{op.member}' of {type_.data} is @{name}, and there is no such function")
    wanted = functions[name].function_type
    if len(wanted.inputs.data) != len(op.operands):
        count = len(wanted.inputs.data) - 1
        raise Unsupported(f"the method '{op.member}' takes {count} arguments, got {len(op.operands) - 1}")
    if wanted.outputs.data != tuple(op.result_types):
        raise Unsupported(f"the method '{op.member}' gives ({', '.join(map(str, wanted.outputs.data))})")
    assert op.parent is not None
    builder = TorchEmitter(op.parent)
    builder.before, builder.location = op, op.location
    arguments = []
    for value, input_type in zip(op.operands, wanted.inputs.data, strict=True):
        if value.type != input_type and not is_subtype(value.type, input_type):
            raise Unsupported(f"the method '{op.member}' takes a {input_type}, got {value.type}")
        arguments.append(builder.cast(value, input_type))
    call = func.CallOp(name, arguments, op.result_types)
    call.location = op.location
    builder.insert(call)
    for old, new in zip(op.results, call.results, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    erase(op)


def _drop_unused(module: ModuleOp, functions: Mapping[str, func.FuncOp]) -> None:
    pending = [op for op in module.ops if not isinstance(op, func.FuncOp) or is_public(op)]
    live = {op.sym_name.data for op in pending if isinstance(op, func.FuncOp)}
    while pending:
        for name in references(pending.pop()):
            if name in functions and name not in live:
                live.add(name)
                pending.append(functions[name])
    for name, function in functions.items():
        if name not in live:
            erase(function)
