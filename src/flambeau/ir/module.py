"""A compiled program: the IR, its weights, and how its functions are called."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flambeau.ir.dtypes import DType
from flambeau.ir.symbolic import Dims, Symbol


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


def typed(spec: TensorSpec | ScalarSpec, dims: Dims = ()) -> str:
    """Spell a type with the names of its sizes: `float32[batch, 16]`, or `int`."""
    if isinstance(spec, ScalarSpec):
        return str(spec)
    named = dims or (None,) * len(spec.shape)
    sizes = [dim.text if dim is not None else "?" if n is None else str(n) for n, dim in zip(spec.shape, named)]
    return f"{spec.dtype.name}[{', '.join(sizes)}]"


@dataclass(frozen=True)
class Argument:
    """One argument of a function, in order."""

    name: str
    spec: TensorSpec | ScalarSpec
    state: str | None = None
    """The name in `Module.weights` when the caller does not pass this argument: a buffer that the program writes."""
    strides: tuple[int, ...] | str | None = None
    """How the tensor must lie in memory, where the program depends on it: its strides, or `contiguous`."""
    is_random: bool = False
    """Whether it is the state of random numbers, which `seed` sets."""
    dims: Dims = ()
    """Its sizes in terms of symbols; empty where there are none."""

    def __str__(self) -> str:
        return f"{self.name}: {typed(self.spec, self.dims)}"


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
    symbols: tuple[Symbol, ...] = ()
    """The sizes that a call chooses."""
    result_dims: tuple[Dims, ...] = ()
    """The sizes of results in terms of symbols; empty where there are none."""
    conditions: tuple[str, ...] = ()
    """What else must hold of the symbols, which the program checks itself."""

    def __str__(self) -> str:
        """Spell the function out: what it takes and gives, what it writes, and what sizes may be."""
        taken = [str(a) for a in self.arguments if a.state is None]
        taken += [f"{f.name} = {f.value!r}" for f in self.fixed]
        dims = (*self.result_dims, *((),) * len(self.results))
        given = [
            repr(o.constant) if o.result is None else typed(self.results[o.result], dims[o.result])
            for o in self.outputs
        ]
        lines = [f"({', '.join(taken)}) -> {given[0] if len(given) == 1 else '(' + ', '.join(given) + ')'}"]
        if self.symbols or self.conditions:
            lines.append("  where " + ", ".join([*map(str, self.symbols), *self.conditions]))
        for i, argument in enumerate(self.arguments):
            is_written = any(m.argument == i for m in self.mutations)
            if argument.state is not None:
                lines.append(f"  {'writes' if is_written else 'reads'} state {argument}")
            elif is_written:
                lines.append(f"  writes {argument.name}")
        return "\n".join(lines)


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
        """Make a name like this one that is not taken yet and is valid for an MLIR resource."""
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
