"""What an entry of the zoo is, and how its weights come to be: random, and the same on every run."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import nn

Example: TypeAlias = "tuple[nn.Module, tuple[Any, ...], dict[str, Any]]"
"""A module in eval mode, with arguments and keyword arguments to call it with."""


@dataclass(frozen=True)
class ZooModel:
    """One small architecture."""

    name: str
    family: str
    """What it is for: `text-encoder`, `decoder`, `vision`, ..."""
    make: Callable[[], Example]
    """Makes the module and its inputs, anew with each call: a program may write to a cache that it is given."""
    tags: frozenset[str] = frozenset()
    """What is special about it: `transformers` or `handwritten`, `cache`, `moe`, ..."""
    tolerance: float = 1e-4
    """The largest error beside eager, relative to the largest number expected."""


def seeded(name: str, make: Callable[[], Example]) -> Example:
    """Run `make` with PyTorch's random numbers seeded by `name`, and bring the module into a state worth testing."""
    import torch

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(zlib.crc32(name.encode()))
        module, args, kwargs = make()
        _unsettle(module)
    return module.eval(), args, kwargs


def _unsettle(module: nn.Module) -> None:
    """Give what starts as a constant (biases, layer scales, running statistics) values as training would.

    Where a bias is zero or a variance is one, a program that forgets it gives the right numbers.
    """
    import torch

    for parameter in module.parameters():
        if parameter.numel() > 1 and parameter.is_floating_point() and (parameter == parameter.flatten()[0]).all():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    for name, buffer in module.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(std=0.1)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
