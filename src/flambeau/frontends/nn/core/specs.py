"""The type of an argument of a traced function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flambeau.frontends.nn.core.values import as_dtype

if TYPE_CHECKING:
    from flambeau.ir.dtypes import DType


@dataclass(frozen=True, init=False)
class TensorSpec:
    """A tensor of this shape and dtype: `TensorSpec([None, 10], "f32")`. None is a size that the run time knows."""

    shape: tuple[int | None, ...]
    dtype: DType

    def __init__(self, shape: Sequence[int | None], dtype: Any = "float32") -> None:
        found = as_dtype(dtype)
        if found is None:
            raise TypeError(f"argument 'dtype' must be dtype, not {dtype!r}")
        for d in shape:
            if d is not None and (not isinstance(d, int) or d < 0):
                raise TypeError(f"argument 'shape' must be a list of sizes or None, not {shape!r}")
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "dtype", found)
