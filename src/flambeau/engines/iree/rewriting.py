"""What the rewrites for IREE share: a builder at an op, the dtype of a tensor, a barrier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import DenseArrayBase
from xdsl.ir import Attribute, Operation, SSAValue

from flambeau.dialects import stablehlo
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size
from flambeau.lowering.linalg.builder import LinalgBuilder


def builder_before(op: Operation) -> LinalgBuilder:
    """A builder whose ops stand before an op, and come from the same place in the source."""
    assert op.parent is not None
    b = LinalgBuilder(op.parent)
    b.before, b.location = op, op.location
    return b


def dtype_of(value: SSAValue) -> DType:
    element = value.type.element_type  # type: ignore[attr-defined]
    return dtypes.BY_BUILTIN[element]


def mixed(static: DenseArrayBase[Any], dynamic: Sequence[SSAValue]) -> list[Size]:
    """Numbers of which an attribute has those that are known, and operands the others, in their order."""
    following = iter(dynamic)
    return [n if n >= 0 else next(following) for n in static.get_values()]


def stablehlo_before(
    op: Operation,
    name: str,
    operands: Sequence[SSAValue],
    type_: Attribute,
    properties: Mapping[str, Attribute] | None = None,
) -> SSAValue:
    """The result of an op of StableHLO that stands before another op, and comes from the same place in the source."""
    new = stablehlo.op(name).create(operands=operands, result_types=[type_], properties=dict(properties or {}))
    new.location = op.location
    assert op.parent is not None
    op.parent.insert_op_before(new, op)
    return new.results[0]


def set_apart(op: Operation, index: int) -> None:
    """Keep IREE from computing an operand of a StableHLO op together with the op."""
    operand = op.operands[index]
    op.operands[index] = stablehlo_before(op, "optimization_barrier", [operand], operand.type)
