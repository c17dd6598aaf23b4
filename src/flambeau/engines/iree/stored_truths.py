"""Loops that write truth values one by one: inside of them a truth value is a byte.

WORKAROUND(iree==3.13): the compiler stores a tensor of i1 that leaves a dispatch as bytes, and changes the type of the
tensor but not that of the element that a loop in the dispatch inserts: the program does not compile. So the loops that
`serial_loops` makes dispatches of carry tensors of i8. It can go when `test_a_loop_that_writes_truth_values` in
tests/engines/test_iree_bugs.py passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import arith, scf, tensor
from xdsl.dialects.builtin import ModuleOp, TensorType, i1, i8
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from flambeau.engines.iree.rewriting import Rewrite, builder_before
from flambeau.engines.iree.serial_loops import outermost_loops
from flambeau.ir import dtypes
from flambeau.lowering.builder import Tensor


def _is_of_truths(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and value.type.element_type == i1


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in outermost_loops(module):
        if any(map(_is_of_truths, op.results)):
            yield op


def _widen(op: scf.ForOp) -> None:
    """Carry bytes: what comes from before the loop is converted before it, and what it gives behind it."""
    inside = list(op.walk())
    made = [v for o in inside for v in (*o.results, *(a for r in o.regions for block in r.blocks for a in block.args))]
    _convert_what_comes_in(op, inside, set(made))
    _convert_results(op)
    for value in filter(_is_of_truths, made):
        assert isinstance(value.type, TensorType)
        Rewriter.replace_value_with_new_type(value, TensorType(i8, value.type.get_shape()))
    for inner in inside:
        if isinstance(inner, tensor.ExtractOp) and inner.result.type == i1 and not _is_of_truths(inner.tensor):
            _narrow_what_is_read(inner)
        elif isinstance(inner, tensor.InsertOp) and inner.scalar.type == i1:
            byte = arith.ExtUIOp(inner.scalar, i8)
            inner.parent_block().insert_op_before(byte, inner)  # type: ignore[union-attr]
            inner.operands[0] = byte.result


def _convert_what_comes_in(op: scf.ForOp, inside: list[Operation], made: set[SSAValue]) -> None:
    """Convert tensors from before the loop that it or one in it carries; what is only read stays as it is."""
    b = builder_before(op)
    for inner in inside:
        for index, value in enumerate(inner.operands):
            if _is_of_truths(value) and value not in made and not isinstance(inner, (tensor.ExtractOp, tensor.DimOp)):
                truths = Tensor(value, dtypes.bool_)
                is_empty = isinstance(value.owner, tensor.EmptyOp)
                converted = b.empty(b.sizes(truths), dtypes.int8) if is_empty else b.to(truths, dtypes.int8)
                inner.operands[index] = converted.value


def _convert_results(op: scf.ForOp) -> None:
    assert op.next_op is not None
    b = builder_before(op.next_op)
    for result in filter(_is_of_truths, op.results):
        uses = list(result.uses)
        if not uses:
            continue
        bytes_ = Tensor(result, dtypes.int8)
        truths = b.to(bytes_, dtypes.bool_).value
        for use in uses:
            use.operation.operands[use.index] = truths


def _narrow_what_is_read(read: tensor.ExtractOp) -> None:
    Rewriter.replace_value_with_new_type(read.result, i8)
    uses = list(read.result.uses)
    truth = arith.TruncIOp(read.result, i1)
    read.parent_block().insert_op_after(truth, read)  # type: ignore[union-attr]
    for use in uses:
        use.operation.operands[use.index] = truth.result


REWRITE = Rewrite(_found, _widen)
