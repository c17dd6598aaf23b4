"""Several programs as functions of one module, which share their weights and their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from xdsl.dialects.builtin import DenseResourceAttr, ModuleOp, StringAttr

from flambeau.frontends.fx.compile import Program
from flambeau.frontends.fx.exported import Imported, Keep
from flambeau.frontends.fx.state import memory_of
from flambeau.frontends.tensors import identity
from flambeau.ir.module import Signature, Weights


def import_entries(programs: Mapping[str, Program], keep: Keep) -> tuple[ModuleOp, Weights, dict[str, Signature]]:
    """Import programs as functions of these names. What one of them writes is an argument of all that read it."""
    found = {name: program(keep, name, ()) for name, program in programs.items()}
    written = [tensor for imported in found.values() for tensor in _written(imported)]
    for name, (_, weights, signature) in found.items():
        passed = {a.state for a in signature.arguments}
        if any(_share(tensor, written) for resource, tensor in weights.items() if resource not in passed):
            found[name] = programs[name](keep, name, written)
    functions, merged, signatures = [], Weights(), {}
    for name, (module, weights, signature) in found.items():
        names = _merge(merged, weights)
        _rename(module, names)
        (function,) = module.ops
        function.detach()  # type: ignore[no-untyped-call]
        functions.append(function)
        arguments = tuple(replace(a, state=names.get(a.state, a.state)) for a in signature.arguments)
        signatures[name] = replace(signature, arguments=arguments)
    return ModuleOp(functions), merged, signatures


def _written(imported: Imported) -> list[Any]:
    """List the tensors of the model that a program writes."""
    _, weights, signature = imported
    states = (signature.arguments[m.argument].state for m in signature.mutations)
    return [weights[state] for state in states if state is not None]


def _share(tensor: Any, others: Sequence[Any]) -> bool:
    """Tell whether a tensor has memory in common with one of others."""
    own = memory_of(tensor)
    spans = [span for other in others if (span := memory_of(other)) is not None]
    return own is not None and any(own[0] < stop and start < own[1] for start, stop in spans)


def _merge(merged: Weights, weights: Weights) -> dict[str | None, str]:
    """Add weights to those that are there already; return the name that each has now."""
    known = {identity(tensor): name for name, tensor in merged.items()}
    names: dict[str | None, str] = {}
    for name, tensor in weights.items():
        names[name] = known.get(identity(tensor)) or merged.free_name(name)
        merged.tensors.setdefault(names[name], tensor)
    return names


def _rename(module: ModuleOp, names: Mapping[str | None, str]) -> None:
    """Give the resources that a module refers to their new names, in place."""
    for op in module.walk():
        for holder in (op.properties, op.attributes):
            for key, value in holder.items():
                if isinstance(value, DenseResourceAttr) and (old := value.resource_handle.data) != names.get(old, old):
                    holder[key] = DenseResourceAttr(StringAttr(names[old]), value.type)
