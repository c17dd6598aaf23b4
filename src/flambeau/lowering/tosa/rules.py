"""The table of TOSA's own rules, and what it cannot express."""

from __future__ import annotations

from flambeau.ir.conversion import RuleTable

TOSA_RULES = RuleTable("tosa")
tosa_rule = TOSA_RULES

_COMPLEX = "TOSA has no complex numbers"

CANNOT: dict[str, str] = {
    "aten.view_as_complex": _COMPLEX,
    "aten.view_as_complex_copy": _COMPLEX,
    "aten.view_as_real": _COMPLEX,
    "aten.view_as_real_copy": _COMPLEX,
    "aten.complex": _COMPLEX,
}
"""Ops that TOSA cannot express, with the reason."""

STRICT = "torch.assume_strict_symbolic_shapes"
"""On a function: where two sizes of an elementwise op are not known, they are the same. TOSA itself lets one be 1."""
