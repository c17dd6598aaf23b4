"""Gathers from a slice, with a barrier between the two.

WORKAROUND(iree==3.13): the compiler reads such a `tosa.gather` from the tensor that the slice is of, and leaves a
conversion of the place that it reads unfinished where the slice is one of several along the last dim: "failed to
translate the MLIR LLVM dialect". It can go when `test_a_gather_from_a_slice` in tests/engines/test_iree_bugs.py passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp, UnregisteredOp
from xdsl.ir import Operation

_BARRIER = UnregisteredOp.with_name("util.optimization_barrier")
_MOVES = frozenset({"tosa.reshape", "tosa.transpose"})


def has_gathers_from_slices(module: ModuleOp) -> bool:
    """Whether a program has such gathers."""
    return next(_found(module), None) is not None


def set_slices_apart(module: ModuleOp) -> ModuleOp:
    """Rewrite the module in place."""
    for gather in list(_found(module)):
        values = gather.operands[0]
        barrier = _BARRIER.create(operands=[values], result_types=[values.type])
        barrier.location = gather.location
        assert gather.parent is not None
        gather.parent.insert_op_before(barrier, gather)
        gather.operands[0] = barrier.results[0]
    return module


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if op.name == "tosa.gather":
            source = op.operands[0].owner
            while isinstance(source, Operation) and source.name in _MOVES:
                source = source.operands[0].owner
            if isinstance(source, Operation) and source.name == "tosa.slice":
                yield op
