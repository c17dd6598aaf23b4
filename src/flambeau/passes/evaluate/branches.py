"""Branches under evaluation: what both sides agree on stays known, the rest becomes results.

A branch is evaluated into a block of its own; the heap then says what it changed. Whatever existed before and is
different afterwards becomes a result of the op, beside the results that the program names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from flambeau.diagnostics import Diagnostic, Unsupported
from flambeau.dialects.torch.control_flow import IfOp, IfYieldOp
from flambeau.dialects.torch.ops import UninitializedOp
from flambeau.dialects.torch.types import (
    BOOL,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    TensorType,
    intern,
)
from flambeau.passes.evaluate.joins import has_no_effect, is_outside, join_types, like, same_steps
from flambeau.passes.evaluate.rules import Raised
from flambeau.passes.evaluate.values import (
    SERIAL,
    Both,
    Cell,
    Heap,
    Known,
    List,
    Maybe,
    Storage,
    Tuple,
    Uninitialized,
    View,
)

if TYPE_CHECKING:
    from flambeau.dialects.torch.emitter import TorchEmitter
    from flambeau.passes.evaluate.evaluator import Features


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

    def hole(self, left: Any, right: Any) -> Hole:
        hole = Hole(left, right, len(self.holes))
        self.holes.append(hole)
        return hole


class Branches:
    """The part of the evaluator that deals with branches."""

    heap: Heap
    features: Features
    values: dict[SSAValue, Any]
    t: TorchEmitter
    depth: int
    attempts: int
    problems: dict[Operation, Diagnostic]
    walk: Callable[[Block], list[Any]]
    materialize: Callable[[Any], SSAValue]
    fit: Callable[[Any, Attribute], SSAValue]
    cast: Callable[[SSAValue, Attribute], SSAValue]
    view_type: Callable[[View], Attribute]
    wrapped: Callable[[SSAValue, Attribute], Any]
    link: Callable[..., None]
    reach: Callable[..., Iterator[tuple[Storage, Any, View | None]]]
    is_contiguous: Callable[[Any], bool]
    record: Callable[[Operation, Any], None]

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

    # --- Branches ---

    def if_(self, op: IfOp) -> None:
        condition = self.values[op.condition]
        if isinstance(condition, Known) and self.features.fold:
            self.finish(op, self.walk(op.then_block if condition.value else op.else_block))
            return
        flag = self.materialize(condition)
        start = next(SERIAL)
        then, other = self.branch(op.then_block), self.branch(op.else_block)
        if isinstance(then, Raised) and isinstance(other, Raised):
            raise then
        if isinstance(then, Raised) or isinstance(other, Raised):
            # `assert condition`: what remains is the other branch.
            raised = then if isinstance(then, Raised) else other
            assert isinstance(raised, Raised)
            wanted = self.negated(flag) if raised is then else flag
            self.t.require(wanted, raised.message)
            self.finish(op, self.walk(op.else_block if raised is then else op.then_block))
            return
        self.finish(op, self.join(flag, Merge(then, other, start)))

    def finish(self, op: Operation, results: Sequence[Any]) -> None:
        self.values.update(zip(op.results, results, strict=True))

    def negated(self, flag: SSAValue) -> SSAValue:
        return self.t.op("aten.__not__", (flag,), (BOOL,))[0]

    def branch(self, old: Block) -> Branch | Raised:
        """Evaluate a branch, and take back what it did to the heap."""
        mark, block = self.heap.mark(), Block()
        try:
            with self.inside(block):
                results = self.walk(old)
            changes = {(o, n): getattr(o, n) for o, n, _ in self.heap.changed(mark) if not n.startswith("cached")}
            return Branch(block, results, changes)
        except Raised as raised:
            return raised
        finally:
            self.heap.undo(mark)

    def join(self, flag: SSAValue, merge: Merge) -> list[Any]:
        """Emit the branch with all that differs as results."""
        merged = [self.merged(a, b, merge) for a, b in zip(merge.then.results, merge.other.results, strict=True)]
        cells: dict[tuple[Any, str], Any] = {}
        for owner, name in {**merge.then.changes, **merge.other.changes}:
            if owner.depth > self.depth if isinstance(owner, Cell) else owner.born > merge.start:
                continue
            left, right = merge.then.get(owner, name), merge.other.get(owner, name)
            if name == "content":
                cells[owner, name] = self.merged_content(owner, left, right, merge)
            elif name == "stale":
                cells[owner, name] = left or right
            elif name == "steps" and not same_steps(left, right):
                raise Unsupported("a tensor changes its shape in one branch only")
            elif name == "steps":
                cells[owner, name] = left
        links = self.planned_links(flag, merge)
        results = self.emit_if(flag, merge)
        filled = [self.filled(v, results) for v in merged]
        for (owner, name), value in cells.items():
            self.heap.set(owner, name, self.filled_content(value, results) if name == "content" else value)
        for storage, other, holds, view in links:
            self.link(storage, other, self.filled(holds, results), view)
        return filled

    def merged(self, a: Any, b: Any, merge: Merge) -> Any:
        """What is known of a value that is one or the other."""
        if a is b or (isinstance(a, Known) and a == b):
            return a
        if self.features.containers:
            a, b = like(a, b), like(b, a)
            a, b = like(a, b), like(b, a)
        if isinstance(a, View) and isinstance(b, View):
            if a.same(b):
                return a
            new = self.merged_view(a, b, merge)
            merge.views.append((new, a, b))
            return new
        if isinstance(a, View | Uninitialized) and isinstance(b, View | Uninitialized):
            if isinstance(a, Uninitialized) and isinstance(b, Uninitialized):
                return a
            new = View(Storage(merge.hole(a, b), self.depth, location=self.t.location))
            merge.views.append((new, a, b))
            return new
        if isinstance(a, Maybe) and isinstance(b, Maybe):
            return Maybe(self.merged(a.flag, b.flag, merge), self.merged(a.value, b.value, merge))
        if isinstance(a, Tuple) and isinstance(b, Tuple) and len(a.items) == len(b.items):
            return Tuple(tuple(self.merged(x, y, merge) for x, y in zip(a.items, b.items, strict=True)))
        if isinstance(a, List) and isinstance(b, List):
            content = self.merged_content(a, merge.then.get(a, "content"), merge.other.get(b, "content"), merge)
            new_list = List(content, self.depth, element_type=a.element_type)
            for old in (a, b):
                if old.depth <= self.depth:
                    self.link(new_list, old)
            return new_list
        if isinstance(a, Cell) or isinstance(b, Cell):
            raise Unsupported("the two branches give containers that do not fit together")
        return merge.hole(a, b)

    def merged_content(self, cell: Cell, a: Any, b: Any, merge: Merge) -> Any:
        """The content of a cell that the branches changed."""
        if isinstance(cell, Storage):
            return a if a is b else merge.hole(a, b)
        if len(a) != len(b):
            raise Unsupported(
                f"a {type(cell).__name__.lower()} has {len(a)} elements after one branch and {len(b)} after the other"
            )
        if isinstance(cell, List):
            return tuple(self.merged(x, y, merge) for x, y in zip(a, b, strict=True))
        if [k for k, _ in a] != [k for k, _ in b]:
            raise Unsupported("a dictionary has other keys after one branch than after the other")
        return tuple((k, self.merged(x, y, merge)) for (k, x), (_, y) in zip(a, b, strict=True))

    def merged_view(self, a: View, b: View, merge: Merge) -> View:
        """A tensor that is one of two."""
        if same_steps(a.steps, b.steps) and is_outside(a, merge.then.block) and is_outside(b, merge.other.block):
            # The same part of one storage or another: tensors that share a storage in both branches still do.
            key = (a.storage, b.storage)
            if key not in merge.storages:
                merge.storages[key] = View(self.merged_storage(merge, View(a.storage), View(b.storage)))
            return View(merge.storages[key].storage, a.steps)
        return View(self.merged_storage(merge, a, b))

    def merged_storage(self, merge: Merge, a: View, b: View) -> Storage:
        contiguous = self.is_contiguous(a) and self.is_contiguous(b)
        return Storage(merge.hole(a, b), self.depth, is_contiguous=contiguous, location=self.t.location)

    def emit_if(self, flag: SSAValue, merge: Merge) -> Sequence[SSAValue]:
        """The op, with one result for each hole."""
        lefts = self.in_branch(merge.then, [h.left for h in merge.holes])
        rights = self.in_branch(merge.other, [h.right for h in merge.holes])
        types = [_joined(left, right) for left, right in zip(lefts, rights, strict=True)]
        for branch, operands in ((merge.then, lefts), (merge.other, rights)):
            with self.inside(branch.block):
                yields = [self.fitted(o, t) for o, t in zip(operands, types, strict=True)]
                self.t.emit(IfYieldOp, yields)
        blocks = (merge.then.block, merge.other.block)
        if not types and all(has_no_effect(b) for b in blocks):
            return ()
        return self.t.emit(IfOp, (flag,), types, regions=[Region(b) for b in blocks]).results

    def in_branch(self, branch: Branch, values: Sequence[Any]) -> list[SSAValue | Uninitialized]:
        """Materialise values where the branch ends."""
        mark = self.heap.mark()
        with self.inside(branch.block):
            for (owner, name), value in branch.changes.items():
                self.heap.set(owner, name, value)
            found = [v if isinstance(v, Uninitialized) else self.materialize(v) for v in values]
        self.heap.undo(mark)
        return found

    def fitted(self, value: SSAValue | Uninitialized, type_: Attribute) -> SSAValue:
        return self.placeholder(type_) if isinstance(value, Uninitialized) else self.cast(value, type_)

    def fit_or_placeholder(self, value: Any, type_: Attribute) -> SSAValue:
        """A value of exactly this type; any such value for one that nobody looks at."""
        return self.placeholder(type_) if isinstance(value, Uninitialized) else self.fit(value, type_)

    def placeholder(self, type_: Attribute) -> SSAValue:
        """Some value of a type, for a place that nobody looks at."""
        if type_ in _ZEROS:
            return self.t.constant(_ZEROS[type_])
        if isinstance(type_, TensorType) and type_.shape is not None and type_.dtype is not None:
            none = self.t.constant(None)
            sizes = self.t.ints([d or 0 for d in type_.shape])
            made = intern(type(type_), (tuple(d or 0 for d in type_.shape), type_.element_type))
            zeros = self.t.op("aten.zeros", (sizes, self.t.constant(type_.dtype.code), none, none, none), (made,))[0]
            return self.cast(zeros, type_)
        return self.t.value(UninitializedOp, (), type_)

    def filled(self, value: Any, results: Sequence[SSAValue]) -> Any:
        """A merged value with the op's results in place of the holes."""
        if isinstance(value, Hole):
            return results[value.index]
        if isinstance(value, Tuple):
            return Tuple(tuple(self.filled(v, results) for v in value.items))
        if isinstance(value, Maybe):
            return Maybe(self.filled(value.flag, results), self.filled(value.value, results))
        if isinstance(value, View) and isinstance(value.storage.content, Hole):
            value.storage.content = results[value.storage.content.index]
        if isinstance(value, List) and value.depth == self.depth:
            value.content = self.filled_content(value.content, results)
        return value

    def filled_content(self, content: Any, results: Sequence[SSAValue]) -> Any:
        if not isinstance(content, tuple):
            return self.filled(content, results)
        return tuple(
            (v[0], self.filled(v[1], results)) if isinstance(v, tuple) else self.filled(v, results) for v in content
        )

    def planned_links(self, flag: SSAValue, merge: Merge) -> list[tuple[Storage, Storage, Any, View | None]]:
        """For each merged tensor, the storages that it may be, and the flag or hole that tells when."""
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
                if side.storage.depth <= self.depth:
                    if is_outside(side, branch.block):
                        holds = flag if is_then else merge.hole(Known(False), Known(True))
                        links.append((storage, side.storage, holds, View(side.storage, side.steps)))
                    else:
                        links.append((storage, side.storage, None, None))
                    continue
                links_there = partial(branch.get, name="links")
                for other, flags, view in self.reach(side.storage, self.depth, links_there):
                    if flags is not None and view is not None and not side.steps and is_outside(view, branch.block):
                        pair = (Both(flags), Known(False)) if is_then else (Known(False), Both(flags))
                        links.append((storage, other, merge.hole(*pair), view))
                    else:
                        links.append((storage, other, None, None))
                for peer in owners.setdefault(side.storage, []):
                    links.append((storage, peer, None, None))
                owners[side.storage].append(storage)
        return links

    def choose(self, flag: SSAValue, compute: Callable[[], SSAValue], otherwise: SSAValue) -> SSAValue:
        """One value or another, as a flag says at run time."""
        mark, blocks = self.heap.mark(), (Block(), Block())
        type_ = otherwise.type
        with self.inside(blocks[0]):
            self.t.emit(IfYieldOp, (self.cast(compute(), type_),))
        self.heap.undo(mark)
        with self.inside(blocks[1]):
            self.t.emit(IfYieldOp, (otherwise,))
        return self.t.emit(IfOp, (flag,), (type_,), regions=[Region(b) for b in blocks]).results[0]


_ZEROS: dict[Attribute, Any] = {INT: 0, FLOAT: 0.0, BOOL: False, NONE: None, NUMBER: 0}


def _joined(a: SSAValue | Uninitialized, b: SSAValue | Uninitialized) -> Attribute:
    if isinstance(a, Uninitialized) or isinstance(b, Uninitialized):
        return b.type if isinstance(a, Uninitialized) else a.type
    return join_types(a.type, b.type)
