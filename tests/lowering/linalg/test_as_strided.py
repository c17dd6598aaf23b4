"""Strided views count elements of the memory that they look at, not of the tensor that they are called on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support import check_all
from torch import Tensor, nn
from torch.export import Dim

import flambeau
from flambeau import torchscript
from flambeau.engines.errors import RunError

X = torch.arange(24.0).reshape(4, 6)

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda x: x.as_strided((3, 2), (2, 5), 1),
    "transpose": lambda x: x.t().as_strided((3, 2), (1, 7)),
    "permute": lambda x: x.reshape(2, 3, 4).permute(2, 0, 1).as_strided((3, 2), (1, 7)),
    "slice with a step": lambda x: x[1:, ::2].as_strided((2, 2), (6, 1)),
    "narrow": lambda x: x.narrow(0, 1, 2).as_strided((2, 3), (1, 3)),
    "select": lambda x: x[2].as_strided((2, 2), (3, 1)),
    "select of a column": lambda x: x[:, 2].as_strided((2, 2), (3, 1)),
    "unfold": lambda x: x.unfold(1, 3, 2).as_strided((2, 2), (3, 1)),
    "diagonal": lambda x: x.diagonal(1).as_strided((2, 2), (3, 1)),
    "expand": lambda x: x[:1].expand(3, 6).as_strided((2, 2), (3, 1)),
    "with an offset": lambda x: x.t()[2].as_strided((2, 2), (3, 1), 5),
    "nested": lambda x: x.t().as_strided((3, 2), (1, 7), 2)[1:].as_strided((2, 2), (4, 1)),
    "of what keeps its strides": lambda x: x.t().relu().as_strided((3, 2), (1, 7)),
    "copy": lambda x: torch.ops.aten.as_strided_copy(x.t(), (3, 2), (1, 7)),
    "written": lambda x: written(x.clone()),
}


def written(x: Tensor) -> Tensor:
    x.t().as_strided((2, 2), (7, 1), 3).fill_(-1.0)
    return x


def test_a_strided_view_is_of_the_memory_behind_a_view() -> None:
    check_all([(f, (X,)) for f in VIEWS.values()])


def test_a_strided_view_of_channels_last_tensors() -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            weight = torch.arange(48.0).reshape(1, 3, 4, 4).contiguous(memory_format=torch.channels_last)
            self.weight = nn.Parameter(weight)

        def forward(self, x: Tensor) -> list[Tensor]:
            both = (self.weight, x, (x * 2), x[:, 1:])
            return [t.as_strided((2, 3), (5, 1), 4) for t in both]

    model = Weighted()
    x = torch.arange(96.0).reshape(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    run = flambeau.load(flambeau.compile(model, (x,)), profile="quick")
    for got, want in zip(run(x), model(x), strict=True):
        assert torch.equal(got, want)


class Views(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        return [
            x.t().as_strided([3, 2], [1, 7]),
            x[1:, ::2].as_strided([2, 2], [6, 1]),
            x[:, 2].as_strided([2, 2], [3, 1]),
            x.diagonal(1).as_strided([2, 2], [3, 1], 4),
            (x + 1).t().as_strided([3, 2], [1, 7]),
        ]


def test_a_strided_view_in_torchscript() -> None:
    model = Views()
    place = torchscript.TensorPlaceholder([4, 6], torch.float32)
    program = torchscript.compile(torch.jit.script(model), [place], output_type="linalg-on-tensors")
    for got, want in zip(flambeau.load(program, profile="quick")(X), model(X), strict=True):
        assert torch.equal(got, want)


class KeepsStrides(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.t().relu().as_strided([3, 2], [1, 7])


def test_what_is_not_known_to_lie_in_order_is_refused() -> None:
    place = torchscript.TensorPlaceholder([4, 6], torch.float32)
    with pytest.raises(flambeau.CompileError, match="place in memory is not known"):
        torchscript.compile(torch.jit.script(KeepsStrides()), [place])


def test_a_strided_view_that_ends_outside_is_refused() -> None:
    run = flambeau.load(
        flambeau.compile(
            lambda x: x.as_strided((3, 2), (4, 1)), (torch.arange(12.0),), dynamic_shapes=({0: Dim("n", min=2)},)
        ),
        profile="quick",
    )
    assert torch.equal(run(torch.arange(10.0)), torch.arange(10.0).as_strided((3, 2), (4, 1)))
    with pytest.raises(RunError, match="ends outside"):
        run(torch.arange(9.0))
