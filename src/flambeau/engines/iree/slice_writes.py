"""Slices that are written into an argument, or into the tensor that they are of, by choosing instead.

WORKAROUND(iree==3.13): the compiler writes such a `tensor.insert_slice` or `stablehlo.dynamic_update_slice` into the
buffer of the caller, and copies memory onto itself where the source is a part of the destination. It can go when
`test_a_slice_that_is_written_into_an_argument` and `test_a_slice_that_is_written_into_its_own_tensor` in
tests/engines/test_iree_bugs.py pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects import arith, func, tensor
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of, mixed
from flambeau.lowering.builder import INDEX, Size, Tensor
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.slices import insert_by_select

_VIEWS = frozenset({"tensor.cast", "tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice"})
_UPDATE = "stablehlo.dynamic_update_slice"
_CONSTANT = "stablehlo.constant"


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if op.name == _UPDATE:
            yield op
        elif isinstance(op, tensor.InsertSliceOp):
            into = _root(op.dest)
            if _is_kept(into) or _root(op.source) is into:
                yield op


def _root(value: SSAValue) -> SSAValue:
    """The tensor that a value is a part of, or has the elements of."""
    while isinstance(owner := value.owner, Operation) and owner.name in _VIEWS:
        value = owner.operands[0]
    return value


def _is_kept(value: SSAValue) -> bool:
    """Whether a tensor belongs to somebody else: an argument of the function, or a constant."""
    owner = value.owner
    return isinstance(owner, arith.ConstantOp) or (
        isinstance(owner, Block) and isinstance(owner.parent_op(), func.FuncOp)
    )


def _parts(op: Operation, b: LinalgBuilder) -> tuple[Tensor, Tensor, Sequence[Size], Sequence[Size]]:
    """Source, destination, starts and steps of a write."""
    if op.name == _UPDATE:
        into, source, *at = op.operands
        new, old = _tensor(source), _tensor(into)
        rooms = [b.sub(n, size) for n, size in zip(b.sizes(old), b.sizes(new), strict=True)]
        starts = [_start(b, v, room) for v, room in zip(at, rooms, strict=True)]
        return new, old, starts, [1] * len(starts)
    assert isinstance(op, tensor.InsertSliceOp)
    given = mixed(op.static_offsets, op.offsets), mixed(op.static_strides, op.strides)
    return _tensor(op.source), _tensor(op.dest), *given


def _start(b: LinalgBuilder, value: SSAValue, room: Size) -> Size:
    """Where an update begins: not so far behind that it would end outside."""
    if (known := _number(value)) is not None and isinstance(room, int):
        return min(max(known, 0), room)
    element = b.value(tensor.ExtractOp, (value,), value.type.element_type)  # type: ignore[attr-defined]
    return b.maximum(b.minimum(b.value(arith.IndexCastOp, (element,), INDEX), room), 0)


def _number(value: SSAValue) -> int | None:
    owner = value.owner
    attr = owner.properties.get("value") if isinstance(owner, Operation) and owner.name == _CONSTANT else None
    return int(attr.get_values()[0]) if isinstance(attr, DenseIntOrFPElementsAttr) else None


def _tensor(value: SSAValue) -> Tensor:
    return Tensor(value, dtype_of(value))


def _by_select(op: Operation) -> SSAValue:
    b = builder_before(op)
    return insert_by_select(b, *_parts(op, b)).value


REWRITE = Rewrite(_found, _by_select)
