"""The table of decompositions."""

from __future__ import annotations

from flambeau.ir.conversion import RuleTable

DECOMPOSITIONS = RuleTable("decompositions")
decomposition = DECOMPOSITIONS
