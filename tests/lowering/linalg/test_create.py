"""Filled, counted and triangular tensors against eager PyTorch."""

from __future__ import annotations

import pytest
import torch
from support import check, check_all
from torch import Tensor, nn

import flambeau
from flambeau import torchscript
from flambeau.engines.errors import RunError

X = torch.randn(3, 5)


def test_fills_in_every_dtype() -> None:
    """S2: full with a number and with a 0-d tensor, -inf exact."""
    dtypes = [
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.float64,
    ]
    check_all([(lambda x, d=d: torch.full((2, 3), 1, dtype=d) + x[0, 0].to(d), (X * 0,)) for d in dtypes])
    check_all(
        [
            (lambda x: torch.zeros(2, 3) + x[0, 0], (X,)), (lambda x: torch.ones_like(x) * x, (X,)),
            (lambda x: torch.full_like(x, float("-inf")), (X,)), (lambda x: x.new_full((2,), 3.5), (X,)),
            (lambda x: torch.full((2, 2), torch.tensor(float("-inf"))) + x[0, 0], (X,)),
            (lambda x: torch.full_like(x, 7, dtype=torch.int64), (X,)), (lambda x: x.fill_(2.0), (X.clone(),)),
        ]
    )  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
def test_arange_of_a_size(dynamic: bool) -> None:
    """S1: arange over x.size(-1)."""
    check(lambda x: torch.arange(x.size(-1)) + x[0].long(), X, dynamic=dynamic)
    check(lambda x: torch.arange(1, x.size(-1), 2), X, dynamic=dynamic)


def test_arange_and_linspace_of_floats() -> None:
    check_all(
        [
            (lambda x: torch.arange(0.5, 3.0, 0.3) + x[0, 0] * 0, (X,)),
            (lambda x: torch.arange(5, 0, -2) + x[0, 0] * 0, (X,)),
            (lambda x: torch.linspace(-1, 1, 7) + x[0, 0] * 0, (X,)),
            (lambda x: torch.linspace(0, 9, 1) + x[0, 0] * 0, (X,)),
            (lambda x: torch.eye(3) + x[0, 0] * 0, (X,)), (lambda x: torch.eye(2, 4) + x[0, 0] * 0, (X,)),
        ]
    )  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
def test_identity_matrices(dynamic: bool) -> None:
    check_all(
        [
            (lambda x: torch.eye(x.shape[0]), (X,)), (lambda x: torch.eye(x.shape[1], dtype=torch.int64), (X,)),
            (lambda x: torch.eye(x.shape[0], x.shape[1]) + x, (X,)), (lambda x: torch.eye(x.shape[1], 2), (X,)),
        ],
        dynamic=dynamic,
    )  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
def test_triangles(dynamic: bool) -> None:
    check_all(
        [(lambda x, d=d: torch.tril(x, d), (X,)) for d in (-1, 0, 2)]
        + [(lambda x, d=d: torch.triu(x, d), (X,)) for d in (-1, 0, 2)],
        dynamic=dynamic,
    )


def test_scalars_become_0d_tensors() -> None:
    check(lambda x: x * torch.scalar_tensor(2.0), X)


@pytest.mark.parametrize("output_type", ["linalg-on-tensors", "stablehlo", "tosa"])
def test_a_number_taken_out_of_a_tensor_keeps_its_sign(output_type: str) -> None:
    """IREE's virtual machine has no 8- and 16-bit numbers: -56 came out as 200."""
    numbers = [
        (torch.int8, -56),
        (torch.int16, -300),
        (torch.uint8, 200),
        (torch.float16, -1.5),
        (torch.bfloat16, -2.5),
    ]
    arguments = [torch.tensor(value, dtype=dtype) for dtype, value in numbers]
    model = torch.jit.script(Taken())
    places = [torchscript.TensorPlaceholder([], dtype) for dtype, _ in numbers]
    run = flambeau.load(torchscript.compile(model, places, output_type=output_type), profile="quick")
    assert run(*arguments) == model(*arguments)


class Taken(nn.Module):
    def forward(
        self, a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor
    ) -> tuple[int, int, int, int, int, float, float, float, float]:
        return int(a), int(b), int(c), int(d), int(e), float(a), float(c), float(d), float(e)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_a_float_that_is_no_64_bit_integer_is_refused(value: float) -> None:
    place = torchscript.TensorPlaceholder([], torch.float32)
    program = torchscript.compile(torch.jit.script(AsInt()), [place], output_type="linalg-on-tensors")
    run = flambeau.load(program, profile="quick")
    assert run(torch.tensor(-7.9)) == -7
    with pytest.raises(RunError, match="64-bit integer"):
        run(torch.tensor(value))


class AsInt(nn.Module):
    def forward(self, x: Tensor) -> int:
        return int(x)


def test_windows_frequencies_and_ranges() -> None:
    """Of no length, of one, of even and odd ones; they are constants of the program."""

    def everything(x: Tensor) -> list[Tensor]:
        windows = (torch.bartlett_window, torch.blackman_window, torch.hamming_window, torch.kaiser_window)
        return [
            x, *(w(n) for w in windows for n in (0, 1, 2, 7)), *(w(8, periodic=False) for w in windows),
            torch.hamming_window(8, True, 0.5), torch.hamming_window(8, False, 0.5, 0.4),
            torch.kaiser_window(9, False, 5.0), torch.fft.fftfreq(7, 0.25), torch.fft.rfftfreq(8),
            torch.range(1, 4, 0.5), torch.range(5, 1, -2), torch.range(0, 5, dtype=torch.int32),
        ]  # fmt: skip

    check_all([(everything, (X,))], atol=1e-6)
