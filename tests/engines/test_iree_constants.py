"""Constants of dynamic size that are reduced, which the IREE engine makes tensors of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.export import Dim

import flambeau
from flambeau.engines.iree.prepare import for_iree

TARGETS = ("linalg-on-tensors", "stablehlo", "tosa")


@pytest.mark.engine
def test_constants_that_are_converted_before() -> None:
    """In StableHLO IREE 3.13 loses the bounds of these too, at static sizes."""
    x = torch.arange(4)

    def sums(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        yes, small = torch.full((4,), True), torch.full((300,), 2, dtype=torch.uint8)
        halves = torch.full((300,), 2.0, dtype=torch.float16)
        return yes.sum() + x, small.sum() + x, halves.sum() + x, (torch.ones(4) > 0).sum() + x, x.masked_select(yes)

    run = flambeau.load(flambeau.compile(sums, (x,), output_type="stablehlo"), profile="quick")
    assert all(torch.equal(r, e) for r, e in zip(run(x), sums(x), strict=True))


@pytest.mark.engine
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.bool])
def test_constants_of_no_elements(dtype: torch.dtype) -> None:
    def sums(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nothing = torch.zeros(0, 3, dtype=dtype)
        return nothing.sum(0) + x, nothing + 1

    x = torch.ones(3)
    run = flambeau.load(flambeau.compile(sums, (x,), output_type="stablehlo"), profile="quick")
    assert all(torch.equal(r, e) for r, e in zip(run(x), sums(x), strict=True))


def test_weights_that_are_reduced_are_left_to_iree() -> None:
    """Which computes what depends on them alone while it compiles."""
    weight = torch.randn(4, 5)
    module = flambeau.compile(lambda x: x * weight.square().sum(), (torch.ones(2),), output_type="stablehlo")
    assert for_iree(module.op) is module.op


def splats(function: Callable[[torch.Tensor], torch.Tensor], target: str, dynamic: bool = True) -> int:
    """How many constants the engine takes out of a program."""
    shapes = ({0: Dim.AUTO, 1: Dim.AUTO},) if dynamic else None
    module = flambeau.compile(function, (torch.ones(4, 5),), dynamic_shapes=shapes, output_type=target)
    return str(for_iree(module.op)).count("flow.tensor.splat")


@pytest.mark.parametrize("target", TARGETS)
def test_constants_are_tensors_where_nothing_else_is_reduced(target: str) -> None:
    assert splats(lambda x: torch.ones_like(x).sum(), target) > 0
    assert splats(lambda x: (torch.full_like(x, 2.0).exp() + 1).amax(0), target) > 0


@pytest.mark.parametrize("target", TARGETS)
def test_other_constants_stay_where_they_are(target: str) -> None:
    assert splats(lambda x: (torch.ones_like(x) * x).sum(), target) == 0
    assert splats(lambda x: torch.ones_like(x) + x, target) == 0
    assert splats(lambda x: torch.ones_like(x).sum(), target, dynamic=False) == 0


@pytest.mark.engine
@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo"])
def test_constants_of_complex128_are_given_back(target: str):
    numbers = torch.tensor([[1 + 2j, 3j], [0, -1.5]], dtype=torch.complex128)

    def program(x):
        return torch.tensor([[1 + 2j, 3j], [0, -1.5]], dtype=torch.complex128), numbers * x

    x = torch.ones(2, 2, dtype=torch.complex128)
    run = flambeau.load(flambeau.compile(program, (x,), output_type=target), profile="quick")
    constant, product = run(x)
    assert torch.equal(constant, numbers)
    assert torch.equal(product, numbers)


@pytest.mark.engine
def test_constants_of_complex32_are_given_back():
    """S28: a constant, a filled tensor and a weight."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.tensor([[1 + 2j, 3j], [0, -1.5]]).to(torch.complex32))

        def forward(self, x: torch.Tensor):
            full = torch.full((2,), 0.5 - 1j, dtype=torch.complex32)
            return torch.tensor([1 + 2j], dtype=torch.complex32), full, self.weight, self.weight.cfloat() * x

    model, x = Model(), torch.ones(2)
    run = flambeau.load(flambeau.compile(model, (x,)), profile="quick")
    for got, expected in zip(run(x), model(x), strict=True):
        assert got.dtype is expected.dtype
        assert torch.equal(got.cfloat(), expected.cfloat())


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS[:2])
@pytest.mark.parametrize("profile", ["quick", "model"])
def test_tensors_of_complex128_are_filled(target: str, profile: str) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.zeros_like(x), x.new_ones(2, 3), torch.nn.functional.pad(x, [1, 2], value=0.5), x.cumsum(0), x**x

    x = torch.randn(3, 3, dtype=torch.complex128)
    run = flambeau.load(flambeau.compile(f, (x,), output_type=target), profile=profile)
    assert run.profile == profile
    for got, expected in zip(run(x), f(x), strict=True):
        torch.testing.assert_close(got, expected)
