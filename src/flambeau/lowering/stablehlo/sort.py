"""Sorting as `stablehlo.sort`."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import IntegerAttr, i1, i64
from xdsl.ir import Block, Region

from flambeau.dialects import stablehlo
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Tensor, tensor_type
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


def _comparator(b: StablehloBuilder, dtype: DType, descending: bool) -> Region:
    """Whether the first of two elements comes before the second; positions follow, and are not looked at."""
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
