"""Elementwise ops on the values that go wrong elsewhere, against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from edge_values import EDGES, every, pairs
from support import check, check_all

import flambeau
from flambeau import torchscript

NAN, INF = float("nan"), float("inf")


def test_functions_of_one_number_on_edge_values() -> None:
    every(
        [
            torch.exp, torch.expm1, torch.log, torch.log2, torch.log1p, torch.sqrt, torch.rsqrt, torch.tanh, torch.erf,
            torch.floor, torch.ceil, torch.trunc, torch.round, torch.abs, torch.neg, torch.sign, torch.reciprocal,
            torch.sigmoid, torch.isnan, torch.isinf, torch.isfinite, torch.signbit, torch.atan, torch.square,
            torch.nan_to_num, torch.logical_not, torch.exp2, torch.sgn, torch.frac,
        ],
        EDGES,
    )  # fmt: skip


def test_trigonometry_and_hyperbolics_keep_their_digits_near_zero() -> None:
    x = torch.tensor([0.0, 1e-6, -1e-6, 1e-3, -0.3, 0.7, 1.0, -1.0, 3.0, -5.0, 10.0])
    every([torch.sin, torch.cos, torch.tan, torch.sinh, torch.cosh, torch.asinh, torch.tanh], x, rtol=2e-6, atol=1e-6)
    unit = torch.tensor([0.0, 1e-6, -1e-6, 0.25, -0.5, 0.99, -0.99])
    every([torch.asin, torch.acos, torch.atanh], unit, rtol=1e-5, atol=1e-6)
    every([torch.acosh], torch.tensor([1.0, 1.0001, 2.0, 1e5, 1e20]), rtol=1e-5, atol=1e-6)


def test_trigonometry_keeps_its_digits_far_from_zero() -> None:
    x = torch.tensor([355.0, 1e5, -3e6, 16777216.0, 5419351.0, -(2.0**31), 1e10])
    every([torch.sin, torch.cos, torch.tan], x, rtol=2e-6, atol=2e-6)


def test_signs_of_zeros_survive() -> None:
    """Dividing by the result tells them apart."""
    x = torch.tensor([0.0, -0.0])
    every([lambda v: 1 / torch.erf(v), lambda v: 1 / torch.sin(v), lambda v: 1 / torch.tan(v)], x)
    exponents = torch.tensor([[1.0], [3.0], [-1.0], [2.0], [-2.0]])
    every([lambda v, e: 1 / torch.pow(v, e), torch.pow], x, exponents)


def test_results_too_small_for_a_float_keep_their_sign() -> None:
    """log(sigmoid(88)) is a negative number that f16 rounds to a negative zero."""
    x = torch.tensor([88.0, 102.0, 103.0, 20.0, -88.0, INF, -INF]).half()
    every([lambda v: torch.signbit(F.logsigmoid(v)), F.logsigmoid], x)


def test_what_does_not_fit_an_integer_is_the_least_one() -> None:
    x = torch.tensor([NAN, INF, -INF, 3e9, -3e9, 2.0**31, -(2.0**31), 2147483520.0, -1.5])
    every([lambda v: v.to(torch.int32)], x)
    every([lambda v: torch.zeros_like(v).log().to(torch.int32)], torch.zeros(3))


def test_maximum_and_minimum_give_nan_but_fmax_and_fmin_do_not() -> None:
    every([torch.maximum, torch.minimum, torch.fmax, torch.fmin], *pairs(EDGES))


def test_float_division_in_all_its_forms() -> None:
    """Floor division, remainder and fmod of signed zeros, infinities and NaN are PyTorch's."""
    x, y = pairs(torch.tensor([0.0, -0.0, 1.0, -1.0, 0.3, -0.3, 7.0, -7.0, 5.5, INF, -INF, NAN]))
    every(
        [
            torch.div, torch.floor_divide, torch.remainder, torch.fmod,
            lambda a, b: torch.div(a, b, rounding_mode="floor"), lambda a, b: torch.div(a, b, rounding_mode="trunc"),
            lambda a, b: a % 3, lambda a, b: a // 0.7, lambda a, b: torch.fmod(a, -2.0),
        ],
        x, y,
    )  # fmt: skip


def test_integer_division_rounds_and_signs_as_python_does() -> None:
    x, y = pairs(torch.tensor([1, -1, 2, -2, 3, -3, 5, -5, 7, -7], dtype=torch.int64))
    functions: list[Callable[..., Any]] = [
        torch.floor_divide, torch.remainder, torch.fmod, torch.true_divide,
        lambda a, b: torch.div(a, b, rounding_mode="floor"), lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        lambda a, b: a % -3, lambda a, b: a // 2, torch.gcd,
    ]  # fmt: skip
    every(functions, x, y)
    every(functions[:6], x.to(torch.int32), y.to(torch.int32))
    every([torch.floor_divide, torch.remainder], x.abs().to(torch.uint8), y.abs().to(torch.uint8))


def test_integer_arithmetic_wraps_around() -> None:
    x, y = pairs(torch.tensor([0, 1, -1, 100, 127, -128], dtype=torch.int8))
    every([torch.add, torch.sub, torch.mul, lambda a, b: -a, torch.maximum], x, y)
    u, v = pairs(torch.tensor([0, 1, 100, 200, 255], dtype=torch.uint8))
    every([torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, torch.lt, lambda a, b: a > b], u, v)


def test_angles_of_zeros_and_infinities() -> None:
    check(torch.atan2, *pairs(torch.tensor([0.0, -0.0, 1.0, -2.5, INF, -INF, NAN])))


def test_powers() -> None:
    x = torch.tensor([0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 3.7])
    every([lambda v, e=e: v**e for e in (0, 1, 2, 3, 0.5, -1, -2, 2.5, -0.5, 7)], x)
    i = torch.tensor([0, 1, -1, 2, -2, 3, 10])
    every([lambda v, e=e: v**e for e in (0, 1, 2, 3, 5, 13)], i)
    check(lambda a, b: a**b, i.repeat(4), torch.tensor([0] * 7 + [1] * 7 + [2] * 7 + [5] * 7))
    check(lambda v: 2.0**v, x)
    check(torch.pow, *pairs(torch.tensor([0.0, 1.0, -1.0, 2.0, -3.0, 0.5, -2.5, INF, -INF])))


@pytest.mark.parametrize(
    "a", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.float32]
)
def test_promotion_follows_pytorch(a: torch.dtype) -> None:
    others = [
        torch.bool,
        torch.uint8,
        torch.int16,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    ]
    x = torch.tensor([0, 1, 3, 5]).to(a)
    check_all([(lambda p, q: p * q + q, (x, torch.tensor([2, 1, 0, 3]).to(b))) for b in others])
    check_all([(lambda p, q: p + q, (x, torch.tensor(2).to(b))) for b in others])
    every([lambda p: p + 2, lambda p: p * 2.5, lambda p: p > 1, lambda p: p + True], x)


@pytest.mark.parametrize(
    "source", [torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64]
)
def test_casts(source: torch.dtype) -> None:
    values = torch.tensor([0.0, 1.0, 2.7, 100.0, 0.5]).to(source)
    targets = [
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float64,
    ]
    every([lambda v, t=t: v.to(t) for t in targets], values)


def test_casts_to_bool_take_nan_as_true() -> None:
    """S6: x.to(bool) is x != 0, NaN included."""
    check(lambda v: v.to(torch.bool), EDGES)


def test_uint8_is_unsigned_on_the_way_to_float() -> None:
    check(lambda v: v.to(torch.float32), torch.tensor([0, 1, 127, 128, 250, 255], dtype=torch.uint8))


def test_broadcasting_static_and_dynamic() -> None:
    x, y, z = torch.randn(4, 1, 3), torch.randn(5, 1), torch.randn(())
    for dynamic in (False, True):
        check(lambda a, b, c: a + b * c, x, y, z, dynamic=dynamic)


def test_half_precision_is_computed_in_f32() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.tensor([0.1, 1.5, -3.0, 40.0]).to(dtype)
        every([torch.exp, torch.tanh, F.gelu, F.silu, lambda v: v * v + v, lambda v: v / 3], x)


def test_complex_arithmetic() -> None:
    x = torch.tensor([1 + 2j, -0.5j, 3.0, 0.0], dtype=torch.complex64)
    y = torch.tensor([2 - 1j, 1j, -1.0, 4.0], dtype=torch.complex64)
    every([torch.add, torch.mul, torch.div, torch.sub, torch.eq, lambda a, b: a.conj() * b], x, y)
    every([torch.abs, torch.exp, torch.neg, lambda a: a.real, lambda a: a.imag], x)


def test_functions_of_complex_numbers() -> None:
    """Near zero, near the unit circle, on both sides of the branch cuts, and far out."""
    torch.manual_seed(0)
    points = [0, 1, -1, 1j, -1j, 2, -2, 2j, -2j, 0.5, -0.5j, 1 + 1e-3j, -1 - 1e-3j, 1e-6 - 1e-6j, 0.6 + 0.8j, 30 + 1j]
    cuts = [complex(2, -0.0), complex(-2, -0.0), complex(0.0, 2), complex(-0.0, -2)]
    z = torch.cat([torch.tensor(points + cuts), *(torch.randn(50, dtype=torch.complex64) * s for s in (0.01, 1, 8))])
    functions = (
        "sinh", "cosh", "tanh", "sin", "cos", "tan", "asinh", "acosh", "asin", "acos", "exp", "exp2", "expm1", "log",
        "log1p", "log2", "log10", "sqrt",
    )  # fmt: skip
    every([getattr(torch, name) for name in functions], z, rtol=1e-5, atol=1e-6)
    inside = z[(z.abs() - 1).abs() > 1e-6]  # at 1 and at i there are poles
    every([torch.atanh, torch.atan, lambda v: torch.rsqrt(v + 3)], inside, rtol=1e-5, atol=1e-6)


def test_zero_dims_and_no_elements() -> None:
    every([torch.exp, lambda v: v + 1, lambda v: v * v > 0], torch.tensor(2.0))
    every([torch.exp, lambda v: v + 1, lambda v: v > 0], torch.empty(0, 3))


def test_a_float_that_is_not_a_number_is_true() -> None:
    x = torch.tensor([float("nan"), 0.0, -0.0, float("inf"), -1e-6])
    check_all([(lambda x: x.to(torch.bool), (x.to(d),)) for d in (torch.float16, torch.bfloat16, torch.float32)])


def test_erf_of_doubles_keeps_all_digits() -> None:
    x = torch.tensor(
        [-7.0, -2.5, -0.5, -1e-9, 0.0, 0.3, 1.0, 3.0, 5.9, float("inf"), float("nan")], dtype=torch.float64
    )
    check_all([(torch.erf, (x,)), (F.gelu, (x,))], rtol=1e-12, atol=1e-15)


def test_complex_powers_of_zero() -> None:
    exponents = torch.tensor([1 + 1j, 2 + 0j, 0.5 - 3j])
    check(lambda x: torch.pow(0, x), exponents)
    run = flambeau.load(flambeau.compile(lambda x: torch.pow(0, x), (exponents,)), profile="quick")
    infinite = run(torch.tensor([-1 + 1j, -2 + 0j, -0.5 + 0j]))
    assert bool(infinite.real.isinf().all())
    assert bool(run(torch.zeros(3, dtype=torch.complex64)).isnan().all())


class Inverses(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.pow(-1)


def test_integers_to_a_negative_power_are_refused() -> None:
    place = torchscript.TensorPlaceholder([3], torch.int32)
    with pytest.raises(flambeau.CompileError, match="negative power"):
        torchscript.compile(torch.jit.script(Inverses()), [place], output_type="linalg-on-tensors")
