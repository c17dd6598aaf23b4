"""Checks in StableHLO as assertions: IREE knows `cf.assert`, and would inline nothing for our composite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xdsl.dialects import cf, func, tensor
from xdsl.dialects.builtin import ModuleOp, StringAttr, i1
from xdsl.ir import Operation

from flambeau.engines.iree.rewriting import builder_before
from flambeau.ir.builder import erase
from flambeau.lowering.stablehlo.scalars import ASSERT


def has_checks(module: ModuleOp) -> bool:
    """Whether a program has checks."""
    return next(_found(module), None) is not None


def checks_to_assertions(module: ModuleOp) -> ModuleOp:
    """Rewrite the module in place."""
    for op in list(_found(module)):
        attributes: Any = op.properties["composite_attributes"]
        b = builder_before(op)
        holds = b.value(tensor.ExtractOp, (op.operands[0],), i1)
        b.emit(cf.AssertOp, (holds,), (), {"msg": attributes.data["message"]})
        erase(op)
    for function in module.ops:
        if isinstance(function, func.FuncOp) and function.sym_name.data == ASSERT:
            erase(function)
    return module


def _found(module: ModuleOp) -> Iterator[Operation]:
    return (op for op in module.walk() if op.name == "stablehlo.composite" and op.properties["name"] == _NAME)


_NAME = StringAttr(ASSERT)
