"""Products and attention against eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import check, check_all

A, B, V = torch.randn(3, 4), torch.randn(4, 5), torch.randn(4)
BATCH, OTHER = torch.randn(2, 3, 4), torch.randn(2, 4, 5)


@pytest.mark.parametrize("dynamic", [False, True])
def test_products_of_every_rank(dynamic: bool) -> None:
    check_all(
        [
            (torch.mm, (A, B)), (torch.mv, (A, V)), (torch.dot, (V, V * 2)), (torch.bmm, (BATCH, OTHER)),
            (torch.matmul, (BATCH, B)), (torch.matmul, (A, OTHER)), (torch.matmul, (V, B)), (torch.matmul, (BATCH, V)),
            (torch.matmul, (torch.randn(7, 1, 3, 4), OTHER)), (torch.outer, (V, A[0])), (torch.inner, (BATCH, A)),
            (torch.inner, (V, V)),
            (torch.inner, (BATCH, torch.tensor(2.0))), (torch.mm, (A[:, :1], B[:1])),
            (torch.bmm, (BATCH[..., :1], OTHER[:, :1])), (torch.bmm, (BATCH[:, :1], OTHER)),
        ],
        dynamic=dynamic,
    )  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
def test_linear_and_addmm(dynamic: bool) -> None:
    w, bias = torch.randn(5, 4), torch.randn(5)
    check_all(
        [
            (F.linear, (BATCH, w, bias)), (F.linear, (A, w)), (F.linear, (V, w, bias)),
            (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), (bias, A, B)),
            (lambda c, a, b: torch.addmm(c, a, b, beta=0), (torch.full((3, 5), float("nan")), A, B)),
            (torch.baddbmm, (torch.randn(2, 3, 5), BATCH, OTHER)),
            (F.linear, (BATCH, w[:1], bias[:1])), (torch.mm, (A[:1], B)), (torch.addmv, (bias, w, V)),
        ],
        dynamic=dynamic,
    )  # fmt: skip


def test_halves_accumulate_in_f32() -> None:
    ones = torch.ones(2, 4096, dtype=torch.float16)
    module = check(lambda a, b: a @ b.t(), ones, ones * 0.5)
    assert "outs" in str(module)
    check(lambda a, b: a @ b.t(), ones.bfloat16(), ones.bfloat16())


def test_integers_and_empty_products() -> None:
    i = torch.arange(12).reshape(3, 4)
    check_all(
        [
            (lambda a: a @ a.t(), (i,)), (lambda a: a.int() @ a.int().t(), (i,)),
            (torch.mm, (torch.ones(3, 0), torch.ones(0, 2))), (torch.mm, (torch.ones(0, 4), B)),
        ]
    )  # fmt: skip


def _attention(**options: Any) -> Any:
    return lambda q, k, v, *m: F.scaled_dot_product_attention(q, k, v, *m, **options)


@pytest.mark.parametrize("dynamic", [False, True])
def test_attention(dynamic: bool) -> None:
    q, k, v = torch.randn(2, 4, 7, 8), torch.randn(2, 4, 9, 8), torch.randn(2, 4, 9, 6)
    mask = torch.rand(2, 1, 7, 9) > 0.3
    mask[0, 0, 2] = False
    bias = torch.randn(7, 9)
    check_all(
        [
            (_attention(), (q, k, v)), (_attention(scale=0.3), (q, k, v)), (_attention(), (q, k, v, mask)),
            (_attention(), (q, k, v, bias)), (_attention(is_causal=True), (q, q * 2, q + 1)),
        ],
        dynamic=dynamic,
    )  # fmt: skip


def test_grouped_query_attention() -> None:
    q, k = torch.randn(2, 6, 5, 8), torch.randn(2, 2, 5, 8)
    check(_attention(enable_gqa=True), q, k, k * 2)


def test_contractions_are_named_ops() -> None:
    module = check(F.linear, BATCH, torch.randn(5, 4), torch.randn(5))
    names = [op.name for op in module.op.walk()]
    assert names.count("linalg.matmul") == 1
    assert names.count("linalg.generic") == 1


@pytest.mark.parametrize("rows", [2, 6])
def test_rows_times_the_matrix_of_their_group(rows: int) -> None:
    """Few rows and many; the second group is empty, and the last rows are in none."""
    from transformers.integrations import moe  # Which defines the op.

    assert moe is not None
    product = torch.ops.transformers.grouped_mm_fallback
    x, weights, ends = torch.randn(rows, 4), torch.randn(3, 4, 5), torch.tensor([1, 1, rows - 1])
    check_all([(product, (x, weights, ends)), (product, (x, weights, ends.int()))])


def test_attention_of_rows_that_see_nothing_is_zero() -> None:
    """Masked out by a bool or by a float, or infinitely unlike all keys."""
    key = torch.tensor([[-1.0, 1.0], [-2.0, 1.0], [-1.0, 0.0]]).reshape(1, 1, 3, 2)
    query = torch.tensor([[1.0, 0.0], [float("inf"), 1.0], [1.0, 2.0]]).reshape(1, 1, 3, 2)
    masked = torch.zeros(3, 3)
    masked[1] = float("-inf")
    attend = torch.nn.functional.scaled_dot_product_attention
    check_all(
        [
            (lambda q, k: attend(q, k, k), (query, key)),
            (lambda q, k, m: attend(q, k, k, attn_mask=m), (key, key, masked)),
            (lambda q, k, m: attend(q, k, k, attn_mask=m), (key, key, masked == 0)),
        ]
    )


def test_sums_that_are_rounded_after_each_step() -> None:
    """PyTorch rounds 16-bit floats after each product of `addbmm`, and each operation of `addr`.

    Not so with bf16 on IREE, which leaves out the roundings between ops that it fuses.
    """
    x, a, b = (torch.randint(-40, 41, shape).half() for shape in ((5, 10), (6, 5, 5), (6, 5, 10)))
    check_all(
        [
            (torch.addbmm, (x, a, b)), (torch.addbmm, (x[0], a, b)),
            (lambda x, a, b: torch.addr(x, a, b, beta=0.6, alpha=0.2), (x, a[0, 0], b[0, 0])),
        ],
        rtol=0,
        atol=0,
    )  # fmt: skip
