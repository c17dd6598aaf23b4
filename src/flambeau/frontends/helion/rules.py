"""The table of rules for Helion's own ops: each is called with the importer and the node."""

from __future__ import annotations

from flambeau.ir.conversion import RuleTable

DEVICE_RULES = RuleTable("helion")
device_rule = DEVICE_RULES

FAMILIES = ("values", "control_flow", "scan", "memory")
"""The modules of this folder that add rules to the table."""


def rules() -> RuleTable:
    """Load all rules for Helion's ops."""
    return DEVICE_RULES.load("flambeau.frontends.helion", FAMILIES)
