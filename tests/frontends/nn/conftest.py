"""Where PyTorch is not installed, the tests that compare with it are left out, and the summary says so."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

_NEEDS_TORCH = re.compile(r"^(?:import torch|from (?:torch|frontends\.nn\.parity|safetensors\.torch)\b)", re.MULTILINE)
HERE = Path(__file__).parent

collect_ignore = []
if find_spec("torch") is None:
    collect_ignore = sorted(p.name for p in HERE.glob("test_*.py") if _NEEDS_TORCH.search(p.read_text()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if collect_ignore:
        terminalreporter.write_line(f"PyTorch is not installed: left out {', '.join(collect_ignore)}")
