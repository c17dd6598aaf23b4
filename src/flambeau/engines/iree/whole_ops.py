"""Sorts and Fourier transforms of StableHLO, as the torch ops that they came from are lowered to linalg.

WORKAROUND(iree==3.13): `stablehlo.sort` is an insertion sort, 5 to 18 times as slow at 1,000 to 4,000 elements;
`stablehlo.fft` is taken for lengths that are powers of 2 only. It can go when `test_a_fourier_transform_of_length_6` in
tests/engines/test_iree_bugs.py passes and a sort of 4,000 elements takes no longer than ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, dtype_of
from flambeau.infer.builder import TorchBuilder, type_of
from flambeau.infer.rules import Meta
from flambeau.ir.builder import erase
from flambeau.lowering.linalg.lower import lower_to_linalg
from flambeau.lowering.whole.values import shape_of


def _found(module: ModuleOp) -> Iterator[Operation]:
    for op in module.walk():
        if op.name == "stablehlo.fft" or (op.name == "stablehlo.sort" and _direction(op) is not None):
            yield op


def _direction(op: Operation) -> str | None:
    """How a sort of elements and their positions compares; None for a sort of another kind."""
    block = op.regions[0].block
    first = block.first_op
    if len(op.operands) != 2 or first is None or first.name != "stablehlo.compare":
        return None
    direction: Any = first.properties["comparison_direction"]
    if any(position.uses for position in block.args[2:]):
        return None
    return str(direction.data) if {first.operands[0], first.operands[1]} == {*block.args[:2]} else None


def _replace(op: Operation) -> None:
    if op.name == "stablehlo.sort":
        dimension: Any = op.properties["dimension"]
        first = op.regions[0].block.first_op
        assert first is not None
        is_swapped = first.operands[0] is op.regions[0].block.args[1]
        descending = (_direction(op) == "GT") != is_swapped
        results = _lowered(op, "aten.sort", op.operands[:1], dimension.value.data, descending)
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


def _lowered(op: Operation, name: str, tensors: Sequence[SSAValue], *args: Any) -> list[SSAValue]:
    """The results of a torch op, lowered to linalg before another op."""
    types = [type_of(Meta(shape_of(v), dtype_of(v))) for v in tensors]
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
