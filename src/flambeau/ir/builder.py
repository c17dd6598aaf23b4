"""Building IR: ops are appended to a block and carry the location of what they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from flambeau.ir.locations import UNKNOWN

OpT = TypeVar("OpT", bound=Operation)

_NOTHING: Mapping[str, Attribute] = {}


class OpBuilder:
    """Appends ops to the end of `block`, each stamped with `location`."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.location: Any = UNKNOWN

    def emit(
        self,
        op_class: type[OpT],
        operands: Sequence[SSAValue] = (),
        result_types: Sequence[Attribute] = (),
        properties: Mapping[str, Attribute] = _NOTHING,
        attributes: Mapping[str, Attribute] = _NOTHING,
        regions: Sequence[Region] = (),
    ) -> OpT:
        """Append an op."""
        op = op_class.create(
            operands=operands,
            result_types=result_types,
            properties=properties,
            attributes=attributes,
            regions=regions,
            location=self.location,
        )
        self.block.add_op(op)
        return op

    def value(
        self,
        op_class: type[Operation],
        operands: Sequence[SSAValue],
        result_type: Attribute,
        properties: Mapping[str, Attribute] = _NOTHING,
    ) -> SSAValue:
        """Append an op with one result and give that."""
        op = op_class.create(
            operands=operands, result_types=(result_type,), properties=properties, location=self.location
        )
        self.block.add_op(op)
        return op.results[0]
