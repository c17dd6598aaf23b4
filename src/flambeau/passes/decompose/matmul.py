"""Products of matrices in terms of simpler ones."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition


@decomposition("aten._grouped_mm")
def grouped_mm(
    t: TorchBuilder, x: SSAValue, weights: SSAValue, ends: SSAValue | None, bias: SSAValue | None, out_dtype: Any
) -> SSAValue:
    if ends is None or bias is not None or out_dtype is not None or (len(t.shape(x)), len(t.shape(weights))) != (2, 3):
        raise Unsupported("a grouped matmul other than of rows [n, k] in groups that end at given offsets")
    return experts(t, x, weights, ends)


@decomposition("transformers.grouped_mm_fallback")
def experts(t: TorchBuilder, x: SSAValue, weights: SSAValue, ends: SSAValue) -> SSAValue:
    """Each row times the matrix of its group; the rows of group g are those before `ends[g]`, and the rest give zero.

    Few rows bring their matrices along. Of many, all are multiplied by all matrices, and each takes the product that is
    its own: more work, but no copies of matrices.
    """
    [rows, width], [groups, _, out] = t.shape(x), t.shape(weights)
    if not isinstance(groups, int):
        raise Unsupported("a grouped matmul with a number of groups that is not known at compile time")
    position = t.unsqueeze(t.arange(rows, dtype=dtypes.int64), 1)
    group = t.sum(t.to(t.le(t.unsqueeze(ends, 0), position), dtypes.int64), [1])
    has_group = t.unsqueeze(t.lt(group, groups), 1)
    group = t.clamp(group, None, groups - 1)
    if isinstance(rows, int) and rows <= groups:
        result = t.squeeze(t.bmm(t.unsqueeze(x, 1), t.index_select(weights, 0, group)), 1)
    else:
        products = t.bmm(t.expand(t.unsqueeze(x, 0), [groups, rows, width]), weights)
        at = t.expand(t.view(group, [1, rows, 1]), [1, rows, out])
        result = t.squeeze(t.gather(products, 0, at), 0)
    return t.where(has_group, result, t.zeros_like(result))
