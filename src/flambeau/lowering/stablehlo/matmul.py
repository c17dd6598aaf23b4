"""Products of matrices as `dot_general`, with batch dims where there are some."""

from __future__ import annotations

from typing import Any

from flambeau.diagnostics import Unsupported
from flambeau.lowering.builder import Tensor
from flambeau.lowering.linalg.matmul import MISMATCH, finish
from flambeau.lowering.stablehlo.ops import StablehloBuilder
from flambeau.lowering.stablehlo.rules import stablehlo_rule


def product(b: StablehloBuilder, x: Tensor, y: Tensor) -> Tensor:
    """Multiply as `torch.matmul` does, with the result in the accumulator's dtype."""
    if x.rank == 0 or y.rank == 0:
        raise Unsupported("matmul needs tensors of at least one dimension")
    dtype = x.dtype.compute
    xs, ys = b.sizes(x), b.sizes(y)
    inner = max(y.rank - 2, 0)
    b.same_size(xs[-1], ys[inner], MISMATCH)
    if 0 in x.shape or 0 in y.shape:
        batch = b.broadcast_sizes(xs[:-2], ys[:-2])
        return b.full([*batch, *xs[-2:-1], *(ys[-1:] if y.rank > 1 else [])], 0, dtype)
    if y.rank <= 2:
        # All rows of the left side meet the same matrix.
        return b.target.dot(x, y, [], [], [x.rank - 1], [0], [*xs[:-1], *ys[1:]], dtype)
    if x.rank == 1:
        x, xs = b.unsqueeze(x, 0), [1, *xs]
        out = product(b, x, y)
        return b.squeeze(out, [out.rank - 2])
    batch = b.broadcast_sizes(xs[:-2], ys[:-2])
    whole = b.target.batched_product(b.broadcast_to(x, [*batch, *xs[-2:]]), b.broadcast_to(y, [*batch, *ys[-2:]]))
    assert whole is not None  # neither is empty
    return whole


@stablehlo_rule("aten.matmul", "aten.mm", "aten.bmm", "aten.mv", "aten.dot")
def matmul(b: StablehloBuilder, x: Tensor, y: Tensor) -> Tensor:
    return b.to(product(b, x, y), b.out_dtype)


@stablehlo_rule("aten.linear")
def linear(b: StablehloBuilder, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    xs, ws = b.sizes(x), b.sizes(weight)
    b.same_size(xs[-1], ws[-1], MISMATCH)
    dtype = x.dtype.compute
    sizes = [*xs[:-1], *ws[:-1]]
    if 0 in x.shape or 0 in weight.shape:
        return finish(b, b.full(sizes, 0, dtype), bias, 1, 1)
    return finish(b, b.target.dot(x, weight, [], [], [x.rank - 1], [weight.rank - 1], sizes, dtype), bias, 1, 1)


@stablehlo_rule("aten.addmm", "aten.addmv", "aten.baddbmm")
def addmm(b: StablehloBuilder, bias: Tensor, x: Tensor, y: Tensor, beta: Any, alpha: Any) -> Tensor:
    return finish(b, product(b, x, y), bias, beta, alpha)
