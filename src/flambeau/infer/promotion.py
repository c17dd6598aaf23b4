"""PyTorch's type promotion, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType, promote

Operand = tuple[DType, int] | complex | float | int | bool
"""A tensor as (dtype, rank), or a Python number."""


COMPLEX_OF = {
    dtypes.float16: dtypes.complex32,
    dtypes.bfloat16: dtypes.complex64,
    dtypes.float32: dtypes.complex64,
    dtypes.float64: dtypes.complex128,
}
"""The complex dtypes whose parts are these."""


def refuse_lossy_write(result: DType | None, written: DType | None) -> None:
    """Raise if an in-place op computes in a higher category than that of the tensor: PyTorch casts no float to an int.

    Ops that convert (`copy_`, `fill_`) compute in the dtype of the tensor, and do not come here.
    """
    if result is not None and written is not None and result.category > written.category:
        raise Unsupported(f"a result of {result} is written to a tensor of {written}, which PyTorch refuses")


def promote_operands(operands: Sequence[Any], default_float: DType = dtypes.float32) -> DType:
    """Find the dtype in which an op on these operands is computed.

    Tensors with dims outrank 0-d tensors, which outrank numbers: a lower rank counts only if its category is higher.
    """
    groups: list[DType | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, tuple):
            dtype, rank = operand
            level = 0 if rank > 0 else 1
        else:
            dtype, level = _number_dtype(operand, default_float), 2
        current = groups[level]
        groups[level] = dtype if current is None else promote(current, dtype)
    result: DType | None = None
    for dtype_or_none in groups:
        if dtype_or_none is None:
            continue
        if result is None:
            result = dtype_or_none
        elif dtype_or_none.category > result.category:
            # A complex scalar makes a float tensor complex without making it wider.
            is_widened = dtype_or_none.is_complex and result.is_float
            result = COMPLEX_OF[result] if is_widened else dtype_or_none
    return result if result is not None else default_float


def _number_dtype(value: Any, default_float: DType) -> DType:
    if isinstance(value, bool):
        return dtypes.bool_
    if isinstance(value, int):
        return dtypes.int64
    if isinstance(value, float):
        return default_float
    return dtypes.complex128 if default_float is dtypes.float64 else dtypes.complex64
