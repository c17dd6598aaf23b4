"""Ops that are left to the engine, in linalg: calls of functions that are declared and not defined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects import arith, func
from xdsl.dialects.builtin import FunctionType, ModuleOp, SymbolRefAttr, i64
from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.lowering.builder import INDEX, LoweringBuilder, Tensor
from flambeau.lowering.external import External, result_types


class ExternalCalls:
    """The functions that a program calls. A function has one type: further types of an op have further functions."""

    def __init__(self, taken: Sequence[str]) -> None:
        self.names: dict[tuple[str, FunctionType], str] = {}
        self.taken = set(taken)

    def emit(self, b: LoweringBuilder, external: External, args: Sequence[Any]) -> list[Tensor]:
        """Call the function of an op with its tensors and its numbers, in order; None is left out."""
        operands = [v for i, a in enumerate(args) for v in _operands(b, external.name(i), a)]
        type_ = FunctionType.from_lists([v.type for v in operands], result_types(b))
        name = self._name(external.symbol, type_)
        call = b.emit(func.CallOp, operands, type_.outputs.data, {"callee": SymbolRefAttr(name)})
        return [Tensor(value, dtype) for value, (_, dtype) in zip(call.results, b.context.results, strict=True)]

    def _name(self, symbol: str, type_: FunctionType) -> str:
        known = self.names.get((symbol, type_))
        if known is None:
            number, known = 0, symbol
            while known in self.taken:
                number += 1
                known = f"{symbol}_{number}"
            self.taken.add(known)
            self.names[symbol, type_] = known
        return known

    def declare(self, module: ModuleOp) -> ModuleOp:
        """Declare the functions in the lowered module."""
        for (_, type_), name in self.names.items():
            module.body.block.add_op(func.FuncOp.external(name, type_.inputs.data, type_.outputs.data))
        return module


def _operands(b: LoweringBuilder, name: str, value: Any) -> list[SSAValue]:
    """Return an argument as operands: a tensor, a number, each of a list, none for None."""
    match value:
        case None:
            return []
        case Tensor():
            return [value.value]
        case SSAValue():
            return [b.value(arith.IndexCastOp, (value,), i64) if value.type == INDEX else value]
        case bool():
            return [b.constant(value, dtypes.bool_)]
        case int():
            return [b.constant(value, dtypes.int64)]
        case float():
            return [b.constant(value, dtypes.float64)]
        case list() | tuple():
            return [v for part in value for v in _operands(b, name, part)]
    raise Unsupported(f"an external function takes tensors and numbers, and the argument '{name}' is {value!r}")
