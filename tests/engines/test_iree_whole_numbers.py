"""Floats of the program that are made integers: `engines/iree/whole_numbers.py`."""

from __future__ import annotations

import math

import pytest
import torch

import flambeau
from flambeau.engines.errors import RunError


class Truncated(torch.nn.Module):
    def forward(self, x: float) -> int:
        return int(x)


@pytest.fixture(scope="module")
def run() -> flambeau.engines.Executable:
    return flambeau.load(flambeau.compile(torch.jit.script(Truncated()), (1.5,)), profile="quick")


@pytest.mark.engine
@pytest.mark.parametrize(
    "x", [0.0, 0.99, -0.99, 1.0, -7.3, 1e6 + 0.5, 2.0**51 + 1, 2.0**52 + 1, -(2.0**53) - 2, 1e18, 9.2e18, 5e-324]
)
def test_any_float_below_the_greatest_integer(run: flambeau.engines.Executable, x: float) -> None:
    assert run(x) == int(x)


@pytest.mark.engine
@pytest.mark.parametrize("x", [2.0**63, -1e300, math.inf, math.nan])
def test_what_is_no_integer_of_64_bits_is_an_error(run: flambeau.engines.Executable, x: float) -> None:
    with pytest.raises(RunError, match="too large, infinite or NaN"):
        run(x)
