"""Remove private functions, global slots and class types that nothing public reaches."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, ModuleOp, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, Operation
from xdsl.transforms.dead_code_elimination import would_be_trivially_dead

from flambeau.dialects.torch.ops import (
    ClassTypeOp,
    GlobalSlotModuleInitializerOp,
    GlobalSlotOp,
    InitializeGlobalSlotsOp,
)
from flambeau.dialects.torch.types import ContainerType, NnModuleType
from flambeau.ir.builder import erase
from flambeau.ir.module_pass import TorchPass


def eliminate_dead_symbols(module: ModuleOp) -> ModuleOp:
    """Erase the symbols that nobody can use, in place. An initial value is not a use of its slot."""
    symbols: dict[str, Operation] = {}
    pending: list[Operation] = []
    for op in module.ops:
        name = symbol_name(op)
        if name is not None:
            symbols[name] = op
        if name is None or is_public(op):
            pending.append(op)
    live = set(pending)
    while pending:
        for name in references(pending.pop()):
            found = symbols.get(name)
            if found is not None and found not in live:
                live.add(found)
                pending.append(found)
    dead = [op for op in symbols.values() if op not in live]
    drop_initial_values(module, [op.sym_name for op in dead if isinstance(op, GlobalSlotOp)])
    for op in dead:
        erase(op)
    return module


class SymbolDce(TorchPass):
    """Remove private symbols that nobody uses."""

    name = "symbol-dce"
    run = staticmethod(eliminate_dead_symbols)


def symbol_name(op: Operation) -> str | None:
    """Return the name under which others refer to an op; None for an op without one."""
    name = op.properties.get("sym_name")
    return name.data if isinstance(name, StringAttr) else None


def is_public(op: Operation) -> bool:
    """Tell whether an op with a symbol can be used from outside. A class is only a type: it is there for its users."""
    if isinstance(op, ClassTypeOp):
        return False
    visibility = op.properties.get("sym_visibility")
    return not isinstance(visibility, StringAttr) or visibility.data == "public"


def references(op: Operation) -> set[str]:
    """Collect the symbols that an op and its regions refer to: functions and slots by name, classes by type."""
    seen: set[Attribute] = set()
    for inner in op.walk():
        if isinstance(inner, InitializeGlobalSlotsOp):
            continue
        seen.update(inner.properties.values(), inner.attributes.values(), inner.result_types)
        for region in inner.regions:
            for block in region.blocks:
                seen.update(block.arg_types)
    return {name for attribute in seen for name in _names(attribute)}


def _names(attribute: Attribute) -> Iterator[str]:
    match attribute:
        case SymbolRefAttr():
            yield attribute.root_reference.data
        case NnModuleType():
            yield attribute.data
        case ContainerType():
            for part in attribute.data:
                yield from _names(part)
        case FunctionType():
            for part in (*attribute.inputs.data, *attribute.outputs.data):
                yield from _names(part)
        case ArrayAttr():
            for part in attribute.data:
                yield from _names(part)
        case DictionaryAttr():
            for part in attribute.data.values():
                yield from _names(part)


def find_initializer(module: ModuleOp) -> GlobalSlotModuleInitializerOp | None:
    """Find the code that gives the slots their initial values, if there is any."""
    return next((op for op in module.ops if isinstance(op, GlobalSlotModuleInitializerOp)), None)


def functions_of(module: ModuleOp) -> dict[str, func.FuncOp]:
    """Map names to the functions of a module."""
    return {op.sym_name.data: op for op in module.ops if isinstance(op, func.FuncOp)}


def callee_name(call: func.CallOp) -> str:
    """Return the name of the function that is called."""
    return call.callee.root_reference.data


def drop_initial_values(module: ModuleOp, slots: Collection[str]) -> None:
    """Take slots out of the module's initialiser, with all that only they needed."""
    initializer = find_initializer(module)
    if initializer is None or not slots:
        return
    old, gone = initializer.initialization, set(slots)
    kept = {name: value for name, value in old.initial_values if name not in gone}
    block = initializer.regions[0].block
    block.insert_op_before(InitializeGlobalSlotsOp.build(kept), old)
    erase(old)
    op = block.last_op
    while op is not None:
        previous = op.prev_op
        if op.results and not any(r.uses for r in op.results) and would_be_trivially_dead(op):
            erase(op)
        op = previous
