"""Special functions against eager PyTorch, over the whole range of their argument."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import torch
from support import Together, assert_same, check, check_all

import flambeau

NAN, INF = float("nan"), float("inf")
EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 1e-6, -1e-6, 1e-20, INF, -INF, NAN, 5.0, 8.0, 1.5])
LINE = torch.cat([EDGES, torch.linspace(-12, 12, 193), torch.logspace(-8, 2, 60), -torch.logspace(-8, 2, 60)])
RIGHT = torch.cat([EDGES[EDGES.isnan() | (EDGES > -1)], torch.linspace(0.01, 12, 97), torch.logspace(-8, 2, 60)])
UNIT = torch.cat([torch.linspace(0, 1, 101), torch.logspace(-37, -0.01, 80), torch.tensor([-0.1, 1.1, NAN, 1 - 6e-8])])

s = torch.special
FUNCTIONS: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "lgamma": (torch.lgamma, LINE),
    "digamma": (torch.digamma, LINE),
    "trigamma": (lambda x: torch.polygamma(1, x), RIGHT[RIGHT.isfinite()]),
    "polygamma": (lambda x: torch.polygamma(3, x), RIGHT[RIGHT.isfinite()]),
    "erfinv": (lambda x: torch.erfinv(x * 2 - 1), UNIT),
    "ndtri": (s.ndtri, UNIT),
    "erfcx": (s.erfcx, LINE[LINE.isnan() | (LINE > -9)]),
    "erfc": (torch.erfc, LINE),
    "log_ndtr": (s.log_ndtr, LINE),
    "i0": (torch.i0, LINE[LINE.abs() < 80]),
    "i0e": (s.i0e, LINE),
    "i1": (s.i1, LINE[LINE.abs() < 80]),
    "i1e": (s.i1e, LINE),
    "j0": (s.bessel_j0, LINE),
    "j1": (s.bessel_j1, LINE),
    "y0": (s.bessel_y0, LINE),
    "y1": (s.bessel_y1, LINE),
    "k0": (s.modified_bessel_k0, LINE),
    "k1": (s.modified_bessel_k1, LINE),
    "scaled k0": (s.scaled_modified_bessel_k0, LINE),
    "scaled k1": (s.scaled_modified_bessel_k1, LINE),
    "spherical j0": (s.spherical_bessel_j0, LINE),
    "zeta of 3": (lambda x: s.zeta(torch.full_like(x, 3.0), x), torch.linspace(-4.3, 9, 97)),
    "zeta at 0.7": (lambda x: s.zeta(x, torch.full_like(x, 0.7)), torch.linspace(-1, 20, 64)),
    "tan": (torch.tan, LINE),
}  # fmt: skip


IN_F64 = ("lgamma", "digamma", "erfinv", "ndtri", "erfcx", "i1e", "k0", "zeta of 3", "erfc")


@cache
def together(target: str, dtype: torch.dtype) -> Together:
    def module(name: str) -> flambeau.Module:
        function, x = FUNCTIONS[name]
        return flambeau.compile(lambda x: function(x), (x.to(dtype),), output_type=target)

    return Together({name: partial(module, name) for name in (FUNCTIONS if dtype is torch.float32 else IN_F64)})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_f32(name: str, target: str) -> None:
    """To 1e-5 of the value; an absolute error of 1e-6 where a function crosses zero."""
    function, x = FUNCTIONS[name]
    assert_same(together(target, torch.float32)[name](x), function(x), name, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", IN_F64)
def test_f64(name: str, target: str) -> None:
    function, x = FUNCTIONS[name][0], FUNCTIONS[name][1].double()
    if target == "tosa":
        with pytest.raises(flambeau.CompileError, match="64-bit floats"):
            flambeau.compile(function, (x,), output_type="tosa")
        return
    assert_same(together(target, torch.float64)[name](x), function(x), name, rtol=1e-11, atol=1e-12)


def test_airy() -> None:
    """PyTorch's own result is off by 1e-6 where it crosses zero."""
    check(s.airy_ai, LINE[~(LINE < -13)], rtol=1e-5, atol=5e-6)


TINY, MOST, GREAT = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max, 2.0**31


def test_the_least_numbers() -> None:
    """Where the half of a number is zero for the engine."""
    x = torch.tensor([TINY, 2 * TINY, 1e-30, 0.0])
    logarithmic = (
        s.bessel_y0, s.bessel_y1, s.modified_bessel_k0, s.modified_bessel_k1, s.scaled_modified_bessel_k0,
        s.scaled_modified_bessel_k1,
    )  # fmt: skip
    check_all([(f, (x,)) for f in logarithmic])
    check(lambda x: s.bessel_j1(x).signbit(), torch.tensor([0.0, -0.0, TINY, -TINY, 7.0, -7.0]))


def test_great_numbers() -> None:
    """PyTorch rounds the angle of a wave, so that its digits are those of an angle without the last quarter."""
    x = torch.tensor([2.0**20, 123456792.0, GREAT, GREAT - 128])
    check_all([(f, (x,)) for f in (s.bessel_j0, s.bessel_j1, s.bessel_y0, s.bessel_y1)], rtol=1e-4, atol=1e-9)


def test_zeta_at_the_ends() -> None:
    """A sum whose other terms are nothing beside the first; what PyTorch multiplies by zero."""
    exponent = torch.tensor([NAN, INF, MOST, GREAT, 1e4, 88.0, 7.75, 3.0, 1.5, 1.0, 0.5, -1.0, -INF])
    q = torch.tensor([NAN, INF, MOST, GREAT, 100.0, 2.5, 1.0, 0.5, 0.1, TINY, 0.0, -0.5, -1.5, -3.0, -INF])
    check(s.zeta, exponent[:, None].clone(), q)


def test_integers_and_halves() -> None:
    whole = torch.arange(1, 9)
    half = torch.tensor([0.5, 1.5, 3.0], dtype=torch.bfloat16)
    check_all([(f, (v,)) for f in (torch.lgamma, torch.digamma, s.i0e) for v in (whole, half)])


def test_parts_of_floats() -> None:
    x = torch.tensor([0.0, -0.0, 1.0, -2.0, 0.75, 3e38, 1e-30, -5e-38, INF, -INF, NAN, 7.5])
    check_all([(torch.frexp, (x,)), (torch.frexp, (x.bfloat16(),))])


def test_the_next_number() -> None:
    x = torch.tensor([1.0, 1.0, -1.0, -1.0, 2.0, 0.5, 3.4028234663852886e38, INF, -INF, 7.0, 7.0, NAN, 3.0])
    y = torch.tensor([2.0, 0.0, 0.0, -2.0, 0.0, 0.0, INF, 0.0, 0.0, 7.0, -INF, 1.0, NAN])
    check(torch.nextafter, x, y, rtol=0, atol=0)


def test_angles() -> None:
    check_all([(torch.angle, (EDGES,)), (torch.angle, (torch.tensor([-1, 0, 2]),))])
    z = torch.complex(torch.tensor([1.0, -1.0, 0.0, -2.0]), torch.tensor([1.0, 0.0, -3.0, 0.5]))
    check_all([(torch.angle, (z,)), (torch.angle, (EDGES,))])
