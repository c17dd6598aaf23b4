"""Fourier transforms, against eager PyTorch."""

from __future__ import annotations

import pytest
import torch
from support import check, check_all

import flambeau


def test_fourier_transforms() -> None:
    """Of complex and of real numbers, there and back, of lengths that are even, odd, cut short and padded."""
    x, z = torch.randn(3, 6, 5), torch.randn(3, 6, 5, dtype=torch.complex64)
    check_all(
        [
            (lambda x: torch.fft.fft(x), (x,)),
            (lambda x: torch.fft.fft(x), (z,)),
            (lambda x: torch.fft.ifft(x, dim=1), (z,)),
            (lambda x: torch.fft.fftn(x, norm="ortho"), (z,)),
            (lambda x: torch.fft.fft(x, n=8), (x,)),
            (lambda x: torch.fft.fft(x, n=3, dim=1), (x,)),
            (lambda x: torch.fft.rfft(x), (x,)),
            (lambda x: torch.fft.rfft2(x, norm="forward"), (x,)),
            (lambda x: torch.fft.irfft(x), (z,)),
            (lambda x: torch.fft.irfft(x, n=7), (z,)),
            (lambda x: torch.fft.irfft2(x), (z,)),
            (lambda x: torch.fft.hfft(x), (z,)),
            (lambda x: torch.fft.ihfft(x), (x,)),
            (lambda x: torch.fft.rfft(x), (x.double(),)),
            (lambda x: torch.stft(x, 4, window=torch.ones(4), return_complex=True), (x[0],)),
        ]
    )


def test_long_transforms_are_exact() -> None:
    """The angles of high frequencies are reduced before their cosine is taken."""
    check(lambda x: torch.fft.rfft(x), torch.randn(2, 1000), rtol=1e-4, atol=1e-3)


def test_programs_stay_small() -> None:
    """Tables grow with the length up to a point; longer ones are computed."""
    for length, limit in ((1000, 60_000), (1 << 17, 60_000)):
        module = flambeau.compile(torch.fft.rfft, (torch.randn(2, length),))
        assert len(module.text()) < limit


def test_tables_that_are_computed_are_exact() -> None:
    x = torch.randn(1, 1 << 18)
    run = flambeau.load(flambeau.compile(torch.fft.rfft, (x,)), profile="quick", device="local-sync")
    expected = torch.fft.rfft(x.double())
    assert (run(x) - expected).abs().max() < 1e-6 * expected.abs().max()


def test_a_length_that_is_not_known_is_refused() -> None:
    shapes = ({1: torch.export.Dim.DYNAMIC},)
    with pytest.raises(flambeau.CompileError, match="length is not known"):
        flambeau.compile(lambda x: torch.fft.fft(x).real, (torch.randn(2, 6),), dynamic_shapes=shapes)
