"""What is kept from graph to graph: the engine, compiled programs, and counts."""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flambeau.frontends.lazy.graph import Kind, Place

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from flambeau.frontends.lazy.programs import Structure


class LazyFallbackWarning(UserWarning):
    """An op of a lazy graph runs in PyTorch, since it could not be compiled."""


@dataclass(frozen=True)
class Compiled:
    """A graph that an engine has compiled."""

    call: Callable[..., Any]
    seed: Callable[[int], None] | None = None
    """Starts the random numbers of the program anew; None if it draws none."""


Compile = Callable[["GraphModule"], Compiled]

KEPT = 256
"""How many graphs are kept; what was used least recently goes first."""


@dataclass
class GraphCounts:
    """What was done with graphs of one structure."""

    name: str
    ops: int
    place: Place
    """Where its first op was recorded."""
    compiles: int = 0
    hits: int = 0
    """Runs that found a compiled program."""
    runs: int = 0
    fallbacks: int = 0
    """Ops that ran in PyTorch, over all runs."""
    compile_seconds: float = 0.0
    run_seconds: float = 0.0


@dataclass
class Session:
    """An engine with what it has compiled."""

    engine: str
    """What it is called in reports."""
    compile_graph: Compile
    structures: OrderedDict[Any, Structure] = field(default_factory=OrderedDict)
    counts: list[GraphCounts] = field(default_factory=list)
    fallbacks: Counter[str] = field(default_factory=Counter)
    """How often each op ran in PyTorch."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why, by op."""
    refused: dict[Kind, str] = field(default_factory=dict)
    """Kinds of ops that the engine cannot take, and why."""

    def forget(self) -> None:
        """Drop what was compiled, and all counts."""
        for held in (self.structures, self.counts, self.fallbacks, self.reasons, self.refused):
            held.clear()

    def fell_back(self, name: str, reason: str, place: Place) -> None:
        """Count an op that runs in PyTorch, and warn of it once, at the user's line."""
        self.fallbacks[name] += 1
        if name not in self.reasons:
            self.reasons[name] = reason
            file, line, _ = place or ("<unknown>", 1, "")
            warnings.warn_explicit(f"{name} runs in PyTorch: {reason}", LazyFallbackWarning, file, line)


_DEFAULT: list[Session] = []
_SCOPED = threading.local()


def current_session() -> Session:
    """Return the session of the innermost `mode` of this thread, else the one of all threads."""
    stack: list[Session] = getattr(_SCOPED, "stack", [])
    return stack[-1] if stack else _DEFAULT[0]


def set_default_session(session: Session) -> None:
    _DEFAULT[:] = [session]


def has_default_session() -> bool:
    return bool(_DEFAULT)


@contextmanager
def session_scope(session: Session) -> Iterator[None]:
    """Use a session in this thread."""
    if not hasattr(_SCOPED, "stack"):
        _SCOPED.stack = []
    _SCOPED.stack.append(session)
    try:
        yield
    finally:
        _SCOPED.stack.remove(session)


@contextmanager
def timed(add: Callable[[float], None]) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        add(time.perf_counter() - start)
