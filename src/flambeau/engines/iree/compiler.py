"""MLIR text in, an IREE artefact out: with IREE's own diagnostics, and cached on disk."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from iree.compiler import version
from iree.compiler.tools import binaries

from flambeau.engines.cache import ArtefactCache, cache_directory, cache_enabled, cache_key
from flambeau.engines.errors import EngineError, InvalidProgram
from flambeau.engines.host import host_cpu
from flambeau.engines.iree.flags import FALLBACK, profile_flags
from flambeau.engines.iree.moves import without_moves

_FORM = "branches copy"
"""What is done to a compiled program: one that is cached was treated alike."""

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
    flags = profile_flags(profile, extra_flags)
    store = ArtefactCache(cache_directory() / "iree") if use_cache and cache_enabled() else None
    # "host" in the flags stands for a CPU that only the key can tell: home folders are shared between machines.
    machine, instructions = host_cpu()
    key = cache_key(source, "\n".join(flags), iree_version(), _FORM, machine, " ".join(sorted(instructions)))
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
            vmfb = _compile(source, profile_flags(used, extra_flags))
        except EngineError:
            raise error from None
    if store:
        store.put(key, vmfb, {"profile": used})
    return Artefact(vmfb, used, time.perf_counter() - start, cached=False)


@cache
def iree_version() -> str:
    """Return the exact version of the installed IREE compiler."""
    return f"{version.VERSION} {version.REVISIONS.get('IREE', '')}".strip()


def _compile(source: bytes, flags: Sequence[str]) -> bytes:
    """Compile in a process of its own: IREE's compiler ends the process that it is in for some programs.

    It also keeps threads, which a fork would lose.
    """
    with tempfile.TemporaryDirectory(prefix="flambeau-") as folder:
        program, output = Path(folder) / _SOURCE, Path(folder) / "program.vmfb"
        program.write_bytes(source)
        status, said = _run(program, "-o", str(output), *flags)
        if status == 0:
            return without_moves(output.read_bytes())
        diagnostics = _diagnostics(said)
        if status < 0:
            diagnostics.append(("error", f"IREE's compiler ended with {signal.Signals(-status).name}"))
            raise EngineError(_summary("compile", source, diagnostics[-1:]), diagnostics)
        # IREE says this of a program that it can read, if it is asked to do nothing with it.
        is_read = "must precede compile-to phase" in _run(program, "-o", str(output), "--compile-to=start")[1]
        if not is_read and any(_SOURCE in message for _, message in diagnostics):
            raise InvalidProgram(_summary("read", source, diagnostics), diagnostics)
        raise EngineError(_summary("compile", source, diagnostics), diagnostics)


_SOURCE = "source.mlir"


def _run(*arguments: str | Path) -> tuple[int, str]:
    """Run IREE's compiler; gives its exit status, negative for a signal, and what it said."""
    command = [*_ends_with_us(), binaries.find_tool("iree-compile"), *map(str, arguments)]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return ended.returncode, ended.stderr.decode(errors="replace")


@cache
def _ends_with_us() -> tuple[str, ...]:
    """Return what to start a process with so that it is ended when this one is killed; nothing where that cannot be.

    A compiler whose caller is gone would go on, for hours with some programs.
    """
    found = shutil.which("setpriv") if sys.platform == "linux" else None
    works = found and subprocess.run([found, *_DIE, "true"], capture_output=True, check=False).returncode == 0
    return (found, *_DIE) if found and works else ()


_DIE = ("--pdeathsig", "KILL")

_MESSAGE = re.compile(r"^(?:\S*[/\\])?(source\.mlir:\d+:\d+): (error|warning|note|remark): ", re.MULTILINE)


def _diagnostics(said: str) -> list[tuple[str, str]]:
    """Split what the compiler said into messages with their severity; all of it is one if it has no such form."""
    starts = list(_MESSAGE.finditer(said))
    if not starts:
        return [("error", said.strip())] if said.strip() else []
    ends = [m.start() for m in starts[1:]] + [len(said)]
    found = []
    for start, end in zip(starts, ends, strict=True):
        # Below a message are the line of the program and a mark under it, which `_excerpt` shows in its own way.
        lines = said[start.end() : end].rstrip().split("\n")
        if len(lines) > 2 and lines[-1].strip() == "^":
            lines = lines[:-2]
        found.append((start[2], f"{start[1]}: " + "\n".join(lines)))
    return found


def _summary(verb: str, source: bytes, diagnostics: Sequence[tuple[str, str]]) -> str:
    errors = [message for severity, message in diagnostics if severity == "error"] or ["no reason was given"]
    lines = [f"IREE could not {verb} the program:"]
    for message in errors:
        text = message.strip()
        lines.append(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} [...]")
        lines.extend(_excerpt(source, message))
    return "\n".join(lines)


def _excerpt(source: bytes, message: str) -> list[str]:
    """Return the line of the program that a message points at, and a caret under the column."""
    found = re.match(r"source\.mlir:(\d+):(\d+):", message)
    lines = source.splitlines()
    if not found or not 1 <= int(found[1]) <= len(lines):
        return []
    line, column = lines[int(found[1]) - 1].decode(errors="replace"), int(found[2])
    start = max(0, column - 100)
    return [f"  | {line[start : start + 200]}", f"  | {' ' * (column - 1 - start)}^"]
