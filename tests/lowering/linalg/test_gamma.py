"""The incomplete gamma functions against eager PyTorch, from one end of their range to the other."""

from __future__ import annotations

import pytest
import support
import torch
from support import check, check_all

import flambeau
from flambeau.testing.suites.edge import values

P, Q = torch.special.gammainc, torch.special.gammaincc


def _spread(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Pairs of a and x: far from each other, within some widths of the peak, and at ratios where methods change."""
    a = torch.logspace(-6, 4, 121, dtype=torch.float64)[:, None]
    far = torch.logspace(-6, 4, 41, dtype=torch.float64).expand(121, -1)
    peak = (a + 1 + (a + 1).sqrt() * torch.linspace(-5, 5, 61, dtype=torch.float64)).abs()
    ratios = (a + 1) * torch.tensor([0.25, 0.499, 0.501, 0.9, 0.999, 1.0, 1.001, 1.1, 1.99, 2.01, 4.0])
    x = torch.cat([far, peak, ratios], 1)
    return a.expand_as(x).flatten().to(dtype), x.flatten().to(dtype)


def _both(a: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return P(a, x), Q(a, x)


def _run(a: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    module = flambeau.compile(_both, (a, x), output_type=support.TARGET)
    p, q = flambeau.load(module, engine="iree", profile="quick", device="local-sync")(a, x)
    return p, q


def test_f32() -> None:
    a, x = _spread(torch.float32)
    check_all([(P, (a, x)), (Q, (a, x))], rtol=1e-5, atol=1e-6)


def test_the_lesser_keeps_its_digits() -> None:
    """Where eager f32 has lost them: against eager f64."""
    a, x = _spread(torch.float32)
    for got, want in zip(_run(a, x), _both(a.double(), x.double()), strict=True):
        seen = want > 1e-30
        torch.testing.assert_close(got[seen].double(), want[seen], rtol=3e-5, atol=0)
        torch.testing.assert_close(got.double(), want, rtol=0, atol=1e-6)


def test_f64() -> None:
    """Eager f64 has nine digits itself where its own series end, at a of 20."""
    a, x = _spread(torch.float64)
    check_all([(P, (a, x)), (Q, (a, x)), (torch.neg, (a.float(),))], rtol=3e-9, atol=1e-12)


def test_where_the_result_is_known() -> None:
    """P(1, x) is 1 - e^-x, Q(1/2, x) is erfc of the root, Q of a whole number is a sum of Poisson's law."""
    precisions = {torch.float32: 2e-5, torch.float64: 1e-12}
    if support.TARGET == "tosa":
        del precisions[torch.float64]
    counts = torch.arange(100, dtype=torch.float64)[:, None]
    for dtype, rtol in precisions.items():
        x, mean = torch.logspace(-3, 1.5, 50, dtype=dtype), torch.linspace(60, 150, 50, dtype=dtype)
        exact, expected = x.double(), mean.double()
        p, q = _run(torch.ones_like(x), x)
        torch.testing.assert_close(p.double(), -torch.expm1(-exact), rtol=rtol, atol=0)
        torch.testing.assert_close(q.double(), torch.exp(-exact), rtol=rtol, atol=0)
        q = _run(torch.full_like(x, 0.5), x)[1]
        torch.testing.assert_close(q.double(), torch.erfc(exact.sqrt()), rtol=rtol, atol=0)
        chances = (counts * expected.log() - expected - torch.lgamma(counts + 1)).exp().sum(0)
        q = _run(torch.full_like(mean, 100.0), mean)[1]
        torch.testing.assert_close(q.double(), chances, rtol=rtol, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_all_pairs_of_the_ends(dtype: torch.dtype) -> None:
    """NaN, infinities, both zeros, negative numbers, the greatest and the least floats: as eager has them."""
    a = values(dtype)[:, None].clone()
    x = values(dtype)
    check_all([(P, (a, x)), (Q, (a, x))])
    for result in _run(a, x):
        assert not result[~result.isnan()].signbit().any()


def test_beyond_ten_thousand() -> None:
    a = torch.tensor([1e5, 1e6, 1e7, 1e8])[:, None].clone()
    widths = torch.linspace(-4, 4, 33, dtype=torch.float64)
    x = (a.double() + a.double().sqrt() * widths).float()
    a = a.expand_as(x).contiguous()
    for got, want in zip(_run(a, x), _both(a.double(), x.double()), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=2e-5, atol=1e-7)


def test_integers_broadcasts_and_unknown_sizes() -> None:
    whole = torch.arange(1, 6)
    x = torch.linspace(0.1, 9, 12).reshape(3, 4, 1)
    # IREE takes half a minute for a chain of some hundred of TOSA's ops whose sizes it does not know.
    check(P, whole, x, dynamic=support.TARGET != "tosa")
    check_all([(torch.igamma, (x, x + 1)), (torch.igammac, (x, x + 1)), (Q, (x.bfloat16(), x.bfloat16()))])


def test_types() -> None:
    x = torch.rand(2, 3)
    text = str(flambeau.compile(_both, (x, x[0]), output_type="torch"))
    assert text.count("-> !torch.vtensor<[2,3],f32>") == 2
