"""Arithmetic that XLA would simplify to something else: what it does by itself, and what programs give here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import flambeau
from flambeau.engines.xla.client import compile_program, get_device, to_arrays
from flambeau.ir import dtypes
from flambeau.ir.module import TensorSpec

pytestmark = pytest.mark.engine

LARGE = 3.0e38


def of_xla(text: str, *values: Any) -> Any:
    """Run a program as XLA takes it."""
    device = get_device("cpu")
    specs = [TensorSpec(tuple(v.shape), dtypes.float32) for v in values]
    return np.asarray(compile_program(text, device).execute(to_arrays(device, values, specs))[0])


def of_program(function: Any, *values: Any) -> Any:
    return flambeau.load(flambeau.compile(function, values, output_type="stablehlo"), engine="xla")(*values)


DIVIDE = """func.func public @main(%x: tensor<2x3xf32>, %y: tensor<3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.broadcast_in_dim %y, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
  %1 = stablehlo.divide %x, %0 : tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}"""


def test_division_by_a_large_number() -> None:
    x, y = torch.full((2, 3), LARGE), torch.full((3,), LARGE)
    assert of_xla(DIVIDE, x, y).tolist() == [[0.0] * 3] * 2  # else `engines/xla/numbers.py` has less to do
    assert of_program(torch.div, x, y).tolist() == [[1.0] * 3] * 2


ADD = """func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.constant dense<0.0> : tensor<3xf32>
  %1 = stablehlo.add %x, %0 : tensor<3xf32>
  return %1 : tensor<3xf32>
}"""


def test_zero_plus_minus_zero() -> None:
    x = torch.full((3,), -0.0)
    assert np.signbit(of_xla(ADD, x)).all()  # else `engines/xla/numbers.py` has less to do
    assert not torch.signbit(of_program(lambda x: x + 0.0, x)).any()
    assert of_program(torch.nn.functional.linear, torch.ones(0, 3), torch.ones(4, 3), torch.ones(4)).shape == (0, 4)


CONVERT = """func.func public @main(%x: tensor<4xf32>) -> tensor<4xi64> {
  %0 = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4xi64>
  return %0 : tensor<4xi64>
}"""


def test_floats_that_have_no_place_in_an_integer() -> None:
    x = torch.tensor([math.nan, math.inf, -math.inf, -7.9])
    assert of_xla(CONVERT, x).tolist()[:2] == [0, 2**63 - 1]  # else `engines/xla/numbers.py` has less to do
    assert of_program(lambda x: x.long(), x).tolist() == [-(2**63), -(2**63), -(2**63), -7]
    assert torch.equal(of_program(lambda x: x.byte(), x), x.byte())
