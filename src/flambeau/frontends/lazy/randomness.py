"""Where the seeds of random programs come from.

Note [One seed for a graph]. The random ops of a graph draw from one stream, whose seed is drawn from PyTorch's
generator where the first of them is recorded: so `torch.manual_seed` says what is drawn, as in eager PyTorch. If the
generator is in another state when a further one is recorded, as somebody has seeded it meanwhile, a new graph begins.
Nothing that is drawn is left out of a graph, though nobody looks at it: what is drawn next does not depend on who looks
at what.
"""

from __future__ import annotations

import torch

_OWN: list[torch.Generator] = []
_SEEDS = (1 << 63) - 1
_STEP = 0x9E3779B97F4A7C15


def seed(number: int | None) -> None:
    """Draw random numbers from a generator of their own from now on, which starts at this seed.

    With None, they come from PyTorch's generator again, which `torch.manual_seed` sets.
    """
    _OWN[:] = [] if number is None else [torch.Generator().manual_seed(number)]


class Draws:
    """The seed of a graph, and in what state the generator was left."""

    __slots__ = ("generator", "seed", "state")

    def __init__(self) -> None:
        self.generator = _generator()
        numbers = torch.randint(_SEEDS, (), generator=self.generator, device="cpu")
        self.seed = int(numbers)
        self.state = self.generator.get_state()

    def goes_on(self) -> bool:
        """Tell whether nobody has touched the generator since."""
        return self.generator is _generator() and torch.equal(self.generator.get_state(), self.state)

    def seed_of(self, program: int) -> int:
        """Return the seed of the n-th program of the graph, where ops that run in PyTorch lie between them."""
        return (self.seed + program * _STEP) & _SEEDS


def _generator() -> torch.Generator:
    return _OWN[0] if _OWN else torch.default_generator
