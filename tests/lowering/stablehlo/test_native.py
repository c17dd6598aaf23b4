"""What a target has an op for is that op; where there is none, it is decomposed."""

from __future__ import annotations

import pytest
import torch
from support import assert_matches, assert_same

import flambeau

SORT = """
// CHECK: "stablehlo.sort"(%args, %{{.*}}) <{dimension = 0 : i64, is_stable = true}> ({
// CHECK-NEXT: ^bb0(%[[A:.*]]: tensor<f32>, %[[B:.*]]: tensor<f32>, %{{.*}}: tensor<i64>, %{{.*}}: tensor<i64>):
// CHECK: stablehlo.compare LT, %[[B]], %[[A]]
// CHECK: }) : (tensor<5x3xf32>, tensor<5x3xi64>) -> (tensor<5x3xf32>, tensor<5x3xi64>)
// CHECK-NOT: stablehlo.scatter
"""

FOURIER = """
// CHECK: stablehlo.fft %{{.*}}, type = RFFT, length = [5] : (tensor<3x5xf32>) -> tensor<3x3xcomplex<f32>>
// CHECK: stablehlo.fft %{{.*}}, type = IRFFT, length = [5] : (tensor<3x3xcomplex<f32>>) -> tensor<3x5xf32>
// CHECK-NOT: stablehlo.dot_general
"""

LARGEST = """
// CHECK: chlo.top_k(%{{.*}}, k = 2) : tensor<3x5xf32> -> (tensor<3x2xf32>, tensor<3x2xi32>)
// CHECK-NOT: stablehlo.sort
"""

SMALLEST = """
// CHECK: stablehlo.sort
// CHECK-NOT: chlo.top_k
"""

WRITE = """
// CHECK: stablehlo.dynamic_update_slice %args, %args_1
"""

SLICE = """
// CHECK: tensor.insert_slice %args_1 into %args
"""


def sort(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = x.sort(dim=0, descending=True, stable=True)
    return values, indices


def largest(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Select the two largest; a NaN comes first, whatever its sign is. Of equal elements, PyTorch takes any."""
    values, indices = x.topk(2, 0)
    return values, x.gather(0, indices)


def smallest(x: torch.Tensor) -> torch.Tensor:
    return x.topk(2, 0, largest=False)[0]


def fourier(x: torch.Tensor) -> torch.Tensor:
    return torch.fft.irfft(torch.fft.rfft(x, dim=0), n=5, dim=0)


def write(cache: torch.Tensor, row: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    at = position.item()
    torch._check(at >= 0)
    torch._check(at < 16)
    return torch.slice_scatter(cache, row, 1, at, at + 1)


ROWS = """
// CHECK-NOT: concatenate
// CHECK: stablehlo.gather
// CHECK-SAME: offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2
// CHECK-SAME: slice_sizes = array<i64: 1, 3>
// CHECK-SAME: (tensor<5x3xf32>, tensor<2x2xi64>) -> tensor<2x2x3xf32>
"""


def rows(table: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.embedding(indices, table)


X = torch.tensor([[1.0, -2.0, 3.0], [1.0, float("nan"), -0.0], [0.5, 2.0, 0.0], [float("inf"), -2.0, 7.0], [4.0, 1, 1]])
WRITE_ARGS = (torch.zeros(2, 16, 4), torch.ones(2, 1, 4), torch.tensor(3))


@pytest.mark.engine
@pytest.mark.parametrize(
    "function, args, target, patterns",
    [
        (sort, (X,), "stablehlo", SORT),
        (largest, (X,), "stablehlo", LARGEST),
        (largest, (X.copysign(torch.tensor(-1.0)),), "stablehlo", LARGEST),
        (smallest, (X,), "stablehlo", SMALLEST),
        (smallest, (X.to(torch.int64),), "stablehlo", SMALLEST),
        (smallest, (X.nan_to_num(posinf=9.0).abs().to(torch.uint8),), "stablehlo", SMALLEST),
        (fourier, (X.nan_to_num(posinf=9.0),), "stablehlo", FOURIER),
        (rows, (X.nan_to_num(), torch.tensor([[0, 4], [2, 2]])), "stablehlo", ROWS),
        (write, WRITE_ARGS, "stablehlo", WRITE),
        (write, WRITE_ARGS, "linalg-on-tensors", SLICE),
    ],
    ids=[
        "sort",
        "largest",
        "largest with negative NaN",
        "smallest",
        "of integers",
        "of bytes",
        "fft",
        "rows",
        "cache write",
        "slice write",
    ],
)
def test_one_op_says_it(function: object, args: tuple[torch.Tensor, ...], target: str, patterns: str) -> None:
    module = flambeau.compile(function, args, output_type=target)
    assert_matches(module, patterns)
    assert_same(flambeau.load(module, profile="quick")(*args), function(*args))  # type: ignore[operator]


def test_what_is_primitive_stays_whole_until_a_target_is_known() -> None:
    """The torch dialect does not depend on what a target can do; each decomposes what it has no op for."""
    torch_module = flambeau.compile(sort, (X,), output_type="torch")
    before = str(torch_module)
    assert "torch.aten.sort.stable" in before
    by_counting = str(flambeau.compile(torch_module, output_type="tosa"))
    assert "tosa.reduce_sum" in by_counting
    assert str(torch_module) == before
    assert "linalg.generic" in str(flambeau.compile(torch_module, output_type="linalg-on-tensors"))
