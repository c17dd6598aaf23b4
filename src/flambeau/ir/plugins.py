"""Rules that others add: by decorators in their own files, or by a package under the entry points `flambeau.plugins`.

A rule is in a table of its own, over ours: the decompositions, or those of one target. Packages are loaded when a table
is asked for the first time, which is when the first program is compiled.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from xdsl.ir import Dialect

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.ir.conversion import RuleFunction, RuleTable

ENTRY_POINTS = "flambeau.plugins"
"""The group of entry points under which an installed package names a module that adds rules, or a function."""
VARIABLE = "FLAMBEAU_PLUGINS"
"""The environment variable with the names of the only entry points to load, separated by commas."""
DECOMPOSITIONS = "decompositions"
"""The name of the table of decompositions; the tables of targets have the targets' names."""


@dataclass(frozen=True)
class Registration:
    """A rule of somebody else's."""

    table: str
    """The target that it is for, or `DECOMPOSITIONS`."""
    op: str
    """The overload, `mylib.gate`."""
    rule: RuleFunction
    check: Callable[[], bool] | None = None
    """Raises if the rule does not fit the op's schema; gives False as long as nobody knows that."""

    @property
    def place(self) -> str:
        """Where the rule is written."""
        code = inspect.unwrap(self.rule).__code__
        return f"{code.co_filename}:{code.co_firstlineno}"


_registered: dict[tuple[str, str], Registration] = {}
_unchecked: list[Registration] = []
_dialects: dict[str, Dialect] = {}
_lock = threading.RLock()
_state = "new"


def register(added: Sequence[Registration], override: bool = False) -> None:
    """Add rules, all or none; ValueError if an op has one already from another place, unless that is overridden."""
    with _lock:
        for new in added:
            old = _registered.get((new.table, new.op))
            if old is not None and old.place != new.place and not override:
                what = "decompositions of" if new.table == DECOMPOSITIONS else f"rules of {new.table} for"
                raise ValueError(
                    f"there are two {what} {new.op}: at {old.place} and at {new.place}. Take one of them out, or say "
                    "override=True at the one that counts"
                )
        for new in added:
            _registered[new.table, new.op] = new
            if new.check is not None and not new.check():
                _unchecked.append(new)


def load_plugins() -> None:
    """Load the plugins of installed packages, once; check the rules for ops that have become known meanwhile."""
    global _state
    if _state != "loaded":
        with _lock:
            if _state == "new":  # a plugin that is being loaded may compile something itself
                _state = "loading"
                try:
                    _load()
                except BaseException:
                    _state = "new"
                    raise
                _state = "loaded"
    if _unchecked:
        with _lock:
            _unchecked[:] = [r for r in _unchecked if r.check is not None and not r.check()]


def _load() -> None:
    wanted = os.environ.get(VARIABLE)
    names = None if wanted is None else {name.strip() for name in wanted.split(",")}
    for point in entry_points(group=ENTRY_POINTS):
        if names is not None and point.name not in names:
            continue
        try:
            found: Any = point.load()
            if callable(found):
                found()
        except Exception as error:
            package = f" of the package {point.dist.name}" if point.dist is not None else ""
            problem = Diagnostic(
                "load plugins",
                f"the plugin {point.name!r}{package} ({point.value}) cannot be loaded: {type(error).__name__}: {error}",
                hint=f"Mend or uninstall it; or set {VARIABLE} to the names of those to load, {VARIABLE}= for none.",
            )
            raise CompileError([problem]) from error


def over(table: RuleTable) -> RuleTable:
    """Put the rules that others have added for a table of ours over it; gives the table itself if there are none."""
    load_plugins()
    added = {r.op: r.rule for r in tuple(_registered.values()) if r.table == table.name}
    if not added:
        return table
    joined = RuleTable(table.name)
    joined.rules = {**table.rules, **added}
    joined.families = table.families
    return joined


def registered() -> bool:
    """Tell whether others have added any rule."""
    load_plugins()
    return bool(_registered)


def lowered_ops() -> frozenset[str]:
    """Name the overloads that others have added rules of targets for."""
    load_plugins()
    return frozenset(r.op for r in tuple(_registered.values()) if r.table != DECOMPOSITIONS)


def add_dialect(dialect: Dialect) -> None:
    """Let programs that are read have the ops of a dialect; one of the same name is replaced."""
    _dialects[dialect.name] = dialect


def added_dialects() -> list[Dialect]:
    """List the dialects that others have added."""
    load_plugins()
    return list(_dialects.values())
