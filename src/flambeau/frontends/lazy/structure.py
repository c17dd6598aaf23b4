"""The structure of a graph: its ops and how they are wired, without contents and without the numbers that change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flambeau.frontends.lazy.graph import Kind, Place, Recorded, Value


@dataclass(frozen=True, slots=True)
class Line:
    """An op in terms of slots: a slot is a place for a tensor, counted over inputs and results as they come."""

    kind: Kind
    operands: tuple[int, ...]
    results: tuple[int | None, ...]
    numbers: range
    """Which numbers of the graph are its own."""
    place: Place


@dataclass(frozen=True, slots=True)
class Wiring:
    """One recorded graph, ready to be looked up."""

    key: tuple[Any, ...]
    ops: Sequence[Recorded]
    inputs: Sequence[tuple[int, Value]]
    live: Sequence[Value]
    """What is computed, in the order of `outputs`: that in which it was recorded."""
    outputs: tuple[int, ...]
    numbers: tuple[Any, ...]
    slots: int

    def lines(self) -> list[Line]:
        """Describe the ops without their values, so that what is kept holds no contents."""
        slots = {value: i for i, value in self.inputs}
        lines, count, numbers = [], 0, 0
        for op in self.ops:
            for value in op.operands:
                if value in slots and slots[value] == count:
                    count += 1
            results = []
            for result in op.results:
                results.append(None if result is None else count)
                if result is not None:
                    slots[result] = count
                    count += 1
            own = range(numbers, numbers + len(op.numbers))
            numbers = own.stop
            lines.append(Line(op.kind, tuple(slots[v] for v in op.operands), tuple(results), own, op.place))
        return lines


def wired(ops: Sequence[Recorded], live: Sequence[Value]) -> Wiring:
    """Take the ops that what is live depends on, and number all values in the order in which they are met."""
    needed = _needed(ops, live)
    slots: dict[Value, int] = {}
    inputs: list[tuple[int, Value]] = []
    code: list[Any] = []
    numbers: list[Any] = []
    count = 0
    for op in needed:
        code.append(op.kind)
        for value in op.operands:
            slot = slots.get(value)
            if slot is None:
                slot = slots[value] = count
                inputs.append((count, value))
                count += 1
            code.append(slot)
        if op.numbers:
            numbers += op.numbers
        for result in op.results:
            if result is not None:
                slots[result] = count
                count += 1
    ordered = sorted(live, key=slots.__getitem__)
    outputs = tuple(slots[value] for value in ordered)
    return Wiring((tuple(code), outputs), needed, inputs, ordered, outputs, tuple(numbers), count)


def unseen_draws(ops: Sequence[Recorded], live: Sequence[Value]) -> list[Value]:
    """List a result of each random op that nobody holds: it is computed too, as the draws after it depend on it."""
    if not any(op.kind.is_random for op in ops):
        return []
    needed = set(_needed(ops, live))
    return [r for op in ops if op.kind.is_random and op not in needed for r in op.results[:1] if r is not None]


def _needed(ops: Sequence[Recorded], live: Sequence[Value]) -> list[Recorded]:
    """Leave out ops whose results nobody holds."""
    wanted: set[Recorded] = {value.op for value in live if value.op is not None}
    kept = []
    for op in reversed(ops):
        if op in wanted:
            kept.append(op)
            for value in op.operands:
                if value.op is not None:
                    wanted.add(value.op)
    kept.reverse()
    return kept
