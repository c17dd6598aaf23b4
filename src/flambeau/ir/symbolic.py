"""Sizes that only a call knows: their names, what they may be, and how the sizes of arguments follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Symbol:
    """A size that each call chooses."""

    name: str
    low: int = 0
    high: int | None = None
    """The most that it may be; None if there is no such."""

    def __str__(self) -> str:
        return f"{self.name}: {self.low}..{'' if self.high is None else self.high}"


@dataclass(frozen=True)
class SymbolicDim:
    """A size in terms of symbols, such as `8*blocks + 1`."""

    text: str
    symbol: str | None = None
    """The symbol, if the size is `factor * symbol + offset`; None for other formulas."""
    factor: int = 1
    offset: int = 0


Dims = tuple[SymbolicDim | None, ...]
"""What is known of each dim of a tensor; None for one that is a number, or of which nothing is known."""


class Sizes:
    """The symbols of one call, as the sizes of its arguments give them."""

    def __init__(self, symbols: Iterable[Symbol]) -> None:
        self._symbols = {s.name: s for s in symbols}
        self._found: dict[str, tuple[int, str]] = {}

    def check(self, argument: str, dims: Dims, shape: Sequence[int]) -> None:
        """Find symbols in the shape of an argument; ValueError if one is not what it may be, or not what it was."""
        for i, (dim, size) in enumerate(zip(dims, shape, strict=True)):
            if dim is None or dim.symbol is None:
                continue
            place = f"dimension {i} of argument {argument!r}"
            value, rest = divmod(size - dim.offset, dim.factor)
            if rest:
                raise ValueError(f"{place} is {size}, and must be {dim.text} for an integer {dim.symbol}")
            symbol = self._symbols.get(dim.symbol, Symbol(dim.symbol))
            if value < symbol.low or (symbol.high is not None and value > symbol.high):
                found = f"{dim.text} with {symbol}" if dim.text != symbol.name else str(symbol)
                raise ValueError(f"{place} is {size}, and must be {found}")
            known, where = self._found.setdefault(dim.symbol, (value, place))
            if known != value:
                wanted = dim.factor * known + dim.offset
                raise ValueError(f"{place} is {size}, and must be {wanted}: {dim.symbol} is {known} in {where}")
