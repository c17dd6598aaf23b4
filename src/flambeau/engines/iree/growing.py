"""Loops whose tensors grow, which IREE computes with the sizes that they start with.

IREE 3.13 gives `scf.for` the type of what a loop starts with: where `tensor.cast` opens a size of the first value
(`tensor<2x1xf32>` to `tensor<2x?xf32>`), the cast is dropped, and what the body makes of it (a concatenation) is cast
back. The result has the first shape, and the last elements. As branches between blocks the same loops work.
"""

from __future__ import annotations

from xdsl.dialects import scf, tensor
from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType
from xdsl.ir import SSAValue

from flambeau.engines.iree.loops import Structured


def is_growing_loop(op: Structured) -> bool:
    """Tell whether a loop starts with a tensor of which a cast makes a size dynamic."""
    return isinstance(op, scf.ForOp) and any(_is_opened(value) for value in op.iter_args)


def _is_opened(value: SSAValue) -> bool:
    if not isinstance(value.owner, tensor.CastOp):
        return False
    before, after = value.owner.operands[0].type, value.type
    assert isinstance(before, TensorType)
    assert isinstance(after, TensorType)
    return any(
        old != DYNAMIC_INDEX and new == DYNAMIC_INDEX
        for old, new in zip(before.get_shape(), after.get_shape(), strict=True)
    )
