"""The random numbers of new parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.random import Generator

_generator: Generator | None = None


def generator() -> Generator:
    """The source of random numbers of parameters, and of what `flambeau.ops.rand` gives as literals."""
    if _generator is None:
        manual_seed(0)
    assert _generator is not None
    return _generator


def manual_seed(seed: int) -> None:
    """Start its numbers anew."""
    from numpy.random import default_rng  # which takes a while to import

    global _generator
    _generator = default_rng(seed)
