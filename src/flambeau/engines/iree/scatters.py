"""Scatters of rows: into a tensor of their own where sizes are static, in linalg where they are not.

WORKAROUND(iree==3.13): `stablehlo.scatter` writes in place, into the buffer of an argument even, which the updates may
be read from; it moves reshapes into the indices, whose shape it then finds wrong; and at dynamic sizes it gives wrong
numbers. So the updates are scattered into a constant, with a barrier before the indices, and the result is combined
with the operand; a dynamic scatter is sorted in linalg. It can go when `test_a_scatter_into_an_argument` in
tests/engines/test_iree_bugs.py passes, and tests/lowering/linalg/test_scatter.py without it on StableHLO.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, Region, SSAValue

from flambeau.dialects import stablehlo
from flambeau.engines.iree.rewriting import Rewrite, builder_before, computed_once, dtype_of, set_apart
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.linalg.scatter import scatter_rows
from flambeau.lowering.whole.values import shape_of

_ROWS = stablehlo.scatter_dimension_numbers(
    update_window_dims=(1,),
    inserted_window_dims=(0,),
    input_batching_dims=(),
    scatter_indices_batching_dims=(),
    scatter_dims_to_operand_dims=(0,),
    index_vector_dim=1,
)
"""Rows [updates, width] into [rows, width], at indices [updates, 1]."""

_Join = Callable[[Element, Element], Element]
_REDUCTIONS: dict[str, tuple[str | None, Callable[[DType], Any], _Join]] = {
    "return": (None, lambda _: 0, lambda _, new: new),
    "add": ("sum", lambda _: 0, lambda x, y: x + y),
    "multiply": ("prod", lambda _: 1, lambda x, y: x * y),
    "maximum": ("amax", lambda dtype: dtype.min, lambda x, y: x.maximum(y)),
    "minimum": ("amin", lambda dtype: dtype.max, lambda x, y: x.minimum(y)),
    "or": ("sum", lambda _: False, lambda x, y: x | y),
    "and": ("prod", lambda _: True, lambda x, y: x & y),
}
"""By the op that combines elements: the reduction's name in linalg's rule, its neutral element, what it does."""


def _combiner(op: Operation) -> str:
    first = op.regions[0].block.first_op
    assert first is not None
    return first.name.removeprefix("stablehlo.")


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if op.name == "stablehlo.scatter" and op.properties["scatter_dimension_numbers"] == _ROWS:
            if _combiner(op) in _REDUCTIONS:
                yield op


def _tensor(value: SSAValue) -> Tensor:
    return Tensor(value, dtype_of(value))


def _replace(op: Operation) -> SSAValue:
    b = builder_before(op)
    is_dynamic = any(None in shape_of(v) for v in op.operands)
    return (_sorted(b, op) if is_dynamic else _apart(b, op)).value


def _sorted(b: LinalgBuilder, op: Operation) -> Tensor:
    """The rows of a scatter by sorting the updates, which are computed once, before."""
    x, indices, updates = map(_tensor, op.operands)
    updates = computed_once(b, updates)

    def update(number: list[Size], position: list[Size]) -> Element:
        return b.load(updates, [number[0], position[1]])

    rows = b.to(b.reshape(indices, [b.size(indices, 0)]), dtypes.int64)
    return scatter_rows(b, x, [0], computed_once(b, rows), update, _REDUCTIONS[_combiner(op)][0])


def _apart(b: LinalgBuilder, op: Operation) -> Tensor:
    """The updates in a constant of neutral elements, joined with the operand."""
    x, _, updates = map(_tensor, op.operands)
    kind = _combiner(op)
    _, neutral, join = _REDUCTIONS[kind]
    sizes = b.sizes(x)
    alone = _scattered(b, op, b.full(sizes, neutral(x.dtype), x.dtype), updates)
    if kind != "return":
        return b.elementwise([x, alone], join, x.dtype, sizes)
    hits = b.full(b.sizes(updates), 1, dtypes.int32)
    hit = _scattered(b, op, b.full(sizes, 0, dtypes.int32), hits)
    return b.elementwise([hit, alone, x], lambda h, new, old: (h != 0).select(new, old), x.dtype, sizes)


def _scattered(b: LinalgBuilder, op: Operation, into: Tensor, updates: Tensor) -> Tensor:
    """The same scatter of other rows into another tensor."""
    region = op.regions[0].clone() if into.dtype is dtype_of(op.operands[0]) else _overwriting(into.dtype)
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


def _overwriting(dtype: DType) -> Region:
    """The region of a scatter in which the update wins."""
    block = Block(arg_types=[TensorType(dtype.builtin, [])] * 2)
    block.add_op(stablehlo.op("return").create(operands=[block.args[1]]))
    return Region(block)


REWRITE = Rewrite(_found, _replace)
