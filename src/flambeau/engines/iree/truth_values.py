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

from flambeau.engines.iree.rewriting import builder_before
from flambeau.ir import dtypes
from flambeau.ir.builder import erase
from flambeau.lowering.whole.values import shape_of


def has_truth_values(module: ModuleOp) -> bool:
    """Whether a program makes tensors of single truth values."""
    return next(_found(module), None) is not None


def fill_truth_values(module: ModuleOp) -> ModuleOp:
    """Rewrite the module in place."""
    for op in list(_found(module)):
        b = builder_before(op)
        sizes = [size for size in shape_of(op.results[0]) if size is not None]
        filled = b.fill(b.empty(sizes, dtypes.bool_), op.operands[0])
        op.results[0].replace_all_uses_with(filled.value)
        erase(op)
    return module


def _found(module: ModuleOp) -> Iterator[FromElementsOp]:
    for op in module.walk():
        if isinstance(op, FromElementsOp) and len(op.operands) == 1 and op.operands[0].type == i1:
            yield op
