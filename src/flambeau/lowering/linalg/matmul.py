"""Products of matrices, and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.verbs import RuleBuilder

MISMATCH = "mismatching contracting dimension"


def matmul_2d(b: RuleBuilder, x: Tensor, y: Tensor) -> Tensor:
    """[m, k] by [k, n], in the accumulator's dtype."""
    b.same_size(b.size(x, 1), b.size(y, 0), MISMATCH)
    return b.contract("matmul", [x, y], [b.size(x, 0), b.size(y, 1)])


def matmul_3d(b: RuleBuilder, x: Tensor, y: Tensor) -> Tensor:
    """[batch, m, k] by [batch, k, n], in the accumulator's dtype."""
    batch = b.same_size(b.size(x, 0), b.size(y, 0), "mismatching batch dimension")
    b.same_size(b.size(x, 2), b.size(y, 1), MISMATCH)
    return b.contract("batch_matmul", [x, y], [batch, b.size(x, 1), b.size(y, 2)])


def product(b: RuleBuilder, x: Tensor, y: Tensor) -> Tensor:
    """`torch.matmul` in the accumulator's dtype: vectors, matrices, broadcast batches."""
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
    count = b.product(batch)
    left = b.reshape(b.broadcast_to(x, [*batch, *xs[-2:]]), [count, *xs[-2:]])
    right = b.reshape(b.broadcast_to(y, [*batch, *ys[-2:]]), [count, *ys[-2:]])
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
    """Every row of one with every row of the other."""
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


@linalg_rule("aten.addbmm")
def addbmm(b: RuleBuilder, bias: Tensor, x: Tensor, y: Tensor, beta: Any, alpha: Any) -> Tensor:
    products = product(b, x, y)
    total = b.reduce([products], [0], [(0, products.dtype)], lambda e, acc: acc + e)[0]
    return finish(b, total, bias, beta, alpha)


@linalg_rule("aten.outer", "aten.ger")
def outer(b: RuleBuilder, x: Tensor, y: Tensor) -> Tensor:
    dtype = b.out_dtype
    return b.elementwise([b.unsqueeze(x, 1), y], lambda p, q: p.to(dtype) * q.to(dtype), dtype)


def finish(b: RuleBuilder, out: Tensor, bias: Tensor | None, beta: Any, alpha: Any) -> Tensor:
    """alpha * out + beta * bias in one loop, rounded to the result's dtype once."""
    dtype = b.out_dtype
    if bias is None or (isinstance(beta, (int, float)) and beta == 0):
        if bias is not None:
            b.loop_sizes([bias], b.sizes(out))  # PyTorch looks, even where it does not read.
        return b.to(out, dtype) if alpha == 1 else b.elementwise([out], lambda e: e * alpha, dtype)

    def add(e: Element, c: Element) -> Element:
        return e * alpha + e.like(c) * beta

    return b.elementwise([out, bias], add, dtype, b.sizes(out))


# --- Attention ---


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
    weights = attention_weights(b, query, key, mask, causal, scale, gqa)
    if gqa:
        value = _repeat_heads(b, value, query)
    return b.to(product(b, weights, value), b.out_dtype)


def attention_weights(
    b: RuleBuilder, query: Tensor, key: Tensor, mask: Tensor | None, causal: bool, scale: float | None, gqa: bool
) -> Tensor:
    """softmax(query @ key^T * scale + mask), in f32 for 16-bit inputs and rounded to them."""
    if gqa:
        key = _repeat_heads(b, key, query)
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
            s = b.scalar_bool(b.compare("sge", at[-2], at[-1])).select(s, float("-inf"))
        return s

    scores = b.map_indexed([scores] if mask is None else [scores, mask], sizes, dtype, masked)
    # A row of nothing but -inf gives zeros, as PyTorch's kernels do, not NaN: it is masked out, or infinitely unlike.
    return safe_softmax(b, scores, query.dtype)


def safe_softmax(b: RuleBuilder, x: Tensor, dtype: DType) -> Tensor:
    """The softmax along the last dim, zero in rows of nothing but -inf."""
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
    """Each key or value head serves several query heads in a row."""
    heads, own = b.size(query, -3), b.size(x, -3)
    times = b.floordiv(heads, own)
    if isinstance(times, int) and times == 1:
        return x
    sizes: list[Size] = b.sizes(x)
    spread = b.broadcast_to(b.unsqueeze(x, x.rank - 2), [*sizes[:-2], times, *sizes[-2:]])
    return b.reshape(spread, [*sizes[:-3], heads, *sizes[-2:]])
