"""The targets that programs are lowered to, by name: ours, those of installed packages, and those that are registered.

A package offers a target under the entry point group `flambeau.targets`; docs/adding-a-target.md shows a whole one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from flambeau.ir.module_pass import TorchPass

ENTRY_POINTS = "flambeau.targets"
"""The group of entry points under which an installed package offers a `Target`."""


@dataclass(frozen=True)
class Target:
    """What programs can be lowered to."""

    name: str
    """What `output_type` and `--emit` call it."""
    lowering: type[TorchPass]
    """The pass from the backend contract to this target. Its fields are the target's options."""
    dialects: frozenset[str]
    """The dialects that tell its programs from those of other targets."""
    native: Callable[[], Container[str]]
    """Gives the overloads that it takes whole, by name, such as `aten.sort`: they are not decomposed."""

    def options(self) -> list[str]:
        """List the names of the options."""
        return [field.name for field in fields(self.lowering)]

    def lower(self, module: ModuleOp, options: Mapping[str, Any], keep: Collection[str] = ()) -> ModuleOp:
        """Lower a module that satisfies the backend contract. A target that has an option `keep` is given it."""
        self.check(options)
        named = {"keep": tuple(keep), **options} if "keep" in self.options() else dict(options)
        return self.lowering(**named).run(module)

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise ValueError for an option that the target does not have, or a value that it does not take."""
        for name in options:
            if name not in self.options():
                known = ", ".join(self.options()) or "none"
                raise ValueError(f"{self.name} has no option {name!r}; it has: {known}")
        self.lowering(**options)


def _linalg() -> Target:
    from flambeau.lowering.linalg.lower import loop_rules
    from flambeau.lowering.passes import ConvertTorchToLinalg

    return Target("linalg-on-tensors", ConvertTorchToLinalg, frozenset({"linalg", "tm_tensor"}), loop_rules)


def _stablehlo() -> Target:
    from flambeau.lowering.passes import ConvertTorchToStablehlo
    from flambeau.lowering.stablehlo.lower import rules

    return Target("stablehlo", ConvertTorchToStablehlo, frozenset({"stablehlo", "chlo"}), rules)


def _tosa() -> Target:
    from flambeau.lowering.passes import ConvertTorchToTosa
    from flambeau.lowering.tosa.lower import rules

    return Target("tosa", ConvertTorchToTosa, frozenset({"tosa"}), rules)


_OURS = {"linalg-on-tensors": _linalg, "stablehlo": _stablehlo, "tosa": _tosa}
OURS = tuple(_OURS)
"""The names of the targets whose builders have the verbs of `RuleBuilder`."""
_REGISTERED: dict[str, Target] = {}


def register(target: Target) -> Target:
    """Make a target known in this process; a package has an entry point instead. A name can be taken only once."""
    if target.name in names():
        raise ValueError(f"there is a target {target.name!r} already")
    _REGISTERED[target.name] = target
    return target


@cache
def _offered() -> dict[str, str]:
    """Map the names of installed packages' targets to where they are. Ours cannot be replaced."""
    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS) if point.name not in _OURS}


def names() -> list[str]:
    """List the names of all targets, ours first."""
    return [*_OURS, *(name for name in {**_offered(), **_REGISTERED} if name not in _OURS)]


@cache
def _ours(name: str) -> Target:
    return _OURS[name]()


def get_target(name: str) -> Target:
    """Return the target of a name; ValueError if there is none."""
    if name in _OURS:
        return _ours(name)
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in _offered():
        raise ValueError(f"there is no target {name!r}; known targets: {', '.join(names())}")
    module, _, attribute = _offered()[name].partition(":")
    target = getattr(import_module(module), attribute)
    if not isinstance(target, Target) or target.name != name:
        raise TypeError(f"the entry point {name!r} of {ENTRY_POINTS} is {target!r}, not a Target of that name")
    _REGISTERED[name] = target
    return target
