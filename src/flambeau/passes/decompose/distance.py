"""Distances between rows, and products of three tensors."""

from __future__ import annotations

import math
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition, require_size
from flambeau.passes.decompose.search import place


def _distance(t: TorchBuilder, x: SSAValue, y: SSAValue, p: float) -> SSAValue:
    """The norm of the difference over the last dim."""
    difference = t.sub(x, y)
    columns = t.shape(difference)[-1]
    if columns == 0:
        return t.sum(difference, [-1])
    if math.isinf(p) and not isinstance(columns, int):
        # There may be none at run time, and rows of nothing are not apart.
        return t.amax(t.constant_pad_nd(t.abs(difference), [0, 1], 0.0), [-1])
    return t.linalg_vector_norm(difference, p, [-1])


@decomposition("aten._cdist_forward")
def cdist(t: TorchBuilder, x: SSAValue, y: SSAValue, p: float, compute_mode: Any) -> SSAValue:
    require_size(t, t.shape(x)[-1], "eq", t.shape(y)[-1], "both tensors must have the same number of columns")
    return _distance(t, t.unsqueeze(x, -2), t.unsqueeze(y, -3), p)


@decomposition("aten._pdist_forward")
def pdist(t: TorchBuilder, x: SSAValue, p: float) -> SSAValue:
    """Each row with those after it: row i is the first of rows - 1 - i pairs, which are numbered row by row."""
    rows = t.shape(x)[0]
    if not isinstance(rows, int):
        raise Unsupported("the pairs of as many rows as only the run time knows")
    pairs = rows * (rows - 1) // 2
    number, row = t.arange(pairs, dtype=dtypes.int64), t.arange(rows, dtype=dtypes.int64)
    ends = t.cumsum(t.rsub(row, rows - 1), 0)
    first = place(t, ends, number, True)
    begins = t.sub(t.index_select(ends, 0, first), t.rsub(first, rows - 1))
    second = t.add(t.add(t.sub(number, begins), first), 1)
    return _distance(t, t.index_select(x, 0, first), t.index_select(x, 0, second), p)


@decomposition("aten._trilinear")
def trilinear(
    t: TorchBuilder,
    x: SSAValue,
    y: SSAValue,
    z: SSAValue,
    expand_x: list[int],
    expand_y: list[int],
    expand_z: list[int],
    summed: list[int],
    unroll_dim: int,
) -> SSAValue:
    """The product of three tensors that are given new dims, added up over some dims."""

    def expanded(value: Any, dims: list[int]) -> Any:
        for dim in dims:
            value = t.unsqueeze(value, dim)
        return value

    product = t.mul(t.mul(expanded(x, expand_x), expanded(z, expand_z)), expanded(y, expand_y))
    return t.sum(product, summed) if summed else product
