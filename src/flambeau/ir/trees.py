"""Nested lists, tuples and dicts around the leaves of a call: taken apart and put together without PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Tree:
    """The structure of a value: a leaf, or a container with a tree for each element."""

    type: type | None = None
    """`list`, `tuple` or `dict`; None for a leaf."""
    context: tuple[Any, ...] = ()
    """The keys of a dict."""
    parts: tuple[Tree, ...] = ()

    def is_leaf(self) -> bool:
        return self.type is None

    def children(self) -> tuple[Tree, ...]:
        return self.parts

    def flatten_up_to(self, value: Any) -> list[Any]:
        """Flatten a value that must have this structure into its leaves; ValueError if it has another."""
        if self.type is None:
            return [value]
        children = list(value) if isinstance(value, (list, tuple, dict)) and isinstance(value, self.type) else None
        if children is None or len(children) != len(self.parts):
            raise ValueError(f"expected a {self.type.__name__} of {len(self.parts)}, got {type(value).__name__}")
        if isinstance(value, dict):
            if set(value) != set(self.context):
                raise ValueError(f"expected the keys {list(self.context)}, got {list(value)}")
            children = [value[key] for key in self.context]
        return [leaf for part, item in zip(self.parts, children, strict=True) for leaf in part.flatten_up_to(item)]

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """Build a value of this structure from its leaves."""
        return self._build(iter(leaves))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.type is None:
            return next(leaves)
        items = [part._build(leaves) for part in self.parts]
        return dict(zip(self.context, items, strict=True)) if self.type is dict else self.type(items)

    def to_json(self) -> Any:
        """Encode the structure as JSON values."""
        if self.type is None:
            return None
        return [self.type.__name__, list(self.context), [part.to_json() for part in self.parts]]

    @staticmethod
    def from_json(data: Any) -> Tree:
        """Decode what `to_json` wrote."""
        if data is None:
            return LEAF
        kind, context, parts = data
        return Tree(_CONTAINERS[kind], tuple(context), tuple(map(Tree.from_json, parts)))


LEAF = Tree()
_CONTAINERS: dict[str, type] = {"list": list, "tuple": tuple, "dict": dict}


def flatten(value: Any, is_leaf: Callable[[Any], bool] = lambda _: False) -> tuple[list[Any], Tree]:
    """Flatten a value into its leaves, in order, and its structure. A named tuple counts as a tuple."""
    leaves: list[Any] = []

    def walk(item: Any) -> Tree:
        if is_leaf(item) or not isinstance(item, (list, tuple, dict)):
            leaves.append(item)
            return LEAF
        if isinstance(item, dict):
            return Tree(dict, tuple(item), tuple(map(walk, item.values())))
        return Tree(list if isinstance(item, list) else tuple, (), tuple(map(walk, item)))

    return leaves, walk(value)
