"""Functions that a program calls and does not define: those that it needs, and whether somebody gave them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from flambeau.engines.errors import EngineError

Functions = Mapping[str, Callable[..., Any]]
"""Python functions by the names that programs call them by."""


def declared_functions(module: ModuleOp) -> dict[str, func.FuncOp]:
    """Map names to the functions that are declared and not defined."""
    return {op.sym_name.data: op for op in module.ops if isinstance(op, func.FuncOp) and op.is_declaration}


def custom_calls(module: ModuleOp) -> list[str]:
    """List what a program calls by custom calls of StableHLO and by custom ops of TOSA."""
    found: dict[str, None] = {}
    for op in module.walk():
        properties: Any = op.properties
        if op.name == "stablehlo.custom_call":
            found[properties["call_target_name"].data] = None
        elif op.name == "tosa.custom":
            found[f"{properties['domain_name'].data}.{properties['operator_name'].data}"] = None
    return list(found)


def require_bound(engine: str, symbols: Sequence[str], functions: Functions, hint: str) -> None:
    """Raise EngineError with the functions that nobody gave; and for those that the program does not call."""
    missing = [name for name in symbols if name not in functions]
    if missing:
        raise EngineError(f"the program calls functions that {engine} does not have: {', '.join(missing)}. {hint}")
    require_called(symbols, functions)


def require_called(symbols: Sequence[str], functions: Functions) -> None:
    """Raise EngineError for functions that were given and that the program does not call."""
    if unknown := [name for name in functions if name not in symbols]:
        known = f"it calls {', '.join(symbols)}" if symbols else "it calls none"
        raise EngineError(f"the program does not call a function {unknown[0]!r}: {known}")
