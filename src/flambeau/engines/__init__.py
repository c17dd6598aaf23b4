"""Engines run programs: they compile a module for some device and give back a callable.

Importing this package imports neither PyTorch nor any engine; `get_engine` imports the one that is asked for.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import Any, Protocol, runtime_checkable

from flambeau.engines.errors import EngineError, RunError, WrongResult

__all__ = ["Engine", "EngineError", "Executable", "RunError", "WrongResult", "get_engine", "output_type_of"]

ENTRY_POINTS = "flambeau.engines"
"""The group of entry points under which an installed package offers an engine: a class without arguments."""

_ENGINES = {
    "eager": "flambeau.engines.eager:EagerEngine",
    "iree": "flambeau.engines.iree:IreeEngine",
    "xla": "flambeau.engines.xla:XlaEngine",
}


@runtime_checkable
class Executable(Protocol):
    """A compiled program, called as the Python callable that it was compiled from."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


@runtime_checkable
class Engine(Protocol):
    """Something that compiles modules; any object with these two members will do.

    It may have an `output_type` too: what programs are lowered to for it where nobody says; linalg otherwise. What
    `torch.compile` asks of it besides, where it is there: `output_types` (all that it runs), `binds_weights` (whether
    weights are better the program's own), `takes_sizes` (false if programs are for known sizes), the names of devices
    (`device_for_little_work`, and `device_of("cuda", 0)`), and `pack(executable)` and `unpack(bytes, weights,
    signatures, **options)`, by which programs are kept on disk.
    """

    name: str

    def compile(self, module: Any, *args: Any, **options: Any) -> Executable:
        """Compile every function of `module`; the options are the engine's own."""
        ...


def output_type_of(engine: str | Engine) -> str:
    """Return the output type that programs are lowered to for an engine where nobody says."""
    return str(getattr(get_engine(engine), "output_type", "linalg-on-tensors"))


def get_engine(engine: str | Engine) -> Engine:
    """Return the engine of that name, or the given engine itself."""
    if not isinstance(engine, str):
        if not callable(getattr(engine, "compile", None)):
            raise ValueError(f"an engine needs a `compile` method, and {type(engine).__name__!r} has none")
        return engine
    offered = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    known = {**offered, **_ENGINES}
    if engine not in known:
        raise ValueError(f"there is no engine {engine!r}; known engines: {', '.join(sorted(known))}")
    module, _, attribute = known[engine].partition(":")
    found: Engine = getattr(importlib.import_module(module), attribute)()
    return found
