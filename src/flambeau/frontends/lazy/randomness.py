"""Where the seeds of random programs come from."""

from __future__ import annotations

import torch

_OWN: list[torch.Generator] = []
_SEEDS = (1 << 63) - 1


def seed(number: int | None) -> None:
    """Draw seeds from a generator of our own from now on; with None, from PyTorch's again."""
    _OWN[:] = [] if number is None else [torch.Generator().manual_seed(number)]


def next_seed() -> int:
    """Draw the seed for one run of a graph, so that two runs of it differ and `torch.manual_seed` repeats them."""
    return int(torch.randint(_SEEDS, (), generator=_OWN[0] if _OWN else None, device="cpu"))
