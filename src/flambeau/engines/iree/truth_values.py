"""Tensors that are made of one truth value, filled instead.

WORKAROUND(iree==3.13): the compiler computes an elementwise op of `tensor.from_elements %truth : tensor<i1>` on that
value alone, and then makes the tensor of its type instead of the result's: the program does not compile. It does not do
so with `linalg.fill`. It can go when `test_a_tensor_that_is_made_of_a_truth_value` in tests/engines/test_iree_bugs.py
passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp, i1
from xdsl.dialects.tensor import FromElementsOp
from xdsl.ir import SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before
from flambeau.ir import dtypes
from flambeau.lowering.whole.values import shape_of


def _found(module: ModuleOp) -> Iterator[FromElementsOp]:
    for op in module.walk():
        if isinstance(op, FromElementsOp) and len(op.operands) == 1 and op.operands[0].type == i1:
            yield op


def _filled(op: FromElementsOp) -> SSAValue:
    b = builder_before(op)
    sizes = [size for size in shape_of(op.results[0]) if size is not None]
    return b.fill(b.empty(sizes, dtypes.bool_), op.operands[0]).value


REWRITE = Rewrite(_found, _filled)
