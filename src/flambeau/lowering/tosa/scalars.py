"""Scalars, branches and loops of static programs as TOSA has them; `lowering/whole/scalars.py` has the walk.

TOSA's regions use nothing from outside of them: constants are repeated inside, and what else a region reads is an
operand of the branch, or is carried by the loop. `cf.assert`, for which TOSA has no word, takes elements of tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xdsl.dialects import cf, func
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects import tosa
from flambeau.ir.builder import erase
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.tosa.ops import TosaBuilder, TosaOps
from flambeau.lowering.whole.scalars import ScalarTwins, is_static
from flambeau.lowering.whole.values import element_of, shape_of

_SCALARS = ("arith.", "scf.", "tensor.from_elements")
_CONSTANTS = frozenset({"tosa.const", "tosa.const_shape"})
_STRUCTURED = frozenset({"tosa.cond_if", "tosa.while_loop"})


def scalars_to_tensors(module: ModuleOp, narrow: bool) -> ModuleOp:
    """Rewrite the functions of a module whose shapes are all known and whose scalars TOSA has, in place."""
    for function in list(module.ops):
        if isinstance(function, func.FuncOp) and is_static(function) and _has_scalars(function):
            copy = function.clone()
            try:
                _Scalars(copy, narrow).rewrite()
            except Unsupported:
                # Scalars may have types that TOSA lacks, 64-bit floats most of all: the function keeps all of them.
                continue
            for op in [op for op in copy.walk(region_first=True) if op.name in _STRUCTURED]:
                _isolate(op)
            for op in list(copy.body.block.ops):
                if op.name in _CONSTANTS and not op.results[0].uses:
                    erase(op)
            module.body.block.insert_op_before(copy, function)
            erase(function)
    return module


def _has_scalars(function: func.FuncOp) -> bool:
    """Tell whether there is something to rewrite: most programs have at most checks, which stay as they are."""
    return any(op.name.startswith(_SCALARS) for op in function.walk())


class _Scalars(ScalarTwins[TosaOps]):
    """The scalars of one function as tensors of TOSA."""

    def __init__(self, function: func.FuncOp, narrow: bool) -> None:
        super().__init__(TosaBuilder(function.body.block, lambda b: TosaOps(b, narrow)))

    def held(self, type_: Attribute) -> Attribute:
        return self.target.held(super().held(type_))

    def check(self, op: cf.AssertOp) -> None:
        self.keep(op)

    def extract(self, x: SSAValue, indices: Sequence[SSAValue]) -> SSAValue:
        shape, whole = shape_of(x), Tensor(x, self.b.dtype_of(element_of(x)))
        if all(n == 1 for n in shape):
            return self.target.reshape(x, [])
        ones: list[Size] = [1] * len(shape)
        if all(i in self.numbers for i in indices):
            return self.target.reshape(self.target.slice(whole, [self.numbers[i] for i in indices], ones, ones), [])
        with self.b.frame([]):
            return self.target.gather(whole, [self.twin(i) for i in indices], [])

    def join(self, parts: Sequence[SSAValue], type_: TensorType[Any]) -> SSAValue:
        flat = TensorType(type_.element_type, [len(parts)])
        rows = [self.target.reshape(p, [1]) for p in parts]
        return self.target.real(self.target.reshape(self.target.concatenate(rows, 0, flat), type_.get_shape()))

    def terminate(self, values: Sequence[SSAValue]) -> None:
        self.b.emit(tosa.op("yield"), values)

    def branch(self, condition: SSAValue, regions: Sequence[Region], types: Sequence[Attribute]) -> Operation:
        return self.b.emit(tosa.op("cond_if"), [condition], types, regions=regions)

    def loop(self, starts: Sequence[SSAValue], regions: Sequence[Region]) -> Operation:
        return self.b.emit(tosa.op("while_loop"), starts, [self.target.real(v).type for v in starts], regions=regions)


# --- Regions that use nothing from outside ---


def _isolate(op: Operation) -> None:
    """Let the regions of an op use nothing from outside. The ops inside of them are done already."""
    for region in op.regions:
        _repeat_constants(region.block)
    captured = list(dict.fromkeys(v for region in op.regions for v in _captured(region.block)))
    if not captured:
        return
    is_loop = op.name == "tosa.while_loop"
    for region in op.regions:
        block = region.block
        arguments = [block.insert_arg(v.type, len(block.args)) for v in captured]
        for value, argument in zip(captured, arguments, strict=True):
            _replace_within(block, value, argument)
        if is_loop and region is op.regions[1]:
            assert block.last_op is not None
            block.last_op.operands = [*block.last_op.operands, *arguments]
    types = [*op.result_types, *(v.type for v in captured if is_loop)]
    regions = [op.detach_region(region) for region in list(op.regions)]
    new = type(op).create(operands=[*op.operands, *captured], result_types=types, regions=regions, location=op.location)
    assert op.parent is not None
    op.parent.insert_op_before(new, op)
    for old, result in zip(op.results, new.results, strict=False):
        old.replace_all_uses_with(result)
    erase(op)


def _repeat_constants(block: Block) -> None:
    """Give a block constants of its own."""
    for value in dict.fromkeys(_captured(block)):
        if isinstance(value.owner, Operation) and value.owner.name in _CONSTANTS:
            copy = value.owner.clone()
            assert block.first_op is not None
            block.insert_op_before(copy, block.first_op)
            _replace_within(block, value, copy.results[0])


def _replace_within(block: Block, old: SSAValue, new: SSAValue) -> None:
    """Let the ops of a block, and those inside of them, use another value."""
    old.replace_uses_with_if(new, lambda use: _is_in(use.operation, block))


def _captured(block: Block) -> Iterator[SSAValue]:
    """Yield the values defined outside of a block that its ops, nested ones included, use."""
    for op in block.walk():
        for value in op.operands:
            home = value.owner if isinstance(value.owner, Block) else value.owner.parent
            if home is not None and home is not block and not _is_within(home, block):
                yield value


def _is_in(op: Operation, block: Block) -> bool:
    return op.parent is not None and (op.parent is block or _is_within(op.parent, block))


def _is_within(inner: Block, block: Block) -> bool:
    parent = inner.parent_op()
    return parent is not None and _is_in(parent, block)
