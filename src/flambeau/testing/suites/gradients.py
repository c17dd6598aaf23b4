"""The op database once more: the gradients of each op by its tensors of floats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from flambeau.testing.cases import Sample, Suite
from flambeau.testing.suites.ops import UNFORESEEABLE, entries, suite_of


def make(dtypes: Iterable[str]) -> Suite:
    """Make a case for each entry that has a gradient, and each dtype of it."""
    infos = [info for info in entries() if info.supports_autograd and info.name not in UNFORESEEABLE]
    return suite_of("gradients", infos, dtypes, _gradients)


class Gradients(nn.Module):
    """The gradients of a program by its arguments of floats, for results that are weighted by a fixed pattern."""

    def __init__(self, program: nn.Module, floats: list[int]) -> None:
        super().__init__()
        self.program, self.floats = program, floats

    def forward(self, *tensors: Tensor) -> Any:
        def results(*floats: Tensor) -> list[Tensor]:
            given = list(tensors)
            for i, x in zip(self.floats, floats, strict=True):
                given[i] = x
            return [r for r in tree_leaves(self.program(*given)) if isinstance(r, Tensor) and _is_smooth(r)]

        given, pull, *_ = torch.func.vjp(results, *(tensors[i] for i in self.floats))
        return pull([_pattern(r) for r in given])


def _pattern(x: Tensor) -> Tensor:
    """Make weights that differ from element to element, so that nothing cancels out by itself."""
    count = torch.arange(x.numel(), dtype=torch.int64)
    return ((count % 7 - 3).to(x.dtype) / 4 + 0.1).reshape(x.shape)


def _is_smooth(x: Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()


def _gradients(sample: Sample) -> Sample | None:
    (call, *_) = sample.calls
    floats = [i for i, x in enumerate(call.args) if isinstance(x, Tensor) and _is_smooth(x)]
    if not floats:
        return None
    return replace(sample, module=Gradients(sample.module, floats), rounding=True)
