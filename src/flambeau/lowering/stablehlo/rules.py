"""The table of StableHLO's own rules, and what it cannot express."""

from __future__ import annotations

from flambeau.ir.conversion import RuleTable

STABLEHLO_RULES = RuleTable("stablehlo")
stablehlo_rule = STABLEHLO_RULES

CANNOT: dict[str, str] = {}
"""Ops that StableHLO cannot express, with the reason."""
