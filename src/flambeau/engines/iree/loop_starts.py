"""Loops that start with a computed tensor: they start without contents, and their first turn reads the tensor itself.

WORKAROUND(iree==3.13): the compiler puts the tensors that two loops start with into one allocation, and forgets where
in it each begins: the second loop gets the tensor of the first, or both overlap. It can go when
`test_two_loops_that_start_with_computed_tensors` in tests/engines/test_iree_bugs.py passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import arith, scf, tensor
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of
from flambeau.ir import dtypes
from flambeau.lowering.builder import Tensor
from flambeau.lowering.element import Element


def _found(module: ModuleOp) -> Iterator[scf.ForOp]:
    return (op for op in module.walk() if isinstance(op, scf.ForOp) and [*_starts(op)])


def _starts(op: scf.ForOp) -> Iterator[int]:
    """The carried tensors that are computed before the loop, and of which it only reads single elements."""
    for i, (start, carried) in enumerate(zip(op.iter_args, op.body.block.args[1:], strict=True)):
        is_computed = isinstance(start.type, TensorType) and not isinstance(start.owner, tensor.EmptyOp)
        if is_computed and all(isinstance(use.operation, tensor.ExtractOp) for use in carried.uses):
            yield i


def _start_empty(op: scf.ForOp) -> None:
    b = builder_before(op)
    body = op.body.block
    first_op = body.first_op
    assert first_op is not None
    inside = builder_before(first_op)
    is_first = inside.compare("eq", body.args[0], op.lb)
    runs = b.compare("slt", op.lb, op.ub)
    assert isinstance(is_first, SSAValue)
    assert isinstance(runs, SSAValue)
    following = op.next_op
    assert following is not None
    behind = builder_before(following)
    for i in list(_starts(op)):
        start = Tensor(op.iter_args[i], dtype_of(op.iter_args[i]))
        sizes = b.sizes(start)
        op.operands[3 + i] = b.empty(sizes, start.dtype).value
        for use in list(body.args[1 + i].uses):
            _read(use.operation, start, is_first)
        result = op.results[i]
        users = list(result.uses)
        made = behind.elementwise(
            [start, Tensor(result, start.dtype, sizes)],
            lambda old, new: Element(behind, runs, dtypes.bool_).select(new, old),
            start.dtype,
            sizes,
        )
        for use in users:
            use.operation.operands[use.index] = made.value


def _read(extract: Operation, start: Tensor, is_first: SSAValue) -> None:
    """Let the first turn take an element from the tensor that the loop started with."""
    block = extract.parent
    assert isinstance(block, Block)
    early = tensor.ExtractOp(start.value, extract.operands[1:], extract.results[0].type)
    choice = arith.SelectOp(is_first, early.results[0], extract.results[0])
    for new in (choice, early):
        new.location = extract.location
        block.insert_op_after(new, extract)
    for use in list(extract.results[0].uses):
        if use.operation is not choice:
            use.operation.operands[use.index] = choice.results[0]


REWRITE = Rewrite(_found, _start_empty)
