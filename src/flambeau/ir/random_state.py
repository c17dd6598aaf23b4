"""The state of a program's random numbers: a named weight that each call reads and writes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

NAME = "random_state"
"""What the argument is called that holds it."""

WORDS = 5
"""Two of the seed, two of a counter of draws, and the number of the stream."""


def state_words(seed: int, stream: int = 0, offset: int = 0) -> np.ndarray[Any, Any]:
    """Make the state that a seed starts from.

    `seed` and `offset` have 64 bits, `stream` 32. The offset is counted as PyTorch counts that of its CUDA generator,
    in steps of four.
    """
    for what, value, bits in (("seed", seed, 64), ("offset", offset, 64), ("stream", stream, 32)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{what} is an integer, not {type(value).__name__}")
        if not -(1 << (bits - 1)) <= value < 1 << bits:
            raise ValueError(f"{what} is an integer of {bits} bits, not {value}")
    if offset % 4:
        raise ValueError(f"offset counts numbers in fours, as PyTorch's does; {offset} is no multiple of 4")
    words = [seed, seed >> 32, offset // 4, offset // 4 >> 32, stream]
    return np.array([w & 0xFFFFFFFF for w in words], dtype=np.uint32).view(np.int32)


def first_state() -> Any:
    """Make the state that a new program starts from: PyTorch's seed where PyTorch is there, else 0; at its start."""
    torch = sys.modules.get("torch")
    if torch is None:
        return state_words(0)
    return torch.from_numpy(state_words(torch.initial_seed()))
