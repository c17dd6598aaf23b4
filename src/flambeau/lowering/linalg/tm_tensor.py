"""Sorts, scans, scatters and attention as ops of torch-mlir's dialect tm_tensor, which linalg has as loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xdsl.ir import Attribute

from flambeau.dialects import tm_tensor
from flambeau.dialects.declared.attributes import flag, integer, ints
from flambeau.dialects.linalg_named import segments
from flambeau.ir import dtypes
from flambeau.ir.conversion import RuleTable
from flambeau.lowering.builder import Size, Tensor, is_same
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.linalg.matmul import attention as attention_in_steps
from flambeau.lowering.verbs import Body

TM_TENSOR_RULES = RuleTable("tm_tensor")
"""Rules that come before those of linalg when a program may have ops of tm_tensor."""


def _emit(
    b: LinalgBuilder,
    name: str,
    ins: Sequence[Tensor],
    outs: Sequence[Tensor],
    properties: Mapping[str, Attribute],
    regions: Sequence[Any] = (),
) -> list[Tensor]:
    """Emit an op of the dialect; gives what it makes of its outputs."""
    op = b.emit(
        tm_tensor.op(name),
        [t.value for t in (*ins, *outs)],
        [t.value.type for t in outs],
        {**properties, "operandSegmentSizes": segments(len(ins), len(outs))},
        regions=regions,
    )
    return [Tensor(r, t.dtype, t._sizes) for r, t in zip(op.results, outs, strict=True)]


def _region(b: LinalgBuilder, of: Sequence[dtypes.DType], body: Body, result: dtypes.DType) -> Any:
    return b.region(of, body, [result], tm_tensor.op("yield"))


@TM_TENSOR_RULES("aten.sort")
def sort(b: LinalgBuilder, x: Tensor, dim: int, descending: bool) -> list[Tensor]:
    """Sort the elements together with their positions.

    The region says of two neighbours whether they may stay; equal ones do, so that the sort is stable.
    """
    if not x.rank:
        return [x, b.full([], 0, dtypes.int64)]
    dim = b.dim(dim, x.rank)

    def in_order(first: Element, second: Element, *positions: Element) -> Element:
        low, high = (second, first) if descending else (first, second)
        return (low <= high) | high.isnan() if x.dtype.is_float else low <= high

    positions = b.elementwise([], lambda: b.scalar(b.loop_index(dim)), dtypes.int64, b.sizes(x))
    region = _region(b, [x.dtype, x.dtype, dtypes.int64, dtypes.int64], in_order, dtypes.bool_)
    return _emit(b, "sort", [], [x, positions], {"dimension": integer(dim)}, [region])


@TM_TENSOR_RULES("aten.sort.stable")
def sort_stable(b: LinalgBuilder, x: Tensor, stable: Any, dim: int, descending: bool) -> list[Tensor]:
    return sort(b, x, dim, descending)


@TM_TENSOR_RULES("aten.topk")
def topk(b: LinalgBuilder, x: Tensor, k: Size, dim: int, largest: bool, is_sorted: bool) -> list[Tensor]:
    """Take the first ones of all in order: `tm_tensor.topk` has positions of 32 bits, and torch-mlir does so too."""
    if not x.rank:
        return sort(b, x, dim, largest)
    dim = b.dim(dim, x.rank)
    sizes = b.sizes(x)
    b.guard(b.compare("sle", k, sizes[dim]), "topk(): k is larger than the dimension")
    b.guard(b.compare("sge", k, 0), "topk(): k is negative")
    sizes[dim] = k
    return [b.slice(t, [0] * x.rank, sizes, [1] * x.rank) for t in sort(b, x, dim, largest)]


def _scan(b: LinalgBuilder, x: Tensor, dim: int, combine: Callable[[Element, Element], Element], start: Any) -> Tensor:
    """Accumulate along a dim in the dtype of the result, or in f32 for narrower floats; `start` changes nothing."""
    out, dtype = b.out_dtype, b.out_dtype.compute
    x = b.to(b.to(x, out), dtype)
    if x.rank:
        dim = b.dim(dim, x.rank)
        sizes = b.sizes(x)
        outs = [b.initial(s, start, dtype) for s in (sizes, sizes[:dim] + sizes[dim + 1 :])]
        properties = {"dimension": integer(dim), "inclusive": flag(True)}
        x = _emit(b, "scan", [x], outs, properties, [_region(b, [dtype, dtype], combine, dtype)])[0]
    return b.to(x, out)


@TM_TENSOR_RULES("aten.cumsum")
def cumsum(b: LinalgBuilder, x: Tensor, dim: int, dtype: int | None) -> Tensor:
    if x.dtype.is_float:
        x = b.elementwise([x], lambda e: e + 0, x.dtype)  # PyTorch starts from 0, which a -0.0 does not survive
    return _scan(b, x, dim, lambda before, here: before + here, 0)


@TM_TENSOR_RULES("aten.cumprod")
def cumprod(b: LinalgBuilder, x: Tensor, dim: int, dtype: int | None) -> Tensor:
    return _scan(b, x, dim, lambda before, here: before * here, 1)


def scatter(
    b: LinalgBuilder,
    x: Tensor,
    dim: int,
    rows: Tensor,
    values: Callable[[list[Size], list[Size]], Element],
    combine: Callable[[Element, Element], Element],
) -> Tensor:
    """Combine updates into a copy of x as `RuleBuilder.scatter` does; the op has the scattered dim first.

    Indices are not taken for unique: the op then goes through the updates in order, and the last one wins.
    """
    order = [dim, *(d for d in range(x.rank) if d != dim)]
    x = b.transpose(x, order)
    (_, *rest), update_sizes, n = b.sizes(x), b.sizes(rows), rows.rank
    count = b.product(update_sizes)
    updates = b.generate([*update_sizes, *rest], x.dtype, lambda *at: values(list(at[:n]), list(at[n:])))
    ins = [b.reshape(updates, [count, *rest]), b.reshape(rows, [count, 1])]
    region = _region(b, [x.dtype, x.dtype], lambda new, old: combine(old, new), x.dtype)
    properties = {"dimension_map": ints([0]), "unique_indices": flag(False)}
    return b.transpose(_emit(b, "scatter", ins, [x], properties, [region])[0], [order.index(d) for d in range(x.rank)])


@TM_TENSOR_RULES("aten.scaled_dot_product_attention")
def attention(
    b: LinalgBuilder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    gqa: bool,
) -> Tensor:
    """Compute softmax(query @ key^T / sqrt(width)) @ value, in a batch of matrices.

    The op scales by the width of a head and does not say what a row gives that is masked out as a whole, so another
    scale and masks go through the ops of linalg; a causal mask leaves no row empty.
    """
    *batch, length, width = b.sizes(query)
    *key_batch, keys, key_width = b.sizes(key)
    *value_batch, value_keys, value_width = b.sizes(value)
    pairs = zip([*batch, *batch, width, keys], [*key_batch, *value_batch, key_width, value_keys], strict=False)
    fits = query.rank == key.rank == value.rank and all(is_same(p, q) for p, q in pairs)
    is_usual = scale is None or (isinstance(width, int) and math.isclose(scale * math.sqrt(width), 1))
    is_wide = query.dtype.is_float and query.dtype.compute is query.dtype
    is_empty = any(0 in t.shape for t in (query, key, value))
    if mask is not None or dropout or gqa or is_empty or not (fits and is_usual and is_wide):
        return attention_in_steps(b, query, key, value, mask, dropout, causal, scale, gqa)
    count = b.product(batch)
    ins = [b.reshape(t, [count, *b.sizes(t)[-2:]]) for t in (query, key, value)]
    if causal:
        size = [count, length, keys]
        ins.append(b.generate(size, dtypes.bool_, lambda _, i, j: b.scalar_bool(b.compare("sge", i, j))))
    result = _emit(b, "attention", ins, [b.empty([count, length, value_width], query.dtype)], {})[0]
    return b.reshape(result, [*batch, length, value_width])
