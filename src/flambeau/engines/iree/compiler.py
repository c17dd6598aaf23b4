"""MLIR text in, an IREE artefact out: in process, with IREE's own diagnostics, and cached on disk."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from iree.compiler import version
from iree.compiler.api import Output, Session, Source, ctypes_dl
from iree.compiler.tools import binaries

from flambeau.engines.cache import ArtefactCache, cache_directory, cache_enabled, cache_key
from flambeau.engines.errors import EngineError, InvalidProgram
from flambeau.engines.iree.flags import FALLBACK, host_cpu, profile_flags

_SEVERITIES = ("note", "warning", "error", "remark")
_SHOWN_CHARACTERS = 2000
"""IREE likes to attach whole functions to its messages; the text of an error shows this much of each."""


@dataclass(frozen=True)
class Artefact:
    """A compiled program and how it was made."""

    vmfb: bytes
    profile: str
    """The profile that worked, which may be the fallback of the one that was asked for."""
    seconds: float
    """What it took, a look into the cache included."""
    cached: bool


def compile_mlir(
    source: bytes, *, profile: str = "model", extra_flags: Sequence[str] = (), use_cache: bool = True
) -> Artefact:
    """Compile MLIR (text or bytecode) for the CPU of this machine."""
    start = time.perf_counter()
    flags = (*profile_flags(profile), *extra_flags)
    store = ArtefactCache(cache_directory() / "iree") if use_cache and cache_enabled() else None
    # "host" in the flags stands for a CPU that only the key can tell: home folders are shared between machines.
    machine, instructions = host_cpu()
    key = cache_key(source, "\n".join(flags), iree_version(), machine, " ".join(sorted(instructions)))
    if store and (found := store.get(key)) and isinstance(used := found[1].get("profile"), str):
        return Artefact(found[0], used, time.perf_counter() - start, cached=True)

    used = profile
    try:
        vmfb = _compile(source, flags)
    except EngineError as error:
        if isinstance(error, InvalidProgram) or profile not in FALLBACK:
            raise
        used = FALLBACK[profile]
        try:
            vmfb = _compile(source, (*profile_flags(used), *extra_flags))
        except EngineError:
            raise error from None
    if store:
        store.put(key, vmfb, {"profile": used})
    return Artefact(vmfb, used, time.perf_counter() - start, cached=False)


@cache
def iree_version() -> str:
    """The exact version of the installed IREE compiler."""
    return f"{version.VERSION} {version.REVISIONS.get('IREE', '')}".strip()


_Callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


@cache
def _enable_diagnostics() -> Any:
    # IREE's Python class can only print diagnostics to stderr; its C interface hands them over.
    function = ctypes_dl._dylib.ireeCompilerInvocationEnableCallbackDiagnostics
    function.restype = None
    function.argtypes = [ctypes.c_void_p, ctypes.c_int, _Callback, ctypes.c_void_p]
    return function


_FIRST_PROCESS: list[int] = []
"""The process in which IREE's compiler was first used."""


def _after_fork() -> None:
    # At the end of a process IREE's compiler waits for its threads, which are in the parent.
    ctypes_dl._global_init.local_dylib = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _compile(source: bytes, flags: Sequence[str]) -> bytes:
    """Compile in this process, or in one of its own where the compiler's threads were lost in a fork."""
    if not _FIRST_PROCESS:
        _FIRST_PROCESS.append(os.getpid())
    return _compile_here(source, flags) if os.getpid() in _FIRST_PROCESS else _compile_elsewhere(source, flags)


def _compile_elsewhere(source: bytes, flags: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "program.vmfb"
        command = [binaries.find_tool("iree-compile"), "-", "-o", str(output), *flags]
        ended = subprocess.run(command, input=source, capture_output=True, check=False)
        if ended.returncode == 0:
            return output.read_bytes()
        said = ended.stderr.decode(errors="replace")
        raise EngineError(_summary("compile", source, [("error", said)]), [("error", said)])


def _compile_here(source: bytes, flags: Sequence[str]) -> bytes:
    diagnostics: list[tuple[str, str]] = []

    def record(severity: int, message: int, length: int, _: Any) -> None:
        text = ctypes.string_at(message, length).decode(errors="replace")
        diagnostics.append((_SEVERITIES[severity] if 0 <= severity < 4 else "note", text))

    callback = _Callback(record)
    session = Session()
    try:
        session.set_flags(*flags)
        invocation = session.invocation()
        _enable_diagnostics()(invocation._inv_p, 0, callback, None)
        if not invocation.parse_source(Source.wrap_buffer(session, source)):
            raise InvalidProgram(_summary("read", source, diagnostics), diagnostics)
        if not invocation.execute():
            raise EngineError(_summary("compile", source, diagnostics), diagnostics)
        output = Output.open_membuffer()
        try:
            invocation.output_vm_bytecode(output)
            return bytes(output.map_memory())
        finally:
            output.close()
    except ValueError as error:  # flags that IREE does not know, or a program that it cannot serialise
        diagnostics.append(("error", str(error)))
        raise EngineError(_summary("compile", source, diagnostics), diagnostics) from None
    finally:
        session.close()


def _summary(verb: str, source: bytes, diagnostics: Sequence[tuple[str, str]]) -> str:
    errors = [message for severity, message in diagnostics if severity == "error"] or ["no reason was given"]
    lines = [f"IREE could not {verb} the program:"]
    for message in errors:
        text = message.strip()
        lines.append(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} [...]")
        lines.extend(_excerpt(source, message))
    return "\n".join(lines)


def _excerpt(source: bytes, message: str) -> list[str]:
    """The line of the program that a message points at, and a caret under the column."""
    found = re.match(r"source\.mlir:(\d+):(\d+):", message)
    lines = source.splitlines()
    if not found or not 1 <= int(found[1]) <= len(lines):
        return []
    line, column = lines[int(found[1]) - 1].decode(errors="replace"), int(found[2])
    start = max(0, column - 100)
    return [f"  | {line[start : start + 200]}", f"  | {' ' * (column - 1 - start)}^"]
