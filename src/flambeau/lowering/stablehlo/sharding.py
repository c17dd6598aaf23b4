"""Shardings on StableHLO: of arguments, results, weights, and of what submodules of a model give.

Nothing of the program changes: XLA's partitioner reads them, and compilers for one device pass over them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DenseResourceAttr, DictionaryAttr, ModuleOp, StringAttr, TensorType
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.dialects.sdy import (
    ATTRIBUTE,
    ManualComputationOp,
    MeshAttr,
    MeshOp,
    ReturnOp,
    Sharding,
    ShardingAttr,
    ShardingConstraintOp,
    ShardingPerValueAttr,
)
from flambeau.ir.builder import erase
from flambeau.ir.locations import module_path

MESH = "mesh"
"""The symbol of a program's mesh."""


@dataclass(frozen=True)
class Shardings:
    """What is known of the layouts of a program's tensors; the others are the partitioner's to choose."""

    axes: Mapping[str, int]
    arguments: Sequence[Sharding | None]
    results: Sequence[Sharding | None]
    weights: Mapping[str, Sharding] = field(default_factory=dict)
    outputs: Mapping[str, Callable[[int], Sharding]] = field(default_factory=dict)
    """By the path of a submodule, from the rank of a tensor that it gives to the tensor's sharding."""


def annotate(module: ModuleOp, function: str, shardings: Shardings) -> ModuleOp:
    """Write shardings into a function of a module, in place."""
    declare_mesh(module, shardings.axes)
    found = next(op for op in module.ops if isinstance(op, func.FuncOp) and op.sym_name.data == function)
    found.properties["arg_attrs"] = sharding_attributes(shardings.arguments)
    found.properties["res_attrs"] = sharding_attributes(shardings.results)
    for op in list(found.body.walk()):
        if (name := resource_of(op)) is not None and name in shardings.weights:
            op.attributes[ATTRIBUTE] = ShardingPerValueAttr((shardings.weights[name],))
        elif shardings.outputs and op.parent is found.body.block:
            _constrain(op, shardings.outputs)
    return module


def declare_mesh(module: ModuleOp, axes: Mapping[str, int]) -> None:
    """Put the mesh in front of a module's functions, unless it has one."""
    first = module.body.block.first_op
    assert first is not None
    if not any(isinstance(op, MeshOp) for op in module.ops):
        properties = {"sym_name": StringAttr(MESH), "mesh": MeshAttr(tuple(axes.items()))}
        module.body.block.insert_op_before(MeshOp.create(properties=properties), first)


def sharding_attributes(shardings: Sequence[Sharding | None]) -> ArrayAttr[DictionaryAttr]:
    """Make the attributes of arguments or results."""
    return ArrayAttr([DictionaryAttr({} if s is None else {ATTRIBUTE: ShardingAttr(s)}) for s in shardings])


def resource_of(op: Operation) -> str | None:
    """Return the name of the weight that a constant holds; None for other ops."""
    value = op.properties.get("value") if op.name == "stablehlo.constant" else None
    return value.resource_handle.data if isinstance(value, DenseResourceAttr) else None


def _constrain(op: Operation, outputs: Mapping[str, Callable[[int], Sharding]]) -> None:
    """Put a constraint behind an op if a submodule with a sharding gives its result to others."""
    path = module_path(op.location)
    owner = next((p for p in outputs if path == p or path.startswith(f"{p}.")), None)
    if owner is None:
        return
    for result in op.results:
        used = [use for use in result.uses if not _is_inside(use.operation, owner)]
        if used and isinstance(result.type, TensorType) and result.type.get_num_dims():
            constrained = _constraint(op, result, outputs[owner](result.type.get_num_dims()))
            for use in used:
                use.operation.operands[use.index] = constrained


def _is_inside(op: Operation, path: str) -> bool:
    own = module_path(op.location)
    return own == path or own.startswith(f"{path}.")


def _constraint(op: Operation, value: OpResult, sharding: Sharding) -> SSAValue:
    made = ShardingConstraintOp.create(
        operands=[value],
        result_types=[value.type],
        properties={"sharding": ShardingAttr(sharding)},
        location=op.location,
    )
    assert op.parent is not None
    op.parent.insert_op_after(made, op)
    return made.result


def is_sharded(module: ModuleOp) -> bool:
    """Tell whether a module is laid out over a mesh."""
    return any(isinstance(op, MeshOp) for op in module.ops)


def without_shardings(module: ModuleOp) -> ModuleOp:
    """Return the module itself if it has no mesh, or a copy without it, for one device.

    Raises CompileError for a program whose devices exchange tensors themselves.
    """
    if not is_sharded(module):
        return module
    copy = module.clone()
    devices = next(math.prod(size for _, size in op.mesh.data) for op in copy.ops if isinstance(op, MeshOp))
    for op in list(copy.walk()):
        if isinstance(op, ManualComputationOp):
            if devices > 1:
                reason = f"the program exchanges tensors between {devices} devices, and cannot run on one"
                raise CompileError([Diagnostic("load", reason, hint='load(module, engine="xla") runs it.')])
            _unwrap(op)
        elif isinstance(op, MeshOp):
            erase(op)
        elif isinstance(op, ShardingConstraintOp):
            op.result.replace_all_uses_with(op.input)
            erase(op)
        else:
            op.attributes.pop(ATTRIBUTE, None)
            for name in ("arg_attrs", "res_attrs"):
                if isinstance(op, func.FuncOp) and name in op.properties:
                    del op.properties[name]
    return copy


def _unwrap(op: ManualComputationOp) -> None:
    """Put what a manual computation does in its place: for a mesh of one device, which has all there is."""
    block, parent = op.body.block, op.parent
    assert parent is not None
    for argument, value in zip(block.args, op.operands, strict=True):
        argument.replace_all_uses_with(value)
    for inner in list(block.ops):
        if isinstance(inner, ReturnOp):
            for old, new in zip(op.results, inner.operands, strict=True):
                old.replace_all_uses_with(new)
            erase(inner)
        else:
            inner.detach()  # type: ignore[no-untyped-call]
            parent.insert_op_before(inner, op)
    erase(op)


def shardings_of(function: func.FuncOp, kind: str) -> list[Sharding | None]:
    """Read the shardings of a function's arguments (`arg_attrs`) or results (`res_attrs`)."""
    attributes: Attribute | None = function.properties.get(kind)
    if not isinstance(attributes, ArrayAttr):
        type_ = function.function_type
        return [None] * len(type_.inputs if kind == "arg_attrs" else type_.outputs)
    found = [a.data.get(ATTRIBUTE) if isinstance(a, DictionaryAttr) else None for a in attributes.data]
    return [a.data if isinstance(a, ShardingAttr) else None for a in found]
