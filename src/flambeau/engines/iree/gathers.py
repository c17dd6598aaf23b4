"""Gathers from a slice, with a barrier between the two.

WORKAROUND(iree==3.13): the compiler reads such a `tosa.gather` from the tensor that the slice is of, and leaves a
conversion of the place that it reads unfinished where the slice is one of several along the last dim: "failed to
translate the MLIR LLVM dialect". Slices of dynamic size are right, and behind a barrier their sizes are not found. It
can go when `test_a_gather_from_a_slice` in tests/engines/test_iree_bugs.py passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp, UnregisteredOp
from xdsl.ir import Operation

from flambeau.engines.iree.rewriting import Rewrite
from flambeau.lowering.whole.values import shape_of

_BARRIER = UnregisteredOp.with_name("util.optimization_barrier")
_MOVES = frozenset({"tosa.reshape", "tosa.transpose"})


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if op.name == "tosa.gather" and None not in shape_of(op.operands[0]):
            source = op.operands[0].owner
            while isinstance(source, Operation) and source.name in _MOVES:
                source = source.operands[0].owner
            if isinstance(source, Operation) and source.name == "tosa.slice":
                yield op


def _set_apart(gather: Operation) -> None:
    values = gather.operands[0]
    barrier = _BARRIER.create(operands=[values], result_types=[values.type])
    barrier.location = gather.location
    assert gather.parent is not None
    gather.parent.insert_op_before(barrier, gather)
    gather.operands[0] = barrier.results[0]


REWRITE = Rewrite(_found, _set_apart)
