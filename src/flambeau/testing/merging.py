"""Many small programs as functions of one module: an engine takes a fifth of the time for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from xdsl.dialects.builtin import DenseResourceAttr, ModuleOp, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, Block, Operation, Region

from flambeau.api import Module
from flambeau.ir.module import Argument, Signature, Weights


def merge(modules: Mapping[str, Module]) -> Module:
    """Merge modules of a single function each into one, under the names given. The modules are left as they are.

    What they were lowered from is merged too, so that an engine can specialise a function.
    """
    if len(modules) == 1:
        ((name, module),) = modules.items()
        if list(module.signatures) == [name]:
            return module
    block = Block()
    weights: dict[str, object] = {}
    signatures: dict[str, Signature] = {}
    for name, module in modules.items():
        ((function, signature),) = module.signatures.items()
        symbols = {s: f"{name}__{s}" for s in _symbols(module.op) if s != function} | {function: name}
        for op in module.op.body.block.ops:
            copy = op.clone()
            for inner in copy.walk():
                _rename(inner, name, symbols, bool(module.weights))
            block.add_op(copy)
        weights |= {_weight(name, w): tensor for w, tensor in module.weights.items()}
        signatures[name] = replace(signature, arguments=tuple(_renamed(name, a) for a in signature.arguments))
    first = next(iter(modules.values()))
    merged = ModuleOp(Region(block), dict(first.op.attributes))
    origins = {name: module.origin for name, module in modules.items() if module.origin is not None}
    origin = merge(origins) if len(origins) == len(modules) else None
    return Module(merged, Weights(dict(weights)), signatures, first.output_type, origin=origin)


def _weight(name: str, weight: str) -> str:
    return f"{name}.{weight}"


def _renamed(name: str, argument: Argument) -> Argument:
    return argument if argument.state is None else replace(argument, state=_weight(name, argument.state))


def _symbols(module: ModuleOp) -> Iterator[str]:
    for op in module.body.block.ops:
        symbol = op.properties.get("sym_name")
        if isinstance(symbol, StringAttr):
            yield symbol.data


def _rename(op: Operation, name: str, symbols: Mapping[str, str], weights: bool) -> None:
    for table in (op.properties, op.attributes):
        for key, value in table.items():
            if key == "sym_name" and isinstance(value, StringAttr) and value.data in symbols:
                table[key] = StringAttr(symbols[value.data])
            elif (new := _attribute(value, name, symbols, weights)) is not value:
                table[key] = new


def _attribute(value: Attribute, name: str, symbols: Mapping[str, str], weights: bool) -> Attribute:
    if isinstance(value, SymbolRefAttr) and value.root_reference.data in symbols:
        return SymbolRefAttr(symbols[value.root_reference.data], value.nested_references)
    if weights and isinstance(value, DenseResourceAttr):
        return DenseResourceAttr.from_params(_weight(name, value.resource_handle.data), value.type)
    return value
