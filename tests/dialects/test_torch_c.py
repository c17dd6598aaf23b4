"""The torch_c dialect: assembly as torch-mlir's, and the types that it ties together."""

from __future__ import annotations

import pytest
from xdsl.utils.exceptions import VerifyException

CONVERSIONS = """
func.func @f(%v: !torch.vtensor<[2,?],si64>, %t: tensor<2x?xf32>, %b: !torch.bool, %c: i1, %d: !torch.int, %e: i64,
             %g: !torch.float, %h: f64, %r: !torch.Generator) {
  %0 = torch_c.to_builtin_tensor %v : !torch.vtensor<[2,?],si64> -> tensor<2x?xi64>
  %1 = torch_c.from_builtin_tensor %t {note = "x"} : tensor<2x?xf32> -> !torch.vtensor<[2,?],f32>
  %2 = torch_c.to_i1 %b
  %3 = torch_c.from_i1 %c
  %4 = torch_c.to_i64 %d {note = "x"}
  %5 = torch_c.from_i64 %e
  %6 = torch_c.to_f64 %g
  %7 = torch_c.from_f64 %h
  %8 = torch_c.generator_to_i64 %r
  %9 = torch_c.i64_to_generator %e
  %10 = torch_c.get_next_seed : () -> i64
  return
}
"""


@pytest.mark.peer
def test_round_trip(round_trip) -> None:
    """S95: casts between values of PyTorch and builtin types."""
    round_trip(CONVERSIONS)


@pytest.mark.parametrize(
    "line, message",
    [
        (
            "torch_c.to_builtin_tensor %t : !torch.tensor<[2],f32> -> tensor<2xf32>",
            "is for a !torch.vtensor, got !torch.tensor<[2],f32>",
        ),
        ("torch_c.to_builtin_tensor %v : !torch.vtensor<[2],f32> -> tensor<3xf32>", "differ in shape or dtype"),
        ("torch_c.to_builtin_tensor %v : !torch.vtensor<[2],f32> -> tensor<2xf64>", "differ in shape or dtype"),
        ("torch_c.to_builtin_tensor %v : !torch.vtensor<[2],f32> -> tensor<?xf32>", "differ in shape or dtype"),
        ("torch_c.to_builtin_tensor %v : !torch.vtensor<[2],f32> -> i64", "is for a builtin tensor, got i64"),
        ('"torch_c.to_i64"(%b) : (!torch.bool) -> i64', "takes !torch.int to i64, not !torch.bool to i64"),
    ],
)
def test_types_must_agree(line: str, message: str, ours, upstream) -> None:
    arguments = "%v: !torch.vtensor<[2],f32>, %t: !torch.tensor<[2],f32>, %b: !torch.bool"
    text = f"func.func @f({arguments}) {{\n  %0 = {line}\n  return\n}}"
    with pytest.raises(VerifyException) as caught:
        ours.parse(text)
    assert message in str(caught.value)
    assert upstream.error(text)


def test_an_unknown_dtype_has_no_builtin_tensor(ours) -> None:
    """S69."""
    line = "%0 = torch_c.to_builtin_tensor %v : !torch.vtensor<[2],unk> -> tensor<2xf32>"
    with pytest.raises(VerifyException) as caught:
        ours.parse(f"func.func @f(%v: !torch.vtensor<[2],unk>) {{\n  {line}\n  return\n}}")
    assert "its dtype is unknown" in str(caught.value)
