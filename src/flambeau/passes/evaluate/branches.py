"""Branches under evaluation: what both sides agree on stays known, the rest becomes results.

A branch is evaluated into a block of its own; the heap then says what it changed. Whatever existed before and is
different afterwards becomes a result of the op, beside the results that the program names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from xdsl.ir import Attribute, Block, Region, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.ops import IfOp, IfYieldOp
from flambeau.dialects.torch.types import join_types
from flambeau.passes.evaluate.joins import has_no_effect, is_outside, like, same_steps
from flambeau.passes.evaluate.operands import fit_or_placeholder, materialize, negated
from flambeau.passes.evaluate.state import Evaluation, Raised
from flambeau.passes.evaluate.storages import is_contiguous, link_storages, reach
from flambeau.passes.evaluate.values import (
    SERIAL,
    Cell,
    Dict,
    Known,
    List,
    Maybe,
    Object,
    Storage,
    Tuple,
    Uninitialized,
    View,
)
from flambeau.passes.evaluate.walk import walk


@dataclass
class Branch:
    """What evaluating a branch gave."""

    block: Block
    results: list[Any]
    changes: dict[tuple[Any, str], Any]
    """(cell or view, attribute) to the new value."""

    def get(self, owner: Any, name: str) -> Any:
        return self.changes.get((owner, name), getattr(owner, name))


@dataclass(eq=False)
class Hole:
    """A place in a merged value that a result of the op will fill."""

    left: Any
    right: Any
    index: int = -1


@dataclass
class Merge:
    """The leaves that differ between two branches."""

    then: Branch
    other: Branch
    start: int
    """Whatever was born later was made inside the branches."""
    holes: list[Hole] = field(default_factory=list)
    storages: dict[tuple[Storage, Storage], View] = field(default_factory=dict)
    views: list[tuple[View, Any, Any]] = field(default_factory=list)
    """Merged tensors with the two that they came from."""
    containers: dict[tuple[Any, Any], Cell] = field(default_factory=dict)
    """Merged lists, dictionaries and objects, by the two that they came from."""

    def hole(self, left: Any, right: Any) -> Hole:
        hole = Hole(left, right, len(self.holes))
        self.holes.append(hole)
        return hole


def evaluate_if(e: Evaluation, op: IfOp) -> None:
    """Evaluate a branch: the side that is known to be taken, or both into an op whose results are what differs."""
    condition = e.values[op.condition]
    if isinstance(condition, Known) and e.features.fold:
        e.record(op, walk(e, op.then_block if condition.value else op.else_block))
        return
    flag = materialize(e, condition)
    start = next(SERIAL)
    then, other = evaluate_branch(e, op.then_block), evaluate_branch(e, op.else_block)
    if isinstance(then, Raised) and isinstance(other, Raised):
        raise then
    if isinstance(then, Raised) or isinstance(other, Raised):
        # `assert condition`: what remains is the other branch.
        raised = then if isinstance(then, Raised) else other
        assert isinstance(raised, Raised)
        wanted = negated(e, flag) if raised is then else flag
        e.t.require(wanted, raised.message)
        e.record(op, walk(e, op.else_block if raised is then else op.then_block))
        return
    e.record(op, emit_join(e, flag, Merge(then, other, start)))


def evaluate_branch(e: Evaluation, old: Block) -> Branch | Raised:
    """Evaluate a branch, and take back what it did to the heap."""
    mark, block = e.heap.mark(), Block()
    try:
        with e.inside(block):
            results = walk(e, old)
        changes = {(o, n): getattr(o, n) for o, n, _ in e.heap.changed(mark) if not n.startswith("cached")}
        return Branch(block, results, changes)
    except Raised as raised:
        return raised
    finally:
        e.heap.undo(mark)


def emit_join(e: Evaluation, flag: SSAValue, merge: Merge) -> list[Any]:
    """Emit the branch with all that differs as results."""
    values = [merged(e, a, b, merge) for a, b in zip(merge.then.results, merge.other.results, strict=True)]
    cells: dict[tuple[Any, str], Any] = {}
    for owner, name in {**merge.then.changes, **merge.other.changes}:
        if owner.depth > e.depth if isinstance(owner, Cell) else owner.born > merge.start:
            continue
        left, right = merge.then.get(owner, name), merge.other.get(owner, name)
        if name == "content":
            cells[owner, name] = merged_content(e, owner, left, right, merge)
        elif name == "stale":
            cells[owner, name] = left or right
        elif name == "steps" and not same_steps(left, right):
            raise Unsupported("a tensor changes its shape in one branch only")
        elif name == "steps":
            cells[owner, name] = left
    links = planned_links(e, flag, merge)
    results = emit_if(e, flag, merge)
    joined = [filled(e, v, results) for v in values]
    for (owner, name), value in cells.items():
        e.heap.set(owner, name, filled_content(e, value, results) if name == "content" else value)
    for storage, other, holds, view in links:
        link_storages(e, storage, other, filled(e, holds, results), view)
    return joined


def merged(e: Evaluation, a: Any, b: Any, merge: Merge) -> Any:
    """Join a value of one branch with that of the other; where they differ, a hole is left for the op's result."""
    if a is b or (isinstance(a, Known) and a == b):
        return a
    if e.features.containers:
        a, b = like(a, b), like(b, a)
        a, b = like(a, b), like(b, a)
    if isinstance(a, View) and isinstance(b, View):
        if a.same(b):
            return a
        new = merged_view(e, a, b, merge)
        merge.views.append((new, a, b))
        return new
    if isinstance(a, View | Uninitialized) and isinstance(b, View | Uninitialized):
        if isinstance(a, Uninitialized) and isinstance(b, Uninitialized):
            return a
        new = View(Storage(merge.hole(a, b), e.depth, location=e.t.location))
        merge.views.append((new, a, b))
        return new
    if isinstance(a, Maybe) and isinstance(b, Maybe):
        return Maybe(merged(e, a.flag, b.flag, merge), merged(e, a.value, b.value, merge))
    if isinstance(a, Tuple) and isinstance(b, Tuple) and len(a.items) == len(b.items):
        return Tuple(tuple(merged(e, x, y, merge) for x, y in zip(a.items, b.items, strict=True)))
    if isinstance(a, Cell) or isinstance(b, Cell):
        return merged_container(e, a, b, merge)
    return merge.hole(a, b)


def merged_container(e: Evaluation, a: Any, b: Any, merge: Merge) -> Cell:
    """Join two lists, dictionaries or objects into one that is either; two names for both are two names for it."""
    if (a, b) in merge.containers:
        return merge.containers[a, b]
    before = [old for old in (a, b) if isinstance(old, Cell) and old.depth <= e.depth]
    if type(a) is not type(b) or (before and not isinstance(a, List)):
        raise Unsupported("the two branches give containers that do not fit together")
    if any(a is x or b is y for x, y in merge.containers):
        raise Unsupported("two variables name one container after one branch, and two after the other")
    either: Cell = replace(a, content=(), depth=e.depth, links=(), stale=None, born=next(SERIAL))
    merge.containers[a, b] = either
    either.content = merged_content(e, a, merge.then.get(a, "content"), merge.other.get(b, "content"), merge)
    for old in before:
        link_storages(e, either, old)
    return either


def merged_content(e: Evaluation, cell: Cell, a: Any, b: Any, merge: Merge) -> Any:
    """Join the contents `a` and `b` that a cell has behind the two branches."""
    if isinstance(cell, Storage):
        return a if a is b else merge.hole(a, b)
    if len(a) != len(b):
        raise Unsupported(
            f"a {type(cell).__name__.lower()} has {len(a)} elements after one branch and {len(b)} after the other"
        )
    if isinstance(cell, List):
        return tuple(merged(e, x, y, merge) for x, y in zip(a, b, strict=True))
    if [k for k, _ in a] != [k for k, _ in b]:
        what = "a dictionary has other keys" if isinstance(cell, Dict) else "an object has other attributes"
        raise Unsupported(f"{what} after one branch than after the other")
    return tuple((k, merged(e, x, y, merge)) for (k, x), (_, y) in zip(a, b, strict=True))


def merged_view(e: Evaluation, a: View, b: View, merge: Merge) -> View:
    """Join two tensors into a view of a storage that is one or the other."""
    if same_steps(a.steps, b.steps) and is_outside(a, merge.then.block) and is_outside(b, merge.other.block):
        # The same part of one storage or another: tensors that share a storage in both branches still do.
        key = (a.storage, b.storage)
        if key not in merge.storages:
            merge.storages[key] = View(merged_storage(e, merge, View(a.storage), View(b.storage)))
        return View(merge.storages[key].storage, a.steps)
    return View(merged_storage(e, merge, a, b))


def merged_storage(e: Evaluation, merge: Merge, a: View, b: View) -> Storage:
    contiguous = is_contiguous(e, a) and is_contiguous(e, b)
    return Storage(merge.hole(a, b), e.depth, is_contiguous=contiguous, location=e.t.location)


def emit_if(e: Evaluation, flag: SSAValue, merge: Merge) -> Sequence[SSAValue]:
    """Add the `prim.If`, with one result for each hole."""
    lefts = in_branch(e, merge.then, [h.left for h in merge.holes])
    rights = in_branch(e, merge.other, [h.right for h in merge.holes])
    types = [_joined(left, right) for left, right in zip(lefts, rights, strict=True)]
    for branch, operands in ((merge.then, lefts), (merge.other, rights)):
        with e.inside(branch.block):
            yields = [fit_or_placeholder(e, o, t) for o, t in zip(operands, types, strict=True)]
            e.t.emit(IfYieldOp, yields)
    blocks = (merge.then.block, merge.other.block)
    if not types and all(has_no_effect(b) for b in blocks):
        return ()
    return e.t.emit(IfOp, (flag,), types, regions=[Region(b) for b in blocks]).results


def in_branch(e: Evaluation, branch: Branch, values: Sequence[Any]) -> list[SSAValue | Uninitialized]:
    """Materialise values where the branch ends."""
    mark = e.heap.mark()
    with e.inside(branch.block):
        for (owner, name), value in branch.changes.items():
            e.heap.set(owner, name, value)
        found = [v if isinstance(v, Uninitialized) else materialize(e, v) for v in values]
    e.heap.undo(mark)
    return found


def filled(e: Evaluation, value: Any, results: Sequence[SSAValue]) -> Any:
    """Replace the holes of a merged value by the op's results."""
    if isinstance(value, Hole):
        return results[value.index]
    if isinstance(value, Tuple):
        return Tuple(tuple(filled(e, v, results) for v in value.items))
    if isinstance(value, Maybe):
        return Maybe(filled(e, value.flag, results), filled(e, value.value, results))
    if isinstance(value, View) and isinstance(value.storage.content, Hole):
        value.storage.content = results[value.storage.content.index]
    if isinstance(value, List | Dict | Object) and value.depth == e.depth:
        value.content = filled_content(e, value.content, results)
    return value


def filled_content(e: Evaluation, content: Any, results: Sequence[SSAValue]) -> Any:
    if not isinstance(content, tuple):
        return filled(e, content, results)
    return tuple((v[0], filled(e, v[1], results)) if isinstance(v, tuple) else filled(e, v, results) for v in content)


def planned_links(e: Evaluation, flag: SSAValue, merge: Merge) -> list[tuple[Storage, Storage, Any, View | None]]:
    """List for each merged tensor the storages that it may be, and the flag or hole that tells when."""
    links: list[tuple[Storage, Storage, Any, View | None]] = []
    owners: dict[Storage, list[Storage]] = {}
    done: set[Storage] = set()
    for new, *sides in merge.views:
        storage = new.storage
        if storage in done:
            continue
        done.add(storage)
        for side, branch in zip(sides, (merge.then, merge.other), strict=True):
            if isinstance(side, Uninitialized):
                continue
            if new.steps:
                side = View(side.storage)
            is_then = branch is merge.then
            if side.storage.depth <= e.depth:
                if is_outside(side, branch.block):
                    holds = flag if is_then else merge.hole(Known(False), Known(True))
                    links.append((storage, side.storage, holds, View(side.storage, side.steps)))
                else:
                    links.append((storage, side.storage, None, None))
                continue
            links_there = partial(branch.get, name="links")
            for other, way in reach(side.storage, e.depth, links_there):
                if way is not None and not side.steps and is_outside(way.view, branch.block):
                    pair = (way.condition, Known(False)) if is_then else (Known(False), way.condition)
                    links.append((storage, other, merge.hole(*pair), way.view))
                else:
                    links.append((storage, other, None, None))
            for peer in owners.setdefault(side.storage, []):
                links.append((storage, peer, None, None))
            owners[side.storage].append(storage)
    return links


def _joined(a: SSAValue | Uninitialized, b: SSAValue | Uninitialized) -> Attribute:
    if isinstance(a, Uninitialized) or isinstance(b, Uninitialized):
        return b.type if isinstance(a, Uninitialized) else a.type
    return join_types(a.type, b.type)
