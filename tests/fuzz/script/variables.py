"""What the generator knows of the variables of a program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

MAX_ELEMENTS = 48
MAX_DIMS = 4
FLOAT, LONG = torch.float32, torch.int64


SPECIAL = (float("nan"), float("inf"), float("-inf"), -0.0)


@dataclass(frozen=True)
class Spec:
    """A tensor that a program is called with."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    counts: bool = False
    """Whether its numbers are small and not negative, as for trip counts."""
    special: bool = False
    """Whether some of its numbers are NaN, infinite or -0.0."""

    def make(self, generator: torch.Generator) -> torch.Tensor:
        if self.counts:
            return torch.randint(0, 4, self.shape, generator=generator)
        if self.dtype is LONG:
            return torch.randint(-4, 5, self.shape, generator=generator)
        plain = torch.randint(-12, 13, self.shape, generator=generator) * 0.125
        if not self.special:
            return plain
        chosen = torch.randint(0, len(SPECIAL), self.shape, generator=generator)
        rare = torch.randint(0, 5, self.shape, generator=generator) == 0
        return torch.where(rare, torch.tensor(SPECIAL)[chosen], plain)


@dataclass(frozen=True)
class Program:
    """Source text with what it is called with; a program with buffers is a class's methods."""

    source: str
    arguments: tuple[Spec, ...]
    buffers: tuple[Spec, ...] = ()

    @property
    def entry(self) -> str:
        return "forward" if self.buffers else "f"


@dataclass(eq=False)
class Tensor:
    """A tensor variable: how it lies in memory, and the storages that it may be in."""

    meta: torch.Tensor
    roots: frozenset[int]
    is_certain: bool = True
    """Whether its strides are known."""

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(self.meta.shape), self.meta.dtype

    @property
    def is_writable(self) -> bool:
        sizes = zip(self.meta.shape, self.meta.stride(), strict=True)
        return not any(size > 1 and stride == 0 for size, stride in sizes)


@dataclass(eq=False)
class Int:
    """A number: its sample value, and whether it depends on data or on a loop."""

    sample: int
    is_known: bool = True


@dataclass(eq=False)
class Float:
    """A number that a tensor gave."""


@dataclass(eq=False)
class Bool:
    """A condition that was computed before."""

    is_data: bool
    answer: bool | None


@dataclass(eq=False)
class Tuple:
    items: list[Any]


@dataclass(eq=False)
class List:
    """Tensors of one shape. Variables that are the same list have the same object here."""

    element: Tensor
    length: int
    is_exact: bool = True
    is_fixed: bool = False
    """Whether it must keep its length, because a loop runs over it or because it may be another list too."""


@dataclass(eq=False)
class Dict:
    element: Tensor
    keys: list[str]
    is_fixed: bool = False


@dataclass(eq=False)
class Maybe:
    """A tensor or None."""

    element: Tensor


@dataclass
class Helper:
    """A function that the program calls."""

    name: str
    arguments: list[Tensor]
    result: Tensor


Path = tuple[str, Tensor]
"""The text of an expression and what it is."""


@dataclass
class Block:
    """Where statements go at the moment."""

    scope: dict[str, Any] = field(default_factory=dict)
    loop: str = ""
    """`for` or `while` for a loop's body."""
    times: int = 1
    """How often the block runs for each time that the one around it runs."""
    is_certain: bool = True
    """Whether that is exact."""
    is_data: bool = False
    """Whether it depends on the numbers in tensors."""


class Dead(Exception):
    """No expression was found."""


@dataclass(eq=False)
class _DataInt(Int):
    """A number that depends on data."""


def data_int() -> Int:
    return _DataInt(1, False)


def is_data_int(value: Int) -> bool:
    return isinstance(value, _DataInt)


def sample(value: Any) -> Any:
    """Return the stand-in for a variable while expressions are tried out."""
    if isinstance(value, Tensor):
        return value.meta
    if isinstance(value, Int):
        return value.sample
    if isinstance(value, Float):
        return 0.5
    if isinstance(value, Tuple):
        return tuple(map(sample, value.items))
    if isinstance(value, List):
        return [value.element.meta] * max(value.length, 1)
    if isinstance(value, Dict):
        return dict.fromkeys(value.keys, value.element.meta)
    return None
