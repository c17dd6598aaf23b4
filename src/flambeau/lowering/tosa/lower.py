"""Lowering to TOSA: the linalg rules on whole tensors, and rules of its own where TOSA has a better op."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, UnitAttr, f64
from xdsl.ir import Attribute, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.types import TensorType
from flambeau.ir.conversion import RuleTable
from flambeau.lowering.builder import Tensor
from flambeau.lowering.conversion import Lowering
from flambeau.lowering.external import external_rules
from flambeau.lowering.linalg.lower import rules as linalg_rules
from flambeau.lowering.tosa.external import emit_custom
from flambeau.lowering.tosa.ops import TosaBuilder, TosaOps
from flambeau.lowering.tosa.quantized import integers_first
from flambeau.lowering.tosa.rules import CANNOT, STRICT, TOSA_RULES
from flambeau.lowering.tosa.scalars import scalars_to_tensors
from flambeau.lowering.whole.rules import layered, refusals
from flambeau.passes.dead_code import eliminate_dead_code

FAMILIES = ("conv", "normalization", "pointwise", "quantized", "random")
"""The modules of this folder that add rules to the table."""


def rules() -> RuleTable:
    """Load all rules: TOSA's own, and linalg's; those on integers come first."""
    on_floats = layered("tosa", linalg_rules(), TOSA_RULES.load("flambeau.lowering.tosa", FAMILIES))
    return layered("tosa", on_floats, integers_first(on_floats), refusals("TOSA", CANNOT))


def lower_to_tosa(module: ModuleOp, int64: str = "narrow", external: Sequence[str] = ()) -> ModuleOp:
    """Lower a module that satisfies the backend contract.

    `int64="narrow"` computes 64-bit integers in 32 bits, which is what TOSA has; arguments and results keep their
    types. `int64="keep"` leaves them, for backends that take them. The ops named in `external` become `tosa.custom`.
    """
    if int64 not in ("narrow", "keep"):
        raise ValueError(f"int64 is 'narrow' or 'keep', not {int64!r}")
    builder = partial(TosaBuilder, target=partial(TosaOps, narrow=int64 == "narrow"))
    left = external_rules("tosa", external, emit_custom)
    lowered = TosaLowering("lower to tosa", rules(), builder, left).convert_module(module)
    return scalars_to_tensors(eliminate_dead_code(lowered), int64 == "narrow")


class TosaLowering(Lowering):
    """Integers change their width at the borders of functions, branches and loops."""

    builder: TosaBuilder

    def convert_function(self, function: func.FuncOp) -> func.FuncOp:
        converted = super().convert_function(function)
        if self.builder.target.strict:
            converted.attributes[STRICT] = UnitAttr()
        return converted

    def _argument(self, old_type: Attribute, value: SSAValue) -> Any:
        return self._held(super()._argument(old_type, value))

    def _carried(self, values: Sequence[SSAValue], like: Sequence[SSAValue]) -> list[Any]:
        return [self._held(v) for v in super()._carried(values, like)]

    def _held(self, value: Any) -> Any:
        return self.builder.target.holds(value) if isinstance(value, Tensor) else value

    def _operand(self, value: Any, type_: Attribute) -> SSAValue:
        self._check_width(value, type_)
        return super()._operand(self._released(value), type_)

    def _check_width(self, value: Any, type_: Attribute) -> None:
        """Refuse a result of type f64: a rule has computed it in 32 bits."""
        if isinstance(value, Tensor) and isinstance(type_, TensorType) and type_.element_type == f64:
            raise Unsupported("TOSA has no 64-bit floats", "Convert it to float32 before it is returned.")

    def _returned(self, value: SSAValue) -> SSAValue:
        new = self.values[value]
        old_type = value.type
        if isinstance(new, Tensor) and isinstance(old_type, TensorType) and old_type.shape is not None:
            self._check_width(new, old_type)
            return self.builder.cast(self._released(new), old_type.shape).value
        return super()._returned(value)

    def _released(self, value: Any) -> Any:
        return self.builder.target.released(value) if isinstance(value, Tensor) else value
