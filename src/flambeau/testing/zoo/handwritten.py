"""What architectures have in common that are written as people write them by hand, with nothing but `torch.nn`.

They are in `images`, `sequences` and `structures`. Each class has a `forward`, and `example`, which makes the arguments
of a call.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

BATCH = 2
VOCABULARY = 64


def ids(*shape: int) -> Tensor:
    """Draw random words of the vocabulary."""
    return torch.randint(0, VOCABULARY, shape)


def image(channels: int = 3, side: int = 16) -> Tensor:
    """Draw a batch of random images."""
    return torch.randn(BATCH, channels, side, side)


class Handwritten(nn.Module):
    """A model that knows what it may be called with."""

    def example(self) -> tuple[Tensor, ...]:
        return (image(),)
