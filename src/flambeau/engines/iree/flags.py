"""IREE's compiler flags: how to link on this host, and the profiles that users choose from."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from flambeau.engines.cache import cache_directory, write_atomically
from flambeau.engines.iree.host_target import TARGET, target_flags

_HOST = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    # IREE's default silently rewrites float64 signatures to float32.
    "--iree-input-demote-f64-to-f32=false",
)

_PROFILES: dict[str, tuple[str, ...]] = {
    "model": (
        # WORKAROUND(iree==3.13): not `--iree-opt-data-tiling`, which moves packed tiles across the matrices of a batch
        # (tests/engines/test_iree_bugs.py says when it can come back).
        "--iree-global-opt-data-tiling",
        "--iree-llvmcpu-reassociate-fp-reductions",
        "--iree-global-opt-use-im2col-for-convs",
        # By default, reductions whose length is no multiple of a vector's are not vectorised at all.
        "--iree-llvmcpu-vector-pproc-strategy=peel",
    ),
    "host": (),
    "quick": (
        "--iree-llvmcpu-debug-symbols=false",
        "--iree-opt-const-eval=false",
        # WORKAROUND(iree==3.13): what is hoisted and not evaluated is read as if it had the size of another tensor
        # (test_a_sort_of_constants_that_is_hoisted in tests/engines/test_iree_bugs.py says when it can go).
        "--iree-opt-const-expr-hoisting=false",
        "--iree-llvmcpu-enable-ukernels=none",
        "--iree-vm-bytecode-module-strip-source-map=true",
    ),
}

FALLBACK = {"model": "host"}
"""The profile to try when IREE cannot compile a program under the first one."""


def profile_flags(profile: str, extra: Sequence[str] = ()) -> tuple[str, ...]:
    """List the flags of a profile: `model` for speed, `quick` for short compile times, `host` for neither.

    `FLAMBEAU_IREE_FLAGS` in the environment, in a shell's notation, and `extra` add to them. Who names a CPU there
    compiles for that one, and not for this machine's.
    """
    if profile not in _PROFILES:
        raise ValueError(f"there is no profile {profile!r}; known profiles: {', '.join(_PROFILES)}")
    added = (*shlex.split(os.environ.get("FLAMBEAU_IREE_FLAGS", "")), *extra)
    target = () if any(flag.startswith(TARGET) for flag in added) else target_flags()
    return (*_HOST, *target, *_linker_flags(), *_PROFILES[profile], *added)


def _linker_flags() -> tuple[str, ...]:
    """Link against the system's libm: IREE's own loader has no float64 `sin`, `tanh`, `log2` and others."""
    if platform.system() == "Linux":
        return ("--iree-llvmcpu-link-embedded=false", f"--iree-llvmcpu-system-linker-path={_linker()}")
    if platform.system() != "Windows" and shutil.which("ld"):
        return ("--iree-llvmcpu-link-embedded=false",)
    return ()


def _linker() -> Path:
    """Write a linker script that resolves functions when a library is loaded, not when they are called.

    IREE's code may call functions that no library has, such as the rounding to bfloat16 of processors that lack it.
    Found missing at the call, one ends the process; found missing at load time, it is an error like others.
    """
    script = f'#!/bin/sh\nexec {_ld()} -z now "$@"\n'.encode()
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
    raise OSError(f"IREE needs a linker, and none of {', '.join(map(str, folders))} can be written")


def _ld() -> str:
    """Return the command of the system's linker, or of the LLD that comes with IREE where there are no binutils."""
    if found := shutil.which("ld"):
        return shlex.quote(found)
    from iree.compiler import _mlir_libs

    return f"{shlex.quote(str(Path(next(iter(_mlir_libs.__path__))) / 'iree-lld'))} -flavor gnu"
