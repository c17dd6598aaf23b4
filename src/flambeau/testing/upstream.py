"""The registering form of torch-mlir's end-to-end suite, so that suites written for it run as they are.

    @register_test_case(module_factory=lambda: AddModule())
    def AddModule_basic(module, tu: TestUtils):
        module.forward(tu.rand(4), tu.rand(4))

A file of such cases may import these names from `flambeau.testing`, or from `torch_mlir_e2e_test` as it always
did: while it is loaded, that name leads here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from flambeau.frontends.script.annotations import annotate_args, export
from flambeau.testing.cases import REGISTERED, Call, Case, Sample

__all__ = ["TestUtils", "annotate_args", "export", "importable_as_upstream", "register_test_case"]


class TestUtils:
    """Makes the inputs of a case."""

    __test__ = False

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)

    def rand(self, *sizes: int, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """Draw uniform floats."""
        return torch.empty(sizes).uniform_(low, high)

    def randint(self, *sizes: int, low: int = 0, high: int = 10) -> torch.Tensor:
        """Draw uniform 64-bit integers, `high` excluded."""
        return torch.randint(low, high, sizes)

    def nans(self, *sizes: int) -> torch.Tensor:
        """Make a tensor of NaN."""
        return torch.full(sizes, float("nan"))


class _Method(torch.nn.Module):
    """A module whose `forward` is another method of a module."""

    def __init__(self, module: torch.nn.Module, name: str) -> None:
        super().__init__()
        self.module = module
        self.name = name

    def forward(self, *args: Any) -> Any:
        return getattr(self.module, self.name)(*args)


class _Recorder:
    """Stands for the module in the body of a case and takes down how it is called."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if not callable(found) or isinstance(found, torch.nn.Module):
            return found

        def call(*args: Any) -> Any:
            self._calls.append((name, args))
            return found(*args)

        return call

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)

    def samples(self) -> list[Sample]:
        """Make a sample for each call."""
        return [
            Sample(self._module if name == "forward" else _Method(self._module, name), [Call(args)])
            for name, args in self._calls
        ]


def register_test_case(
    module_factory: Callable[[], torch.nn.Module], timeout_seconds: int | None = None
) -> Callable[[Callable[[Any, TestUtils], None]], Callable[[Any, TestUtils], None]]:
    """Register a function that calls a module; each of its calls is compiled and compared.

    `timeout_seconds` is read over: a run has one limit for all cases, `--timeout`.
    """

    def register(body: Callable[[Any, TestUtils], None]) -> Callable[[Any, TestUtils], None]:
        def samples() -> list[Sample]:
            recorder = _Recorder(module_factory().eval())
            body(recorder, TestUtils())
            return recorder.samples()

        REGISTERED.add(Case(REGISTERED.name, body.__name__, samples, family="user"))
        return body

    return register


@contextmanager
def importable_as_upstream() -> Iterator[None]:
    """Make `torch_mlir_e2e_test` and the parts of it that cases use importable inside the block."""
    names = ("torch_mlir_e2e_test", *(f"torch_mlir_e2e_test.{n}" for n in ("framework", "registry", "annotations")))
    before = {name: sys.modules.get(name) for name in names}
    for name in names:
        module = ModuleType(name)
        for public in ("TestUtils", "annotate_args", "export", "register_test_case"):
            setattr(module, public, globals()[public])
        sys.modules[name] = module
    try:
        yield
    finally:
        for name, module_before in before.items():
            if module_before is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module_before
