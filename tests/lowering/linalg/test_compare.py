"""Comparisons, bitwise ops and choices between elements, against eager PyTorch."""

from __future__ import annotations

import torch
from edge_values import EDGES, INTS, every, pairs
from support import check_all

INF = float("inf")


def test_comparisons_of_edge_values() -> None:
    x, y = pairs(EDGES)
    every([torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge], x, y)
    every([torch.eq, torch.lt, torch.ge], *pairs(INTS))
    every([lambda v: v > 0, lambda v: v == 1, lambda v: v != 0.5], INTS)


def test_operands_meet_in_the_dtype_that_they_are_compared_in() -> None:
    """Integers and numbers are rounded to 16-bit floats before they are compared with some."""
    x = torch.tensor([2147483646, 70000, 2049, 3], dtype=torch.int32)
    y = torch.tensor([INF, INF, 2048.0, 3.0], dtype=torch.float16)
    h = torch.tensor([0.1, 0.3], dtype=torch.float16)
    check_all(
        [
            (lambda x, y: torch.eq(x, y), (x, y)),
            (lambda x, y: x - y, (x[2:], y[2:])),
            (lambda h: h == 0.1, (h,)),
            (lambda h: h > 0.3, (h.bfloat16(),)),
        ]
    )


def test_bitwise_ops_and_shifts() -> None:
    x, y = pairs(torch.tensor([0, 1, 5, -1, -8, 127, -128], dtype=torch.int32))
    every([torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor, lambda a, b: ~a], x, y)
    every([lambda a: a << 3, lambda a: a >> 2, lambda a: a & 6], x)
    every([torch.logical_and, torch.logical_or, torch.logical_xor, lambda a, b: a.bool() & b.bool()], x, y)


def test_where_and_masked_fill_promote() -> None:
    x = torch.randn(3, 4)
    every(
        [
            lambda v: torch.where(v > 0, v, 0.0), lambda v: torch.where(v > 0, 1, 0),
            lambda v: v.masked_fill(v > 0, -INF),
            lambda v: torch.where(v > 0, v, torch.tensor(2.0)), lambda v: v.masked_fill(v[0] > 0, 3),
            lambda v: torch.where(v > 0, v, torch.arange(4)),
        ],
        x,
    )  # fmt: skip
