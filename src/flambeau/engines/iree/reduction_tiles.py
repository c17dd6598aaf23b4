"""Reductions of matrices along their rows or columns, with tiles of our own.

WORKAROUND(iree==3.13): the compiler reduces a row by as many elements at a time as a register has, and combines these
with one another in each step; most instructions are that. In steps of eight registers most of the work is from register
to register. Of columns it takes a few at a time, for which it goes through all rows; it takes more here. The largest
elements of 1000 rows of 1000 took 3.4 times PyTorch's time, and take 1.3 times; of columns 2.7, and take 0.8. It can go
when `bench/engine_bugs.py -k largest` finds it mended.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, IntAttr, ModuleOp, UnregisteredOp
from xdsl.dialects.func import FuncOp
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import GenericOp, IndexOp
from xdsl.dialects.tensor import DimOp, ExtractOp
from xdsl.ir import Operation, ParametrizedAttribute, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import irdl_attr_definition
from xdsl.printer import Printer

from flambeau.engines.iree.rewriting import Rewrite, dtype_of
from flambeau.engines.iree.serial_loops import is_dispatched
from flambeau.lowering.whole.values import shape_of

_ROW_STEP = 512
"""How many bytes of a row are taken at a time."""
_ROWS = 32
"""How many rows a thread takes."""
_COLUMN_STEP = 256
"""How many bytes of neighbouring columns are taken at a time."""
_COLUMN_STEPS = 2
"""How many of these a thread takes."""
_LEAST_COLUMN_STEPS = 8
"""How many there are at least; of fewer, what is left at the end is too much of the whole."""

_ROW_KINDS: tuple[IteratorType, ...] = (IteratorType.PARALLEL, IteratorType.REDUCTION)
_MAPS = {
    _ROW_KINDS: [AffineMap.identity(2), AffineMap.from_callable(lambda row, _: (row,))],
    _ROW_KINDS[::-1]: [AffineMap.identity(2), AffineMap.from_callable(lambda _, column: (column,))],
}
"""By the kinds of the loops: how the matrix and the result are read."""
_OF_COLUMNS = (AffineMap.from_callable(lambda i, j: (j, i)), AffineMap.from_callable(lambda i, _: (i,)))
"""The same with the loop that is reduced inside, as the compiler has it when it looks at the tiles."""


@irdl_attr_definition
class Tiles(ParametrizedAttribute):
    """`#iree_codegen.compilation_info<...>`: how a loop and one inside of it that is reduced are cut."""

    name = "iree_codegen.compilation_info"
    share: IntAttr
    """How much of the outer loop is for one thread."""
    outer: IntAttr
    inner: IntAttr

    def print_parameters(self, printer: Printer) -> None:
        share, outer, inner = self.share.data, self.outer.data, self.inner.data
        printer.print_string(
            f"<lowering_config = #iree_cpu.lowering_config<distribution = [{share}, 0], "
            f"vector_common_parallel = [{outer}, 0], vector_reduction = [0, {inner}]>, translation_info = "
            "#iree_codegen.translation_info<pipeline = #iree_cpu.pipeline<DoubleTilingExpert>, {enable_loop_peeling}>>"
        )


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if isinstance(op, GenericOp) and _is_of_matrix(op) and _tiles(op) is not None and not is_dispatched(op):
            yield op


def _kinds(op: GenericOp) -> tuple[IteratorType, ...]:
    return tuple(kind.data for kind in op.iterator_types)


def _is_of_matrix(op: GenericOp) -> bool:
    """Tell whether a loop nest reduces rows or columns of a matrix that is there before, and that nothing else reads.

    Where it is computed by another loop nest, or where something else reads it, as in a softmax, the compiler may do
    both at once, and must cut them its own way.
    """
    if [map_.data for map_ in op.indexing_maps] != _MAPS.get(_kinds(op)):
        return False
    x = op.inputs[0]
    return (
        1 not in shape_of(x)
        and _is_there(x)
        and not any(isinstance(inner, (IndexOp, ExtractOp)) for inner in op.body.walk())
    )


def _is_there(value: SSAValue) -> bool:
    """Tell whether a tensor is an argument, a weight, or the result of a dispatch, or part of one, and is read once."""
    if sum(not isinstance(use.operation, DimOp) for use in value.uses) != 1:
        return False
    op = value.owner
    if not isinstance(op, Operation):
        return isinstance(op.parent_op(), FuncOp)
    if op.name.startswith("tensor.") and op.operands:
        return _is_there(op.operands[0])
    return isinstance(op, (ConstantOp, UnregisteredOp))


def _tiles(op: GenericOp) -> Tiles | None:
    """Choose the tiles of a reduction; None if rows are shorter than a step, or of unknown length."""
    x = op.inputs[0]
    length, size = shape_of(x)[1], dtype_of(x).size
    is_of_rows = _kinds(op) == _ROW_KINDS
    if length is None or length * size < (_ROW_STEP if is_of_rows else _COLUMN_STEP * _LEAST_COLUMN_STEPS):
        return None
    step = (_ROW_STEP if is_of_rows else _COLUMN_STEP) // size
    numbers = (_ROWS, 1, step) if is_of_rows else (step * _COLUMN_STEPS, step, 1)
    return Tiles(*map(IntAttr, numbers))


def _cut(op: GenericOp) -> None:
    tiles = _tiles(op)
    assert tiles is not None
    if _kinds(op) != _ROW_KINDS:
        op.properties["indexing_maps"] = ArrayAttr(map(AffineMapAttr, _OF_COLUMNS))
        op.properties["iterator_types"] = ArrayAttr(map(IteratorTypeAttr, _ROW_KINDS))
    op.attributes["compilation_info"] = tiles


REWRITE = Rewrite(_found, _cut)
