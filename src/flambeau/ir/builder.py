"""Building IR: ops are appended to a block and carry the location of what they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from flambeau.ir.locations import UNKNOWN

OpT = TypeVar("OpT", bound=Operation)

_NOTHING: Mapping[str, Attribute] = {}


class OpBuilder:
    """Adds ops to the end of `block`, or before an op of it, each stamped with `location`."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.before: Operation | None = None
        self.location: Any = UNKNOWN

    def insert(self, op: Operation) -> None:
        """Add an op where this builder stands: at the end in a block that `before` is not in, a region's, say."""
        if self.before is None or self.before.parent is not self.block:
            self.block.add_op(op)
        else:
            self.block.insert_ops_before((op,), self.before)

    def emit(
        self,
        op_class: type[OpT],
        operands: Sequence[SSAValue] = (),
        result_types: Sequence[Attribute] = (),
        properties: Mapping[str, Attribute] = _NOTHING,
        attributes: Mapping[str, Attribute] = _NOTHING,
        regions: Sequence[Region] = (),
    ) -> OpT:
        """Add an op."""
        op = op_class.create(
            operands=operands,
            result_types=result_types,
            properties=properties,
            attributes=attributes,
            regions=regions,
            location=self.location,
        )
        self.insert(op)
        return op

    def value(
        self,
        op_class: type[Operation],
        operands: Sequence[SSAValue],
        result_type: Attribute,
        properties: Mapping[str, Attribute] = _NOTHING,
    ) -> SSAValue:
        """Add an op with one result and give that."""
        op = op_class.create(
            operands=operands, result_types=(result_type,), properties=properties, location=self.location
        )
        self.insert(op)
        return op.results[0]


def backward_slice(values: Sequence[SSAValue]) -> set[Operation]:
    """Collect the ops that values are computed by: those that give them, and those that give these their operands."""
    found: set[Operation] = set()
    pending = list(values)
    while pending:
        op = pending.pop().owner
        if isinstance(op, Operation) and op not in found:
            found.add(op)
            pending += op.operands
    return found


def erase(op: Operation) -> None:
    """Take an op without uses out of its block."""
    op.detach()  # type: ignore[no-untyped-call]
    op.erase()
