"""Sorting as `stablehlo.sort`, and the largest elements as `chlo.top_k`."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import IntegerAttr, i1, i32, i64
from xdsl.ir import Block, Region

from flambeau.dialects import stablehlo
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor, tensor_type
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.sort import comes_before
from flambeau.lowering.stablehlo.ops import StablehloBuilder
from flambeau.lowering.stablehlo.rules import stablehlo_rule


@stablehlo_rule("aten.sort")
def sort(b: StablehloBuilder, x: Tensor, dim: int, descending: bool) -> list[Tensor]:
    """Sort the elements together with their positions."""
    if not x.rank:
        return [x, b.full([], 0, dtypes.int64)]
    dim = b.dim(dim, x.rank)
    positions = b.generate(b.sizes(x), dtypes.int64, lambda *at: b.scalar(at[dim]))
    op = b.emit(
        stablehlo.op("sort"),
        (x.value, positions.value),
        (x.value.type, positions.value.type),
        {"dimension": IntegerAttr(dim, i64), "is_stable": IntegerAttr(1, i1)},
        regions=(_comparator(b, x.dtype, descending),),
    )
    return [Tensor(v, t.dtype, b.sizes(x)) for v, t in zip(op.results, (x, positions), strict=True)]


@stablehlo_rule("aten.sort.stable")
def sort_stable(b: StablehloBuilder, x: Tensor, stable: Any, dim: int, descending: bool) -> list[Tensor]:
    return sort(b, x, dim, descending)


@stablehlo_rule("aten.topk")
def topk(b: StablehloBuilder, x: Tensor, k: Size, dim: int, largest: bool, in_order: bool) -> list[Tensor]:
    """Find the k largest by `chlo.top_k` where all sizes are static; else sort and take the first k."""
    if not x.rank:
        return [x, b.full([], 0, dtypes.int64)]
    dim = b.dim(dim, x.rank)
    size = b.size(x, dim)
    b.guard(b.compare("sge", size, k), "topk(): k is larger than the dimension")
    b.guard(b.compare("sge", k, 0), "topk(): k is too small")
    # An unsigned number has no sign that its first bit would be, and the smallest floats have NaN last, however signed.
    has_order = x.dtype.is_float or (x.dtype.is_int and x.dtype.signed)
    if largest and isinstance(k, int) and k and None not in x.shape and has_order:
        order = [*(i for i in range(x.rank) if i != dim), dim]
        return [b.transpose(t, [order.index(i) for i in range(x.rank)]) for t in _top_k(b, b.transpose(x, order), k)]
    sizes, zeros, ones = [k if i == dim else n for i, n in enumerate(b.sizes(x))], [0] * x.rank, [1] * x.rank
    return [b.slice(t, zeros, sizes, ones) for t in sort(b, x, dim, largest)]


def _top_k(b: StablehloBuilder, x: Tensor, k: int) -> list[Tensor]:
    """Find the k largest elements along the last dim, and their positions.

    `chlo.top_k` compares floats in IEEE's total order, in which a NaN with its sign set comes last. PyTorch has every
    NaN first, so they lose their sign before.
    """
    if x.dtype.is_float:
        x = b.elementwise([x], lambda e: (e != e).select(float("nan"), e), x.dtype)
    shape = (*x.shape[:-1], k)
    types = tensor_type(shape, x.dtype.builtin), tensor_type(shape, i32)
    op = b.emit(stablehlo.op("chlo.top_k"), (x.value,), types, {"k": IntegerAttr(k, i64)})
    sizes = [*b.sizes(x)[:-1], k]
    values, positions = (Tensor(v, d, sizes) for v, d in zip(op.results, (x.dtype, dtypes.int32), strict=True))
    return [values, b.to(positions, dtypes.int64)]


def _comparator(b: StablehloBuilder, dtype: DType, descending: bool) -> Region:
    """Build the region that tells whether the first of two elements comes before the second; positions are ignored."""
    element, position = (tensor_type((), d.builtin) for d in (dtype, dtypes.int64))
    block = Block(arg_types=[element, element, position, position])
    outer, b.block = b.block, block
    try:
        with b.frame([]):
            first, second = (Element(b, v, dtype) for v in block.args[:2])
            b.emit(stablehlo.op("return"), (comes_before(first, second, descending).value,))
    finally:
        b.block = outer
    return Region(block)
