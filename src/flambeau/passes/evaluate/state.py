"""The state of an evaluation: what is known while a function is walked.

The other modules of this folder are functions over an `Evaluation`, in this order: storages, inference, operands,
view_ops, scalars, emission, the other rules (containers, rules, queries), the walk, and the ops with regions (branches,
loops). Each imports only from those before it; evaluator.py puts them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Attribute, Block, Operation, SSAValue

from flambeau.diagnostics import Diagnostic
from flambeau.dialects.torch.emitter import TorchEmitter
from flambeau.dialects.torch.schema import Schema
from flambeau.dialects.torch.types import INT, ListType
from flambeau.ir.conversion import RuleTable
from flambeau.passes.evaluate.values import Heap, Known, List, Storage

Oracle = Callable[[Schema, Sequence[Any]], Any]
"""Says what an op without a shape rule gives, as a rule would; None where it cannot say."""


@dataclass(frozen=True)
class Features:
    """What an evaluation does."""

    infer: bool = False
    """Refine the types of tensors and numbers."""
    fold: bool = False
    """Compute with known numbers, take known branches, unroll loops."""
    containers: bool = False
    """Follow tuples, lists, dictionaries and optionals."""
    tensors: bool = False
    """Turn tensors that can be written into values."""


EVERYTHING = Features(infer=True, fold=True, containers=True, tensors=True)


class NotKnown(Exception):
    """The answer depends on what only the run time knows, so the op has to stay."""


class Raised(Exception):
    """The program raises here."""

    def __init__(self, op: Operation, message: str) -> None:
        super().__init__(message)
        self.op = op
        self.message = message


class Stopped(Exception):
    """A problem that makes the rest of the walk meaningless; it has been recorded."""


@dataclass(eq=False)
class Evaluation:
    """One function under evaluation."""

    stage: str
    """What a diagnostic says was being done."""
    features: Features
    t: TorchEmitter
    """Emits the new function; its block is the one that is being filled."""
    entry: Block
    """The outermost block of the new function."""
    control_flow: Mapping[type[Operation], Callable[[Evaluation, Any], None]]
    """How ops with regions are evaluated, by class."""
    problems: dict[Operation, Diagnostic]
    """What could not be done, by the op that it concerns."""
    oracle: Oracle | None = None
    slot_types: Mapping[str, Attribute] = field(default_factory=dict)
    """What is in the global slots that are never set."""
    owns_slots: bool = False
    """Whether `slots` is all that the program's global slots hold, so that setting one emits nothing."""
    refines_mutable: bool = True
    """Whether the types of mutable tensors can be relied on: not where the program changes shapes in place."""
    heap: Heap = field(default_factory=Heap)
    values: dict[SSAValue, Any] = field(default_factory=dict)
    """What is known of each value of the old function; values.py tells the forms."""
    twins: dict[SSAValue, Any] = field(default_factory=dict)
    """The number in a tensor without dims, where it is known as a number of the program."""
    visible: list[Storage] = field(default_factory=list)
    """The storages that others see when the function is done."""
    slots: dict[str, List] = field(default_factory=dict)
    """What is in the global slots: lists of one element."""
    opaque: set[SSAValue] = field(default_factory=set)
    """Lists that are not followed and may be written."""
    part_types: dict[SSAValue, list[Attribute]] = field(default_factory=dict)
    """The types of the elements of lists that are not followed."""
    dense: set[SSAValue] = field(default_factory=set)
    """Values that PyTorch would hold contiguously in memory."""
    depth: int = 0
    """How many regions are around the block that is being filled."""
    attempts: int = 0
    """How many tries are under way: in a try, a problem is raised and not recorded."""

    def record(self, op: Operation, results: Sequence[Any]) -> None:
        """Remember what an op of the old function gives."""
        self.values.update(zip(op.results, results, strict=True))

    @contextmanager
    def inside(self, block: Block) -> Iterator[None]:
        """Emit into a block of a region; one that is not finished lets go of what it uses: nobody will erase it."""
        outer = self.t.block
        self.t.block = block
        self.depth += 1
        try:
            yield
        except BaseException:
            block.drop_all_references()
            raise
        finally:
            self.t.block = outer
            self.depth -= 1


def new_list(e: Evaluation, content: Iterable[Any], type_: Attribute) -> List:
    """Make the value of a list that the program makes here, of the declared list type."""
    element = type_.element_type if isinstance(type_, ListType) else INT
    return List(tuple(content), e.depth, element_type=element)


def known(e: Evaluation, answer: Any, type_: Attribute) -> Known | List:
    """Make the value of a Python constant that was computed, of the declared type."""
    if isinstance(answer, list):
        element = type_.element_type if isinstance(type_, ListType) else INT
        return new_list(e, [known(e, a, element) for a in answer], type_)
    return Known(answer)


RULES = RuleTable("evaluate")
"""Rules for ops on what only an evaluation follows.

A rule takes the evaluation, the op and the values of its operands, and gives the value of its result (or a
sequence, for several). It raises `NotKnown` where the op has to stay because its operands are known only at run time.
"""
rule = RULES
