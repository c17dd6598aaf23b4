"""IREE's compiler flags: how to link on this host, and the profiles that users choose from."""

from __future__ import annotations

import hashlib
import platform
import re
import shlex
import shutil
import tempfile
from functools import cache
from pathlib import Path

from flambeau.engines.cache import cache_directory, write_atomically

_HOST = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    # IREE's default silently rewrites float64 signatures to float32.
    "--iree-input-demote-f64-to-f32=false",
)

_PROFILES: dict[str, tuple[str, ...]] = {
    "model": ("--iree-llvmcpu-reassociate-fp-reductions", "--iree-global-opt-use-im2col-for-convs"),
    "host": (),
    "quick": (
        "--iree-llvmcpu-debug-symbols=false",
        "--iree-opt-const-eval=false",
        "--iree-llvmcpu-enable-ukernels=none",
        "--iree-vm-bytecode-module-strip-source-map=true",
    ),
}

FALLBACK = {"model": "host"}
"""The profile to try when IREE cannot compile a program under the first one."""


_TILING = "--iree-opt-data-tiling"
_TILING_OF_DYNAMIC_SHAPES = "--iree-global-opt-data-tiling"
"""The faster of the two paths fuses a softmax with the packing of its result wrongly when the batch is dynamic."""


def profile_flags(profile: str, dynamic: bool = False) -> tuple[str, ...]:
    """All flags of a profile: `model` for speed, `quick` for short compile times, `host` for neither.

    `dynamic` says whether the program has dimensions that only the run time knows.
    """
    if profile not in _PROFILES:
        raise ValueError(f"there is no profile {profile!r}; known profiles: {', '.join(_PROFILES)}")
    tiling = () if profile != "model" else (_TILING_OF_DYNAMIC_SHAPES if dynamic else _TILING,)
    return (*_HOST, *_linker_flags(), *tiling, *_PROFILES[profile])


def _linker_flags() -> tuple[str, ...]:
    """Link against the system's libm: IREE's own loader has no float64 `sin`, `tanh`, `log2` and others."""
    if platform.system() == "Windows":
        return ()
    if shutil.which("ld"):
        return ("--iree-llvmcpu-link-embedded=false",)
    if platform.system() == "Linux":
        return ("--iree-llvmcpu-link-embedded=false", f"--iree-llvmcpu-system-linker-path={_bundled_linker()}")
    return ()


def _bundled_linker() -> Path:
    """An `ld` made of the LLD that comes with IREE, for machines without binutils."""
    from iree.compiler import _mlir_libs

    lld = Path(next(iter(_mlir_libs.__path__))) / "iree-lld"
    script = f'#!/bin/sh\nexec {shlex.quote(str(lld))} -flavor gnu "$@"\n'.encode()
    name = f"ld-{hashlib.sha256(script).hexdigest()[:16]}"
    folders = (cache_directory() / "bin", Path(tempfile.gettempdir()) / "flambeau-bin")
    for folder in folders:
        path = folder / name
        try:
            if not path.exists() or path.read_bytes() != script:
                write_atomically(path, script, mode=0o755)
        except OSError:
            continue
        return path
    raise OSError(f"IREE needs a linker: there is no `ld`, and none of {', '.join(map(str, folders))} can be written")


# What compilers pick instructions by; the other flags of a CPU come and go with kernels and hypervisors.
_INSTRUCTIONS = re.compile(
    r"(avx|sse|ssse|fma|bmi|amx|vaes|vpclmul|asimd|sve|sme).*|mmx|f16c|gfni|abm|popcnt|movbe|aes|sha_ni|adx|i8mm|bf16"
)


@cache
def host_cpu() -> tuple[str, frozenset[str]]:
    """The architecture of this machine and the instruction sets of its CPU, as far as the system tells."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine(), frozenset()
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    found = line.group(1).split() if line else []
    return platform.machine(), frozenset(f for f in found if _INSTRUCTIONS.fullmatch(f))
