"""Compiled programs as bytes, to be kept on disk for other processes on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flambeau.engines.errors import EngineError
from flambeau.engines.host import host_cpu
from flambeau.engines.iree.compiler import iree_version
from flambeau.engines.iree.executable import IreeExecutable
from flambeau.engines.iree.flags import profile_flags
from flambeau.ir.module import Signature


def packed(executable: IreeExecutable) -> bytes:
    """Write a program's artefact and what it depends on, without weights and signatures."""
    if executable.functions:
        raise EngineError("a program that calls functions of Python's is not kept")
    notes = {"function": executable.default, "profile": executable.profile, "made_by": _made_by()}
    return json.dumps(notes).encode() + b"\n" + executable.vmfb


def unpacked(
    payload: bytes,
    weights: Mapping[str, Any],
    signatures: Mapping[str, Signature],
    *,
    device: str = "local-task",
    **_: Any,
) -> IreeExecutable | None:
    """Make the program of which this was kept; None if it was made by another compiler, or for another CPU."""
    head, _newline, vmfb = payload.partition(b"\n")
    notes = json.loads(head)
    if notes["made_by"] != _made_by():
        return None
    return IreeExecutable(
        vmfb, weights, signatures, function=notes["function"], device=device, profile=notes["profile"]
    )


def _made_by() -> str:
    """Tell what artefacts depend on beside the program and the profile, which may have fallen back to another."""
    machine, instructions = host_cpu()
    flags = " ".join(profile_flags("host"))
    return f"{iree_version()} {machine} {' '.join(sorted(instructions))} {flags}"
