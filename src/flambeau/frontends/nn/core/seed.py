"""The random numbers of new parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.random import Generator

_generator: Generator | None = None


def generator() -> Generator:
    """Return the generator behind random parameters and what `flambeau.ops.rand` gives as literals."""
    if _generator is None:
        manual_seed(0)
    assert _generator is not None
    return _generator


def manual_seed(seed: int) -> None:
    """Seed the generator of random parameters and literals."""
    from numpy.random import default_rng  # which takes a while to import

    global _generator
    _generator = default_rng(seed)
