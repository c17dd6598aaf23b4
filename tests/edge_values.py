"""Values that go wrong elsewhere, for the tests of elementwise ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from support import check_all

INF, NAN = float("inf"), float("nan")
EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e-8, -1e-8, 88.0, -88.0, INF, -INF, NAN])
INTS = torch.tensor([0, 1, -1, 2, -2, 3, -3, 7, -7, 127, -128, 2**31 - 1, -(2**31)], dtype=torch.int64)


def pairs(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Every value with every other."""
    return values.repeat_interleave(len(values)), values.repeat(len(values))


def every(functions: list[Callable[..., Any]], *inputs: torch.Tensor, **options: Any) -> None:
    check_all([(f, inputs) for f in functions], **options)
