"""How functions are called, after the passes have changed them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from flambeau.dialects.specs import spec_of
from flambeau.ir import dtypes
from flambeau.ir.module import Argument, Mutation, Signature, TensorSpec, Weights
from flambeau.ir.random_state import NAME, WORDS, first_state


def with_results(signatures: Mapping[str, Signature], op: ModuleOp) -> dict[str, Signature]:
    """Update signatures with the types that the passes have found for the results of functions."""
    types = {f.sym_name.data: f.function_type.outputs.data for f in op.ops if isinstance(f, func.FuncOp)}
    return {
        name: replace(signature, results=tuple(map(spec_of, types[name]))) if name in types else signature
        for name, signature in signatures.items()
    }


def with_random_state(
    signatures: Mapping[str, Signature], weights: Weights, op: ModuleOp
) -> tuple[dict[str, Signature], Weights]:
    """Name the last argument and result of functions that draw random numbers: the passes have added them."""
    drawing = [
        f.sym_name.data
        for f in op.ops
        if isinstance(f, func.FuncOp) and f.sym_name.data in signatures
        and len(f.function_type.inputs.data) > len(signatures[f.sym_name.data].arguments)
    ]  # fmt: skip
    if not drawing:
        return dict(signatures), weights
    state = weights.free_name(NAME)
    updated = dict(signatures)
    for name in drawing:
        old = signatures[name]
        last = Argument(NAME, TensorSpec((WORDS,), dtypes.int32), state, is_random=True)
        moved = Mutation(len(old.results) - 1, len(old.arguments))
        updated[name] = replace(old, arguments=(*old.arguments, last), mutations=(*old.mutations, moved))
    return updated, Weights({**weights.tensors, state: first_state()})
