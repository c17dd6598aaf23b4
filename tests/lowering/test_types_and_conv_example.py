"""The border between torch and builtin types, and the deck's convolution."""

from __future__ import annotations

import pytest
import torch

import flambeau
from flambeau.dialects.torch.types import BOOL, FLOAT, INT, vtensor
from flambeau.ir.dtypes import DTYPES, DType
from flambeau.lowering.conversion import convert_type


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_value_tensors_become_builtin_tensors_without_a_sign(dtype: DType) -> None:
    """S88."""
    converted = convert_type(vtensor((2, None), dtype.torch_type))
    assert str(converted) == f"tensor<2x?x{dtype.builtin}>"


def test_numbers_become_i64_f64_i1() -> None:
    """S94."""
    assert [str(convert_type(t)) for t in (INT, FLOAT, BOOL)] == ["i64", "f64", "i1"]


class MyConvLayer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 10, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x))


def test_a_convolution_lowers_to_the_sequence_of_the_deck() -> None:
    """S98: sizes, empty, fill, the named convolution, one loop for the relu."""
    auto = torch.export.Dim.AUTO
    module = flambeau.compile(MyConvLayer(), (torch.randn(2, 2, 8, 9),), dynamic_shapes=({0: auto, 2: auto, 3: auto},))
    names = [op.name for op in module.op.walk() if op.name not in ("arith.constant", "linalg.yield", "func.func")]
    interesting = [n for n in names if n.startswith(("linalg", "tensor"))]
    assert interesting[:3] == ["tensor.dim"] * 3
    assert interesting[3:] == ["tensor.empty", "linalg.fill", "linalg.conv_2d_nchw_fchw", "linalg.generic"]
    assert "tensor<?x2x?x?xf32>" in str(module)
    assert "tensor<?x10x?x?xf32>" in str(module)
