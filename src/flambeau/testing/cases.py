"""Cases: a program, the calls to try it with, and how near to eager PyTorch its answers must be."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

TOLERANCES: Mapping[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-7),
    "float32": (1e-4, 1e-5),
    "float16": (4e-3, 2e-3),
    "bfloat16": (3e-2, 2e-2),
    "complex64": (1e-4, 1e-5),
    "complex128": (1e-7, 1e-7),
}
"""Relative and absolute tolerance by dtype. Integers and bools must be equal."""


@dataclass(frozen=True)
class Call:
    """One call of a program."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Sample:
    """A program with the calls to try it with. It is compiled for the first call."""

    module: Any
    """An `nn.Module`."""
    calls: list[Call]
    dynamic_shapes: Any = None
    other_sizes: bool = False
    """Call it at sizes of the runner's choice too: every dim that the exported program leaves open gets another one."""
    label: str = ""
    pointwise: bool = False
    """What PyTorch gives for an element alone is right too: its vector code differs at some special values."""
    rounding: bool = False
    """What is about as near to PyTorch's answer in f64 as PyTorch's own answer is right too: normalised differences of
    16-bit floats are little but rounding."""
    random: bool = False
    """It draws random numbers, as dropout in training does: its results are compared by shape and dtype."""


@dataclass(frozen=True)
class Case:
    """One line of a report. It passes when all its samples do."""

    suite: str
    name: str
    samples: Callable[[], Iterable[Sample]]
    """Makes the samples; called in a worker, with PyTorch's random numbers seeded by the id of the case."""
    dtype: str = "float32"
    family: str = "other"
    tags: frozenset[str] = frozenset()
    tolerance: tuple[float, float] | None = None
    """Relative and absolute, instead of those of the dtypes of the results."""
    compare: str = "values"
    """How results are compared: `values`; `signs`, which tells -0.0 from 0.0 too; `types`, for contents that nobody can
    foretell (random, uninitialised); `norm`, for models: the largest difference relative to the largest value."""
    heavy: bool = False
    """Worth a module and a worker's turn of its own."""

    @property
    def id(self) -> str:
        return f"{self.suite}/{self.name}/{self.dtype}"

    @property
    def seed(self) -> int:
        return zlib.crc32(self.id.encode())

    def described(self) -> dict[str, Any]:
        """Say what reports tell of every case."""
        about = {key: getattr(self, key) for key in ("name", "suite", "dtype", "family")}
        return {**about, "tags": sorted(self.tags)}

    def tolerance_of(self, dtype: str) -> tuple[float, float]:
        return self.tolerance or TOLERANCES.get(dtype, (0.0, 0.0))


@dataclass
class Suite:
    """A named collection of cases."""

    name: str
    cases: dict[str, Case] = field(default_factory=dict)

    def add(self, case: Case) -> None:
        if case.id in self.cases:
            raise ValueError(f"there are two cases {case.id!r}")
        self.cases[case.id] = case

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases.values())

    def __len__(self) -> int:
        return len(self.cases)


REGISTERED = Suite("user")
"""What `case` and `register_test_case` have registered in this process."""


def case(
    *inputs: Any,
    name: str | None = None,
    dtype: str = "float32",
    tags: Iterable[str] = (),
    tolerance: tuple[float, float] | None = None,
    dynamic_shapes: Any = None,
    suite: Suite | None = None,
) -> Callable[[Any], Any]:
    """Register a function, or a class of modules, as a case.

        @case(torch.randn(2, 3), tags={"core"})
        def softplus(x):
            return torch.nn.functional.softplus(x)

    `inputs` are the arguments of the call, or one function that makes them.
    """

    def register(program: Any) -> Any:
        def samples() -> list[Sample]:
            made = inputs[0]() if len(inputs) == 1 and callable(inputs[0]) else inputs
            args = made if isinstance(made, tuple) else (made,)
            return [Sample(as_module(program), [Call(args)], dynamic_shapes)]

        target = suite or REGISTERED
        target.add(Case(target.name, name or program.__name__, samples, dtype, "user", frozenset(tags), tolerance))
        return program

    return register


def as_module(program: Any) -> Any:
    """Make an `nn.Module` in eval mode of a module, of a class of modules, or of a function of tensors."""
    import torch

    if isinstance(program, torch.nn.Module):
        return program.eval()
    if isinstance(program, type) and issubclass(program, torch.nn.Module):
        return program().eval()

    class Function(torch.nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return program(*args, **kwargs)

    return Function()
