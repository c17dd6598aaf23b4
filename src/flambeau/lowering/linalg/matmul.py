"""Products of matrices, and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element, is_number
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.verbs import RuleBuilder

MISMATCH = "mismatching contracting dimension"


def matmul_2d(b: RuleBuilder, x: Tensor, y: Tensor) -> Tensor:
    """Multiply [m, k] by [k, n], in the accumulator's dtype."""
    b.same_size(b.size(x, 1), b.size(y, 0), MISMATCH)
    return b.contract("matmul", [x, y], [b.size(x, 0), b.size(y, 1)])


def matmul_3d(b: RuleBuilder, x: Tensor, y: Tensor) -> Tensor:
    """Multiply [batch, m, k] by [batch, k, n], in the accumulator's dtype."""
    batch = b.same_size(b.size(x, 0), b.size(y, 0), "mismatching batch dimension")
    b.same_size(b.size(x, 2), b.size(y, 1), MISMATCH)
    return b.contract("batch_matmul", [x, y], [batch, b.size(x, 1), b.size(y, 2)])


def product(b: RuleBuilder, x: Tensor, y: Tensor) -> Tensor:
    """Multiply as `torch.matmul` does, in the accumulator's dtype: vectors, matrices, broadcast batches."""
    if x.rank == 0 or y.rank == 0:
        raise Unsupported("matmul needs tensors of at least one dimension")
    drop: list[int] = []
    if x.rank == 1:
        x, drop = b.unsqueeze(x, 0), [*drop, -2]
    if y.rank == 1:
        y, drop = b.unsqueeze(y, 1), [*drop, -1]
    out = _product_of_matrices(b, x, y)
    return b.squeeze(out, [d % out.rank for d in drop]) if drop else out


def _product_of_matrices(b: RuleBuilder, x: Tensor, y: Tensor) -> Tensor:
    xs, ys = b.sizes(x), b.sizes(y)
    if y.rank == 2:
        # All rows of the left side meet the same matrix: one large product.
        rows = b.reshape(x, [b.product(xs[:-1]), xs[-1]])
        return b.reshape(matmul_2d(b, rows, y), [*xs[:-1], ys[-1]])
    batch = b.broadcast_sizes(xs[:-2], ys[:-2])
    left, right = b.broadcast_to(x, [*batch, *xs[-2:]]), b.broadcast_to(y, [*batch, *ys[-2:]])
    if (found := b.batched_product(left, right)) is not None:
        return found
    count = b.product(batch)
    left, right = b.reshape(left, [count, *xs[-2:]]), b.reshape(right, [count, *ys[-2:]])
    if isinstance(count, int) and count == 1:
        out = matmul_2d(b, b.reshape(left, xs[-2:]), b.reshape(right, ys[-2:]))
    else:
        out = matmul_3d(b, left, right)
    return b.reshape(out, [*batch, xs[-2], ys[-1]])


@linalg_rule("aten.matmul", "aten.mm", "aten.bmm", "aten.mv", "aten.dot")
def matmul(b: RuleBuilder, x: Tensor, y: Tensor) -> Tensor:
    return b.to(product(b, x, y), b.out_dtype)


@linalg_rule("aten.inner")
def inner(b: RuleBuilder, x: Tensor, y: Tensor) -> Tensor:
    """Multiply every row of one with every row of the other: Σ_k x[..., k] y[..., k]."""
    if x.rank == 0 or y.rank == 0:
        dtype = b.out_dtype
        return b.elementwise([x, y], lambda p, q: p.to(dtype.compute) * q.to(dtype.compute), dtype)
    *left, width = b.sizes(x)
    *right, other = b.sizes(y)
    rows = b.transpose(b.reshape(y, [b.product(right), other]), [1, 0])
    out = matmul_2d(b, b.reshape(x, [b.product(left), width]), rows)
    return b.to(b.reshape(out, [*left, *right]), b.out_dtype)


@linalg_rule("aten.linear")
def linear(b: RuleBuilder, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    w = b.transpose(weight, [1, 0]) if weight.rank == 2 else weight
    return finish(b, product(b, x, w), bias, 1, 1)


@linalg_rule("aten.addmm", "aten.addmv", "aten.baddbmm")
def addmm(b: RuleBuilder, bias: Tensor, x: Tensor, y: Tensor, beta: Any, alpha: Any) -> Tensor:
    return finish(b, product(b, x, y), bias, beta, alpha)


@linalg_rule("aten.outer", "aten.ger")
def outer(b: RuleBuilder, x: Tensor, y: Tensor) -> Tensor:
    dtype = b.out_dtype
    return b.elementwise([b.unsqueeze(x, 1), y], lambda p, q: p.to(dtype) * q.to(dtype), dtype)


def finish(b: RuleBuilder, out: Tensor, bias: Tensor | None, beta: Any, alpha: Any) -> Tensor:
    """Compute alpha * out + beta * bias in one loop, rounded to the result's dtype once."""
    dtype = b.out_dtype
    beta, alpha = (b.scalar(n) if isinstance(n, SSAValue) else n for n in (beta, alpha))
    if bias is None or is_number(beta, 0):
        if bias is not None:
            b.loop_sizes([bias], b.sizes(out))  # PyTorch looks, even where it does not read.
        return b.to(out, dtype) if is_number(alpha, 1) else b.elementwise([out], lambda e: e * alpha, dtype)

    def add(e: Element, c: Element) -> Element:
        return e * alpha + e.like(c) * beta

    return b.elementwise([out, bias], add, dtype, b.sizes(out))


# --- Attention ---

QUERIES, MOST_BLOCKS, MANY_WEIGHTS = 128, 32, 1 << 18
"""Attention of more than so many weights goes through the queries in blocks of 128, or in 32 larger ones."""


@linalg_rule("aten.scaled_dot_product_attention")
def attention(
    b: RuleBuilder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    gqa: bool,
) -> Tensor:
    if dropout > 0:
        raise Unsupported("attention with dropout draws random numbers", "Call model.eval() before compiling.")
    if gqa:
        key, value = (_repeat_heads(b, x, query) for x in (key, value))
    length = b.size(query, -2)
    step = _queries_at_once(length, b.size(key, -2)) if b.loads_are_cheap else length
    if step is length or not isinstance(length, int) or not isinstance(step, int):
        return b.to(product(b, attention_weights(b, query, key, mask, causal, scale), value), b.out_dtype)

    def part(x: Tensor, first: int) -> Tensor:
        """Slice `step` rows from `first` on, or what is left of them, out of the next-to-last dim."""
        dim, sizes = x.rank - 2, b.sizes(x)
        starts: list[Size] = [first if d == dim else 0 for d in range(x.rank)]
        return b.slice(
            x, starts, [min(step, length - first) if d == dim else n for d, n in enumerate(sizes)], [1] * x.rank
        )

    parts = []
    for first in range(0, length, step):
        is_one_row = mask is not None and (mask.rank < 2 or mask.shape[-2] == 1)
        own = mask if mask is None or is_one_row else part(mask, first)
        weights = attention_weights(b, part(query, first), key, own, causal, scale, first)
        parts.append(b.to(product(b, weights, value), b.out_dtype))
    sizes = b.sizes(parts[0])
    result = b.empty([length if d == len(sizes) - 2 else n for d, n in enumerate(sizes)], b.out_dtype)
    for first, piece in zip(range(0, length, step), parts, strict=True):
        at: list[Size] = [first if d == len(sizes) - 2 else 0 for d in range(len(sizes))]
        result = b.insert_slice(piece, result, at, [1] * len(sizes))
    return result


def _queries_at_once(queries: Size, keys: Size) -> Size:
    """Choose how many rows of the weights are computed together, so that many still fit into a cache."""
    if not isinstance(queries, int) or not isinstance(keys, int) or queries * keys < MANY_WEIGHTS:
        return queries
    blocks = min(-(-queries // QUERIES), MOST_BLOCKS)
    return -(-queries // blocks)


def attention_weights(
    b: RuleBuilder,
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float | None,
    first: int = 0,
) -> Tensor:
    """Compute softmax(query @ key^T * scale + mask), in f32 for 16-bit inputs and rounded to them.

    `first` is the number of the first query, which tells a causal mask where it stands.
    """
    width = b.size(query, -1)
    factor: Any = scale
    if scale is None:
        factor = 1 / math.sqrt(max(width, 1)) if isinstance(width, int) else 1 / b.element(width, dtypes.float32).sqrt()
    order = [*range(key.rank - 2), key.rank - 1, key.rank - 2]
    scores = product(b, query, b.transpose(key, order))
    sizes = b.sizes(scores)
    dtype = scores.dtype

    def masked(at: Sequence[Any], s: Element, *m: Element) -> Element:
        s = s * s.like(factor)
        if m:
            bias = m[0].select(s.like(0), float("-inf")) if m[0].dtype is dtypes.bool_ else m[0].to(dtype)
            s = s + bias  # What is masked and not a number stays so, as in PyTorch.
        if causal:
            s = b.scalar_bool(b.compare("sge", b.add(at[-2], first), at[-1])).select(s, float("-inf"))
        return s

    scores = b.map_indexed([scores] if mask is None else [scores, mask], sizes, dtype, masked)
    # A row of nothing but -inf gives zeros, as PyTorch's kernels do, not NaN: it is masked out, or infinitely unlike.
    return safe_softmax(b, scores, query.dtype)


def safe_softmax(b: RuleBuilder, x: Tensor, dtype: DType) -> Tensor:
    """Compute the softmax along the last dim; rows of nothing but -inf give zeros."""
    last = [x.rank - 1]
    everywhere, rows = tuple(range(x.rank)), tuple(range(x.rank - 1))
    most = b.reduce([x], last, [(float("-inf"), x.dtype)], lambda e, acc: acc.maximum(e))[0]

    def shifted(e: Element, m: Element) -> Element:
        return (e - (m == float("-inf")).select(m.like(0), m)).exp()

    powers = b.elementwise_over([(x, everywhere), (most, rows)], b.sizes(x), shifted, x.dtype)
    total = b.reduce([powers], last, [(0, x.dtype)], lambda e, acc: acc + e)[0]

    def normal(p: Element, t: Element) -> Element:
        return p / (t == 0).select(t.like(1), t)

    return b.elementwise_over([(powers, everywhere), (total, rows)], b.sizes(x), normal, dtype)


def _repeat_heads(b: RuleBuilder, x: Tensor, query: Tensor) -> Tensor:
    """Repeat each key or value head for the query heads that share it, which are adjacent."""
    heads, own = b.size(query, -3), b.size(x, -3)
    times = b.floordiv(heads, own)
    if isinstance(times, int) and times == 1:
        return x
    sizes: list[Size] = b.sizes(x)
    spread = b.broadcast_to(b.unsqueeze(x, x.rank - 2), [*sizes[:-2], times, *sizes[-2:]])
    return b.reshape(spread, [*sizes[:-3], heads, *sizes[-2:]])
