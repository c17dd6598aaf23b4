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


FUNCTIONS = ("fft", "ifft", "rfft", "ihfft", "irfft", "hfft")


def signal(name: str) -> torch.Tensor:
    return torch.randn(3, 4, 5, dtype=torch.float32 if name in ("rfft", "ihfft") else torch.complex64)


SAMPLE = {("fft", False), ("ifft", True), ("rfft", True), ("ihfft", False), ("irfft", False), ("hfft", True)}


@pytest.mark.engine
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "dynamic"),
    [
        pytest.param(name, dynamic, marks=() if (name, dynamic) in SAMPLE else pytest.mark.wide)
        for name in FUNCTIONS
        for dynamic in (False, True)
    ],
)
def test_functions_at_lengths_known_and_unknown(name: str, dynamic: bool) -> None:
    """Along one dim and along several, cut off and filled up, with each normalization; of real numbers too."""
    one, many, two = (getattr(torch.fft, name + suffix) for suffix in ("", "n", "2"))
    x = signal(name)
    check_all(
        [
            (lambda x: one(x, n=3, norm="ortho"), (x,)), (lambda x: one(x, 9, dim=0), (x,)),
            (lambda x: many(x, s=(-1, 7), norm="forward"), (x,)), (lambda x: two(x, dim=(0, 1)), (x,)),
        ],
        dynamic=dynamic,
        atol=2e-5,
    )  # fmt: skip


def test_of_integers_and_of_real_numbers() -> None:
    integers, x = torch.arange(12).reshape(3, 4), torch.randn(3, 4)
    functions = (torch.fft.fft, torch.fft.rfft, torch.fft.ifftn, torch.fft.hfft)
    check_all([(f, (v,)) for f in functions for v in (integers, x)], atol=1e-5)


def test_a_known_length_stays_whole() -> None:
    """Targets have transforms in n log n for lengths that are known; others are products with a matrix."""
    x = torch.randn(2, 6)
    known = flambeau.compile(lambda x: torch.fft.fft(x).real, (x,), output_type="torch")
    unknown = flambeau.compile(
        lambda x: torch.fft.fft(x).real, (x,), output_type="torch", dynamic_shapes=({1: torch.export.Dim.DYNAMIC},)
    )
    assert "aten._fft_r2c" in str(known)
    assert "aten._fft_r2c" not in str(unknown)


@pytest.mark.parametrize("dynamic", [False, True])
def test_short_time_transforms(dynamic: bool) -> None:
    """Of rows and of one signal, with windows that are shorter than the pieces, at ends that are continued or not."""
    x, window = torch.randn(2, 30), torch.hann_window(6)

    def short(x: torch.Tensor, **options: object) -> torch.Tensor:
        return torch.stft(x, 8, hop_length=3, return_complex=True, **options)  # type: ignore[arg-type]

    def centred(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.stft.center(x, 8, 3, 6, window, True, "reflect", True, None, False)

    check_all(
        [
            (lambda x, w: short(x, win_length=6, window=w, normalized=True), (x, window)), (centred, (x[0], window)),
            (lambda x: short(x[0], window=torch.ones(8), center=False, onesided=False), (x,)),
            (lambda x: short(torch.complex(x, -x), window=torch.ones(8)), (x,)),
        ],
        dynamic=dynamic,
        atol=1e-5,
    )  # fmt: skip


def test_the_inverse_of_a_long_short_time_transform_is_a_small_program() -> None:
    """Frames are added up in a few ops, and not in one or two for each of the 256 elements of the window."""

    class Back(torch.nn.Module):
        def forward(self, x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
            pieces = torch.stft(x, 256, window=window, return_complex=True)
            return torch.istft(pieces, 256, window=window, length=x.shape[-1])

    x, window = torch.randn(2, 1000), torch.hann_window(256)
    module = flambeau.compile(Back(), (x, window), output_type="torch")
    assert sum(1 for _ in module.op.walk()) < 300
    torch.testing.assert_close(flambeau.load(module, engine="eager")(x, window), x, atol=1e-5, rtol=1e-4)
