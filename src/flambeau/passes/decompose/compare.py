"""Comparisons in terms of simpler ones."""

from __future__ import annotations

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition


@decomposition("aten.isclose")
def isclose(t: TorchBuilder, x: SSAValue, y: SSAValue, rtol: float, atol: float, equal_nan: bool) -> SSAValue:
    if rtol < 0 or atol < 0:
        raise Unsupported("a tolerance below zero")
    if t.dtype(x) is not t.dtype(y):
        raise Unsupported(f"isclose of {t.dtype(x)} and {t.dtype(y)}", "Convert one of them: PyTorch does not.")
    close = t.eq(x, y)
    if equal_nan:
        close = t.logical_or(close, t.logical_and(t.isnan(x), t.isnan(y)))
    if not t.dtype(y).is_float and not t.dtype(y).is_complex:
        y = t.to(y, dtypes.float32)  # the difference of integers could overflow
    allowed = t.add(t.abs(t.mul(y, rtol)), atol)
    error = t.abs(t.sub(t.to(x, t.dtype(y)) if t.dtype(x).is_bool else x, y))
    return t.logical_or(close, t.logical_and(t.isfinite(error), t.le(error, allowed)))
