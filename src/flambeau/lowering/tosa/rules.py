"""The table of TOSA's own rules, and what it cannot express."""

from __future__ import annotations

from typing import Any

from flambeau.diagnostics import Unsupported
from flambeau.ir.conversion import RuleTable
from flambeau.lowering.tosa.builder import TosaBuilder

TOSA_RULES = RuleTable("tosa")
tosa_rule = TOSA_RULES

_DATA = "the size of the result depends on the data, and TOSA's tensors have sizes that their inputs tell"
_COMPLEX = "TOSA has no complex numbers"

CANNOT: dict[str, str] = {
    "aten.nonzero": _DATA,
    "aten.masked_select": _DATA,
    "aten.view_as_complex": _COMPLEX,
    "aten.view_as_complex_copy": _COMPLEX,
    "aten.view_as_real": _COMPLEX,
    "aten.view_as_real_copy": _COMPLEX,
    "aten.complex": _COMPLEX,
}
"""Ops that TOSA cannot express, with the reason."""


def refusals() -> RuleTable:
    """Rules that say why there is none."""
    table = RuleTable("what TOSA cannot express")
    for name, reason in CANNOT.items():
        table(name)(_refusal(reason))
    return table


def _refusal(reason: str) -> Any:
    def refuse(b: TosaBuilder, *args: Any) -> Any:
        raise Unsupported(reason)

    return refuse
