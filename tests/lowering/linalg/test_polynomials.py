"""Orthogonal polynomials against eager PyTorch, for usual degrees and at the ends of numbers."""

from __future__ import annotations

import torch
from support import check, check_all

NAN, INF = float("nan"), float("inf")
MOST, TINY = torch.finfo(torch.float32).max, torch.finfo(torch.float32).tiny
s = torch.special

CHEBYSHEV = [getattr(s, f"{shift}chebyshev_polynomial_{kind}") for shift in ("", "shifted_") for kind in "tuvw"]
HERMITE = [s.hermite_polynomial_h, s.hermite_polynomial_he]
OTHERS = [s.laguerre_polynomial_l, s.legendre_polynomial_p]


def test_chebyshev_polynomials() -> None:
    x = torch.tensor([-3.0, -1.0, -0.9, -0.3, 0.0, 0.2, 0.5, 0.99, 1.0, 1.4, 7.0]).repeat_interleave(10)
    n = torch.tensor([-1.0, 0.0, 1.0, 2.0, 3.9, 6.0, 8.0, 9.0, 12.0, 20.0]).repeat(11)
    check_all([(f, (x, n)) for f in CHEBYSHEV], rtol=2e-5, atol=2e-5)


def test_chebyshev_polynomials_of_great_degrees() -> None:
    """Which degree is the first infinity, and which the first NaN, as in PyTorch's recurrence."""
    x = torch.tensor([1.01, 1.4, 2.0, 2.5, 5.0, 88.0, 1e10, 1e20, MOST, INF])
    x = torch.cat([x, -x])[:, None].clone()
    n = torch.cat([torch.arange(0.0, 110.0), torch.tensor([2.0**31, MOST, INF, NAN])])
    check_all([(f, (x, n)) for f in CHEBYSHEV], rtol=1e-4)


def test_chebyshev_polynomials_near_the_ends_of_their_interval() -> None:
    """-1 + 2e-7 has an angle with all digits only when it is measured from -1."""
    x = torch.tensor([TINY, 0.0, -0.0, 1.0, 0.5])[:, None].clone()
    n = torch.tensor([7.0, 88.0, 10001.0])
    check_all([(f, (x, n)) for f in CHEBYSHEV], rtol=1e-4)
    x, n = torch.tensor([-1 + 2.0**-22, 1 - 2.0**-22]), torch.tensor([88.0, 89.0])
    check_all([(f, (x, n)) for f in CHEBYSHEV[:2]], rtol=1e-4)


def test_polynomials_by_recurrence() -> None:
    x = torch.tensor([-3.0, -1.0, -0.3, 0.0, 0.5, 1.0, 7.0]).repeat_interleave(7)
    n = torch.tensor([-1.0, 0.0, 1.0, 2.0, 3.9, 9.0, 30.0]).repeat(7)
    for function in HERMITE + OTHERS:
        check(function, x, n, rtol=1e-4, atol=1e-4)
    check_all([(lambda x, f=f: f(x, 4), (x,)) for f in HERMITE + OTHERS])


def test_recurrences_at_the_ends() -> None:
    """Degrees that are no numbers, numbers that overflow, Hermite's degrees from 129 on."""
    x = torch.tensor([INF, -INF, MOST, -MOST, 88.0, -88.0, -0.0, TINY])[:, None].clone()
    n = torch.tensor([NAN, INF, -INF, MOST, -MOST, 0.0, 1.0, 2.5, 7.75, 88.0])
    check_all([(f, (x, n)) for f in HERMITE + OTHERS], rtol=1e-4)
    degrees = torch.tensor([128.0, 129.0, 2.0**31])
    check_all([(f, (torch.tensor([[0.0], [0.5]]), degrees)) for f in HERMITE])


def test_known_values_of_any_degree() -> None:
    degrees = torch.tensor([2**31 - 1, 2**31 - 2, 7, 2], dtype=torch.int32)
    check_all(
        [(s.laguerre_polynomial_l, (torch.tensor([0], dtype=torch.int32), degrees)),
         (s.legendre_polynomial_p, (torch.tensor([[1], [-1]], dtype=torch.int32), degrees))]
    )  # fmt: skip


def test_nan() -> None:
    """PyTorch itself has NaN for one kind only: it reads memory that it has not written for the others."""
    check(s.chebyshev_polynomial_t, torch.tensor([[NAN]]), torch.tensor([0.0, 1.0, 2.0, 7.0, 88.0, -1.0]))
