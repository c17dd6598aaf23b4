"""How much memory a process takes, where the system tells."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def resident(pid: int | str = "self") -> int | None:
    """Return the bytes of memory that a process holds; None where /proc does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _peak() -> int | None:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


@contextmanager
def peak_growth() -> Iterator[Callable[[], int | None]]:
    """Yield a function that returns the growth of this process's peak memory since now in bytes; None if unknown."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    except OSError:
        pass
    before = resident()

    def growth() -> int | None:
        peak = _peak()
        return None if before is None or peak is None else max(0, peak - before)

    yield growth
