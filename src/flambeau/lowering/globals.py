"""State in global variables: what a lowered program writes lives in its module between calls.

A function with state takes it as arguments and gives it as results. Here it loads `ml_program.global`s where it begins
and stores them where it ends, so that callers see inputs and outputs alone. Two functions read and write them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import DenseResourceAttr, FunctionType, ModuleOp, StringAttr, TensorType
from xdsl.ir import Attribute, Block, Region, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects import ml_program
from flambeau.ir.module import Argument, Output, Signature, TensorSpec

GET_STATE = "flambeau.get_state"
"""The function that gives all variables of a module, in the order of `SET_STATE`'s arguments."""
SET_STATE = "flambeau.set_state"
"""The function that writes all variables of a module."""


def with_globals(module: ModuleOp, signatures: Mapping[str, Signature]) -> tuple[ModuleOp, dict[str, Signature]]:
    """Put the state of all functions into variables, in a copy of the module; return it with its new signatures.

    A module without state is returned as it is.
    """
    variables = _variables(signatures.values())
    if not variables:
        return module, dict(signatures)
    copy = module.clone()
    functions = {f.sym_name.data: f for f in copy.ops if isinstance(f, func.FuncOp)}
    types: dict[str, TensorType[Any]] = {}
    for function, signature in signatures.items():
        for name, type_ in _load_and_store(functions[function], signature).items():
            if not isinstance(type_, TensorType) or not _holds(type_, variables[name]):
                held = variables[name].spec
                raise Unsupported(f"the variable {name!r} holds {held}, and the program reads it as {type_}")
            types[name] = type_
    first = copy.body.block.first_op
    assert first is not None
    for name, type_ in types.items():
        contents = DenseResourceAttr(StringAttr(name), type_)
        copy.body.block.insert_op_before(ml_program.variable(name, type_, contents), first)
    copy.body.block.add_ops([_getter(types), _setter(types)])
    ordered = tuple(variables[name] for name in types)
    outputs = tuple(Output(i) for i in range(len(types)))
    return copy, {
        **{name: _without_state(signature) for name, signature in signatures.items()},
        GET_STATE: Signature((), tuple(argument.spec for argument in ordered), outputs),
        SET_STATE: Signature(ordered, (), ()),
    }


def _variables(signatures: Iterable[Signature]) -> dict[str, Argument]:
    """Collect the arguments that are state, by the name of the weight that they start with."""
    return {a.state: a for signature in signatures for a in signature.arguments if a.state is not None}


def _holds(type_: TensorType[Any], argument: Argument) -> bool:
    """Tell whether a tensor type has the elements of the tensor that a variable starts with."""
    spec = argument.spec
    return isinstance(spec, TensorSpec) and type_.element_type == spec.dtype.builtin


def _load_and_store(function: func.FuncOp, signature: Signature) -> dict[str, Attribute]:
    """Make a function load its state where it begins and store it where it ends; return the variables' types."""
    block, end = function.body.block, function.body.blocks[-1].last_op
    assert isinstance(end, func.ReturnOp)
    states = {i: a.state for i, a in enumerate(signature.arguments) if a.state is not None}
    stored = {m.result: states[m.argument] for m in signature.mutations if m.argument in states}
    types = {name: block.args[i].type for i, name in states.items()}
    end_block = end.parent
    assert end_block is not None
    for result, name in stored.items():
        end_block.insert_op_before(ml_program.store(name, end.operands[result]), end)
    kept = [end.operands[i] for i in _given(signature)]
    end.operands = kept
    loads = [ml_program.load(name, types[name]) for name in states.values()]
    first = block.first_op
    assert first is not None
    block.insert_ops_before(loads, first)
    for position, load in reversed(list(zip(states, loads, strict=True))):
        argument = block.args[position]
        load.results[0].name_hint = argument.name_hint
        argument.replace_all_uses_with(load.results[0])
        block.erase_arg(argument)
    _set_type(function, [a.type for a in block.args], kept, list(states))
    return types


def _given(signature: Signature) -> list[int]:
    """List the results that callers still get: all but those that are new values of state and nothing else."""
    arguments = signature.arguments
    stored = {m.result for m in signature.mutations if arguments[m.argument].state is not None}
    stored -= {o.result for o in signature.outputs if o.result is not None}
    return [i for i in range(len(signature.results)) if i not in stored]


def _set_type(
    function: func.FuncOp, arguments: Sequence[Attribute], results: Sequence[SSAValue], gone: Sequence[int]
) -> None:
    """Give a function its new type, and its arguments their own attributes."""
    function.properties["function_type"] = FunctionType.from_lists(arguments, [v.type for v in results])
    if function.arg_attrs is not None:
        kept = [a for i, a in enumerate(function.arg_attrs.data) if i not in gone]
        function.properties["arg_attrs"] = type(function.arg_attrs)(kept)


def _getter(types: Mapping[str, Attribute]) -> func.FuncOp:
    loads = [ml_program.load(name, type_) for name, type_ in types.items()]
    block = Block([*loads, func.ReturnOp(*(load.results[0] for load in loads))])
    return func.FuncOp(GET_STATE, FunctionType.from_lists([], list(types.values())), Region(block))


def _setter(types: Mapping[str, Attribute]) -> func.FuncOp:
    block = Block(arg_types=list(types.values()))
    block.add_ops(ml_program.store(name, value) for name, value in zip(types, block.args, strict=True))
    block.add_op(func.ReturnOp())
    return func.FuncOp(SET_STATE, FunctionType.from_lists(list(types.values()), []), Region(block))


def _without_state(signature: Signature) -> Signature:
    """Return how a function is called once its state is in variables."""
    arguments = [i for i, a in enumerate(signature.arguments) if a.state is None]
    results = _given(signature)
    return replace(
        signature,
        arguments=tuple(signature.arguments[i] for i in arguments),
        results=tuple(signature.results[i] for i in results),
        result_dims=tuple(signature.result_dims[i] for i in results if i < len(signature.result_dims)),
        outputs=tuple(o if o.result is None else replace(o, result=results.index(o.result)) for o in signature.outputs),
        mutations=tuple(
            replace(m, result=results.index(m.result), argument=arguments.index(m.argument))
            for m in signature.mutations
            if m.argument in arguments
        ),
        inputs=None
        if signature.inputs is None
        else tuple(i if i is None else arguments.index(i) for i in signature.inputs),
    )
