"""Tables of rules for targets that build on those of linalg."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flambeau.diagnostics import Unsupported
from flambeau.ir.conversion import RuleFunction, RuleTable


def layered(name: str, *tables: RuleTable) -> RuleTable:
    """Merge several tables into one; a later one wins."""
    joined = RuleTable(name)
    for table in tables:
        joined.rules.update(table.rules)
    return joined


def refusals(name: str, cannot: Mapping[str, str]) -> RuleTable:
    """Make rules that refuse ops, each with the reason."""
    table = RuleTable(f"what {name} cannot express")
    for op, reason in cannot.items():
        table(op)(_refusal(reason))
    return table


def _refusal(reason: str) -> RuleFunction:
    def refuse(b: Any, *args: Any) -> Any:
        raise Unsupported(reason)

    return refuse
