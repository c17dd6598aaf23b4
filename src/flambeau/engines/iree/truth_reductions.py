"""Reductions of a computed tensor to one truth value, along one dim.

WORKAROUND(iree==3.13): where booleans are computed and reduced along several dims, the compiler puts the computed ones
on the stack, whatever their number, and refuses the program. So the dims are made one first. Where their number is not
known it does so along one dim too, and a barrier is put before the reduction. It can go when
`test_a_truth_value_of_computed_positions` and `test_a_truth_value_of_an_unknown_number_of_positions` in
tests/engines/test_iree_bugs.py pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, ModuleOp, TensorType, i1
from xdsl.dialects.linalg.attrs import IteratorType
from xdsl.dialects.linalg.ops import GenericOp, IndexOp
from xdsl.ir import Operation
from xdsl.ir.affine import AffineMap

from flambeau.engines.iree.rewriting import Rewrite, builder_before, computed_once, dtype_of
from flambeau.lowering.builder import Tensor, i64_array
from flambeau.lowering.whole.values import shape_of

_IN_TOSA = ("tosa.reduce_all", "tosa.reduce_any")
"""Reductions that keep their dims, one by one."""


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if op.name in _IN_TOSA:
            if None in shape_of(op.operands[0]):
                yield op
            continue
        if isinstance(op, GenericOp):
            is_reduction = _is_plain(op)
        else:
            is_reduction = op.name == "stablehlo.reduce"
        if is_reduction and [v.type for v in op.results] == [TensorType(i1, [])] and len(shape_of(op.operands[0])) > 1:
            yield op


def _is_plain(op: GenericOp) -> bool:
    """Tell whether all dims of one tensor are reduced, and the body does not use its position."""
    return (
        len(op.inputs) == 1
        and all(kind.data is IteratorType.REDUCTION for kind in op.iterator_types)
        and op.indexing_maps.data[0].data == AffineMap.identity(len(op.iterator_types))
        and not any(isinstance(inner, IndexOp) for inner in op.body.walk())
    )


def _flatten(op: Any) -> None:
    """Collapse the operand, and compute it before if its size is not known; the body stays."""
    b = builder_before(op)
    x = Tensor(op.operands[0], dtype_of(op.operands[0]))
    if op.name in _IN_TOSA:
        op.operands[0] = computed_once(b, x).value
        return
    count = b.product(b.sizes(x))
    flat = b.reshape(x, [count])
    op.operands[0] = (flat if isinstance(count, int) else computed_once(b, flat)).value
    if isinstance(op, GenericOp):
        maps = (AffineMapAttr(AffineMap.identity(1)), AffineMapAttr(AffineMap(1, 0, ())))
        op.properties["indexing_maps"] = ArrayAttr(maps)
        op.properties["iterator_types"] = ArrayAttr(op.iterator_types.data[:1])
    else:
        op.properties["dimensions"] = i64_array((0,))


REWRITE = Rewrite(_found, _flatten)
