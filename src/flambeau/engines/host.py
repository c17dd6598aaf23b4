"""The machine that programs are compiled on: artefacts are for CPUs that have all instructions of this one."""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path

# What compilers pick instructions by; the other flags of a CPU come and go with kernels and hypervisors.
_INSTRUCTIONS = re.compile(
    r"(avx|sse|ssse|fma|bmi|amx|vaes|vpclmul|asimd|sve|sme).*|mmx|f16c|gfni|abm|popcnt|movbe|aes|sha_ni|adx|i8mm|bf16"
)


@cache
def host_cpu() -> tuple[str, frozenset[str]]:
    """Return the architecture of this machine and the instruction sets of its CPU, as far as the system tells."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine(), frozenset()
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    found = line.group(1).split() if line else []
    return platform.machine(), frozenset(f for f in found if _INSTRUCTIONS.fullmatch(f))
