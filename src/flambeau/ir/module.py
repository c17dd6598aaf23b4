"""A compiled program: the IR, its weights, and how its functions are called."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flambeau.ir.dtypes import DType


@dataclass(frozen=True)
class TensorSpec:
    """The type of a tensor at the border of a program; None is a dimension known only at run time."""

    shape: tuple[int | None, ...]
    dtype: DType

    def __str__(self) -> str:
        return "x".join([*("?" if d is None else str(d) for d in self.shape), self.dtype.name])


@dataclass(frozen=True)
class ScalarSpec:
    """A Python number at the border of a program."""

    kind: str
    """`int`, `float` or `bool`."""

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True)
class Argument:
    """One argument of a function, in order."""

    name: str
    spec: TensorSpec | ScalarSpec
    state: str | None = None
    """The name in `Module.weights` when the caller does not pass this argument: a buffer that the program writes."""
    strides: tuple[int, ...] | str | None = None
    """How the tensor must lie in memory, where the program depends on it: its strides, or `contiguous`."""


@dataclass(frozen=True)
class Output:
    """One leaf of what the function gives back to Python: a result of the IR function, or a constant."""

    result: int | None
    constant: Any = None


@dataclass(frozen=True)
class Mutation:
    """A result that is the new value of something that the caller can see."""

    result: int
    argument: int
    """The argument (by position) whose contents this replaces."""


@dataclass(frozen=True)
class Fixed:
    """A value that is part of the program: the caller passes it, and it must be the one that was compiled with."""

    leaf: int
    """Which leaf of `in_spec` it is."""
    name: str
    value: Any


@dataclass(frozen=True)
class Signature:
    """How Python calls a function of a module and what it gets back."""

    arguments: tuple[Argument, ...]
    results: tuple[TensorSpec | ScalarSpec, ...]
    outputs: tuple[Output, ...]
    mutations: tuple[Mutation, ...] = ()
    in_spec: Any = None
    """PyTorch's tree spec of `(args, kwargs)`, or our own `Tree`; None for a flat list of arguments."""
    out_spec: Any = None
    """The same of the result; None for the flat list (a single output is returned bare)."""
    inputs: tuple[int | None, ...] | None = None
    """For each leaf of `in_spec`, the argument that it feeds; None where the program does not need it."""
    fixed: tuple[Fixed, ...] = ()
    """The leaves of `in_spec` that the program was specialised to."""


@dataclass
class Weights(Mapping[str, Any]):
    """Names to the original tensors. Nothing is copied: two names of one tensor are one entry."""

    tensors: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def free_name(self, name: str) -> str:
        """A name like this one that is not taken yet, and that MLIR takes as the name of a resource."""
        base = re.sub(r"[^\w.$]", "_", name)
        base = base if base[:1].isalpha() or base[:1] == "_" else f"_{base}"
        candidate, count = base, 0
        while candidate in self.tensors:
            count += 1
            candidate = f"{base}_{count}"
        return candidate

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in self.tensors.values())
