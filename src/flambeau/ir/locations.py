"""Source locations: from Python frames to MLIR locations, and back for people to read."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from xdsl.dialects.builtin import CallSiteLoc, FileLineColLoc, FusedLoc, IntAttr, NameLoc, StringAttr, UnknownLoc
from xdsl.ir import Attribute

UNKNOWN = UnknownLoc()


@dataclass(frozen=True)
class Frame:
    """One line of a Python stack."""

    file: str
    line: int
    function: str = ""
    column: int = 0

    @property
    def source(self) -> str:
        """The text of the line, empty when the file cannot be read."""
        return self._line().strip()

    def _line(self) -> str:
        linecache.checkcache(self.file)
        return linecache.getline(self.file, self.line).rstrip("\n")

    def excerpt(self, width: int = 110) -> list[str]:
        """Return the text of the line; with a column, at most `width` characters, and a mark under that column."""
        if not self.column:
            return [self.source]
        line = self._line()
        indent = len(line) - len(line.lstrip())
        at = self.column - 1
        start = indent if at < indent + width - 10 else at - width // 2
        return [line[start : start + width].rstrip(), " " * max(at - start, 0) + "^"]

    @property
    def place(self) -> str:
        """The file, the line, and the column where there is one."""
        return f"{self}:{self.column}" if self.column else str(self)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


_FRAME = re.compile(r'^\s*File "(?P<file>[^"]*)", line (?P<line>\d+)(?:, in (?P<function>\S+))?', re.MULTILINE)


@cache
def frames_of_trace(stack_trace: str) -> tuple[Frame, ...]:
    """Parse the frames of a Python traceback text, outermost first."""
    return tuple(Frame(m["file"], int(m["line"]), m["function"] or "") for m in _FRAME.finditer(stack_trace))


@cache
def _frame_location(frame: Frame) -> Attribute:
    place = FileLineColLoc(StringAttr(frame.file), IntAttr(frame.line), IntAttr(frame.column))
    return NameLoc(StringAttr(frame.function), place) if frame.function else place


@cache
def location_of_trace(stack_trace: str | None, name: str | None = None) -> Attribute:
    """Make the MLIR location of a traceback: nested `callsite` locations, the innermost line first."""
    return location_of_frames(frames_of_trace(stack_trace or ""), name)


@cache
def location_of_frames(frames: tuple[Frame, ...], name: str | None = None) -> Attribute:
    """Make the MLIR location of frames, outermost first: nested `callsite` locations, under `name` if given."""
    location: Attribute = UNKNOWN
    for frame in frames:
        here = _frame_location(frame)
        location = here if location is UNKNOWN else CallSiteLoc(here, location)
    if name:
        return NameLoc(StringAttr(name), location)
    return location


def frames_of(location: Attribute) -> Iterator[Frame]:
    """Yield the Python frames behind a location, innermost first."""
    if isinstance(location, FileLineColLoc):
        yield Frame(location.filename.data, location.line.data, "", location.column.data)
    elif isinstance(location, NameLoc):
        inner = location.location
        for i, frame in enumerate(frames_of(inner)):
            is_function = i == 0 and isinstance(inner, FileLineColLoc)
            yield Frame(frame.file, frame.line, location.desc.data, frame.column) if is_function else frame
    elif isinstance(location, CallSiteLoc):
        yield from frames_of(location.callee)
        yield from frames_of(location.caller)
    elif isinstance(location, FusedLoc):
        for part in location.locations.data:  # type: ignore[attr-defined]
            yield from frames_of(part)


def module_path(location: Attribute) -> str:
    """Return the `nn.Module` path that a location names; empty when it names none."""
    if isinstance(location, NameLoc) and not isinstance(location.location, FileLineColLoc):
        return location.desc.data
    return ""


def user_frame(location: Attribute) -> Frame | None:
    """Return the line that the user will recognise, the innermost one outside PyTorch; None without any frame."""
    frames = list(frames_of(location))
    return next((f for f in frames if not _is_torch(f.file)), frames[0] if frames else None)


@cache
def _is_torch(file: str) -> bool:
    parts = file.replace(os.sep, "/").split("/")
    return "torch" in parts[:-1] and ("site-packages" in parts or "dist-packages" in parts or parts[0] == "torch")
