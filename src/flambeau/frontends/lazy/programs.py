"""Graphs as programs: looked up by structure, compiled once, and run; ops that cannot be compiled run in PyTorch."""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from flambeau.diagnostics import CompileError
from flambeau.frontends.lazy.export import graph_module_of
from flambeau.frontends.lazy.graph import Recorded, Spec, Value
from flambeau.frontends.lazy.randomness import Draws
from flambeau.frontends.lazy.session import KEPT, Compiled, GraphCounts, Session, timed
from flambeau.frontends.lazy.structure import Line, Wiring, unseen_draws, wired

MAX_VARIANTS = 8
"""How many programs are kept of one structure, which differ in numbers that could not be made inputs."""


@dataclass(frozen=True)
class Numbers:
    """Which numbers of a graph are inputs of its program: groups of equal ones; all others are constants."""

    groups: tuple[tuple[int, ...], ...]
    constants: tuple[Any, ...]
    """For each number its value when the graph was compiled."""
    group_of: tuple[int | None, ...]

    def inputs_for(self, numbers: tuple[Any, ...]) -> list[Any] | None:
        """Return a value for each group; None if the program is one for other constants or other groups."""
        if not numbers:
            return []
        values = [numbers[group[0]] for group in self.groups]
        expected = tuple(c if g is None else values[g] for c, g in zip(self.constants, self.group_of, strict=True))
        # Their bits: 1 and 1.0 differ, 0.0 and -0.0 too, and NaN is NaN.
        return values if marshal.dumps(expected, 2) == marshal.dumps(numbers, 2) else None


def numbers_of(history: Sequence[tuple[Any, ...]], lifted: set[int], fixed: set[int]) -> Numbers:
    """Make inputs of the numbers in `lifted` and of those that differ between steps, but never of those in `fixed`.

    Numbers that were equal at all times are one input.
    """
    last = history[-1]
    found: dict[bytes, list[int]] = {}
    for i in range(len(last)):
        seen = tuple(step[i] for step in history)
        differs = any(marshal.dumps(value, 2) != marshal.dumps(last[i], 2) for value in seen)
        if i not in fixed and (i in lifted or differs):
            found.setdefault(marshal.dumps(seen, 2), []).append(i)
    groups = tuple(map(tuple, found.values()))
    group_of: list[int | None] = [None] * len(last)
    for g, group in enumerate(groups):
        for i in group:
            group_of[i] = g
    return Numbers(groups, last, tuple(group_of))


@dataclass(frozen=True)
class Segment:
    """Ops that are one program."""

    lines: Sequence[Line]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    groups: tuple[int, ...]
    """Which groups of numbers it takes."""
    program: Compiled


@dataclass(frozen=True)
class InPyTorch:
    """An op that is not compiled."""

    line: Line
    reason: str


@dataclass(frozen=True)
class Variant:
    """What runs a graph."""

    numbers: Numbers
    steps: Sequence[Segment | InPyTorch]


@dataclass
class Structure:
    """All that is known of graphs of one structure."""

    lines: Sequence[Line]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    counts: GraphCounts
    lifted: set[int]
    fixed: set[int] = field(default_factory=set)
    """Numbers that the compiler must know."""
    history: list[tuple[Any, ...]] = field(default_factory=list)
    """The numbers of steps that made it compile."""
    variants: list[Variant] = field(default_factory=list)


def run_graph(session: Session, ops: Sequence[Recorded], live: Sequence[Value], draws: Draws | None) -> None:
    """Compute the live values of a graph. Where an op raises, all others are computed, and its error is raised."""
    live = [*live, *unseen_draws(ops, live)] if draws is not None else live
    wiring = wired(ops, live)
    structure = _structure(session, wiring)
    env: list[Any] = [None] * wiring.slots
    for slot, value in wiring.inputs:
        env[slot] = value.data
    counts = structure.counts
    counts.runs += 1
    errors: dict[int, BaseException] = {}
    variant, values = _variant(session, structure, wiring.numbers)
    with timed(lambda s: setattr(counts, "run_seconds", counts.run_seconds + s)):
        for i, step in enumerate(variant.steps):
            seed = draws.seed_of(i) if draws is not None else 0
            if isinstance(step, InPyTorch):
                _run_line(session, counts, step.line, step.reason, env, wiring.numbers, errors)
                continue
            reason = _run_segment(step, env, values, seed) if not errors else ""
            if reason is not None:
                _run_lines(session, counts, step.lines, reason, env, wiring.numbers, errors)
    for slot, value in zip(wiring.outputs, wiring.live, strict=True):
        value.data, value.error = env[slot], errors.get(slot)
        if value.data is not None and (wrong := _mismatch(value.spec, value.data)) is not None:
            value.data, value.error = None, errors.setdefault(slot, wrong)
    if errors:
        raise next(iter(errors.values()))


def _mismatch(spec: Spec, data: torch.Tensor) -> Exception | None:
    """Make the error for contents of another type than the tensor has; None if they are of that type."""
    if data.dtype is spec.dtype and data.shape == spec.shape:
        return None
    found, wanted = f"{list(data.shape)} of {data.dtype}", f"{list(spec.shape)} of {spec.dtype}"
    return RuntimeError(f"a lazy tensor is {wanted}, and what was computed for it is {found}")


def _structure(session: Session, wiring: Wiring) -> Structure:
    found = session.structures.get(wiring.key)
    if found is not None:
        session.structures.move_to_end(wiring.key)
        return found
    lines = wiring.lines()
    counts = GraphCounts(f"graph {len(session.counts) + 1}", len(lines), lines[0].place)
    session.counts.append(counts)
    lifted = {i for op, line in zip(wiring.ops, lines, strict=True) if op.lifts for i in line.numbers}
    lifted = {i for i in lifted if isinstance(wiring.numbers[i], float)}
    found = Structure(lines, tuple(i for i, _ in wiring.inputs), wiring.outputs, counts, lifted)
    session.structures[wiring.key] = found
    if len(session.structures) > KEPT:
        session.structures.popitem(last=False)
    return found


def _variant(session: Session, structure: Structure, numbers: tuple[Any, ...]) -> tuple[Variant, list[Any]]:
    """Find the program for these numbers, or compile it; gives what it takes for its inputs that are numbers."""
    for variant in reversed(structure.variants):
        values = variant.numbers.inputs_for(numbers)
        if values is not None:
            structure.counts.hits += 1
            return variant, values
    structure.history = [*structure.history[-3:], numbers]
    counts = structure.counts
    with timed(lambda s: setattr(counts, "compile_seconds", counts.compile_seconds + s)):
        variant = _compiled(session, structure)
    structure.variants = [*structure.variants[1 - MAX_VARIANTS :], variant]
    values = variant.numbers.inputs_for(numbers)
    assert values is not None
    return variant, values


# --- Compiling ---


def _compiled(session: Session, structure: Structure) -> Variant:
    """Compile a graph; where that fails for some ops, what lies between them."""
    while True:
        chosen = numbers_of(structure.history, structure.lifted, structure.fixed)
        steps: list[Segment | InPyTorch] = []
        for lines in _parts(session, structure.lines):
            if lines[0].kind in session.refused:
                steps.append(InPyTorch(lines[0], session.refused[lines[0].kind]))
                continue
            try:
                steps.append(_segment(session, structure, lines, chosen))
            except Exception as error:
                if not _learn(session, structure, lines, chosen, error):
                    reason = str(error).strip().split("\n\n")[0]
                    steps += [InPyTorch(line, reason) for line in lines]
                    continue
                break
        else:
            return Variant(chosen, steps)


def _parts(session: Session, lines: Sequence[Line]) -> list[list[Line]]:
    """Cut a graph before and after each op that the engine cannot take."""
    parts: list[list[Line]] = []
    was_refused = True
    for line in lines:
        is_refused = line.kind in session.refused
        if is_refused or was_refused:
            parts.append([])
        parts[-1].append(line)
        was_refused = is_refused
    return parts


def _segment(session: Session, structure: Structure, lines: Sequence[Line], chosen: Numbers) -> Segment:
    """Compile some ops of a graph; their results that are used outside of them are outputs."""
    made = {slot for line in lines for slot in line.results if slot is not None}
    inputs = tuple(dict.fromkeys(slot for line in lines for slot in line.operands if slot not in made))
    own = set(map(id, lines))
    outside = {slot for line in structure.lines if id(line) not in own for slot in line.operands}
    outputs = tuple(sorted(made & (outside | set(structure.outputs))))
    numbers = {i for line in lines for i in line.numbers}
    groups = tuple(g for g, group in enumerate(chosen.groups) if any(i in numbers for i in group))
    graph = graph_module_of(lines, inputs, outputs, chosen.constants, {g: chosen.groups[g] for g in groups})
    program = session.compile_graph(graph)
    structure.counts.compiles += 1
    return Segment(lines, inputs, outputs, groups, program)


def _learn(session: Session, structure: Structure, lines: Sequence[Line], chosen: Numbers, error: Exception) -> bool:
    """Find what a compiler did not take: numbers that are inputs, or ops; False if it does not tell."""
    if not isinstance(error, CompileError):
        return False
    named = {d.op: d.reason for d in error.diagnostics if d.op}
    suspects = [line for line in lines if _named(line, named) is not None]
    if not suspects:
        suspects = [line for line in lines if _fails_alone(session, structure, line, chosen, named)]
    numbers = {i for line in suspects for i in line.numbers if chosen.group_of[i] is not None}
    if numbers:
        structure.fixed |= numbers
        return True
    for line in suspects:
        session.refused[line.kind] = _named(line, named) or next(iter(named.values()), error.diagnostics[0].reason)
    return bool(suspects)


def _named(line: Line, named: dict[str, str]) -> str | None:
    """Return what was said of an op, by its name with or without the overload."""
    name = str(line.kind.func)
    packet = name.rpartition(".")[0]
    for said, reason in named.items():
        if said in (name, packet) or f"{said}.default" == name:
            return reason
    return None


def _fails_alone(session: Session, structure: Structure, line: Line, chosen: Numbers, named: dict[str, str]) -> bool:
    """Tell whether an op cannot be compiled: what was refused may be a part that it was expanded to."""
    inputs = tuple(dict.fromkeys(line.operands))
    outputs = tuple(slot for slot in line.results if slot is not None)
    groups = {g: group for g, group in enumerate(chosen.groups) if any(i in line.numbers for i in group)}
    try:
        session.compile_graph(graph_module_of([line], inputs, outputs, chosen.constants, groups))
    except CompileError as error:
        named.update({str(line.kind.func): error.diagnostics[0].reason})
        return True
    return False


# --- Running ---


def _run_segment(segment: Segment, env: list[Any], values: Sequence[Any], seed: int) -> str | None:
    """Run a program; return None, or what the engine said when it stopped."""
    arguments = [*(env[slot] for slot in segment.inputs), *(values[g] for g in segment.groups)]
    program = segment.program
    try:
        if program.seed is not None:
            program.seed(seed)
        returned = program.call(*arguments)
    except Exception as error:
        return f"the engine stopped: {str(error).strip()}"
    results = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    if len(results) != len(segment.outputs) or not all(isinstance(r, torch.Tensor) for r in results):
        what = ", ".join(type(r).__name__ for r in results)
        raise TypeError(f"the engine gave ({what}) for a program with {len(segment.outputs)} tensors as results")
    for slot, result in zip(segment.outputs, results, strict=True):
        env[slot] = result
    return None


def _run_lines(
    session: Session, counts: GraphCounts, lines: Sequence[Line], reason: str, env: list[Any],
    numbers: tuple[Any, ...], errors: dict[int, BaseException],
) -> None:  # fmt: skip
    """Run ops in PyTorch where their program cannot run, to find the one that raises, or because one before it did."""
    for line in lines:
        _run_line(session, counts, line, "", env, numbers, errors)
    if reason and not errors:
        for line in lines:
            _count(session, counts, line, reason)


def _run_line(
    session: Session, counts: GraphCounts, line: Line, reason: str, env: list[Any],
    numbers: tuple[Any, ...], errors: dict[int, BaseException],
) -> None:  # fmt: skip
    """Run an op in PyTorch. If it raises, or something that it takes was never computed, note the error instead."""
    failed = next((errors[slot] for slot in line.operands if slot in errors), None)
    try:
        if failed is None:
            own = [numbers[i] for i in line.numbers]
            returned = line.kind.eagerly([env[slot] for slot in line.operands], own)
    except Exception as error:
        failed = error
    if failed is not None:
        errors.update({slot: failed for slot in line.results if slot is not None})
        return
    if reason:
        _count(session, counts, line, reason)
    for slot, result in zip(line.results, line.kind.flat(returned), strict=True):
        if slot is not None:
            env[slot] = result  # It may share memory with an argument: contents are never written.


def _count(session: Session, counts: GraphCounts, line: Line, reason: str) -> None:
    counts.fallbacks += 1
    session.fell_back(str(line.kind.func), reason, line.place)
