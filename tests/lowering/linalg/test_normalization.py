"""Normalisations against eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support import assert_same, check, check_all
from torch.nn import functional as F

import flambeau
from flambeau.diagnostics import Unsupported
from flambeau.lowering.linalg.normalization import batch_norm

NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dynamic", [False, True])
def test_softmax_along_any_dim(dynamic: bool) -> None:
    x = torch.randn(3, 4, 5) * 10
    cases: list[Any] = []
    for function in (F.softmax, F.log_softmax, F.softmin):
        cases += [(lambda x, f=function, d=d: f(x, dim=d), (x,)) for d in (0, 1, -1)]
    check_all(cases, dynamic=dynamic)


def test_softmax_of_infinities_and_nan() -> None:
    x = torch.tensor([[-INF, -INF], [-INF, 0.0], [INF, 0.0], [NAN, 0.0], [1e30, -1e30]])
    check_all(
        [
            (lambda x: x.softmax(1), (x,)),
            (lambda x: x.log_softmax(1), (x,)),
            (lambda x: torch.ops.aten._safe_softmax(x, 1), (x,)),
        ]
    )


def test_softmax_of_scalars_empty_tensors_and_other_dtypes() -> None:
    x = torch.randn(2, 3)
    check_all(
        [
            (lambda x: x.softmax(0), (torch.tensor(3.0),)),
            (lambda x: x.log_softmax(-1), (torch.tensor(3.0),)),
            (lambda x: x.softmax(0), (torch.zeros(0, 3),)),
            (lambda x: x.softmax(1), (torch.zeros(3, 0),)),
            (lambda x: x.softmax(1, dtype=torch.float32), (torch.arange(6).reshape(2, 3),)),
            (lambda x: x.softmax(1, dtype=torch.float64), (x,)),
            (lambda x: x.softmax(1, dtype=torch.float32), (x.half(),)),
            (lambda x: x.log_softmax(1), (x.bfloat16(),)),
        ]
    )


def test_softmax_of_16_bit_floats_sums_in_float32() -> None:
    check_all(
        [(lambda x: x.softmax(0), (torch.zeros(5000).to(t),)) for t in (torch.float16, torch.bfloat16)], atol=1e-6
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_layer_norm(dynamic: bool) -> None:
    x, w, c = torch.randn(2, 3, 8) + 10, torch.randn(8), torch.randn(8)
    check_all(
        [
            (lambda x, w, c: F.layer_norm(x, (8,), w, c), (x, w, c)),
            (lambda x: F.layer_norm(x, x.shape[-2:]), (x,)),
            (lambda x, w: F.layer_norm(x, (8,), w, eps=0.1), (x, w)),
            (lambda x, w, c: torch.native_layer_norm(x, (8,), w, c, 1e-5), (x, w, c)),
        ],
        dynamic=dynamic,
        rtol=1e-4,
        atol=1e-4,
    )


def test_layer_norm_of_16_bit_floats_has_float32_statistics() -> None:
    x = torch.randn(4, 512) + 30
    check_all(
        [
            (lambda x, w: F.layer_norm(x, (512,), w), (x.to(t), torch.randn(512).to(t)))
            for t in (torch.float16, torch.bfloat16)
        ]
    )


def test_layer_norm_with_nothing_to_normalise() -> None:
    check_all(
        [
            (lambda x: F.layer_norm(x, (4,)), (torch.zeros(0, 4),)),
            (lambda x: F.layer_norm(x, (1,)), (torch.randn(3, 1),)),
            (lambda x: F.layer_norm(x, (4,)), (torch.full((2, 4), 7.0),)),
        ]
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_rms_norm(dynamic: bool) -> None:
    x, w = torch.randn(2, 3, 8), torch.randn(8)
    check_all(
        [
            (lambda x, w: F.rms_norm(x, (8,), w, 1e-6), (x, w)),
            (lambda x: F.rms_norm(x, (x.shape[-1],)), (x * 1e-4,)),
            (lambda x, w: F.rms_norm(x, (8,), w), (x.bfloat16(), w.bfloat16())),
            (lambda x: F.rms_norm(x, (3, 8)), (x.half(),)),
        ],
        dynamic=dynamic,
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_batch_norm_in_inference(dynamic: bool) -> None:
    w, c, m, v = torch.randn(4), torch.randn(4), torch.randn(4), torch.rand(4)
    x = torch.randn(2, 4, 5, 6)
    native = torch.ops.aten._native_batch_norm_legit_no_training
    check_all(
        [
            (lambda x, m, v, w, c: F.batch_norm(x, m, v, w, c), (x, m, v, w, c)),
            (lambda x, m, v: F.batch_norm(x, m, v), (x[..., 0, 0].clone(), m, v)),
            (lambda x, m, v, w: F.batch_norm(x, m, v, w), (x[..., 0].half(), m.half(), v.half(), w.half())),
            (lambda x, m, v, w, c: native(x, w, c, m, v, 0.1, 1e-5), (x, m, v, w, c)),
            (lambda x, m, v, w, c: torch.native_batch_norm(x, w, c, m, v, False, 0.1, 1e-5), (x, m, v, w, c)),
        ],
        dynamic=dynamic,
    )


def test_batch_norm_with_statistics_of_the_batch() -> None:
    x, w, c = torch.randn(3, 4, 5) + 10, torch.randn(4), torch.randn(4)
    m, v = torch.randn(4), torch.rand(4)
    functional = torch.ops.aten._native_batch_norm_legit_functional
    check_all(
        [
            (lambda x, w, c: F.batch_norm(x, None, None, w, c, training=True), (x, w, c)),
            (lambda x, w, c: torch.ops.aten._native_batch_norm_legit.no_stats(x, w, c, True, 0.1, 1e-5), (x, w, c)),
            (lambda x, w, c, m, v: functional(x, w, c, m, v, True, 0.1, 1e-5), (x, w, c, m, v)),
        ],
        rtol=1e-4,
        atol=1e-4,
    )


def test_batch_norm_that_would_write_its_statistics_is_refused() -> None:
    """Importers give the functional form, whose results they are; the rule never drops the writes silently."""
    b: Any = None
    x = mean = variance = object()
    with pytest.raises(Unsupported, match="training=True"):
        batch_norm(b, x, None, None, mean, variance, True, 0.1, 1e-5, False)


@pytest.mark.parametrize("dynamic", [False, True])
def test_group_norm(dynamic: bool) -> None:
    x, w, c = torch.randn(2, 6, 4, 5) + 3, torch.randn(6), torch.randn(6)
    check_all(
        [
            (lambda x, w, c: F.group_norm(x, 3, w, c), (x, w, c)),
            (lambda x: F.group_norm(x, 1), (x,)),
            (lambda x: F.group_norm(x, 2), (x[..., 0, 0].clone(),)),
            (lambda x, w: F.group_norm(x, 6, w), (x[..., 0].half(), w.half())),
        ],
        dynamic=dynamic,
        rtol=2e-3,
        atol=1e-3,
    )


def test_native_group_norm_gives_its_statistics() -> None:
    x, w, c = torch.randn(2, 6, 4, 5), torch.randn(6), torch.randn(6)
    check(lambda x, w, c: torch.native_group_norm(x, w, c, 2, 6, 20, 3, 1e-5), x, w, c)


def test_norms_over_many_elements_keep_their_digits() -> None:
    x = torch.rand(1, 8, 128, 128) + 5
    check_all([(lambda x: F.group_norm(x, 2), (x,)), (F.instance_norm, (x,))], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dynamic", [False, True])
def test_instance_norm(dynamic: bool) -> None:
    x, w, c = torch.randn(2, 4, 5, 6), torch.randn(4), torch.randn(4)
    m, v = torch.randn(4), torch.rand(4)
    check_all(
        [
            (F.instance_norm, (x,)),
            (lambda x, w, c: F.instance_norm(x, None, None, w, c), (x, w, c)),
            (lambda x, m, v: F.instance_norm(x, m, v, use_input_stats=False), (x, m, v)),
        ],
        dynamic=dynamic,
    )


def test_gradients_that_are_masked_are_none() -> None:
    gradient, x, weight = torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.randn(3)

    def backward(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
        saved = (torch.zeros(3), torch.ones(3))
        op = torch.ops.aten.native_batch_norm_backward
        return op(gradient, x, weight, None, None, *saved, True, 1e-5, [False, True, True])

    got = flambeau.load(flambeau.compile(backward, (gradient, x, weight)), profile="quick")(gradient, x, weight)
    assert got[0] is None
    assert_same(list(got[1:]), list(backward(gradient, x, weight)[1:]), rtol=1e-4, atol=1e-4)
