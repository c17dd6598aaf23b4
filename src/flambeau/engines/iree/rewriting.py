"""What the rewrites for IREE share: a builder at an op, the dtype of a tensor, a barrier."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from flambeau.dialects import stablehlo
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
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


def set_apart(op: Operation, index: int) -> None:
    """Keep IREE from computing an operand of a StableHLO op together with the op."""
    operand = op.operands[index]
    barrier = stablehlo.op("optimization_barrier").create(operands=[operand], result_types=[operand.type])
    assert op.parent is not None
    op.parent.insert_ops_before((barrier,), op)
    op.operands[index] = barrier.results[0]
