"""Backends: what a vendor writes to have a compiler and a device tried, and the ones that come with the package."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from flambeau.api import Module, OutputType
from flambeau.engines.cache import ArtefactCache, cache_directory, cache_enabled, cache_key
from flambeau.engines.plans import CallPlan
from flambeau.ir.arrays import is_array, is_torch, to_numpy, to_torch
from flambeau.python_files import PythonFileError, import_file

ENTRY_POINTS = "flambeau.backends"
"""The group of entry points under which an installed package can offer a backend by name."""


@runtime_checkable
class Backend(Protocol):
    """A compiler and something that runs what it makes. Any object with these two methods will do.

    A backend may also have: `name` (its class name otherwise), `targets` (the output types that it compiles, the best
    one first; linalg otherwise), `retries` (how often a call that raises `OSError`, such as `ConnectionError` or
    `TimeoutError`, is tried again; 0 otherwise), `many` (False if each program must be compiled alone), `version` (what
    else an artefact depends on, for the cache), `caches` (True if it has a cache of its own), `options` (by
    target, the options that programs are compiled with: `{"tosa": {"int64": "keep"}}`).
    """

    def compile(self, module: Module) -> Any:
        """Compile a program. What is returned is handed back to `run`; bytes are kept on disk and used again."""
        ...

    def run(self, artefact: Any, function: str, inputs: list[Any]) -> list[Any]:
        """Call a function of the program with numpy arrays and Python numbers; gives numpy arrays and numbers."""
        ...


def name_of(backend: Backend) -> str:
    return str(getattr(backend, "name", None) or type(backend).__name__)


def targets_of(backend: Backend) -> tuple[str, ...]:
    targets = getattr(backend, "targets", None) or (OutputType.LINALG_ON_TENSORS,)
    return tuple(str(OutputType.get(t)) for t in targets)


def invoke(backend: Backend, artefact: Any, module: Module, function: str, args: Any, kwargs: Any) -> Any:
    """Call a function of a compiled program as the Python callable that it came from; torch tensors in and out."""
    signature = module.signatures[function]
    plan = CallPlan(signature)
    values, _ = plan.bind(tuple(args), dict(kwargs), module.weights)
    inputs = [to_numpy(v) if is_torch(v) else v for v in values]
    results = _with_retries(backend, artefact, function, inputs)
    if len(results) != len(signature.results):
        raise ValueError(f"{function} has {len(signature.results)} results, and the backend gave {len(results)}")
    return plan.finish(values, [to_torch(r) if is_array(r) and not is_torch(r) else r for r in results])


def compile_cached(backend: Backend, module: Module) -> Any:
    """Compile a program, or take the artefact of the same program from the disk if artefacts are bytes.

    A program with weights is always compiled: whether they end up in the artefact is the backend's affair.
    """
    if module.weights or not cache_enabled() or getattr(backend, "caches", False):
        return backend.compile(module)
    cache = ArtefactCache(cache_directory() / "cts")
    key = cache_key(name_of(backend), str(getattr(backend, "version", "")), _source(backend), module.text(generic=True))
    if (found := cache.get(key)) is not None:
        return found[0]
    artefact = backend.compile(module)
    if isinstance(artefact, bytes):
        cache.put(key, artefact, {"backend": name_of(backend)})
    return artefact


def _source(backend: Backend) -> str:
    try:
        return inspect.getsource(sys.modules[type(backend).__module__])
    except (OSError, TypeError, KeyError):
        return ""


def _with_retries(backend: Backend, artefact: Any, function: str, inputs: list[Any]) -> Sequence[Any]:
    left = int(getattr(backend, "retries", 0))
    while True:
        try:
            return backend.run(artefact, function, inputs)
        except OSError:  # a remote device went away, or took too long
            if left == 0:
                raise
            left -= 1


class IreeBackend:
    """IREE on the CPU of this machine."""

    name = "iree"
    caches = True  # the engine has a cache of its own
    targets: tuple[str, ...] = ("linalg-on-tensors", "stablehlo", "tosa")

    profile = "model"
    """That of the engine, which users have unless they say otherwise."""

    def compile(self, module: Module) -> Any:
        from flambeau.engines.iree import IreeEngine

        return IreeEngine().compile(module, device="local-sync", profile=self.profile)

    def run(self, artefact: Any, function: str, inputs: list[Any]) -> list[Any]:
        results: list[Any] = artefact.call_flat(function, inputs)
        return results


class IreeQuickBackend(IreeBackend):
    """The same, compiled under the profile for short compile times."""

    name = "iree-quick"
    profile = "quick"


class IreeHostBackend(IreeBackend):
    """The same, compiled under the profile with IREE's own defaults."""

    name = "iree-host"
    profile = "host"


class IreeInt64Backend(IreeBackend):
    """The same, with 64-bit integers in TOSA."""

    name = "iree-int64"
    targets = ("tosa",)
    options = {"tosa": {"int64": "keep"}}


class XlaBackend:
    """XLA on the CPU of this machine. Programs of dynamic shapes are compiled for the shapes of each call."""

    name = "xla"
    caches = True  # the engine has a cache of its own
    targets = ("stablehlo",)

    def compile(self, module: Module) -> Any:
        from flambeau.engines.xla import XlaEngine

        return XlaEngine().compile(module)

    def run(self, artefact: Any, function: str, inputs: list[Any]) -> list[Any]:
        results: list[Any] = artefact.call_flat(function, inputs)
        return results


class EagerBackend:
    """PyTorch itself, op by op on the torch dialect: what fails here is not a compiler's fault."""

    name = "eager"
    targets = ("torch",)
    many = False

    def compile(self, module: Module) -> Any:
        from flambeau.engines.eager import EagerEngine

        return EagerEngine().compile(module)

    def run(self, artefact: Any, function: str, inputs: list[Any]) -> list[Any]:
        results: list[Any] = artefact.call_flat(function, inputs)
        return results


_OURS = {
    b.name: b for b in (IreeBackend, IreeQuickBackend, IreeHostBackend, IreeInt64Backend, XlaBackend, EagerBackend)
}


class BackendError(ValueError):
    """A backend that cannot be had; the text is for whoever named it."""


def load_backend(spec: str) -> Backend:
    """Load the backend of that name, of an installed package's entry point, or in a Python file.

    A file defines `backend`, or `Backend` to be called, or one class with `compile` and `run`.
    """
    if spec in _OURS:
        return _OURS[spec]()
    if spec.endswith(".py"):
        return _from_file(Path(spec))
    offered = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    if spec in offered:
        return _checked(offered[spec].load(), f"the entry point {spec!r}")
    known = ", ".join(sorted({*_OURS, *offered}))
    raise BackendError(f"there is no backend {spec!r}; known are {known}, and a path that ends in .py is one in a file")


def _from_file(path: Path) -> Backend:
    try:
        module = import_file(path, f"flambeau_backend_{path.stem}")
    except PythonFileError as error:
        raise BackendError(str(error)) from error
    for name in ("backend", "Backend"):
        found = module.__dict__.get(name)
        if found is not None and getattr(found, "__module__", module.__name__) == module.__name__:
            return _checked(found, f"{name!r} in {path}")
    classes = [
        value
        for value in module.__dict__.values()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and hasattr(value, "compile")
        and hasattr(value, "run")
    ]
    if len(classes) != 1:
        raise BackendError(f"{path} has {len(classes)} classes with `compile` and `run`; name one of them `backend`")
    return _checked(classes[0], f"{classes[0].__name__!r} in {path}")


def _checked(found: Any, where: str) -> Backend:
    backend = found() if isinstance(found, type) or not hasattr(found, "compile") else found
    missing = [m for m in ("compile", "run") if not callable(getattr(backend, m, None))]
    if missing:
        raise BackendError(f"{where} is not a backend: it lacks {' and '.join(missing)}")
    return backend
