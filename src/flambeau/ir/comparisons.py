"""Comparisons by PyTorch's names for them, and how Python, `arith` and StableHLO spell each."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
"""Python's operators, which compare numbers, numpy arrays, and Elements alike."""

SIGNED = {name: name if name in ("eq", "ne") else f"s{name}" for name in OPERATORS}
"""The predicates of `arith.cmpi` for signed integers."""
UNSIGNED = {name: name if name in ("eq", "ne") else f"u{name}" for name in OPERATORS}
"""The predicates of `arith.cmpi` for unsigned integers."""

CMPI = {"eq": 0, "ne": 1, "slt": 2, "sle": 3, "sgt": 4, "sge": 5, "ult": 6, "ule": 7, "ugt": 8, "uge": 9}
"""The codes of the predicates of `arith.cmpi`; from `ult` on they are unsigned."""
CMPF = {"eq": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5, "ne": 13, "uno": 14}
"""The codes of `arith.cmpf`: the ordered predicates, false with a NaN, but `une` for `ne`; `uno`: either is NaN."""

OF_CMPI = {CMPI[predicate]: name for table in (SIGNED, UNSIGNED) for name, predicate in table.items()}
"""What a code of `arith.cmpi` compares by."""
OF_CMPF = {code: name for name, code in CMPF.items()}
"""What a code of `arith.cmpf` compares by."""
DIRECTIONS = {name: name.upper() for name in OPERATORS}
"""StableHLO's comparison directions."""
