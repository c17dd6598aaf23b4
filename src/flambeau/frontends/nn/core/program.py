"""Python functions and modules to functions of the torch dialect."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import Block, Region, SSAValue

from flambeau.dialects.specs import spec_of
from flambeau.dialects.torch.ops import CopyToValueTensorOp
from flambeau.dialects.torch.types import BOOL, FLOAT, INT, NonValueTensorType, to_value, vtensor
from flambeau.frontends.nn.core import context, writes
from flambeau.frontends.nn.core.module import Module
from flambeau.frontends.nn.core.specs import TensorSpec
from flambeau.frontends.nn.core.tracer import Tracer
from flambeau.ir.arrays import dtype_of
from flambeau.ir.builder import erase
from flambeau.ir.module import Argument, Fixed, Mutation, Output, Signature, Weights
from flambeau.ir.trees import Tree, flatten

_NUMBERS = {int: INT, float: FLOAT, bool: BOOL}


@dataclass
class Traced:
    """A function in the making."""

    tracer: Tracer
    block: Block
    names: list[str]
    """The names of its arguments."""


def trace_function(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], name: str
) -> tuple[ModuleOp, Weights, Signature]:
    """Call a function on values of these types, and keep what it does as a function of this name."""
    block, weights = Block(), Weights()
    tracer = Tracer(block, weights)
    if isinstance(function, Module):
        tracer.enroll(function)
    leaves, tree = flatten((tuple(args), dict(kwargs)))
    leaves = [_as_spec(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
    traced = Traced(tracer, block, [])
    passed: list[Any] = []
    inputs: list[int | None] = []
    fixed: list[Fixed] = []
    for leaf, path in zip(leaves, _paths(function, tree), strict=True):
        if not _is_spec(leaf):
            fixed.append(Fixed(len(inputs), path, leaf))
        inputs.append(len(block.args) if _is_spec(leaf) else None)
        passed.append(add_argument(traced, leaf, path) if _is_spec(leaf) else leaf)
    positional, named = tree.unflatten(passed)
    with context.building(tracer):
        result = function(*positional, **named)
        results, out_tree = flatten(result)
        outputs = [tracer.output(leaf) for leaf in results]
    is_flat = all(p.is_leaf() for part in tree.parts for p in part.parts) and all(_is_spec(leaf) for leaf in leaves)
    op, weights, signature = _finish(
        traced, outputs, name, None if is_flat else tree, None if out_tree.is_leaf() else out_tree, inputs
    )
    return op, weights, replace(signature, fixed=tuple(fixed))


def _as_spec(array: np.ndarray[Any, Any]) -> TensorSpec:
    """Return the shape and dtype of an example; TypeError for a dtype without counterpart."""
    dtype = dtype_of(array)
    if dtype is None:
        raise TypeError(f"an array of {array.dtype} has no counterpart in programs: convert it to a standard dtype")
    return TensorSpec(array.shape, dtype)


def _is_spec(leaf: Any) -> bool:
    return isinstance(leaf, TensorSpec) or (isinstance(leaf, type) and leaf in _NUMBERS)


def add_argument(traced: Traced, spec: Any, name: str) -> Any:
    """Append an argument of this type to the function and return it as a value."""
    type_ = vtensor(spec.shape, spec.dtype.torch_type) if isinstance(spec, TensorSpec) else _NUMBERS[spec]
    value = traced.block.insert_arg(type_, len(traced.block.args))
    value.name_hint = name
    traced.names.append(name)
    return traced.tracer.wrap(value)


def _paths(function: Callable[..., Any], tree: Tree) -> list[str]:
    """Name each leaf of the arguments after the function's parameters."""
    target = function.forward if isinstance(function, Module) else function
    positional, named = tree.parts
    names: list[str] = []
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    for i, part in enumerate(positional.parts):
        known = parameters[i] if i < len(parameters) else None
        plain = known is not None and known.kind in (known.POSITIONAL_OR_KEYWORD, known.POSITIONAL_ONLY)
        names += _leaf_names(known.name if known is not None and plain else f"args_{i}", part)
    for key, part in zip(named.context, named.parts, strict=True):
        names += _leaf_names(key, part)
    return names


def _leaf_names(name: str, tree: Tree) -> list[str]:
    if tree.is_leaf():
        return [name]
    keys = tree.context or range(len(tree.parts))
    return [n for key, part in zip(keys, tree.parts, strict=True) for n in _leaf_names(f"{name}_{key}", part)]


def _finish(
    traced: Traced, outputs: list[Any], name: str, in_tree: Tree | None, out_tree: Tree | None, inputs: list[int | None]
) -> tuple[ModuleOp, Weights, Signature]:
    """Close the function: what it writes comes out as further results."""
    tracer, block = traced.tracer, traced.block
    arguments = [Argument(n, spec_of(a.type)) for n, a in zip(traced.names, block.args, strict=True)]
    objects: dict[SSAValue, SSAValue] = {}
    written: list[SSAValue] = []
    if tracer.writes:
        sharing = writes.analyze(block)
        written += writes.written_arguments(block.args, sharing)
        for literal in writes.written_weights(block, sharing):
            old = literal.results[0]
            resource = literal.properties["value"].resource_handle.data  # type: ignore[attr-defined]
            new = block.insert_arg(old.type, len(block.args))
            old.replace_all_uses_with(new)
            sharing.join(old, new)
            sharing.written = {sharing.root(v) for v in sharing.written}
            outputs = [new if o is old else o for o in outputs]
            erase(literal)
            arguments.append(Argument(resource, spec_of(new.type), resource))
            written.append(new)
        objects = writes.settle(block, sharing)
    results: list[SSAValue] = []

    def add_result(value: SSAValue) -> int:
        value = objects.get(value, value)
        if isinstance(value.type, NonValueTensorType):
            value = tracer.value(CopyToValueTensorOp, (value,), to_value(value.type))
        results.append(value)
        return len(results) - 1

    leaves = tuple(Output(add_result(o)) if isinstance(o, SSAValue) else Output(None, o) for o in outputs)
    positions: dict[SSAValue, int] = {a: i for i, a in enumerate(block.args)}
    mutations = tuple(Mutation(add_result(v), positions[v]) for v in written)
    tracer.emit(func.ReturnOp, results)
    type_ = FunctionType.from_lists([a.type for a in block.args], [r.type for r in results])
    signature = Signature(
        arguments=tuple(arguments),
        results=tuple(spec_of(r.type) for r in results),
        outputs=leaves,
        mutations=mutations,
        in_spec=in_tree,
        out_spec=out_tree,
        inputs=tuple(inputs) if in_tree is not None else None,
    )
    return ModuleOp([func.FuncOp(name, type_, Region(block))]), tracer.weights, signature
