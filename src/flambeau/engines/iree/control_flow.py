"""Branches and loops of StableHLO and TOSA as those of `scf`, for which this folder has rewrites already.

Integers and truth values that they carry as tensors without dims are numbers then, and a loop that counts is an
`scf.for`.

WORKAROUND(iree==3.13): the compiler gets the buffers wrong of truth values that branches give in loops, so that the
program fails when it runs. It can go when `test_a_truth_value_of_a_branch_in_a_loop` in tests/engines/test_iree_bugs.py
passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xdsl.dialects import arith, scf, tensor
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp, TensorType, i1, i32, i64
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

from flambeau.engines.iree.rewriting import Rewrite, builder_before
from flambeau.ir.builder import erase
from flambeau.lowering.builder import INDEX, tensor_type
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.whole.values import shape_of

_CONSTANT = "stablehlo.constant"
_COUNT = tensor_type((), i64)
_BRANCHES = frozenset({"stablehlo.if", "tosa.cond_if"})
_LOOPS = frozenset({"stablehlo.while", "tosa.while_loop"})


def _found(module: ModuleOp) -> Iterator[Operation]:
    return (op for op in module.walk() if op.name in _BRANCHES | _LOOPS)


def _structured(op: Operation) -> None:
    b = builder_before(op)
    if op.name in _BRANCHES:
        results = _branch(b, op)
    elif (bound := _bound(op)) is not None:
        results = _counted(b, op, bound)
    else:
        results = _loop(b, op)
    for old, new in zip(op.results, results, strict=True):
        old.replace_all_uses_with(_as_tensor(b, new, old.type))
    erase(op)


def _branch(b: LinalgBuilder, op: Operation) -> Sequence[SSAValue]:
    for region in op.regions:
        for argument, given in zip(list(region.block.args), op.operands[1:], strict=True):
            argument.replace_all_uses_with(given)
            region.block.erase_arg(argument)
        _yield(region.block)
    return b.emit(scf.IfOp, [_flag(b, op.operands[0])], _types(op.results), regions=_detached(op)).results


def _loop(b: LinalgBuilder, op: Operation) -> Sequence[SSAValue]:
    condition, body = (region.block for region in op.regions)
    for block in (condition, body):
        _take_numbers(block)
    last = _last(condition)
    inside = builder_before(last)
    inside.emit(scf.ConditionOp, [_flag(inside, last.operands[0]), *condition.args])
    erase(last)
    _yield(body)
    return b.emit(scf.WhileOp, _numbers(b, op.operands), _types(op.results), regions=_detached(op)).results


def _flag(b: LinalgBuilder, condition: SSAValue) -> SSAValue:
    """Extract the one element of a condition; TOSA's may have dims."""
    return b.value(tensor.ExtractOp, (condition, *[b.index(0)] * len(shape_of(condition))), i1)


# --- Loops that count ---


def _bound(op: Operation) -> SSAValue | None:
    """Return the bound of a loop that counts up by 1: its first carried value is compared to it (LT); else None."""
    condition, body = (region.block for region in op.regions)
    first, last = condition.first_op, _last(condition)
    if first is None or first.name != "stablehlo.compare" or first.next_op is not last:
        return None
    direction: Any = first.properties["comparison_direction"]
    position, bound = first.operands
    if direction.data != "LT" or position is not condition.args[0] or last.operands[0] is not first.results[0]:
        return None
    if position.type != _COUNT or (isinstance(bound, BlockArgument) and bound.block is condition):
        return None
    add = _last(body).operands[0].owner
    is_counted = isinstance(add, Operation) and add.name == "stablehlo.add" and add.operands[0] is body.args[0]
    return bound if is_counted and _is_one(add.operands[1]) else None  # type: ignore[union-attr]


def _is_one(value: SSAValue) -> bool:
    owner = value.owner
    attr = owner.properties.get("value") if isinstance(owner, Operation) and owner.name == _CONSTANT else None
    return isinstance(attr, DenseIntOrFPElementsAttr) and set(attr.get_values()) == {1}


def _counted(b: LinalgBuilder, op: Operation, bound: SSAValue) -> Sequence[SSAValue]:
    """Let `scf.for` count, in an index. Behind the loop, the count is the upper bound or the greater start."""
    body = op.regions[1].block
    _take_numbers(body)
    last, count = _last(body), body.args[0]
    inside = builder_before(_first(body))
    count.replace_all_uses_with(inside.value(arith.IndexCastOp, (body.insert_arg(INDEX, 0),), i64))
    body.erase_arg(count)
    last.operands = last.operands[1:]
    _yield(body)
    start, end, *carried = _numbers(b, [op.operands[0], bound, *op.operands[1:]])
    bounds = [b.value(arith.IndexCastOp, (v,), INDEX) for v in (start, end)]
    types = [v.type for v in carried]
    loop = b.emit(scf.ForOp, [*bounds, b.index(1), *carried], types, regions=_detached(op)[1:])
    return [b.value(arith.MaxSIOp, (start, end), i64), *loop.results]


# --- Tensors without dims as numbers ---


def _is_number(type_: Attribute) -> bool:
    """Tell whether a tensor stands for a Python integer or bool; IREE computes 64-bit floats on tensors only."""
    return isinstance(type_, TensorType) and not type_.get_shape() and type_.element_type in (i1, i32, i64)


def _types(values: Sequence[SSAValue]) -> list[Attribute]:
    return [_element(v.type) if _is_number(v.type) else v.type for v in values]


def _element(type_: Attribute) -> Attribute:
    assert isinstance(type_, TensorType)
    element: Attribute = type_.element_type
    return element


def _numbers(b: LinalgBuilder, values: Sequence[SSAValue]) -> list[SSAValue]:
    """Replace 0-d tensors among values by their elements."""
    return [b.value(tensor.ExtractOp, (v,), _element(v.type)) if _is_number(v.type) else v for v in values]


def _as_tensor(b: LinalgBuilder, value: SSAValue, type_: Attribute) -> SSAValue:
    return value if value.type == type_ else b.value(tensor.FromElementsOp, (value,), type_)


def _take_numbers(block: Block) -> None:
    """Let a block take numbers, of which it makes tensors."""
    b = builder_before(_first(block))
    for old in list(block.args):
        if _is_number(old.type):
            new = block.insert_arg(_element(old.type), old.index)
            old.replace_all_uses_with(_as_tensor(b, new, old.type))
            block.erase_arg(old)


def _first(block: Block) -> Operation:
    assert block.first_op is not None
    return block.first_op


def _last(block: Block) -> Operation:
    assert block.last_op is not None
    return block.last_op


def _yield(block: Block) -> None:
    last = _last(block)
    b = builder_before(last)
    b.emit(scf.YieldOp, _numbers(b, last.operands))
    erase(last)


def _detached(op: Operation) -> list[Region]:
    return [op.detach_region(region) for region in list(op.regions)]


REWRITE = Rewrite(_found, _structured)
