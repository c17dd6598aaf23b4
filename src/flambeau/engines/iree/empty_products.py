"""Sums of no products, as what they start with.

WORKAROUND(iree==3.13): the compiler divides by zero when it picks tile sizes for a `linalg.matmul` that sums over an
empty dim. It can go when `test_a_product_over_an_empty_dim` in tests/engines/test_iree_bugs.py passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from flambeau.dialects.linalg_named import NamedOp
from flambeau.engines.iree.rewriting import Rewrite
from flambeau.lowering.whole.values import shape_of


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if isinstance(op, NamedOp) and any(0 in shape_of(v) for v in op.operands[:-1]):
            yield op


REWRITE = Rewrite(_found, lambda op: op.operands[-1])
