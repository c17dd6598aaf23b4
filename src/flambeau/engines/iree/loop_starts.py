"""Loops that start with a computed tensor: they start without contents, and their first turn reads the tensor itself.

WORKAROUND(iree==3.13): the compiler puts the tensors that two loops start with into one allocation, and forgets where
in it each begins: the second loop gets the tensor of the first, or both overlap. It can go when
`test_two_loops_that_start_with_computed_tensors` in tests/engines/test_iree_bugs.py passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xdsl.dialects import arith, scf, tensor
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import SSAValue

from flambeau.engines.iree.growing import is_growing_loop
from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of
from flambeau.lowering.builder import Tensor
from flambeau.lowering.linalg.builder import LinalgBuilder


def _found(module: ModuleOp) -> Iterator[scf.ForOp]:
    return (
        op for op in module.walk() if isinstance(op, scf.ForOp) and not is_growing_loop(op) and [*_computed_starts(op)]
    )


def _computed_starts(op: scf.ForOp) -> Iterator[int]:
    """The carried tensors that are computed before the loop."""
    for i, start in enumerate(op.iter_args):
        if isinstance(start.type, TensorType) and not isinstance(start.owner, tensor.EmptyOp):
            yield i


def _start_empty(op: scf.ForOp) -> None:
    b, body, following = builder_before(op), op.body.block, op.next_op
    assert body.first_op is not None
    assert following is not None
    inside, behind = builder_before(body.first_op), builder_before(following)
    is_first, runs = inside.compare("eq", body.args[0], op.lb), b.compare("slt", op.lb, op.ub)
    for i in list(_computed_starts(op)):
        start = Tensor(op.iter_args[i], dtype_of(op.iter_args[i]))
        op.operands[3 + i] = b.empty(b.sizes(start), start.dtype).value
        _choose(inside, is_first, start.value, body.args[1 + i], body.args[1 + i])
        _choose(behind, runs, op.results[i], start.value, op.results[i])


def _choose(b: LinalgBuilder, condition: Any, one: SSAValue, other: SSAValue, replaced: SSAValue) -> None:
    """Let the users of a value have one of two tensors instead."""
    uses = list(replaced.uses)
    chosen = b.value(arith.SelectOp, (condition, one, other), replaced.type)
    for use in uses:
        use.operation.operands[use.index] = chosen


REWRITE = Rewrite(_found, _start_empty)
