"""Transposes of sums of many shifted tensors, with a barrier before them.

WORKAROUND(iree==3.13): the compiler computes such a sum, which is what a depthwise convolution is, in the loops of the
transpose behind it. Along the last of these it reads every summand at a distance, and nothing is vectorised: 17 times
PyTorch's time in ConvNeXt's blocks. It can go when bench/engine_bugs.py says so of "a sum of taps
that is transposed".
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from flambeau.engines.iree.rewriting import Rewrite, builder_before, computed_once, dtype_of
from flambeau.lowering.builder import Tensor

_MANY = 8
"""How many tensors are summed at least in what counts as many."""

_RESHAPES = frozenset({"tensor.collapse_shape", "tensor.expand_shape"})


def _found(module: ModuleOp) -> Iterator[Operation]:
    return (op for op in module.walk() if op.name == "linalg.transpose" and _is_sum_of_many(op.operands[0].owner))


def _is_sum_of_many(op: object) -> bool:
    """Tell whether an op sums many tensors, or is elementwise on one that does, such as adding a bias."""
    while isinstance(op, Operation):
        if op.name == "linalg.generic" and len(op.operands) > _MANY:
            return True
        if op.name not in _RESHAPES and not (op.name == "linalg.generic" and len(op.operands) <= 3):
            return False
        op = op.operands[0].owner
    return False


def _set_apart(op: Operation) -> None:
    source = op.operands[0]
    op.operands[0] = computed_once(builder_before(op), Tensor(source, dtype_of(source))).value


REWRITE = Rewrite(_found, _set_apart)
