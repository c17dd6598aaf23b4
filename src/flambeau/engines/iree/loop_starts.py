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
from xdsl.ir import Block, Region, SSAValue

from flambeau.engines.iree.growing import is_growing_loop
from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of
from flambeau.engines.iree.serial_loops import is_dispatched
from flambeau.lowering.builder import Tensor
from flambeau.lowering.linalg.builder import LinalgBuilder


def _found(module: ModuleOp) -> Iterator[scf.ForOp]:
    return (
        op
        for op in module.walk()
        if isinstance(op, scf.ForOp) and [*_computed_starts(op)] and not is_growing_loop(op) and not is_dispatched(op)
    )


def _computed_starts(op: scf.ForOp) -> Iterator[int]:
    """Yield the positions of the carried tensors that are computed before the loop."""
    for i, start in enumerate(op.iter_args):
        if isinstance(start.type, TensorType) and not isinstance(start.owner, tensor.EmptyOp):
            yield i


def _start_empty(op: scf.ForOp) -> None:
    """Start without contents. What does not run at all gives what it would have started with, by a branch."""
    b, body = builder_before(op), op.body.block
    assert body.first_op is not None
    inside = builder_before(body.first_op)
    starts, is_first = list(op.iter_args), inside.compare("eq", body.args[0], op.lb)
    runs = b.compare("slt", op.lb, op.ub)
    assert isinstance(runs, SSAValue)
    for i in list(_computed_starts(op)):
        start = Tensor(starts[i], dtype_of(starts[i]))
        op.operands[3 + i] = b.empty(b.sizes(start), start.dtype).value
        _choose(inside, is_first, start.value, body.args[1 + i])
    branch = scf.IfOp(runs, [v.type for v in op.results], Region(Block()), Region(Block([scf.YieldOp(*starts)])))
    branch.location = op.location
    assert op.parent is not None
    op.parent.insert_op_before(branch, op)
    for old, new in zip(op.results, branch.results, strict=True):
        old.replace_all_uses_with(new)
    op.parent.detach_op(op)
    branch.true_region.block.add_ops([op, scf.YieldOp(*op.results)])


def _choose(b: LinalgBuilder, condition: Any, start: SSAValue, carried: SSAValue) -> None:
    """Let what a turn reads be the start in the first one, and else what is carried."""
    uses = list(carried.uses)
    chosen = b.value(arith.SelectOp, (condition, start, carried), carried.type)
    for use in uses:
        use.operation.operands[use.index] = chosen


REWRITE = Rewrite(_found, _start_empty)
