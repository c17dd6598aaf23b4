"""Views, slices and joins, static and dynamic, against eager PyTorch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import check, check_all

X = torch.arange(72.0).reshape(3, 4, 6)

VIEWS: dict[str, Callable[..., Any]] = {
    "view": lambda x: x.view(12, 6), "view -1": lambda x: x.view(-1, 2, 3), "reshape of a transpose":
    lambda x: x.transpose(0, 2).reshape(6, -1), "flatten": lambda x: x.flatten(),
    "flatten some": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(2, (2, -1)), "unsqueeze": lambda x: x.unsqueeze(-1), "permute":
    lambda x: x.permute(2, 0, 1), "movedim": lambda x: x.movedim(0, -1), "t": lambda x: x[0].t(), "mT": lambda x: x.mT,
    "expand": lambda x: x[:, :1].expand(-1, 5, 6), "repeat": lambda x: x.repeat(2, 1, 3), "repeat adds dims":
    lambda x: x.repeat(2, 1, 1, 1), "tile": lambda x: x.tile(2, 3), "slice": lambda x: x[1:, ::2, -4:-1],
    "slice beyond the end": lambda x: x[:, 2:100], "empty slice": lambda x: x[:, 3:1], "negative start":
    lambda x: x[-2:], "select": lambda x: x[:, -1], "narrow": lambda x: x.narrow(1, 1, 2), "split":
    lambda x: x.split(4, 2), "split sizes": lambda x: x.split([1, 2, 3], 2), "chunk": lambda x: x.chunk(4, 2),
    "unbind": lambda x: x.unbind(1), "tensor_split": lambda x: x.tensor_split(4, 2), "cat":
    lambda x: torch.cat([x, x[:, :2] * 2], 1), "cat promotes": lambda x: torch.cat([x, x.int()], 0), "cat with nothing":
    lambda x: torch.cat([torch.empty(0), x], 0), "stack": lambda x: torch.stack([x, -x], -1), "flip":
    lambda x: x.flip(0, 2), "roll": lambda x: x.roll((1, -2), (0, 2)), "roll flat": lambda x: x.roll(5),
    "roll by nothing": lambda x: x.roll(0, 1), "cat with nothing in a dim":
    lambda x: torch.cat([x[..., :0], x, x[..., :0]], 2),
    "diagonal":
    lambda x: x.diagonal(1, 1, 2), "diagonal below": lambda x: x.diagonal(-2, 0, 2), "unfold":
    lambda x: x.unfold(2, 3, 2), "slice_scatter": lambda x: torch.slice_scatter(x, x[:, :2] * 0, 1, 1, 3),
    "select_scatter": lambda x: torch.select_scatter(x, x[:, 0] * 0, 1, 2), "diagonal_scatter":
    lambda x: torch.diagonal_scatter(x, x.diagonal(0, 1, 2) * 0, 0, 1, 2), "None index": lambda x: x[:, None, :, None],
    "squeeze": lambda x: x[:1, :, :1].squeeze(), "squeeze a dim": lambda x: x[:, :1].squeeze(1).squeeze(0),
    "as_strided": lambda x: torch.as_strided(x.contiguous(), (2, 3), (6, 2), 1),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_match_eager(dynamic: bool) -> None:
    """S8, S10: views, None-indexing and expand, with dynamic sizes too."""
    names = [n for n in VIEWS if not (dynamic and n in ("as_strided", "slice beyond the end", "tensor_split"))]
    check_all([(VIEWS[n], (X,)) for n in names], dynamic=dynamic)


def test_views_of_0d_and_empty_tensors() -> None:
    zero, empty = torch.tensor(3.0), torch.empty(0, 4)
    check_all(
        [
            (lambda x: x.view(1, 1), (zero,)), (lambda x: x.unsqueeze(0).squeeze(), (zero,)),
            (lambda x: x.flatten(), (zero,)), (lambda x: x.expand(2, 3), (zero,)),
            (lambda x: x.transpose(-1, 0), (zero,)),
            (lambda x: x.view(4, 0), (empty,)), (lambda x: x.transpose(0, 1), (empty,)),
            (lambda x: x[:, 1:3], (empty,)),
            (lambda x: torch.cat([x, torch.ones(2, 4)]), (empty,)), (lambda x: x.flip(0), (empty,)),
        ]
    )  # fmt: skip


def test_sizes_are_computed_at_run_time() -> None:
    """S7: unpacked size() in view and expand."""

    def shape(x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.size()
        return x.view(batch, length, 2, width // 2).transpose(1, 2).contiguous().view(batch * 2, length, -1)

    for dynamic in (False, True):
        check(shape, X, dynamic=dynamic)


def test_a_chain_of_views_is_no_copy() -> None:
    """Views between contiguous shapes become reshapes only: no loop is emitted."""
    module = check(lambda x: x.view(12, 6).unsqueeze(0).flatten().view(8, 9) + 0, X)
    names = [op.name for op in module.op.walk()]
    assert names.count("linalg.generic") == 1
    assert "linalg.transpose" not in names


def _random_shape(count: int, generator: random.Random) -> list[int]:
    """Write a number of elements as a shape, with some ones in it."""
    shape: list[int] = []
    while count > 1:
        factor = generator.choice([f for f in range(2, count + 1) if count % f == 0])
        shape.append(factor)
        count //= factor
        if generator.random() < 0.3:
            shape.append(1)
    generator.shuffle(shape)
    return shape


@pytest.mark.parametrize("dynamic", [False, True])
def test_any_shape_becomes_any_other(dynamic: bool) -> None:
    """Reshapes find the groups of dims that belong together, whatever the shapes are."""
    generator = random.Random(0)
    cases: list[tuple[Callable[..., Any], tuple[torch.Tensor]]] = []
    for _ in range(40):
        count = generator.choice([1, 6, 12, 24, 36, 60, 64])
        old, new = _random_shape(count, generator), _random_shape(count, generator)
        if new and generator.random() < 0.5:
            new[generator.randrange(len(new))] = -1
        x = torch.arange(float(count)).reshape(old)
        cases.append((lambda x, new=tuple(new): x.reshape(new) + 1, (x,)))
    check_all(cases, dynamic=dynamic)
