"""Products of one row with a matrix of unknown width, as products of the transposed matrix with one column.

WORKAROUND(iree==3.13): with `--iree-global-opt-data-tiling` the row that results is padded to whole tiles, and
`iree-global-opt-simplify-pack-unpack` makes a reshape of what would cut the padding off again. What is summed over that
row then adds the padding up: attention of one query with keys of unknown number is wrong. A column is cut to its size.
It can go when `test_a_row_of_unknown_width_is_cut_to_its_size` in tests/engines/test_iree_bugs.py passes.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of
from flambeau.lowering.builder import Tensor
from flambeau.lowering.whole.values import shape_of


def _found(module: ModuleOp) -> Iterator[Operation]:
    return (op for op in module.walk() if op.name == "linalg.matmul" and shape_of(op.results[0]) == (1, None))


def _by_column(op: Operation) -> SSAValue:
    b = builder_before(op)
    row, matrix, init = (Tensor(v, dtype_of(v)) for v in op.operands)
    depth, width = b.sizes(matrix)
    column = b.reshape(row, [depth, 1])
    dtype = init.dtype
    out = b.named(
        "matmul",
        [b.transpose(matrix, [1, 0]), column],
        b.reshape(init, [width, 1]),
        lambda x, y, sum_: sum_ + x.to(dtype) * y.to(dtype),
    )
    return b.reshape(out, [1, width]).value


REWRITE = Rewrite(_found, _by_column)
