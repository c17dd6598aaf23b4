"""Programs that exchange tensors themselves: each device runs them on its parts, as `torch.distributed` has it.

    func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
      %0 = stablehlo.all_reduce %x ...

which is what one device does, becomes over a mesh of `tensor=4` a function of what all of them have:

    func.func @main(%x: tensor<8x4xf32> {sdy.sharding = <@mesh, [{"tensor"}, {}]>}) -> tensor<2x4xf32> {
      %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"tensor"}, {}]>] out_shardings=[<@mesh, [{}, {}]>]
          manual_axes={"tensor"} (%part: tensor<2x4xf32>) { ... }
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from xdsl.dialects import func
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    ModuleOp,
    TensorType,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from flambeau.dialects import stablehlo
from flambeau.dialects.sdy import (
    ATTRIBUTE,
    ManualAxesAttr,
    ManualComputationOp,
    ReturnOp,
    Sharding,
    ShardingPerValueAttr,
)
from flambeau.ir.builder import erase
from flambeau.lowering.builder import tensor_type
from flambeau.lowering.stablehlo.groups import axes_along
from flambeau.lowering.stablehlo.sharding import Shardings, declare_mesh, resource_of, sharding_attributes

_SAME = frozenset({"stablehlo.all_reduce", "stablehlo.all_gather", "stablehlo.collective_broadcast"})
"""Collectives after which all devices of a group have the same."""
_OTHER = frozenset({"stablehlo.reduce_scatter", "stablehlo.all_to_all", "stablehlo.collective_permute"})
"""Collectives after which each device of a group has something else."""

Axes = frozenset[str]


def exchanges(module: ModuleOp) -> bool:
    """Tell whether a program has collectives of its own."""
    return any(op.name in _SAME or op.name in _OTHER for op in module.walk())


def whole_shape(shape: Sequence[int], sharding: Sharding, mesh: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of a tensor of which each device has a part of this shape."""
    return tuple(n * math.prod(mesh[a] for a in d.axes) for n, d in zip(shape, sharding.dims, strict=True))


def differing(
    function: func.FuncOp, mesh: Mapping[str, int], arguments: Sequence[Sharding], weights: Mapping[str, Sharding]
) -> list[Axes]:
    """Find the axes along which devices may have different results, for each result of a function.

    A value differs along the axes that its operands differ along. Collectives make it the same along theirs, or another
    one.
    """
    known: dict[SSAValue, Axes] = {
        value: _split_axes(sharding) for value, sharding in zip(function.body.block.args, arguments, strict=True)
    }
    end = function.get_return_op()
    assert end is not None
    for op in function.body.block.ops:
        along: Axes = frozenset().union(*(known.get(v, frozenset()) for v in _used(op)))
        if (name := resource_of(op)) is not None and name in weights:
            along = _split_axes(weights[name])
        elif op.name in _SAME:
            along -= _axes_of(op, mesh)
        for inner in op.walk():
            if inner.name in _OTHER:
                along |= _axes_of(inner, mesh)
        known.update(dict.fromkeys(op.results, along))
    return [known.get(v, frozenset()) for v in end.operands]


def _split_axes(sharding: Sharding) -> Axes:
    return frozenset(axis for dim in sharding.dims for axis in dim.axes)


def _used(op: Operation) -> Iterable[SSAValue]:
    for inner in op.walk():
        yield from inner.operands


def _axes_of(op: Operation, mesh: Mapping[str, int]) -> Axes:
    """Return the axes that a collective is along; all where they are not to be told."""
    groups = op.properties.get("replica_groups")
    if not isinstance(groups, DenseIntOrFPElementsAttr):
        return frozenset(mesh)
    size = groups.type.get_shape()[1]
    line = sorted(int(n) for n in list(groups.get_values())[:size])
    found = axes_along(mesh, line)
    return frozenset(mesh if found is None else found)


def wrap(module: ModuleOp, name: str, shardings: Shardings) -> ModuleOp:
    """Make a function for one device one for all of them, in place; all its arguments and results are tensors."""
    declare_mesh(module, shardings.axes)
    function = next(op for op in module.ops if isinstance(op, func.FuncOp) and op.sym_name.data == name)
    own = function.body.detach_block(function.body.block)
    given = [s for s in shardings.arguments if s is not None]
    outer = Block(arg_types=[_whole(a.type, s, shardings.axes) for a, s in zip(own.args, given, strict=True)])
    for old, new in zip(own.args, outer.args, strict=True):
        new.name_hint = old.name_hint
    operands: list[SSAValue] = list(outer.args)
    for op in list(own.walk()):
        if (weight := resource_of(op)) is not None:
            sharding = shardings.weights[weight]
            given.append(sharding)
            operands.append(_outside(op, sharding, shardings.axes, outer))
            op.results[0].replace_all_uses_with(own.insert_arg(op.results[0].type, len(own.args)))
            erase(op)
    end = own.last_op
    assert end is not None
    values = list(end.operands)
    own.add_op(ReturnOp.create(operands=values, location=end.location))
    erase(end)
    results = [s for s in shardings.results if s is not None]
    manual = ManualComputationOp.create(
        operands=operands,
        result_types=[_whole(v.type, s, shardings.axes) for v, s in zip(values, results, strict=True)],
        properties={
            "in_shardings": ShardingPerValueAttr(tuple(given)),
            "out_shardings": ShardingPerValueAttr(tuple(results)),
            "manual_axes": ManualAxesAttr(tuple(shardings.axes)),
        },
        regions=[Region(own)],
        location=function.location,
    )
    outer.add_op(manual)
    outer.add_op(func.ReturnOp(*manual.results))
    function.body.add_block(outer)
    function.update_function_type()  # type: ignore[no-untyped-call]
    function.properties["arg_attrs"] = sharding_attributes(shardings.arguments)
    function.properties["res_attrs"] = sharding_attributes(shardings.results)
    return module


def _whole(type_: Attribute, sharding: Sharding, mesh: Mapping[str, int]) -> TensorType[Attribute]:
    assert isinstance(type_, TensorType)
    return tensor_type(whole_shape(type_.get_shape(), sharding, mesh), type_.element_type)


def _outside(op: Operation, sharding: Sharding, mesh: Mapping[str, int], block: Block) -> SSAValue:
    """Put the whole of a weight in front, of which an op has the part of one device."""
    value = op.properties["value"]
    assert isinstance(value, DenseResourceAttr)
    type_ = _whole(op.results[0].type, sharding, mesh)
    made = stablehlo.op("constant").create(
        result_types=[type_],
        properties={"value": DenseResourceAttr(value.resource_handle, type_)},
        attributes={ATTRIBUTE: ShardingPerValueAttr((sharding,))},
        location=op.location,
    )
    block.add_op(made)
    return made.results[0]
