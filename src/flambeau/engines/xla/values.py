"""What rewrites of StableHLO share: a builder before an op, constants, broadcasts, and what a value's type says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, TensorType
from xdsl.ir import Operation, SSAValue

from flambeau.dialects import stablehlo
from flambeau.ir.builder import OpBuilder
from flambeau.lowering.builder import i64_array, tensor_type


def before(op: Operation) -> OpBuilder:
    """Make a builder whose ops stand before an op, and carry its location."""
    assert op.parent is not None
    b = OpBuilder(op.parent)
    b.before, b.location = op, op.location
    return b


def constant(b: OpBuilder, number: float, type_: TensorType[Any]) -> SSAValue:
    """Build a tensor whose elements are all one number."""
    value = DenseIntOrFPElementsAttr.from_list(type_, [number])
    return b.value(stablehlo.op("constant"), (), type_, {"value": value})


def filled(b: OpBuilder, number: float, shape: tuple[int, ...], element: Any) -> SSAValue:
    """Build a tensor of one number as a broadcast of it."""
    return broadcast(b, constant(b, number, tensor_type((), element)), (), shape)


def broadcast(b: OpBuilder, x: SSAValue, dims: Iterable[int], shape: tuple[int, ...]) -> SSAValue:
    """Build a broadcast of a tensor to a shape, of which `dims` are its own dims."""
    properties = {"broadcast_dimensions": i64_array(tuple(dims))}
    return b.value(stablehlo.op("broadcast_in_dim"), (x,), tensor_type(shape, element_of(x)), properties)


def element_of(value: SSAValue) -> Any:
    """Return the type of a tensor's elements; None for what is no tensor."""
    return value.type.element_type if isinstance(value.type, TensorType) else None


def shape_of(value: SSAValue) -> tuple[int, ...]:
    """Return the shape of a tensor."""
    assert isinstance(value.type, TensorType)
    return tuple(value.type.get_shape())


def only_user(value: SSAValue) -> Operation | None:
    """Return the op that uses a value; None if there are several, or none."""
    uses = list(value.uses)
    return uses[0].operation if len(uses) == 1 else None
