"""PyTorch's primitive ops, which its own decompositions end in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from primitives import primitives
from support import check_all
from torch import Tensor

UNSET = ("prims.empty", "prims.empty_permuted", "prims.empty_strided")


def call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Tensor, ...]]:
    """Make a function of the tensors among the arguments, and those tensors."""
    op = getattr(torch.ops.prims, name.removeprefix("prims.")).default
    tensors = tuple(a for a in args if isinstance(a, Tensor))
    if isinstance(args[0], list) and isinstance(args[0][0], Tensor):
        return lambda *xs: op(list(xs), *args[1:], **kwargs), tuple(args[0])

    def function(*xs: Tensor) -> Any:
        following = iter(xs)
        return op(*(next(following) if isinstance(a, Tensor) else a for a in args), **kwargs)

    return function, tensors


@pytest.mark.engine
def test_primitives_are_the_ops_of_aten() -> None:
    cases = [call(*case) for case in primitives() if case[0] not in UNSET]
    x = torch.arange(1, 7).reshape(2, 3)
    cases.append((lambda a, b: torch.ops.prims.div(a, b), (x * 7, -x)))  # integers round towards zero
    cases.append((lambda a: torch.ops.prims.split_dim(a, 1, 3), (x,)))
    cases.append((lambda a: torch.ops.prims.collapse(a, 0, 1), (x,)))
    assert len(cases) > 90
    check_all(cases, rtol=1e-5, atol=1e-6)
