"""Scatters of rows: into a tensor of their own where sizes are static, in linalg where they are not.

WORKAROUND(iree==3.13): `stablehlo.scatter` writes in place, into the buffer of an argument even, which the updates may
be read from; it moves reshapes into the indices, whose shape it then finds wrong; and at dynamic sizes it gives wrong
numbers. So the updates are scattered into a constant, with a barrier before the indices, and the result is combined
with the operand; a dynamic scatter is sorted in linalg. It can go when `test_a_scatter_into_an_argument` in
tests/engines/test_iree_bugs.py passes, and tests/lowering/linalg/test_scatter.py without it on StableHLO.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from flambeau.dialects import stablehlo
from flambeau.engines.iree.rewriting import Rewrite, builder_before, computed_once, dtype_of, set_apart
from flambeau.engines.iree.stablehlo_ops import kind_of
from flambeau.ir import dtypes
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.combining import JOINS, neutral
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.linalg.scatter import scatter_rows
from flambeau.lowering.stablehlo.ops import ROWS, overwriting
from flambeau.lowering.whole.values import shape_of

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin", None: None}
"""PyTorch's names of the kinds of `JOINS`."""


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if op.name == "stablehlo.scatter" and op.properties["scatter_dimension_numbers"] == ROWS:
            if _combine(op) in _REDUCTIONS:
                yield op


def _combine(op: Operation) -> str | None:
    """Return how a scatter combines; None where the update wins. Of booleans, `or` is add and `and` is mul."""
    kind = kind_of(op)
    if kind is None:
        return None if len(op.regions[0].block.ops) == 1 else "more than one op"
    return {"or": "add", "and": "mul"}.get(kind, kind) if dtype_of(op.operands[0]).is_bool else kind


def _tensor(value: SSAValue) -> Tensor:
    return Tensor(value, dtype_of(value))


def _replace(op: Operation) -> SSAValue:
    b = builder_before(op)
    is_dynamic = any(None in shape_of(v) for v in op.operands)
    return (_sorted(b, op) if is_dynamic else _apart(b, op)).value


def _sorted(b: LinalgBuilder, op: Operation) -> Tensor:
    """Lower a scatter of rows by sorting the updates, which are computed once, before."""
    x, indices, updates = map(_tensor, op.operands)
    updates = computed_once(b, updates)

    def update(number: list[Size], position: list[Size]) -> Element:
        return b.load(updates, [number[0], position[1]])

    rows = b.to(b.reshape(indices, [b.size(indices, 0)]), dtypes.int64)
    return scatter_rows(b, x, [0], computed_once(b, rows), update, _REDUCTIONS[_combine(op)])


def _apart(b: LinalgBuilder, op: Operation) -> Tensor:
    """Scatter into a constant of neutral elements, then combine that with the operand."""
    x, _, updates = map(_tensor, op.operands)
    kind, sizes = _combine(op), b.sizes(x)
    alone = _scattered(b, op, b.full(sizes, neutral(kind, x.dtype), x.dtype), updates)
    if kind is not None:
        return b.elementwise([x, alone], JOINS[kind], x.dtype, sizes)
    hits = b.full(b.sizes(updates), 1, dtypes.int32)
    hit = _scattered(b, op, b.full(sizes, 0, dtypes.int32), hits)
    return b.elementwise([hit, alone, x], lambda h, new, old: (h != 0).select(new, old), x.dtype, sizes)


def _scattered(b: LinalgBuilder, op: Operation, into: Tensor, updates: Tensor) -> Tensor:
    """Emit the same scatter of other rows into another tensor."""
    region = op.regions[0].clone() if into.dtype is dtype_of(op.operands[0]) else overwriting(into.dtype)
    new = stablehlo.op("scatter").create(
        operands=(into.value, op.operands[1], updates.value),
        result_types=[into.value.type],
        properties=dict(op.properties),
        regions=[region],
        location=op.location,
    )
    b.insert(new)
    set_apart(new, 1)
    return Tensor(new.results[0], into.dtype)


REWRITE = Rewrite(_found, _replace)
