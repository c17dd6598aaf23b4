"""Put the bodies of functions where they are called."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from xdsl.dialects import func
from xdsl.dialects.builtin import CallSiteLoc, ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.ir.builder import erase
from flambeau.ir.locations import UNKNOWN
from flambeau.ir.module_pass import TorchPass
from flambeau.passes.symbol_dce import callee_name, functions_of, is_public, references

STAGE = "inline"
Node = TypeVar("Node", bound=Hashable)


def inline_calls(module: ModuleOp) -> ModuleOp:
    """Replace every call of a function with a body of one block, in place; private functions that were inlined go.

    Callees come before callers, so that each body is copied in its final form: the work is that of the result.
    """
    functions = functions_of(module)
    calls = {name: _calls(function) for name, function in functions.items()}
    _check_callees(functions, calls)
    callees = {name: [callee_name(c) for c in inner] for name, inner in calls.items()}
    order, cycle = callees_first(callees)
    if cycle is not None:
        raise CompileError([_recursion(cycle, calls)], summary="a function calls itself")
    inlined: set[str] = set()
    for name in order:
        for call in calls[name]:
            callee = callee_name(call)
            if len(functions[callee].body.blocks) == 1:
                _inline(call, functions[callee])
                inlined.add(callee)
    used = {name for op in module.ops for name in references(op)}
    for name in inlined - used:
        if not is_public(functions[name]):
            erase(functions[name])
    return module


class Inline(TorchPass):
    """Put functions where they are called."""

    name = "inline"
    run = staticmethod(inline_calls)


def _calls(function: func.FuncOp) -> list[func.CallOp]:
    return [op for op in function.body.walk() if isinstance(op, func.CallOp)]


def _check_callees(functions: Mapping[str, func.FuncOp], calls: Mapping[str, Sequence[func.CallOp]]) -> None:
    problems = [
        Diagnostic(STAGE, f"@{name} calls @{callee}, and there is no such function", location=call.location)
        for name, inner in calls.items()
        for call in inner
        if (callee := callee_name(call)) not in functions
    ]
    if problems:
        raise CompileError(problems, summary="calls of functions that do not exist")


def callees_first(graph: Mapping[Node, Iterable[Node]]) -> tuple[list[Node], list[Node] | None]:
    """Sort the nodes of a call graph, each behind those that it calls; and find a cycle, if there is one."""
    order: list[Node] = []
    done: set[Node] = set()
    for start in graph:
        path: dict[Node, Any] = {}
        pending = [start]
        while pending:
            node = pending[-1]
            if node in done:
                pending.pop()
                continue
            if node not in path:
                path[node] = iter(graph[node])
            following = next(path[node], None)
            if following is None:
                del path[node]
                pending.pop()
                done.add(node)
                order.append(node)
            elif following in path:
                nodes = list(path)
                return order, [*nodes[nodes.index(following) :], following]
            elif following not in done:
                pending.append(following)
    return order, None


def _recursion(cycle: Sequence[str], calls: Mapping[str, Sequence[func.CallOp]]) -> Diagnostic:
    call = next(c for c in calls[cycle[0]] if callee_name(c) == cycle[1])
    return Diagnostic(
        STAGE,
        f"the function @{cycle[0]} calls itself: {' -> '.join(f'@{name}' for name in cycle)}",
        location=call.location,
        hint="Write the recursion as a loop.",
    )


def _inline(call: func.CallOp, function: func.FuncOp) -> None:
    body, target = function.body.block, call.parent
    assert target is not None
    values: dict[SSAValue, SSAValue] = dict(zip(body.args, call.operands, strict=True))
    locations: dict[Any, Any] = {}
    results: Sequence[SSAValue] = ()
    for op in body.ops:
        if isinstance(op, func.ReturnOp):
            results = [values.get(v, v) for v in op.operands]
            break
        copy = copy_op(op, values)
        for inner in copy.walk():
            old = inner.location
            if old not in locations:
                known = old != UNKNOWN or call.location != UNKNOWN
                locations[old] = CallSiteLoc(old, call.location) if known else old
            inner.location = locations[old]
        target.insert_op_before(copy, call)
    for old_result, new in zip(call.results, results, strict=True):
        old_result.replace_all_uses_with(new)
    erase(call)


def copy_op(op: Operation, values: dict[SSAValue, SSAValue]) -> Operation:
    """Copy an op with all that it contains, on other operands; the copy's results are entered in `values`."""
    copy = op.clone_without_regions(values)
    for region, new_region in zip(op.regions, copy.regions, strict=True):
        for block in region.blocks:
            new_region.add_block(copy_block(block, values))
    return copy


def copy_block(block: Block, values: dict[SSAValue, SSAValue]) -> Block:
    """Copy a block whose ops have no successors."""
    copy = copy_arguments(block, values)
    for op in block.ops:
        copy.add_op(copy_op(op, values))
    return copy


def copy_arguments(block: Block, values: dict[SSAValue, SSAValue]) -> Block:
    """Make an empty block with the arguments of another."""
    copy = Block(arg_types=block.arg_types)
    for old, new in zip(block.args, copy.args, strict=True):
        new.name_hint, new.location = old.name_hint, old.location
        values[old] = new
    return copy
