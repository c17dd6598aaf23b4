"""The CPU that IREE compiles for: this machine's, less what changes results.

WORKAROUND(iree==3.13): on a CPU that computes with f16 itself, LLVM makes a product that is rounded to f16, and a sum
that is too, one instruction that rounds once. PyTorch rounds both, as IREE does on all other CPUs. So IREE is told that
the CPU has no such instructions. It can go when `test_a_product_in_half_that_is_rounded_before_it_is_added` in
tests/engines/test_iree_bugs.py passes on such a CPU.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from iree.compiler.tools import binaries

from flambeau.engines.host import host_cpu

TARGET = "--iree-llvmcpu-target-cpu"
HOST = f"{TARGET}=host"
_AS_THE_SYSTEM_SAYS, _AS_LLVM_SAYS = "avx512_fp16", "avx512fp16"


@cache
def target_flags() -> tuple[str, ...]:
    """List the flags for this machine's CPU: `host`, or its name and all that it has but arithmetic in f16."""
    if _AS_THE_SYSTEM_SAYS not in host_cpu()[1]:
        return (HOST,)
    with tempfile.TemporaryDirectory(prefix="flambeau-") as folder:
        empty = Path(folder) / "empty.mlir"
        empty.write_text("module {}\n")
        local = ("--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu")
        command = [binaries.find_tool("iree-compile"), str(empty), *local, HOST, "--compile-to=preprocessing"]
        said = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout
    found = re.search(r'cpu = "([^"]+)", cpu_features = "([^"]+)"', said)
    if found is None:
        return (HOST,)
    # The last word on a feature counts, and taking it away takes those away that include it.
    return f"{TARGET}={found[1]}", f"{TARGET}-features={found[2]},-{_AS_LLVM_SAYS}"
