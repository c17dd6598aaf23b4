"""Slices that are written into an argument, or into the tensor that they are of, by choosing instead.

WORKAROUND(iree==3.13): the compiler writes such a `tensor.insert_slice` or `stablehlo.dynamic_update_slice` into the
buffer of the caller, copies memory onto itself where the source is a part of the destination, and where the destination
is computed of constants or read by others too, writes before these have read it. It can go when
`test_a_slice_that_is_written_into_an_argument`, `test_a_slice_that_is_written_into_its_own_tensor`,
`test_a_slice_that_is_written_into_a_constant` and `test_slices_that_are_written_into_a_tensor_that_is_read_as_well` in
tests/engines/test_iree_bugs.py pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from xdsl.dialects import arith, func, tensor
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before, dtype_of, mixed
from flambeau.lowering.builder import INDEX, Size, Tensor
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.slices import insert_by_select

_VIEWS = frozenset(
    {
        "stablehlo.reshape",
        "stablehlo.slice",
        "stablehlo.dynamic_slice",
        "tensor.cast",
        "tensor.expand_shape",
        "tensor.collapse_shape",
        "tensor.extract_slice",
    }
)
_UPDATE = "stablehlo.dynamic_update_slice"
_CONSTANT = "stablehlo.constant"
_CONSTANTS = ("arith.constant", _CONSTANT)


def _found(module: ModuleOp) -> Iterator[Operation]:
    constants = _constants(module)
    for op in module.walk():
        is_write = isinstance(op, tensor.InsertSliceOp) and _is_dangerous(op.source, op.dest, constants)
        if op.name == _UPDATE or is_write:
            yield op


def _is_dangerous(source: SSAValue, into: SSAValue, constants: set[SSAValue]) -> bool:
    """Tell whether a write would go to a tensor of somebody else's, or to the one that its source is a part of.

    One that depends on no argument counts too: IREE writes into it before others have read it.
    """
    root = _root(into)
    return _is_kept(root) or _root(source) is root or root in constants or _is_read_elsewhere(into)


def _is_read_elsewhere(into: SSAValue) -> bool:
    """Tell whether anybody reads a tensor that was computed, or a view of it, besides the one write into it.

    What a loop carries is written in order: the loop says which reads come before.
    """
    value, is_read = into, False
    while True:
        is_read |= len(list(value.uses)) > 1
        owner = value.owner
        if not isinstance(owner, Operation):
            return False
        if owner.name not in _VIEWS:
            return is_read
        value = owner.operands[0]


@lru_cache(maxsize=1)
def _constants(module: ModuleOp) -> set[SSAValue]:
    """Find the values that depend on no argument; what is carried by a loop counts as one."""
    found: set[SSAValue] = set()
    for function in module.ops:
        for op in (op for region in function.regions for block in region.blocks for op in block.ops):
            inside = {v for inner in op.walk() for v in (*inner.results, *_arguments(inner))}
            if all(v in found or v in inside for inner in op.walk() for v in inner.operands):
                found.update(op.results)
    return found


def _arguments(op: Operation) -> list[SSAValue]:
    return [v for region in op.regions for block in region.blocks for v in block.args]


def _module_of(op: Operation) -> ModuleOp:
    while (parent := op.parent_op()) is not None:
        op = parent
    assert isinstance(op, ModuleOp)
    return op


def _root(value: SSAValue) -> SSAValue:
    """Follow views to the tensor that a value is a part of, or has the elements of."""
    while isinstance(owner := value.owner, Operation) and owner.name in _VIEWS:
        value = owner.operands[0]
    return value


def _is_kept(value: SSAValue) -> bool:
    """Tell whether a tensor belongs to somebody else: an argument of the function, or a constant."""
    owner = value.owner
    return (isinstance(owner, Operation) and owner.name in _CONSTANTS) or (
        isinstance(owner, Block) and isinstance(owner.parent_op(), func.FuncOp)
    )


def _parts(op: Operation, b: LinalgBuilder) -> tuple[Tensor, Tensor, Sequence[Size], Sequence[Size]]:
    """Return source, destination, starts and steps of a write."""
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
    """Clamp the start of an update so that it ends inside, as StableHLO does."""
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


def _written(op: Operation) -> SSAValue:
    """Write a slice by choosing; a `stablehlo.dynamic_update_slice` that is not dangerous as an insertion."""
    b, constants = builder_before(op), _constants(_module_of(op))
    source, into, starts, steps = _parts(op, b)
    if op.name == _UPDATE and not _is_dangerous(op.operands[1], op.operands[0], constants):
        return b.insert_slice(source, into, starts, steps).value
    new = insert_by_select(b, source, into, starts, steps).value
    if op.results[0] in constants:
        constants.add(new)
    return new


REWRITE = Rewrite(_found, _written)
