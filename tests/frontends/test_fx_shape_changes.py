"""Ops that change the shape of a tensor object: the program's own become views, others are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import assert_same
from torch import Tensor, nn

import flambeau
from flambeau.diagnostics import CompileError

X = torch.arange(6.0).reshape(2, 3)


class Changing(nn.Module):
    """Changes the shape of its buffer by way of an op that gives the buffer itself back."""

    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.change = change
        self.register_buffer("h", torch.ones(2, 3))
        self.register_buffer("v", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        self.change(self.v)
        self.change(self.h)
        return x + 1


def in_no_grad(h: Tensor) -> None:
    with torch.no_grad():
        h = h.float()
    h.unsqueeze_(-1)


CHANGES = [
    lambda h: h.float().unsqueeze_(-1),
    lambda h: h.contiguous().to(torch.float32).t_(),
    lambda h: h.type_as(h).transpose_(0, -1),
    lambda h: torch.atleast_1d(h).swapaxes_(0, -1),
    lambda h: torch.atleast_1d(h, h)[1].unsqueeze_(0),
    lambda h: nn.functional.dropout(h, 0.5, training=False).unsqueeze_(0),
    lambda h: (+h).mul_(2).unsqueeze_(0),
    lambda h: h.to("cpu").squeeze_(),
    lambda h: torch.mul(h, 2, out=h).unsqueeze_(0),
    lambda h: h.as_strided_((2,), (1,)),
    in_no_grad,
]


@pytest.mark.parametrize("change", CHANGES)
def test_changing_the_shape_of_what_is_the_buffer_itself_is_refused(change: Callable[[Tensor], Any]) -> None:
    with pytest.raises(CompileError) as error:
        flambeau.compile(Changing(change), (X,))
    assert {f"changes the shape of 'b_{name}' itself" in str(error.value) for name in "vh"} == {True}


def flattens(h: Tensor) -> Tensor:
    y = h.flatten()
    h.unsqueeze_(-1)
    return y


def test_flatten_gives_a_vector_itself_back() -> None:
    model = Changing(flattens)
    del model.h
    model.register_buffer("h", torch.ones(1))
    with pytest.raises(CompileError, match="changes the shape of 'b_v' itself"):
        flambeau.compile(model, (X,))


def of_a_reshape(x: Tensor) -> Tensor:
    return x.reshape(2, 3).unsqueeze_(0) + x


def of_another_flatten(x: Tensor) -> Tensor:
    return x.flatten().unsqueeze_(-1) + x[0]


def of_a_copy(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.double()
    z = y.double()
    z.t_()
    return y, z


def by_strides(x: Tensor) -> Tensor:
    y = x * 2
    y.as_strided_((2,), (3,), 1)
    return y


@pytest.mark.parametrize("function", [of_a_reshape, of_another_flatten, of_a_copy, by_strides])
def test_a_tensor_of_the_programs_own_may_change_its_shape(function: Callable[..., Any]) -> None:
    raw = flambeau.compile(function, (X,), output_type="raw")
    for output_type in ("raw", "torch"):
        run = flambeau.load(flambeau.compile(raw, output_type=output_type), engine="eager")
        assert_same(run(X.clone()), function(X.clone()))


class Resized(nn.Module):
    """Has plain tensors that `out=` resizes."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.kept = {"last": [torch.zeros(shape)]}
        self.row = torch.arange(4.0)

    def forward(self, x: Tensor) -> Tensor:
        y = self.kept["last"][0].sum()
        torch.add(self.row, 0.5, out=self.kept["last"][0])
        return x + y


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_out_that_resizes_a_tensor_of_the_model_is_refused(shape: tuple[int, ...]) -> None:
    model = Resized(*shape)
    with pytest.raises(CompileError, match=r"changes the shape of self.kept\['last'\]\[0\] itself"):
        flambeau.compile(model, (X,))
    assert torch.equal(model.kept["last"][0], torch.zeros(shape))


class Unsqueezed(Resized):
    def forward(self, x: Tensor) -> Tensor:
        return self.row.unsqueeze_(-1) + x[0, 0]


def test_changing_the_shape_of_a_plain_tensor_of_the_model_is_refused() -> None:
    model = Unsqueezed()
    with pytest.raises(CompileError, match="unsqueeze_"):
        flambeau.compile(model, (X,))
    assert torch.equal(model.row, torch.arange(4.0))
