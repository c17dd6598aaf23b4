"""Where a TorchScript node comes from: PyTorch tells it as text."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from xdsl.ir import Attribute

from flambeau.ir.locations import Frame, location_of_frames

_SCRIPTED = re.compile(r'^ *File "(?P<file>[^"]*)", line (?P<line>\d+)', re.MULTILINE)
_TRACED = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)$", re.MULTILINE)
_MARKER = re.compile(r"^( *)~+(?: <--- HERE)?$", re.MULTILINE)

_PLUMBING = re.compile(r"torch/nn/modules/module\.py$|torch/_ops\.py$|torch/utils/_contextlib\.py$")
"""Frames that stand between a module and the code that calls it."""
_TRACER = re.compile(r"torch/jit/_trace\.py$")
"""What is outside these frames is not the model any more."""


@cache
def frames_of_range(text: str, function: str = "") -> tuple[Frame, ...]:
    """Parse PyTorch's text of a source range into frames, innermost first.

    Scripted code has one frame, of which the text shows the place; traced code has the whole stack.
    """
    # An archive adds where the node stands in its own code, which nobody has written.
    text = text.split("\nSerialized ", 1)[0]
    scripted = _SCRIPTED.search(text)
    if scripted is not None:
        marker = _MARKER.search(text, scripted.end())
        column = len(marker[1]) + 1 if marker is not None else 0
        return (Frame(scripted["file"], int(scripted["line"]), function, column),)
    frames: list[Frame] = []
    for match in _TRACED.finditer(text):
        file = match["file"].replace("\\", "/")
        if _TRACER.search(file):
            break
        if not _PLUMBING.search(file):
            frames.append(Frame(match["file"], int(match["line"]), match["function"]))
    return tuple(frames)


def frames_of_error(text: str) -> tuple[Frame, ...]:
    """Parse the places that an error of the TorchScript compiler names, innermost first."""
    return tuple(Frame(m["file"], int(m["line"])) for m in _SCRIPTED.finditer(text))


def location_of_node(node: Any, function: str, enclosing: Attribute) -> Attribute:
    """Return the location of the user's line of a node; `enclosing` where PyTorch does not know it."""
    frames = frames_of_range(node.sourceRange(), function)
    return location_of_frames(frames[::-1]) if frames else enclosing
