"""Operators that nothing downstream takes whole: they are written with others, as a PyTorch user would write them.

The FX frontend has PyTorch's own decompositions for these; here is what takes their place. A composite is called with
the arguments in the order of the overload's schema.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.frontends.nn import context

COMPOSITES: dict[str, Callable[..., Any]] = {}
"""By overload, `aten.max.other`."""


def composite(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: how overloads are written with others."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        COMPOSITES.update(dict.fromkeys(names, function))
        return function

    return register


def _op(name: str, *args: Any, **kwargs: Any) -> Any:
    return context.current().invoke(f"aten.{name}", None, args, kwargs)
