"""AdjustCallingConventions: functions take tensors of the types that were asked for, and return no tuples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, ModuleOp
from xdsl.ir import Attribute, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.dialects.torch.emitter import TorchEmitter
from flambeau.dialects.torch.ops import TupleConstructOp, TupleUnpackOp
from flambeau.dialects.torch.types import NONE, NonValueTensorType, TensorType, TupleType, VTensorType, may_be_the_same
from flambeau.ir.builder import erase
from flambeau.ir.module_pass import TorchPass
from flambeau.passes.symbol_dce import callee_name, functions_of

STAGE = "adjust calling conventions"
TYPE_BOUND = "torch.type_bound"


@dataclass
class _Border:
    """How a function was called before, and what its arguments become."""

    inputs: tuple[Attribute, ...]
    bounds: list[Attribute | None]
    outputs: tuple[Attribute, ...]


def adjust_calling_conventions(module: ModuleOp) -> ModuleOp:
    """Rewrite the module in place: functions, and the calls of them that are left."""
    functions = functions_of(module)
    problems: list[Diagnostic] = []
    borders = {name: _border(function, problems) for name, function in functions.items()}
    if problems:
        raise CompileError(problems, summary="type bounds that do not fit")
    for function in functions.values():
        for op in list(function.body.walk()):
            if isinstance(op, func.CallOp) and callee_name(op) in borders:
                _adjust_call(op, borders[callee_name(op)])
    for name, function in functions.items():
        _adjust_function(function, borders[name])
    return module


class AdjustCallingConventions(TorchPass):
    """Turn type bounds into types, and tuples into results."""

    name = "torch-adjust-calling-conventions"
    run = staticmethod(adjust_calling_conventions)


def flat_types(type_: Attribute) -> Iterator[Attribute]:
    """Flatten a result type as calls from outside see it: the elements of tuples one by one, and None not at all."""
    if isinstance(type_, TupleType):
        for element in type_.data:
            yield from flat_types(element)
    elif type_ != NONE:
        yield type_


def _border(function: func.FuncOp, problems: list[Diagnostic]) -> _Border:
    inputs = function.function_type.inputs.data
    attributes = function.arg_attrs
    bounds: list[Attribute | None] = [None] * len(inputs)
    if attributes is not None:
        bounds = [d.data.get(TYPE_BOUND) for d in attributes.data]
    for i, (type_, bound) in enumerate(zip(inputs, bounds, strict=True)):
        if bound is not None and not _fits(type_, bound):
            reason = f"argument {i} of @{function.sym_name.data} is a {type_} and cannot be bound to {bound}"
            problems.append(Diagnostic(STAGE, reason, location=function.location))
    return _Border(inputs, bounds, function.function_type.outputs.data)


def _fits(type_: Attribute, bound: Attribute) -> bool:
    if type_ == bound:
        return True
    if not isinstance(type_, TensorType) or not isinstance(bound, TensorType):
        return False
    if isinstance(type_, VTensorType) and isinstance(bound, NonValueTensorType):
        return False
    return may_be_the_same(type_, bound)


def _adjust_function(function: func.FuncOp, border: _Border) -> None:
    inputs = tuple(b or t for t, b in zip(border.inputs, border.bounds, strict=True))
    outputs = tuple(t for o in border.outputs for t in flat_types(o))
    if outputs != border.outputs and function.res_attrs is not None:
        del function.properties["res_attrs"]
    function.properties["function_type"] = FunctionType.from_lists(inputs, outputs)
    if function.arg_attrs is not None:
        kept = [{k: v for k, v in d.data.items() if k != TYPE_BOUND} for d in function.arg_attrs.data]
        if any(kept):
            function.properties["arg_attrs"] = ArrayAttr([DictionaryAttr(d) for d in kept])
        else:
            del function.properties["arg_attrs"]
    entry = function.body.first_block
    if entry is None:
        return
    builder = TorchEmitter(entry)
    builder.before, builder.location = entry.first_op, function.location
    for argument, old, new in zip(entry.args, border.inputs, inputs, strict=True):
        if old != new:
            uses = list(argument.uses)
            # Types of values are fixed; an argument of another type is another argument.
            replacement = entry.insert_arg(new, argument.index, argument.location)
            replacement.name_hint = argument.name_hint
            if uses:
                argument.replace_all_uses_with(builder.cast(replacement, old))
            entry.erase_arg(argument)
    if outputs == border.outputs:
        return
    for block in function.body.blocks:
        if isinstance(block.last_op, func.ReturnOp):
            _flatten_return(block.last_op)


def _flatten_return(op: func.ReturnOp) -> None:
    assert op.parent is not None
    builder = TorchEmitter(op.parent)
    builder.before, builder.location = op, op.location
    op.operands = [leaf for operand in op.operands for leaf in _leaves(builder, operand)]


def _leaves(builder: TorchEmitter, value: SSAValue) -> Iterator[SSAValue]:
    if isinstance(value.type, TupleType):
        owner = value.owner
        if isinstance(owner, TupleConstructOp) and tuple(owner.operand_types) == value.type.data:
            elements: Sequence[SSAValue] = owner.operands
        else:
            elements = builder.emit(TupleUnpackOp, (value,), value.type.data).results
        for element in elements:
            yield from _leaves(builder, element)
    elif value.type != NONE:
        yield value


def _adjust_call(op: func.CallOp, border: _Border) -> None:
    outputs = [t for o in border.outputs for t in flat_types(o)]
    if not any(border.bounds) and tuple(outputs) == border.outputs:
        return
    assert op.parent is not None
    emitter = TorchEmitter(op.parent)
    emitter.before, emitter.location = op, op.location
    arguments = [
        value if bound is None else emitter.cast(value, bound)
        for value, bound in zip(op.operands, border.bounds, strict=True)
    ]
    call = func.CallOp(op.callee, arguments, outputs)
    call.location = op.location
    emitter.insert(call)
    leaves = iter(call.results)
    for old, type_ in zip(op.results, border.outputs, strict=True):
        old.replace_all_uses_with(_rebuild(emitter, leaves, type_))
    erase(op)


def _rebuild(emitter: TorchEmitter, leaves: Iterator[SSAValue], type_: Attribute) -> SSAValue:
    if isinstance(type_, TupleType):
        elements = [_rebuild(emitter, leaves, t) for t in type_.data]
        return emitter.value(TupleConstructOp, elements, type_)
    return emitter.constant(None) if type_ == NONE else next(leaves)
