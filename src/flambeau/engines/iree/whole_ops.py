"""Sorts, `top_k` and Fourier transforms of StableHLO, as the torch ops that they came from are lowered to linalg.

WORKAROUND(iree==3.13): `stablehlo.sort` is an insertion sort, 5 to 18 times as slow at 1,000 to 4,000 elements, in the
buffer of the caller; `chlo.top_k` passes NaN over; `stablehlo.fft` is taken for lengths that are powers of 2 only. It
can go when `test_a_fourier_transform_of_length_6`, `test_a_sort_of_an_argument` and
`test_the_largest_of_numbers_and_nan` in tests/engines/test_iree_bugs.py pass and a sort of 4,000 elements takes no
longer than ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, dtype_of, stablehlo_before
from flambeau.infer.builder import TorchBuilder, type_of
from flambeau.infer.rules import Meta
from flambeau.ir import dtypes
from flambeau.ir.builder import erase
from flambeau.ir.dtypes import DType
from flambeau.lowering.linalg.lower import lower_to_linalg
from flambeau.lowering.whole.values import shape_of


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if op.name in ("stablehlo.fft", "chlo.top_k") or (op.name == "stablehlo.sort" and _order(op) is not None):
            yield op


def _order(op: Operation) -> tuple[DType, bool] | None:
    """Return the dtype of what is sorted, with its positions, and whether it descends; None for other sorts."""
    block = op.regions[0].block
    compare = next((inner for inner in block.ops if inner.name == "stablehlo.compare"), None)
    if len(op.operands) != 2 or compare is None or any(position.uses for position in block.args[2:]):
        return None
    sides = [_unflipped(v) for v in compare.operands]
    if {*sides} != {*block.args[:2]}:
        return None
    direction: Any = compare.properties["comparison_direction"]
    own = dtype_of(op.operands[0])
    dtype = own if compare.operands[0] is sides[0] else _UNSIGNED[own]
    return dtype, (direction.data == "GT") != (sides[0] is block.args[1])


def _unflipped(value: SSAValue) -> SSAValue:
    """Undo the flip of an unsigned number's first bit, which makes it compare as a signed one."""
    owner = value.owner
    return owner.operands[0] if isinstance(owner, Operation) and owner.name == "stablehlo.xor" else value


_UNSIGNED = {
    dtypes.int8: dtypes.uint8, dtypes.int16: dtypes.uint16, dtypes.int32: dtypes.uint32, dtypes.int64: dtypes.uint64,
}  # fmt: skip


def _replace(op: Operation) -> None:
    if op.name == "stablehlo.sort":
        dimension: Any = op.properties["dimension"]
        order = _order(op)
        assert order is not None
        dtype, descending = order
        results = _lowered(op, "aten.sort", op.operands[:1], dimension.value.data, descending, dtype=dtype)
    elif op.name == "chlo.top_k":
        k: Any = op.properties["k"]
        values, positions = _lowered(op, "aten.topk", op.operands, k.value.data, -1, True, True)
        results = [values, stablehlo_before(op, "convert", [positions], op.results[1].type)]
    else:
        kind: Any = op.properties["fft_type"]
        length: Any = op.properties["fft_length"]
        dims, (last, *_) = [-1], length.get_values()
        name, *rest = {
            "FFT": ("aten._fft_c2c", 0, True), "IFFT": ("aten._fft_c2c", 2, False),
            "RFFT": ("aten._fft_r2c", 0, True), "IRFFT": ("aten._fft_c2r", 2, last),
        }[str(kind.data)]  # fmt: skip
        results = _lowered(op, str(name), op.operands, dims, *rest)
    for old, new in zip(op.results, results, strict=True):
        old.replace_all_uses_with(new)
    erase(op)


def _lowered(
    op: Operation, name: str, tensors: Sequence[SSAValue], *args: Any, dtype: DType | None = None
) -> list[SSAValue]:
    """Lower a torch op to linalg before another op; `dtype` tells unsigned from signed numbers."""
    types = [type_of(Meta(shape_of(v), dtype or dtype_of(v))) for v in tensors]
    block = Block(arg_types=types)
    t = TorchBuilder(block)
    made = t.call(name, *block.args, *args)
    results = list(made) if isinstance(made, tuple) else [made]
    t.emit(func.ReturnOp, results)
    function = func.FuncOp("body", FunctionType.from_lists(types, [v.type for v in results]), Region(block))
    (lowered,) = lower_to_linalg(ModuleOp([function])).ops
    assert isinstance(lowered, func.FuncOp)
    inner = lowered.body.block
    for argument, value in zip(inner.args, tensors, strict=True):
        argument.replace_all_uses_with(value)
    last = inner.last_op
    assert last is not None
    returned = list(last.operands)
    erase(last)
    assert op.parent is not None
    for moved in list(inner.ops):
        inner.detach_op(moved)
        moved.location = op.location
        op.parent.insert_op_before(moved, op)
    return returned


REWRITE = Rewrite(_found, _replace)
