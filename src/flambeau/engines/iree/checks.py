"""Checks in StableHLO as assertions: IREE knows `cf.assert`, and would inline nothing for our composite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xdsl.dialects import cf, func, tensor
from xdsl.dialects.builtin import ModuleOp, StringAttr, i1
from xdsl.ir import Operation

from flambeau.engines.iree.rewriting import Rewrite, builder_before
from flambeau.ir.builder import erase
from flambeau.lowering.stablehlo.scalars import ASSERT


def _assert(op: Operation) -> None:
    if isinstance(op, func.FuncOp):
        erase(op)
        return
    attributes: Any = op.properties["composite_attributes"]
    b = builder_before(op)
    holds = b.value(tensor.ExtractOp, (op.operands[0],), i1)
    b.emit(cf.AssertOp, (holds,), (), {"msg": attributes.data["message"]})
    erase(op)


def _found(module: ModuleOp) -> Iterator[Operation]:
    """Yield the checks, and then the function that they call."""
    for op in module.walk():
        if op.name == "stablehlo.composite" and op.properties["name"] == _NAME:
            yield op
    yield from (op for op in module.ops if isinstance(op, func.FuncOp) and op.sym_name.data == ASSERT)


_NAME = StringAttr(ASSERT)

REWRITE = Rewrite(_found, _assert)
