"""Which values may share storage, and which of those are written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class Sharing(Generic[T]):
    """Groups of values (of IR, or nodes of a graph) that may share storage."""

    parent: dict[T, T] = field(default_factory=dict)
    written: set[T] = field(default_factory=set)
    """The root of each group that somebody writes to."""

    def root(self, value: T) -> T:
        """Find the representative of a value's group (union-find, with path splitting)."""
        while (up := self.parent.get(value, value)) is not value:
            self.parent[value] = self.parent.get(up, up)
            value = up
        return value

    def join(self, a: T, b: T) -> None:
        """Make one group of two."""
        a, b = self.root(a), self.root(b)
        if a is not b:
            self.parent[a] = b
            if a in self.written:
                self.written.add(b)

    def is_mutable(self, value: T) -> bool:
        """Tell whether somebody writes to storage that this value may share."""
        return bool(self.written) and self.root(value) in self.written
