"""Thread the state of the random numbers through a program: an argument, and its new value as the last result.

The state is five words of 32 bits: the seed's two halves, the two halves of a counter of draws, and the number of the
stream. An op draws from the generator Philox 4x32-10 at (counter + draws before it in this call, stream, element), so
each number is a function of the state and of its place alone: it does not matter what computes it, or in what order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic, Unsupported, diagnostic_for
from flambeau.dialects.torch.constants import ConstantOp
from flambeau.dialects.torch.ops import IfOp, LoopOp, TorchOp
from flambeau.dialects.torch.types import TensorType, vtensor
from flambeau.infer.builder import TorchBuilder, python_value, unknown_numbers
from flambeau.infer.rules import InferenceError
from flambeau.ir import dtypes
from flambeau.ir.builder import erase
from flambeau.ir.conversion import ON_NUMBERS
from flambeau.ir.dtypes import INT64_MAX
from flambeau.ir.module_pass import TorchPass
from flambeau.ir.random_state import NAME, WORDS
from flambeau.passes.decompose.rules import plus, times
from flambeau.passes.random_rules import RANDOM, Stream

STATE = vtensor((WORDS,), dtypes.int32.torch_type)


def thread_random_state(module: ModuleOp) -> ModuleOp:
    """Give functions that draw random numbers the state as their last argument and result; in place."""
    problems: list[Diagnostic] = []
    for function in module.ops:
        if isinstance(function, func.FuncOp) and any(_is_random(op) for op in function.walk()):
            _thread(function, problems)
    if problems:
        raise CompileError(problems, summary="the program draws random numbers in a way that is not supported")
    return module


class ThreadRandomState(TorchPass):
    """Make the state of random numbers an argument and a result, and draw them with Philox."""

    name = "torch-thread-random-state"
    run = staticmethod(thread_random_state)


def _is_random(op: Operation) -> bool:
    return isinstance(op, TorchOp) and op.overload in RANDOM


def _thread(function: func.FuncOp, problems: list[Diagnostic]) -> None:
    block = function.body.block
    state = block.insert_arg(STATE, len(block.args))
    state.name_hint = NAME
    used = _Walk(TorchBuilder(block), state, problems).block(block, 0)
    if isinstance(used, int) and used == 0:  # None of the ops draws after all, as dropout outside of training.
        block.erase_arg(state)
        return
    end = block.last_op
    assert end is not None
    t = TorchBuilder(block)
    t.before, t.location = end, end.location
    end.operands = [*end.operands, _advanced(t, state, used)]
    inputs = [a.type for a in block.args]
    function.properties["function_type"] = FunctionType.from_lists(inputs, [v.type for v in end.operands])


def _advanced(t: TorchBuilder, state: SSAValue, draws: Any) -> SSAValue:
    """Add to the counter, with a carry from its lower to its upper half; words are compared without their signs."""
    low, high = (t.slice(state, 0, i, i + 1) for i in (2, 3))
    moved = t.to(t.add(low, draws), dtypes.int32)
    lowest = -(1 << 31)
    carry = t.lt(t.bitwise_xor(moved, lowest), t.bitwise_xor(low, lowest))
    parts = [t.slice(state, 0, 0, 2), moved, t.add(high, t.to(carry, dtypes.int32)), t.slice(state, 0, 4, WORDS)]
    return t.cat(parts, 0)


class _Walk:
    """Replaces the random ops of a function, in order, and counts the draws."""

    def __init__(self, t: TorchBuilder, state: SSAValue, problems: list[Diagnostic]) -> None:
        self.t = t
        self.state = state
        self.problems = problems

    def block(self, block: Block, delta: Any) -> Any:
        """Replace the random ops of a block, the first of which comes after `delta` draws; gives the draws after it."""
        for op in list(block.ops):
            try:
                if _is_random(op):
                    delta = self._replace(op, delta)
                elif op.regions and any(_is_random(inner) for inner in op.walk()):
                    delta = self._region(op, delta)
            except (Unsupported, InferenceError) as error:
                reason, hint = getattr(error, "reason", str(error)), getattr(error, "hint", "")
                self.problems.append(diagnostic_for(op, "thread random state", reason, hint))
            except ON_NUMBERS:
                if not (numbers := unknown_numbers(op)):
                    raise
                reason = f"it takes {' and '.join(numbers)} only as a number that is known when it is compiled"
                self.problems.append(diagnostic_for(op, "thread random state", reason, "Make the number a constant."))
        return delta

    def _replace(self, op: Operation, delta: Any) -> Any:
        assert isinstance(op, TorchOp)
        self._stand_at(op)
        arguments = [python_value(v) for v in op.operands]
        schema = op.schema
        if schema is not None and "generator" in schema.index and arguments[schema.index["generator"]] is not None:
            raise Unsupported("a generator of its own", "Leave it out: the program has one state, set by run.seed().")
        type_ = op.results[0].type
        assert isinstance(type_, TensorType)
        assert type_.dtype is not None
        stream = Stream(self.t, self.state, delta, type_.dtype)
        rule = RANDOM.get(op.overload)
        assert rule is not None
        found = rule(self.t, stream, *arguments)
        if found is None:
            return delta
        for old, new in zip(op.results, found if isinstance(found, tuple) else (found,), strict=True):
            old.replace_all_uses_with(self.t.cast(new, old.type))
        erase(op)
        return stream.delta

    def _region(self, op: Operation, delta: Any) -> Any:
        if isinstance(op, IfOp):
            ends = [self.block(region.block, delta) for region in op.regions]
            if not all(isinstance(end, int) for end in ends):
                raise Unsupported("a branch with a loop that draws random numbers")
            return max(ends)  # Whichever branch is taken, those behind it draw at one place.
        if not isinstance(op, LoopOp):
            raise Unsupported("random numbers in a region of this op")
        trips = python_value(op.operands[0])
        if trips == INT64_MAX or not _always(op.body.last_op):
            raise Unsupported(
                "a loop draws random numbers, and how often it runs is not known before it",
                "Draw them before the loop, for as many rounds as there can be.",
            )
        self._stand_at(op)
        per_round = self._count(op.body)
        start, after = delta, plus(self.t, delta, times(self.t, trips, per_round))
        first = op.body.first_op
        assert first is not None
        self._stand_at(first)
        self.block(op.body, plus(self.t, start, times(self.t, op.body.args[0], per_round)))
        return after

    def _count(self, block: Block) -> int:
        """Count the draws of one round of a loop, in a copy of its body."""
        copy = block.parent_op()
        assert copy is not None
        body = copy.clone().regions[0].block
        draws = _Walk(TorchBuilder(body), self.state, []).block(body, 0)
        if not isinstance(draws, int):
            raise Unsupported("a loop in a loop draws random numbers, a number of times that is not known")
        return draws

    def _stand_at(self, op: Operation) -> None:
        block = op.parent_block()
        assert block is not None
        self.t.block, self.t.before, self.t.location = block, op, op.location


def _always(end: Operation | None) -> bool:
    """Tell whether a loop's terminator goes on whatever has happened."""
    owner = end.operands[0].owner if end is not None else None
    return isinstance(owner, ConstantOp) and owner.python_value is True


def random_ops() -> Iterator[str]:
    """Yield the overloads that draw random numbers and that programs may have."""
    yield from RANDOM
