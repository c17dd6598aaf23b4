"""Programs as a GPU runs them best: products that give 16 bits, cuDNN's attention, and checks that nobody waits for.

The program that is saved, and that other devices run, stays as it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType
from xdsl.ir import Block, Operation, Region, SSAValue

from flambeau.engines.xla.attention import ATTENTION, fuse_attention
from flambeau.engines.xla.checks import is_check
from flambeau.engines.xla.halves import PRODUCTS, choose_in_halves, round_products
from flambeau.engines.xla.values import shape_of
from flambeau.ir.printing import generic_text
from flambeau.lowering.targets import get_target
from flambeau.passes.dead_code import eliminate_dead_code
from flambeau.passes.pipelines import to_backend_contract
from flambeau.passes.symbol_dce import eliminate_dead_symbols, functions_of

_SLOW = {*PRODUCTS, "stablehlo.custom_call", "stablehlo.composite", "func.call", "stablehlo.fft", "stablehlo.sort"}
_LARGE = 1 << 22
"""A check that computes a tensor of more elements than this is left where it is."""


@dataclass(frozen=True)
class GpuProgram:
    """A function as it is compiled for a GPU."""

    text: str
    """A module whose only public function is `@main`."""
    checks: str = ""
    """A module whose `@main` computes the number of the first check that fails; empty if `text` does, or none can."""
    reads: tuple[int, ...] = ()
    """Which of the function's arguments `checks` takes."""


def for_gpu(module: ModuleOp, splits: bool) -> GpuProgram:
    """Make the program for a GPU of one whose only function is `@main`, which is rewritten in place.

    `splits` says that the last result is the number of the first check that fails, and is wanted early. What checks
    depend on is mostly arguments, so that they are a small program of their own: its number is there long before the
    results are, and who calls need not wait for those.
    """
    round_products(module)
    choose_in_halves(module)
    fuse_attention(module)
    eliminate_dead_code(module)
    function = functions_of(module)["main"]
    found = _split(function) if splits else None
    text = generic_text(eliminate_dead_symbols(module))
    return GpuProgram(text, *found) if found else GpuProgram(text)


def with_attention(module: Any) -> ModuleOp:
    """Return the IR of a module of StableHLO with attention as composites, if it can be lowered anew; else as it is."""
    if module.origin is None or not any(is_attention(op) for op in module.origin.op.walk()):
        return module.op
    composites = (op for op in module.op.walk() if op.name == "stablehlo.composite" and not is_check(op))
    kept = {ATTENTION, *map(_name, composites)}
    contract = to_backend_contract(module.origin.op.clone(), tuple(kept))
    return get_target("stablehlo").lower(contract, module.options or {}, tuple(kept))


def is_attention(op: Operation) -> bool:
    """Tell whether an op of the torch dialect is attention."""
    return getattr(op, "overload", "") == ATTENTION


def _name(op: Operation) -> str:
    name = op.properties["name"]
    assert isinstance(name, StringAttr)
    return name.data


def _split(function: func.FuncOp) -> tuple[str, tuple[int, ...]] | None:
    """Take the last result out of a function, in place, and print what computes it; None if that would take long."""
    end = function.get_return_op()
    assert end is not None
    number = end.operands[-1]
    needed = _needed(number)
    if needed is None:
        return None
    block = function.body.block
    reads = tuple(i for i, argument in enumerate(block.args) if argument in needed[1])
    alone = Block(arg_types=[block.args[i].type for i in reads])
    mapping: dict[SSAValue, SSAValue] = {block.args[i]: a for i, a in zip(reads, alone.args, strict=True)}
    alone.add_ops([op.clone(mapping) for op in block.ops if op in needed[0]])
    alone.add_op(func.ReturnOp(mapping[number]))
    types: Any = [a.type for a in alone.args], [number.type]
    end.operands = list(end.operands[:-1])
    function.update_function_type()  # type: ignore[no-untyped-call]
    return generic_text(ModuleOp([func.FuncOp("main", types, Region(alone))])), reads


def _needed(value: SSAValue) -> tuple[set[Operation], set[SSAValue]] | None:
    """Find the ops and arguments of a function that a value depends on; None if any of them may take long."""
    ops: set[Operation] = set()
    arguments: set[SSAValue] = set()
    pending = [value]
    while pending:
        found = pending.pop()
        owner = found.owner
        if isinstance(owner, Block):
            arguments.add(found)
        elif owner not in ops:
            if any(_is_slow(op) for op in owner.walk()):
                return None
            ops.add(owner)
            pending += _inputs(owner)
    return ops, arguments


def _is_slow(op: Operation) -> bool:
    sizes = [shape_of(r) for r in op.results if isinstance(r.type, TensorType)]
    return op.name in _SLOW or any(math.prod(shape) > _LARGE for shape in sizes)


def _inputs(op: Operation) -> Iterator[SSAValue]:
    """Yield the values from outside that an op uses, in its regions too."""
    inside = set(op.walk())
    for inner in inside:
        for operand in inner.operands:
            owner = operand.owner
            place = owner if isinstance(owner, Operation) else owner.parent_op()
            if place not in inside:
                yield operand
