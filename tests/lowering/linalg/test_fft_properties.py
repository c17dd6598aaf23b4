"""Fourier transforms of every length, against PyTorch's in f64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lowering.linalg.properties import EXAMPLES, compiled
from torch import Tensor

LENGTHS = (*range(1, 71), 97, 128, 210, 1000, 1009, 2310, 4096)
"""Products of small factors, primes that become a convolution, and products of both."""
NORMS = ("forward", "backward", "ortho")
DTYPES = (torch.float32, torch.float64)


def chosen(way: int) -> list[int]:
    """Choose lengths for one of six ways to transform: every other length in one, or all in all for many examples."""
    return list(LENGTHS if EXAMPLES > 100 else LENGTHS[2 * way :: 12])


def assert_near(actual: Tensor, expected: Tensor, label: str) -> None:
    """To 12 digits of the largest result for f64, to 5 for f32; `expected` is computed in f64."""
    assert actual.shape == expected.shape, label
    bound = 1e-12 if actual.dtype in (torch.float64, torch.complex128) else 1e-5
    error = (actual.to(expected.dtype) - expected).abs().max() / expected.abs().max()
    assert float(error) <= bound, f"{label}: off by {float(error)} of the largest"


def assert_transforms(
    functions: dict[str, Callable[[Tensor], Tensor]], tensors: list[Tensor], wide: torch.dtype
) -> None:
    """Compile functions, each of a tensor of its own, as one program, and compare with eager PyTorch in f64."""
    run = compiled(
        lambda *given: [f(x) for f, x in zip(functions.values(), given, strict=True)], *tensors, dynamic=False
    )
    for name, x, actual in zip(functions, tensors, run(*tensors), strict=True):
        assert_near(actual, functions[name](x.to(wide)), name)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_complex_transforms_of_every_length(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    lengths = chosen(DTYPES.index(dtype))
    functions = {f"length {n}": torch.fft.ifft if i % 2 else torch.fft.fft for i, n in enumerate(lengths)}
    tensors = [torch.randn(2, n, dtype=dtype.to_complex()) for n in lengths]
    assert_transforms(functions, tensors, torch.complex128)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_real_transforms_of_every_length(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    lengths = chosen(2 + DTYPES.index(dtype))
    functions = {f"length {n}": torch.fft.rfft for n in lengths}
    assert_transforms(functions, [torch.randn(2, n, dtype=dtype) for n in lengths], torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_transforms_to_real_numbers_of_every_length(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    lengths = chosen(4 + DTYPES.index(dtype))
    functions = {f"length {n}": lambda z, n=n: torch.fft.irfft(z, n) for n in lengths}
    tensors = [torch.randn(2, n // 2 + 1, dtype=dtype.to_complex()) for n in lengths]
    assert_transforms(functions, tensors, torch.complex128)


SEVERAL: tuple[Callable[..., Tensor], ...] = (
    lambda z, norm: torch.fft.fftn(z, norm=norm),
    lambda z, norm: torch.fft.ifft2(z, dim=(0, 2), norm=norm),
    lambda z, norm: torch.fft.rfftn(z.real, norm=norm),
    lambda z, norm: torch.fft.rfft2(z.imag, dim=(2, 0), norm=norm),
    lambda z, norm: torch.fft.fft(z.real, dim=1, norm=norm),
    lambda z, norm: torch.fft.irfftn(z, norm=norm),
    lambda z, norm: torch.fft.irfft2(z, s=(5, 7), dim=(1, 0), norm=norm),
    lambda z, norm: torch.fft.hfft(z, dim=1, norm=norm),
    lambda z, norm: torch.fft.ihfft(z.real, dim=0, norm=norm),
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_norms_and_several_dims(dtype: torch.dtype) -> None:
    """Each function with one norm in each dtype; with all of them if many examples are wanted."""
    torch.manual_seed(0)
    functions: dict[str, Callable[[Tensor], Tensor]] = {}
    for i, function in enumerate(SEVERAL):
        for norm in NORMS if EXAMPLES > 100 else (NORMS[(i + DTYPES.index(dtype)) % 3],):
            functions[f"function {i}, {norm}"] = lambda z, f=function, norm=norm: f(z, norm)
    tensors = [torch.randn(4, 17, 6, dtype=dtype.to_complex()) for _ in functions]
    assert_transforms(functions, tensors, torch.complex128)
