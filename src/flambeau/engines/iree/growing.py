"""Loops whose tensors grow, which IREE computes with the sizes that they start with.

IREE 3.13 gives `scf.for` the type of what a loop starts with: where `tensor.cast` opens a size of the first value
(`tensor<2x1xf32>` to `tensor<2x?xf32>`), the cast is dropped, and what the body makes of it (a concatenation) is cast
back. The result has the first shape, and the last elements. As branches between blocks the same loops work.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType

from flambeau.engines.iree.loops import Structured


def is_growing_loop(op: Structured) -> bool:
    """Whether a loop carries a tensor that may change its size."""
    return isinstance(op, scf.ForOp) and any(
        isinstance(r.type, TensorType) and DYNAMIC_INDEX in r.type.get_shape() for r in op.results
    )
