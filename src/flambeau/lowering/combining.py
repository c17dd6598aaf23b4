"""What two elements give together, in reductions and scatters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flambeau.ir.dtypes import DType
from flambeau.lowering.element import Element

JOINS: dict[str, Callable[[Element, Element], Element]] = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "max": lambda a, b: a.maximum(b),
    "min": lambda a, b: a.minimum(b), "maxu": lambda a, b: a.maximum(b), "minu": lambda a, b: a.minimum(b),
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
}  # fmt: skip
"""The ways to combine elements, by the names that targets look up their ops with."""

_OF_PYTORCH = {
    "sum": "add", "add": "add", "mean": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min",
}  # fmt: skip
"""What PyTorch's names of reductions do."""


def neutral(kind: str | None, dtype: DType) -> Any:
    """Return the neutral element of a combination: 0 for sums, 1 for products, the least number for maxima, ..."""
    return {"add": 0, "mul": 1, "max": dtype.min, "min": dtype.max, None: 0}[kind]


@dataclass(frozen=True)
class Updating:
    """How a scatter combines updates with what is there, in a dtype that it computes in."""

    reduce: str | None
    """PyTorch's name of the reduction; None where the last update wins."""
    include_self: bool
    """Whether what is there counts as well."""
    dtype: DType

    @property
    def kind(self) -> str | None:
        """One of `JOINS`; None where the last update wins."""
        return _OF_PYTORCH[self.reduce] if self.reduce else None

    @property
    def start(self) -> Any:
        """What to start with where the destination's own value does not count."""
        return neutral(self.kind, self.dtype)

    def combine(self, old: Element, new: Element) -> Element:
        return JOINS[self.kind](old, new) if self.kind else new

    def finish(self, old: Element, new: Element, seen: Element) -> Element:
        """Compute the result from the old element, the combined updates, and their number."""
        if self.reduce == "mean":
            total = (seen + 1 if self.include_self else (seen == 0).select(1, seen)).to(self.dtype)
            new = new.floor_divide(total) if self.dtype.is_integral else new / total
        return new if self.include_self else (seen == 0).select(old.to(self.dtype), new)
