"""Products with weights of 4 bits that PyTorch has packed for the CPU of this machine."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from flambeau.diagnostics import Unsupported


def weight_int4pack_mm(x: Any, packed: Any, group: int, scales_and_zeros: Any) -> Any:
    """Decompose `aten._weight_int4pack_mm_for_cpu`: unpack the weights, with shifts; dequantise; multiply in f32.

    The digits of [n, k] weights lie in blocks of rows, column by column, two in a byte. A weight is its digit less 8,
    times the scale of its group of columns, plus its zero.
    """
    n, k = packed.shape[0], packed.shape[1] * 2
    block, is_halved = _block()
    if n % block:
        raise Unsupported(f"a product with packed weights of {n} rows, which are no blocks of {block}")
    digits = torch.stack([packed & 0xF, packed >> 4], -1).reshape(n // block, k, block // 2, 2)
    # The second digit of a byte is of a row in the other half of the block, or of the next row.
    digits = digits.permute(0, 3, 2, 1) if is_halved else digits.permute(0, 2, 3, 1)
    steps = digits.reshape(n, k // group, group).to(torch.float32) - 8
    scales, zeros = (part.to(torch.float32).t().unsqueeze(-1) for part in scales_and_zeros.unbind(-1))
    weight = (steps * scales + zeros).reshape(n, k)
    return torch.mm(x.to(torch.float32), weight.t()).to(x.dtype)


@cache
def _block() -> tuple[int, bool]:
    """Ask PyTorch how it packs on this machine: how many rows are a block, and whether a byte is of both its halves."""
    with _disable_current_modes():  # on real tensors, in the midst of a trace
        pack = torch.ops.aten._convert_weight_to_int4pack_for_cpu
        column, row = (torch.zeros(64, 64, dtype=torch.int32) for _ in range(2))
        column[0, 1] = row[1] = 1
        block = 2 * int(pack(column, 1).flatten().nonzero()[0])
        return block, not bool(pack(row, 1).flatten()[0] >> 4)
