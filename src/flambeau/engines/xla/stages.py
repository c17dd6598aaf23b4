"""Programs in which a size depends on what tensors contain, in stages: XLA compiles for known sizes only.

    y = x[x > 0] * 2

The first stage counts: `count_nonzero(x > 0)`. Once the number is known, say 3, the mask becomes its three positions
(`nonzero_static` of size 3), all sizes behind it are known, and the program is one for XLA, or has a further stage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from flambeau.dialects.torch.ops import TorchOp
from flambeau.dialects.torch.types import TensorType
from flambeau.dialects.torch.values import ListConstructOp
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.ir.builder import erase
from flambeau.lowering.targets import get_target
from flambeau.passes.dead_code import eliminate_dead_code
from flambeau.passes.pipelines import infer_everything, to_backend_contract
from flambeau.passes.symbol_dce import functions_of

_NUMBERS = ("aten.Int.Tensor", "aten.item", "aten._local_scalar_dense")
"""Ops that read a number out of a tensor."""


def find_read(function: func.FuncOp) -> Operation | None:
    """Find the first op of a function whose result has a size, or is a number, that depends on contents; else None."""
    for op in function.body.block.ops:
        if isinstance(op, TorchOp) and (op.overload in ("aten.nonzero", "aten.masked_select") or _mask_of(op)):
            return op
        if isinstance(op, TorchOp) and op.overload in _NUMBERS and _is_integral(op.operands[0]):
            return op
    return None


def counting_stage(module: ModuleOp, name: str) -> ModuleOp:
    """Make the program in StableHLO that computes what the first such op of a function depends on: one number."""
    copy = module.clone()
    function = functions_of(copy)[name]
    op = find_read(function)
    assert isinstance(op, TorchOp)
    t = _before(op)
    number = op.operands[0] if op.overload in _NUMBERS else t.count_nonzero(_counted(t, op))
    number = t.to(t.reshape(number, []), dtypes.int64)
    block = function.body.block
    block.insert_op_before(func.ReturnOp(number), op)
    _cut(block, op)
    function.update_function_type()  # type: ignore[no-untyped-call]
    return get_target("stablehlo").lower(to_backend_contract(eliminate_dead_code(copy)), {})


def with_number(module: ModuleOp, name: str, number: int) -> ModuleOp:
    """Make the program that is left once the number is known, still in the torch dialect."""
    copy = module.clone()
    op = find_read(functions_of(copy)[name])
    assert isinstance(op, TorchOp)
    t = _before(op)
    op.results[0].replace_all_uses_with(_known(t, op, number))
    erase(op)
    return to_backend_contract(infer_everything(eliminate_dead_code(copy)))


def _known(t: TorchBuilder, op: TorchOp, number: int) -> SSAValue:
    """Build what an op gives if it counts to a number."""
    if op.overload in _NUMBERS:
        return t.constant(number)
    if op.overload == "aten.nonzero":
        return t.nonzero_static(op.operands[0], size=number)
    if op.overload == "aten.masked_select":
        x, mask = op.operands
        sizes = _broadcast(x, mask)
        at = t.squeeze(t.nonzero_static(t.reshape(t.expand(mask, sizes), [-1]), size=number), 1)
        return t.index_select(t.reshape(t.expand(x, sizes), [math.prod(sizes)]), 0, at)
    masked = _mask_of(op)
    indices: list[Any] = []
    for index in _indices(op):
        if index is masked:
            places = t.nonzero_static(index, size=number)
            indices += [t.select(places, 1, i) for i in range(_rank(index))]
        else:
            indices.append(index if isinstance(index.type, TensorType) else None)
    return t.call("aten.index.Tensor", op.operands[0], indices)


def _counted(t: TorchBuilder, op: TorchOp) -> SSAValue:
    """Return the mask that says how much an op gives."""
    if op.overload == "aten.nonzero":
        return op.operands[0]
    if op.overload == "aten.masked_select":
        x, mask = op.operands
        return t.expand(mask, _broadcast(x, mask))
    found = _mask_of(op)
    assert found is not None
    return found


def _mask_of(op: Operation) -> SSAValue | None:
    """Return the first mask among the indices that an op reads at; None for other ops."""
    if not isinstance(op, TorchOp) or op.overload != "aten.index.Tensor":
        return None
    return next((index for index in _indices(op) if _is_mask(index)), None)


def _indices(op: Operation) -> Sequence[SSAValue]:
    owner = op.operands[1].owner
    return list(owner.operands) if isinstance(owner, ListConstructOp) else []


def _is_mask(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype in (dtypes.bool_, dtypes.uint8)


def _is_integral(value: SSAValue) -> bool:
    dtype = value.type.dtype if isinstance(value.type, TensorType) else None
    return dtype is not None and dtype.is_integral


def _rank(value: SSAValue) -> int:
    assert isinstance(value.type, TensorType)
    return value.type.rank or 0


def _broadcast(x: SSAValue, y: SSAValue) -> list[int]:
    shapes = [value.type.shape for value in (x, y) if isinstance(value.type, TensorType)]
    return list(np.broadcast_shapes(*shapes))  # type: ignore[arg-type]


def _before(op: Operation) -> TorchBuilder:
    assert op.parent is not None
    t = TorchBuilder(op.parent)
    t.before, t.location = op, op.location
    return t


def _cut(block: Block, first: Operation) -> None:
    """Take an op and all that stand behind it out of a block."""
    ops = list(block.ops)
    for op in reversed(ops[ops.index(first) :]):
        erase(op)
