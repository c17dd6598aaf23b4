"""Initialisers: their statistics, and the same numbers from the same seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from flambeau import nn
from flambeau.nn import init

SHAPE = (300, 200)


def filled(function: Callable[..., Any], *args: Any, shape: tuple[int, ...] = SHAPE, **kwargs: Any) -> Any:
    nn.manual_seed(0)
    tensor = nn.Parameter(np.zeros(shape, np.float32))
    assert function(tensor, *args, **kwargs) is tensor
    assert tensor.data.dtype == np.float32
    assert tensor.data.shape == shape
    return tensor.data.astype(np.float64)


UNIFORM = {
    "uniform": (lambda: filled(init.uniform_, -2, 3), -2.0, 3.0),
    "xavier": (lambda: filled(init.xavier_uniform_, 2.0), -2 * math.sqrt(6 / 500), 2 * math.sqrt(6 / 500)),
    "kaiming in": (lambda: filled(init.kaiming_uniform_, nonlinearity="relu"), -math.sqrt(6 / 200), math.sqrt(6 / 200)),
    "kaiming out": (
        lambda: filled(init.kaiming_uniform_, math.sqrt(5), "fan_out"), -math.sqrt(1 / 300), math.sqrt(1 / 300)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNIFORM)
def test_uniform(name: str) -> None:
    make, low, high = UNIFORM[name]
    found = make()
    width = high - low
    assert low <= found.min() < low + width / 100
    assert high - width / 100 < found.max() <= high
    np.testing.assert_allclose(found.mean(), (low + high) / 2, atol=width / 100)
    np.testing.assert_allclose(found.std(), width / math.sqrt(12), rtol=0.01)


NORMAL = {
    "normal": (lambda: filled(init.normal_, 3.0, 2.0), 3.0, 2.0),
    "xavier": (lambda: filled(init.xavier_normal_), 0.0, math.sqrt(2 / 500)),
    "kaiming": (lambda: filled(init.kaiming_normal_, nonlinearity="tanh"), 0.0, 5 / 3 / math.sqrt(200)),
    "kaiming of windows": (
        lambda: filled(init.kaiming_normal_, 0.2, shape=(50, 40, 5, 6)), 0.0, math.sqrt(2 / 1.04 / 1200)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMAL)
def test_normal(name: str) -> None:
    make, mean, std = NORMAL[name]
    found = make()
    np.testing.assert_allclose(found.mean(), mean, atol=std / 50)
    np.testing.assert_allclose(found.std(), std, rtol=0.01)
    np.testing.assert_allclose(np.mean(np.abs(found - mean) < std), 0.6827, atol=0.01)


@pytest.mark.parametrize(("low", "high"), [(-2.0, 2.0), (-0.5, 0.1), (1.5, 4.0), (-0.02, 0.03)])
def test_truncated_normal(low: float, high: float) -> None:
    found = filled(init.trunc_normal_, 0.0, 1.0, low, high)
    edge = np.float32(1e-6)
    assert low - edge <= found.min()
    assert found.max() <= high + edge

    def density(x: float) -> float:
        return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)

    def below(x: float) -> float:
        return (1 + math.erf(x / math.sqrt(2))) / 2

    mean = (density(low) - density(high)) / (below(high) - below(low))
    np.testing.assert_allclose(found.mean(), mean, atol=(high - low) / 100)
    middle = (low + high) / 2
    share = (below(middle) - below(low)) / (below(high) - below(low))
    np.testing.assert_allclose(np.mean(found < middle), share, atol=0.01)


def test_truncated_normal_of_another_mean() -> None:
    found = filled(init.trunc_normal_, 5.0, 0.1, 4.9, 6.0)
    assert found.min() >= 4.9 - 1e-5
    assert 5.0 < found.mean() < 5.1


@pytest.mark.parametrize("shape", [(20, 30), (30, 20), (16, 4, 3, 3), (8, 8)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    found = filled(init.orthogonal_, 2.0, shape=shape).reshape(shape[0], -1)
    small = found @ found.T if found.shape[0] <= found.shape[1] else found.T @ found
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)


def test_sparse() -> None:
    found = filled(init.sparse_, 0.25, 0.5)
    assert ((found == 0).sum(0) == 75).all()
    np.testing.assert_allclose(found[found != 0].std(), 0.5, rtol=0.02)


@pytest.mark.parametrize("name", ["ones_", "zeros_", "eye_"])
def test_constants_are_those_of_torch(name: str) -> None:
    wanted = getattr(torch.nn.init, name)(torch.empty(4, 6))
    np.testing.assert_array_equal(filled(getattr(init, name), shape=(4, 6)), wanted.numpy())
    np.testing.assert_array_equal(filled(init.constant_, 0.25, shape=(2, 3)), np.full((2, 3), 0.25))


@pytest.mark.parametrize(("shape", "groups"), [((4, 3, 3), 1), ((6, 2, 3, 5), 3), ((2, 4, 1, 2, 3), 2)])
def test_dirac_is_that_of_torch(shape: tuple[int, ...], groups: int) -> None:
    wanted = torch.nn.init.dirac_(torch.empty(shape), groups)
    np.testing.assert_array_equal(filled(init.dirac_, groups, shape=shape), wanted.numpy())


def test_gains_are_those_of_torch() -> None:
    names = ("linear", "conv2d", "conv_transpose3d", "sigmoid", "tanh", "relu", "selu", "leaky_relu")
    for name in names:
        assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))
    assert init.calculate_gain("leaky_relu", 0.3) == pytest.approx(torch.nn.init.calculate_gain("leaky_relu", 0.3))


RANDOM = ["uniform_", "normal_", "trunc_normal_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_",
          "kaiming_normal_", "orthogonal_"]  # fmt: skip


@pytest.mark.parametrize("name", RANDOM)
def test_seeds_and_generators(name: str) -> None:
    function = getattr(init, name)
    first = filled(function, shape=(5, 6))
    np.testing.assert_array_equal(first, filled(function, shape=(5, 6)))
    array = np.zeros((5, 6), np.float32)
    assert function(array) is array  # of the same source, one further on
    assert not np.array_equal(array, first)
    function(array, generator=np.random.default_rng(0))
    np.testing.assert_array_equal(array, first.astype(np.float32))


def test_weights_from_a_file_are_not_written() -> None:
    layer = nn.Linear(2, 3)
    kept = np.ones((3, 2), np.float32)
    kept.setflags(write=False)
    layer.weight.data = kept
    init.zeros_(layer.weight)
    assert layer.weight.data.sum() == 0
    assert kept.sum() == 6


def test_mistakes() -> None:
    vector, matrix = np.zeros(3), np.zeros((4, 3))
    with pytest.raises(ValueError, match="fewer than 2 dimensions"):
        init.xavier_uniform_(vector)
    with pytest.raises(ValueError, match="2 dimensions"):
        init.eye_(vector)
    with pytest.raises(ValueError, match="3, 4, or 5 dimensions"):
        init.dirac_(matrix)
    with pytest.raises(ValueError, match="2 dimensions"):
        init.sparse_(np.zeros((2, 2, 2)), 0.5)
    with pytest.raises(ValueError, match="divisible by groups"):
        init.dirac_(np.zeros((3, 2, 1)), 2)
    with pytest.raises(ValueError, match="2 or more"):
        init.orthogonal_(vector)
    with pytest.raises(ValueError, match="Mode most not supported"):
        init.kaiming_normal_(matrix, mode="most")
    with pytest.raises(ValueError, match="Unsupported nonlinearity sin"):
        init.calculate_gain("sin")
    with pytest.raises(TypeError, match="a parameter, a buffer or an array, not list"):
        init.zeros_([1.0])
