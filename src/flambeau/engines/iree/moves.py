"""Branches that pass one buffer twice: both of what receives it have it.

WORKAROUND(iree==3.13): the virtual machine's compiler marks the last use of a reference as a move, which empties the
register that it is read from. If a branch passes a reference to two block arguments, and the first of them is to have
that very register, nothing is copied there, and the move to the second empties it. A loop whose first turns start in
one buffer, or at one fence, then reads from nowhere ("indirect buffer reference slot 0 is out range") or does not wait.
It can go when `test_a_buffer_that_a_branch_passes_twice` in tests/engines/test_iree_bugs.py passes.

A reference that is copied where it could have been moved lives until its register is written again, and no more
happens. So what branches pass is copied, in the compiled program.
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from flambeau.engines.errors import EngineError

_REFERENCE, _MOVE = 0x8000, 0x4000
"""The bits of a register's number that say what it holds, and that it is emptied."""

_FUNCTION = re.compile(r"^vm\.func ", re.MULTILINE)
_BLOCK = re.compile(r"^\[([0-9A-F]{8})\](\^bb\d+):", re.MULTILINE)
_PASSED = re.compile(r"(\^bb\d+)\(([^)]*%R[^)]*)\)")
_REGISTER = re.compile(r"%([iIrR])(\d+)")


def without_moves(program: bytes) -> bytes:
    """Return a compiled program in which branches copy the references that they pass."""
    result = bytearray(program)
    for block, registers in _lists_with_moves(_disassembly(program)):
        # A target, filled up to an even place, how many registers it is passed, and these: from, to, from, to...
        target, passed = struct.pack("<I", block), struct.pack(f"<H{len(registers)}H", len(registers) // 2, *registers)
        found = list(re.finditer(re.escape(target) + b"\0?" + re.escape(passed), program))
        if not found:
            raise EngineError("IREE's compiler made a program of another form than this version of Flambeau knows")
        copied = [r & ~_MOVE for r in registers]
        for match in found:
            result[match.end() - 2 * len(copied) : match.end()] = struct.pack(f"<{len(copied)}H", *copied)
    return bytes(result)


def _lists_with_moves(text: str) -> Iterator[tuple[int, list[int]]]:
    """Yield the branches that move references: the place of the block in its function, and the registers passed."""
    for function in _FUNCTION.split(text)[1:]:
        places = {name: int(place, 16) for place, name in _BLOCK.findall(function)}
        for block, passed in set(_PASSED.findall(function)):
            yield places[block], [_number(kind, int(i)) for kind, i in _REGISTER.findall(passed)]


def _number(kind: str, index: int) -> int:
    return index | (_REFERENCE if kind in "rR" else 0) | (_MOVE if kind == "R" else 0)


def _disassembly(program: bytes) -> str:
    """List the instructions of a compiled program."""
    with tempfile.NamedTemporaryFile(suffix=".vmfb") as file:
        file.write(program)
        file.flush()
        command = [str(_tool()), "--output=disassembly", "--bytecode_offsets", file.name]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if ended.returncode:
        raise EngineError(f"iree-dump-module ended with {ended.returncode}: {ended.stderr.decode(errors='replace')}")
    return ended.stdout.decode(errors="replace")


@cache
def _tool() -> Path:
    """Find the program that lists instructions, which comes with IREE's runtime."""
    import iree._runtime_libs as libraries

    return Path(libraries.__path__[0]) / "iree-dump-module"
