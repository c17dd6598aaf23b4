"""Lazy tensors: a training loop as it stands, whose ops are recorded, compiled once, and run from then on.

    model.to(flambeau.lazy.device())
    for x, y in loader:
        ...

What is recorded is cut after each step of an optimiser, at `step()`, and where somebody asks for contents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from flambeau.engines import get_engine, output_type_of
from flambeau.frontends.lazy import device as _device
from flambeau.frontends.lazy.randomness import seed
from flambeau.frontends.lazy.reporting import Report
from flambeau.frontends.lazy.session import (
    Compiled,
    LazyFallbackWarning,
    Session,
    current_session,
    has_default_session,
    session_scope,
    set_default_session,
)
from flambeau.frontends.lazy.tensor import LazyTensor
from flambeau.frontends.lazy.trace import current_trace

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from flambeau.api import Module

__all__ = [
    "LazyFallbackWarning", "LazyTensor", "Report", "TorchLazyProgram", "device", "from_torch_lazy", "is_lazy", "mode",
    "report", "reset", "seed", "step", "use_engine",
]  # fmt: skip


def device() -> torch.device:
    """Return the device of lazy tensors: `model.to(flambeau.lazy.device())`."""
    _default_session()
    return _device.install()


def use_engine(engine: Any = "iree", **options: Any) -> None:
    """Choose what compiles graphs from now on: an engine by its name, or an object with a `compile` method.

    The options are the engine's. What was compiled and counted before is forgotten.
    """
    current_trace().cut()
    set_default_session(_session(engine, options))


@contextmanager
def mode(engine: Any = None, **options: Any) -> Iterator[None]:
    """Make new tensors lazy, and compile with this engine; the graph is cut at the end.

    Tensors that were made before, and those that are asked for on another device, stay where they are.
    """
    _default_session()
    if engine is None:
        if options:
            raise TypeError(f"mode() has options for an engine, and no engine: {', '.join(options)}")
        with _device.on_device():
            yield
        return
    current_trace().cut()
    with session_scope(_session(engine, options)), _device.on_device():
        yield


def step() -> None:
    """Mark the end of a step: what was recorded is run, and a new graph begins."""
    _default_session()
    current_trace().cut()


def report() -> Report:
    """Return what was compiled, found again, and run in PyTorch; printed, it is a table."""
    _default_session()
    return Report.of(current_session())


def reset() -> None:
    """Forget what was compiled and counted; tensors keep what they hold."""
    _default_session()
    current_trace().cut()
    current_session().forget()


@dataclass(frozen=True)
class TorchLazyProgram:
    """A graph of PyTorch's LazyTensorCore as a module: `flambeau.load(program.module)(*program.inputs)`."""

    module: Module
    inputs: tuple[torch.Tensor, ...]
    """The contents that the graph starts from."""


def from_torch_lazy(
    tensors: torch.Tensor | Sequence[torch.Tensor], *, output_type: str = "linalg-on-tensors"
) -> TorchLazyProgram:
    """Compile what PyTorch's own LazyTensorCore has recorded for some tensors on its device `lazy`.

    It lowers its graphs to TorchScript, which the TorchScript frontend takes. The tensors stay as they are.
    """
    from flambeau import torchscript
    from flambeau.frontends.lazy.torch_lazy import torch_lazy_function

    function = torch_lazy_function([tensors] if isinstance(tensors, torch.Tensor) else list(tensors))
    module = torchscript.compile(function.script, function.inputs, output_type, function="main")
    return TorchLazyProgram(module, function.inputs)


def is_lazy(value: Any) -> bool:
    """Tell whether something is a lazy tensor."""
    return isinstance(value, LazyTensor)


def _default_session() -> None:
    if not has_default_session():
        set_default_session(_session("iree", {}))


def _session(engine: Any, options: dict[str, Any]) -> Session:
    found = get_engine(engine)
    name = str(getattr(found, "name", type(found).__name__))
    return Session(name, _compiler(found, options))


def _compiler(engine: Any, options: dict[str, Any]) -> Callable[[GraphModule], Compiled]:
    """Make the function that takes a cut graph to something that runs."""
    from flambeau.api import compile, load

    output_type = output_type_of(engine)

    def compile_graph(graph: GraphModule) -> Compiled:
        module = compile(graph, output_type=output_type)
        states = [a.state for a in module.signature.arguments if a.is_random and a.state is not None]
        run = load(module, engine=engine, **options)
        return Compiled(run, _seeding(run, [module.weights[name] for name in states]) if states else None)

    return compile_graph


def _seeding(run: Any, states: list[Any]) -> Callable[[int], None]:
    """Make the function that starts the random numbers of a program anew, for any engine."""
    from flambeau.ir.arrays import overwrite
    from flambeau.ir.random_state import state_words

    if callable(getattr(run, "seed", None)):
        return lambda number: run.seed(number)

    def write(number: int) -> None:
        for state in states:
            overwrite(state, state_words(number, 0, 0))

    return write
