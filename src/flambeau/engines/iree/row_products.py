"""Products of few rows, or one column, with a matrix that is computed or an argument, as loops over its elements.

WORKAROUND(iree==3.13): `--iree-global-opt-data-tiling` packs the matrix into tiles, which is done once for weights, and
in every call for other matrices: five times what the product itself takes. The loops read each element once, in the
order of the memory; a sum along a row of it is taken in 64 lanes, which are added up at the end. They can go when
bench/engine_bugs.py says so of "a row with a matrix that is an argument".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.linalg.ops import TransposeOp
from xdsl.ir import Operation, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of
from flambeau.ir import dtypes
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.whole.values import shape_of

LANES = 64
FEW = 4
"""Up to so many rows."""
_LEAST = 1 << 12
"""Smaller matrices are packed in no time."""


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if op.name == "linalg.matmul" and dtype_of(op.results[0]) in (dtypes.float32, dtypes.float64):
            x, y = op.operands[:2]
            if (shape_of(x)[0] == 1 and _is_packed(y)) or (shape_of(y)[1] == 1 and _is_packed(x)):
                yield op


def _is_packed(matrix: SSAValue) -> bool:
    """Tell whether a matrix is packed in every call, and large enough for that to take long."""
    rows, columns = shape_of(matrix)
    return rows is not None and columns is not None and rows * columns >= _LEAST and not _is_constant(matrix)


def _is_constant(value: SSAValue) -> bool:
    """Tell whether a tensor is a constant, in any shape."""
    made = value.owner
    if isinstance(made, (TransposeOp, tensor.ExpandShapeOp, tensor.CollapseShapeOp, tensor.CastOp)):
        return _is_constant(made.operands[0])
    return isinstance(made, arith.ConstantOp)


def _replace(op: Operation) -> SSAValue:
    b = builder_before(op)
    left, right, init = (Tensor(v, dtype_of(v)) for v in op.operands)
    rows, width = b.sizes(init)
    depth, made = b.size(right, 0), right.value.owner
    if isinstance(width, int) and width == 1:
        result = _sums_of_rows(b, b.reshape(right, [1, depth]), left, b.reshape(init, [1, rows]), depth)
        return b.reshape(result, [rows, 1]).value
    if isinstance(made, TransposeOp):
        return _sums_of_rows(b, left, Tensor(made.operands[0], right.dtype), init, depth).value
    return _sum_of_rows(b, left, right, init).value


def _sum_of_rows(b: LinalgBuilder, x: Tensor, matrix: Tensor, init: Tensor) -> Tensor:
    """Multiply by adding up, for each row of x, the rows of the matrix, each times an element: Σ_k x[i, k] m[k, :]."""

    def add(at: list[Size], total: Tensor) -> list[Tensor]:
        k, i = at
        factor = b.load(x, [i, k]).to(init.dtype)

        def element(j: SSAValue, total: Tensor) -> list[Tensor]:
            term = factor * b.load(matrix, [k, j]).to(init.dtype)
            return [b.store(total, [i, j], b.load(total, [i, j]) + term)]

        return b.loop(0, b.size(matrix, 1), [total], element)

    return b.nest([b.size(matrix, 0), b.size(x, 0)], [init], add)[0]


def _sums_of_rows(b: LinalgBuilder, x: Tensor, matrix: Tensor, init: Tensor, depth: Size) -> Tensor:
    """Multiply by dot products of rows, Σ_k x[i, k] m[j, k], in `LANES` partial sums."""
    assert isinstance(depth, int)
    whole = depth // LANES * LANES

    def row(at: list[Size], out: Tensor) -> list[Tensor]:
        j, i = at
        lanes, zero = b.empty([LANES], init.dtype), b.element(0, init.dtype)
        lanes = b.loop(0, LANES, [lanes], lambda k, lanes: [b.store(lanes, [k], zero)])[0]

        def term(k: Size) -> Element:
            return b.load(x, [i, k]).to(init.dtype) * b.load(matrix, [j, k]).to(init.dtype)

        def block(number: SSAValue, lanes: Tensor) -> list[Tensor]:
            first = b.mul(number, LANES)

            def lane(k: SSAValue, lanes: Tensor) -> list[Tensor]:
                return [b.store(lanes, [k], b.load(lanes, [k]) + term(b.add(first, k)))]

            return b.loop(0, LANES, [lanes], lane)

        lanes = b.loop(0, depth // LANES, [lanes], block)[0]
        total: list[Any] = b.loop(0, LANES, [b.load(out, [i, j])], lambda k, total: [total + b.load(lanes, [k])])
        if whole < depth:
            total = b.loop(whole, depth, total, lambda k, total: [total + term(k)])
        return [b.store(out, [i, j], total[0])]

    return b.nest([b.size(init, 1), b.size(x, 0)], [init], row)[0]


REWRITE = Rewrite(_found, _replace)
