"""The end-to-end framework: cases, suites, backends, the compatibility test suite and its reports.

Importing this package imports nothing of PyTorch; its names are loaded when they are used.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "Backend": "backends",
    "Call": "cases",
    "Case": "cases",
    "Plan": "runner",
    "Result": "results",
    "Run": "results",
    "Sample": "cases",
    "Suite": "cases",
    "TestUtils": "upstream",
    "annotate_args": "upstream",
    "case": "cases",
    "execute": "runner",
    "export": "upstream",
    "load_backend": "backends",
    "register_test_case": "upstream",
    "reproduce": "runner",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"flambeau.testing.{_WHERE[name]}"), name)
