"""Branches and loops under evaluation: what both sides of a join agree on stays known, the rest becomes results.

A branch or a loop's body is evaluated into a block of its own; the heap then says what it changed. Whatever existed
before and is different afterwards becomes a result of the op, beside the results that the program names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.traits import is_side_effect_free

from flambeau.diagnostics import Diagnostic, Unsupported
from flambeau.dialects.torch.control_flow import IfOp, IfYieldOp, LoopConditionOp, LoopOp
from flambeau.dialects.torch.ops import RuntimeAssertOp, UninitializedOp
from flambeau.dialects.torch.types import (
    BOOL,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    OptionalType,
    TensorType,
    UnionType,
    intern,
    is_subtype,
    optional_of,
)
from flambeau.passes.evaluate.rules import Raised
from flambeau.passes.evaluate.values import (
    SERIAL,
    Cell,
    Heap,
    Known,
    List,
    Stale,
    Storage,
    Tuple,
    Uninitialized,
    View,
)

if TYPE_CHECKING:
    from flambeau.dialects.torch.emitter import TorchEmitter
    from flambeau.passes.evaluate.evaluator import Features

UNROLLED_OPS = 2048
"""A loop whose trip count is known is unrolled when that takes at most so many ops."""
FORCED_OPS = 200_000
"""The same where the loop cannot stay one, because a list grows in it, say."""

Path = tuple[Any, ...]
ALIAS = object()
"""The start of the path of a flag that tells whether a tensor is one outside the loop."""


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


class ControlFlow:
    """The part of the evaluator that joins."""

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
    record: Callable[[Operation, Any], None]

    @contextmanager
    def inside(self, block: Block) -> Iterator[None]:
        """Emit into a block of a region."""
        outer = self.t.block
        self.t.block = block
        self.depth += 1
        try:
            yield
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
            self.t.emit(RuntimeAssertOp, (wanted,), (), {"message": raised.attribute})
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
            if owner.born > merge.start or (isinstance(owner, Cell) and owner.depth > self.depth):
                continue
            left, right = merge.then.get(owner, name), merge.other.get(owner, name)
            if name == "content":
                cells[owner, name] = self.merged_content(owner, left, right, merge)
            elif name == "stale":
                cells[owner, name] = left or right
            elif name == "steps" and not _same_steps(left, right):
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
        a, b = _like(a, b), _like(b, a)
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
        if _same_steps(a.steps, b.steps) and not any(
            _is_inside(o, block)
            for s in (*a.steps, *b.steps)
            for o in s.operands
            for block in (merge.then.block, merge.other.block)
        ):
            # The same part of one storage or another: tensors that share a storage in both branches still do.
            key = (a.storage, b.storage)
            if key not in merge.storages:
                merge.storages[key] = View(self.merged_storage(merge, View(a.storage), View(b.storage)))
            return View(merge.storages[key].storage, a.steps)
        return View(self.merged_storage(merge, a, b))

    def merged_storage(self, merge: Merge, a: View, b: View) -> Storage:
        contiguous = a.storage.is_contiguous and b.storage.is_contiguous and not a.steps and not b.steps
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
        if not types and all(_has_no_effect(b) for b in blocks):
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
                    if _is_outside(side, branch.block):
                        holds = flag if is_then else merge.hole(Known(False), Known(True))
                        links.append((storage, side.storage, holds, View(side.storage, side.steps)))
                    else:
                        links.append((storage, side.storage, None, None))
                    continue
                for old in branch.get(side.storage, "links"):
                    if old.other.depth > self.depth:
                        continue
                    is_exact = old.condition is not None and old.view.storage is old.other and not side.steps
                    if is_exact and _is_outside(old.view, branch.block):
                        pair = (old.condition, Known(False)) if is_then else (Known(False), old.condition)
                        links.append((storage, old.other, merge.hole(*pair), old.view))
                    else:
                        links.append((storage, old.other, None, None))
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

    # --- Loops ---

    def loop(self, op: LoopOp) -> None:
        trip, condition, *inits = [self.values[o] for o in op.operands]
        if self.features.fold:
            if condition == Known(False) or (isinstance(trip, Known) and trip.value <= 0):
                self.finish(op, inits)
                return
            if self.unrolled(op, trip, condition, inits, UNROLLED_OPS):
                return
        mark = self.heap.mark()
        self.attempts += 1
        try:
            self.finish(op, Loop(self, op, inits).emit(trip, condition))
            return
        except Unsupported as e:
            self.heap.undo(mark)
            problem = e
        finally:
            self.attempts -= 1
        if not self.features.fold or not self.unrolled(op, trip, condition, inits, FORCED_OPS):
            raise problem

    def unrolled(self, op: LoopOp, trip: Any, condition: Any, inits: Sequence[Any], limit: int) -> bool:
        """Evaluate a loop iteration by iteration; False, and nothing done, where that is not possible or too much."""
        size = max(1, sum(1 for _ in op.body.walk()))
        if not isinstance(trip, Known) or not isinstance(condition, Known):
            return False
        if trip.value < _FOREVER and trip.value * size > limit:
            return False
        mark, outer, scratch = self.heap.mark(), self.t.block, Block()
        problems = dict(self.problems)
        self.t.block = scratch
        i, going = 0, bool(condition.value)
        try:
            while going and i < trip.value:
                self.values[op.body.args[0]] = Known(i)
                self.values.update(zip(op.body.args[1:], inits, strict=True))
                flag, *inits = self.walk(op.body)
                i += 1
                if not isinstance(flag, Known) or i * size > limit:
                    self.heap.undo(mark)
                    self.problems = problems
                    return False
                going = bool(flag.value)
        finally:
            self.t.block = outer
        for new in list(scratch.ops):
            new.detach()  # type: ignore[no-untyped-call]
            outer.add_op(new)
        self.finish(op, inits)
        return True


@dataclass(frozen=True, eq=False)
class Alias:
    """A tensor outside a loop that one of the loop's own may be."""

    view: View
    is_exact: bool
    """Whether the program can tell when it is."""


@dataclass
class Loop:
    """One loop that stays a loop: evaluated until what it carries is stable."""

    e: Any
    op: LoopOp
    inits: list[Any]
    carried: dict[Path, Attribute] = field(default_factory=dict)
    """The places whose value changes from iteration to iteration, with their types."""
    rebound: set[Path] = field(default_factory=set)
    """The places that hold another list in each iteration, of the same length."""
    written: dict[Cell, None] = field(default_factory=dict)
    stale: dict[Cell, Stale] = field(default_factory=dict)
    aliases: dict[Path, list[Alias]] = field(default_factory=dict)
    """Tensors that change, and the tensors outside that they may be."""
    peers: set[tuple[Path, Path]] = field(default_factory=set)
    """Pairs of tensors that change and may be one."""
    grown: bool = False

    def emit(self, trip: Any, condition: Any) -> list[Any]:
        """Emit the loop; gives its results."""
        e = self.e
        # Each round adds a place, widens a type or is the last.
        for _ in range(100):
            self.grown = False
            mark, block = e.heap.mark(), Block(arg_types=[INT])
            slots: list[tuple[Path, Any]] = []
            with e.inside(block):
                self.enter(block, slots)
                try:
                    flag, *nexts = e.walk(self.op.body)
                except Raised as raised:
                    raise Unsupported(f"the loop always raises: {raised.message}") from raised
                self.compare_all(mark, nexts)
                if not self.grown:
                    yielded = [e.fit_or_placeholder(self.at(p, nexts), self.carried.get(p, BOOL)) for p, _ in slots]
                    e.t.emit(LoopConditionOp, (e.materialize(flag), *yielded))
            e.heap.undo(mark)
            if not self.grown:
                return self.finish(trip, condition, block, slots)
        raise Unsupported("the types of this loop's values never become stable")

    def enter(self, block: Block, slots: list[tuple[Path, Any]]) -> None:
        """Assume what the values are at the start of an iteration."""
        e = self.e
        body = self.op.body
        e.values[body.args[0]] = block.args[0]
        made: dict[Path, Storage] = {}

        def make(type_: Attribute) -> SSAValue:
            argument: SSAValue = block.insert_arg(type_, len(block.args))
            return argument

        for i, argument in enumerate(body.args[1:]):
            e.values[argument] = self.assumed(self.inits[i], (i,), make, slots, made)
        for cell in self.written:
            e.heap.set(cell, "content", self.assumed_content(cell, make, slots, made))
        for cell, stale in self.stale.items():
            e.heap.set(cell, "stale", stale)
        self.link_all(made, self.flags(make, slots))

    def flags(self, make: Any, slots: Any) -> dict[tuple[Path, int], SSAValue]:
        """For each tensor that may be one outside, the flag that tells whether it is."""
        found: dict[tuple[Path, int], SSAValue] = {}
        for path, aliases in self.aliases.items():
            for i, alias in enumerate(aliases):
                if alias.is_exact and path in self.carried:
                    init = self.at(path, self.inits)
                    slots.append(((ALIAS, path, i), Known(isinstance(init, View) and init.same(alias.view))))
                    found[path, i] = make(BOOL)
        return found

    def link_all(self, made: dict[Path, Storage], flags: dict[tuple[Path, int], SSAValue]) -> None:
        for path, aliases in self.aliases.items():
            for i, alias in enumerate(aliases):
                if path not in made:
                    continue
                flag = flags.get((path, i))
                self.e.link(made[path], alias.view.storage, flag, alias.view if flag is not None else None)
        for a, b in self.peers:
            if a in made and b in made:
                self.e.link(made[a], made[b])

    def assumed(self, value: Any, path: Path, make: Any, slots: Any, made: dict[Path, Storage]) -> Any:
        """A value at the start of an iteration, or behind the loop."""
        e = self.e
        if path in self.carried:
            new = make(self.carried[path])
            slots.append((path, value))
            if not isinstance(value, View):
                if not isinstance(value, Uninitialized):
                    return new
                wrapped = e.wrapped(new, value.type)
                if isinstance(wrapped, View):
                    made[path] = wrapped.storage
                return wrapped
            made[path] = Storage(new, e.depth, location=e.t.location)
            return View(made[path])
        if isinstance(value, Tuple):
            return Tuple(tuple(self.assumed(v, (*path, i), make, slots, made) for i, v in enumerate(value.items)))
        if isinstance(value, List) and path in self.rebound:
            items = tuple(self.assumed(v, (*path, i), make, slots, made) for i, v in enumerate(value.content))
            return List(items, e.depth, element_type=value.element_type)
        return value

    def assumed_content(self, cell: Cell, make: Any, slots: Any, made: dict[Path, Storage]) -> Any:
        if isinstance(cell, Storage):
            return self.assumed(cell.content, (cell,), make, slots, made)
        if isinstance(cell, List):
            return tuple(self.assumed(v, (cell, i), make, slots, made) for i, v in enumerate(cell.content))
        return tuple((k, self.assumed(v, (cell, k), make, slots, made)) for k, v in cell.content)

    def compare_all(self, mark: int, nexts: Sequence[Any]) -> None:
        """Find out what an iteration changed that was assumed to stay."""
        e = self.e
        self.holders: dict[Storage, Path] = {}
        for i, now in enumerate(nexts):
            self.compare(self.inits[i], now, (i,))
        for owner, name, before in list(e.heap.changed(mark)):
            if not isinstance(owner, Cell) or owner.depth >= e.depth:
                if name == "steps":
                    raise Unsupported("a tensor changes its shape in a loop")
                continue
            if name == "stale" and owner.stale is not None and owner not in self.stale:
                self.stale[owner], self.grown = owner.stale, True
            if name == "content":
                self.written.setdefault(owner)
                self.compare_content(owner, before, owner.content)

    def compare_content(self, cell: Cell, before: Any, now: Any) -> None:
        if isinstance(cell, Storage):
            self.compare(before, now, (cell,))
            return
        if len(before) != len(now):
            raise Unsupported(
                f"a {type(cell).__name__.lower()} grows or shrinks in a loop whose trip count is not known"
            )
        for i, (a, b) in enumerate(zip(before, now, strict=True)):
            if isinstance(cell, List):
                self.compare(a, b, (cell, i))
            elif a[0] == b[0]:
                self.compare(a[1], b[1], (cell, a[0]))
            else:
                raise Unsupported("the keys of a dictionary change in a loop whose trip count is not known")

    def compare(self, before: Any, now: Any, path: Path) -> None:
        e = self.e
        if path in self.carried:
            self.widen(path, self.carried[path], now)
            if isinstance(now, View):
                self.alias(path, now)
        elif before is now or (isinstance(before, Known) and before == now):
            return
        elif isinstance(before, View) and isinstance(now, View):
            if before.same(now):
                return
            self.widen(path, e.view_type(before), now)
            self.alias(path, before)
            self.alias(path, now)
        elif isinstance(before, Tuple) and isinstance(now, Tuple) and len(before.items) == len(now.items):
            for i, (a, b) in enumerate(zip(before.items, now.items, strict=True)):
                self.compare(a, b, (*path, i))
        elif isinstance(before, List) and isinstance(now, List) and len(before.content) == len(now.content):
            if path not in self.rebound:
                self.rebound.add(path)
                self.grown = True
            for i, (a, b) in enumerate(zip(before.content, now.content, strict=True)):
                self.compare(a, b, (*path, i))
        else:
            self.widen(path, self.type_of(before), now)

    def widen(self, path: Path, have: Attribute | None, now: Any) -> None:
        """A place changes from iteration to iteration; its type has to hold for all of them."""
        new = self.type_of(now)
        joined = have if new is None else new if have is None else join_types(have, new)
        if joined is None:
            return
        if have is not None and isinstance(joined, OptionalType | UnionType) and joined != have:
            raise Unsupported(f"a value of this loop is first a {have} and then a {new}")
        if path not in self.carried or self.carried[path] != joined:
            self.carried[path] = joined
            self.grown = True

    def type_of(self, value: Any) -> Attribute | None:
        """The type of a value; None for one that nobody looks at."""
        if isinstance(value, Uninitialized):
            return None
        if isinstance(value, View):
            type_: Attribute = self.e.view_type(value)
            return type_
        if isinstance(value, Known | SSAValue):
            return value.type
        raise Unsupported(f"a {type(value).__name__.lower()} changes in a loop whose trip count is not known")

    def alias(self, path: Path, view: View) -> None:
        """Remember which tensors outside a changing one may be."""
        storage = view.storage
        if storage.depth < self.e.depth:
            self.add_alias(path, view, _is_outside(view, self.e.t.block))
            return
        for link in storage.links:
            if link.other.depth < self.e.depth:
                exact = link.condition is not None and link.view is not None and link.view.storage is link.other
                view_of_other = link.view if exact and link.view is not None else View(link.other)
                self.add_alias(
                    path, view_of_other, exact and not view.steps and _is_outside(view_of_other, self.e.t.block)
                )
        peer = self.holders.setdefault(storage, path)
        if peer != path and (peer, path) not in self.peers:
            self.peers.add((peer, path))
            self.grown = True

    def add_alias(self, path: Path, view: View, is_exact: bool) -> None:
        known = self.aliases.setdefault(path, [])
        if not is_exact:
            if not any(a.view.storage is view.storage and not a.is_exact for a in known):
                known.append(Alias(View(view.storage), False))
                self.grown = True
        elif not any(a.is_exact and a.view.same(view) for a in known):
            known.append(Alias(View(view.storage, view.steps), True))
            self.grown = True

    def is_alias(self, now: Any, alias: Alias) -> Any:
        """Whether a tensor at the end of an iteration is one outside."""
        if not isinstance(now, View):
            return Known(False)
        if now.same(alias.view):
            return Known(True)
        if not now.steps:
            for link in now.storage.links:
                if link.condition is not None and link.view is not None and link.view.same(alias.view):
                    return link.condition
        return Known(False)

    def at(self, path: Path, nexts: Sequence[Any]) -> Any:
        """What is at a place at the end of an iteration."""
        first, *rest = path
        if first is ALIAS:
            place, i = rest
            return self.is_alias(self.at(place, nexts), self.aliases[place][i])
        if isinstance(first, Storage):
            return first.content
        value: Any = first if isinstance(first, Cell) else nexts[first]
        for key in rest:
            if isinstance(value, Tuple):
                value = value.items[key]
            elif isinstance(value, List):
                value = value.content[key]
            else:
                value = dict(value.content)[key]
        return value

    def finish(self, trip: Any, condition: Any, block: Block, slots: list[tuple[Path, Any]]) -> list[Any]:
        e = self.e
        types = [self.carried.get(path, BOOL) for path, _ in slots]
        inits = [e.fit_or_placeholder(value, type_) for (_, value), type_ in zip(slots, types, strict=True)]
        operands = [e.materialize(trip), e.materialize(condition), *inits]
        if not types and _has_no_effect(block):
            return self.inits
        new = e.t.emit(LoopOp, operands, types, regions=[Region(block)])
        results = iter(new.results)
        made: dict[Path, Storage] = {}

        def make(_: Attribute) -> SSAValue:
            return next(results)

        finals = [self.assumed(v, (i,), make, [], made) for i, v in enumerate(self.inits)]
        for cell in self.written:
            e.heap.set(cell, "content", self.assumed_content(cell, make, [], made))
        for cell, stale in self.stale.items():
            e.heap.set(cell, "stale", stale)
        self.link_all(made, self.flags(make, []))
        return finals


_ZEROS: dict[Attribute, Any] = {INT: 0, FLOAT: 0.0, BOOL: False, NONE: None, NUMBER: 0}
_FOREVER = 1 << 62


def join_types(a: Attribute, b: Attribute) -> Attribute:
    """The narrowest type that holds both."""
    if a == b:
        return a
    if isinstance(a, TensorType) and isinstance(b, TensorType) and type(a) is type(b):
        shape = None
        if a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape):
            shape = tuple(x if x == y else None for x, y in zip(a.shape, b.shape, strict=True))
        element = a.element_type if a.element_type == b.element_type else None
        return intern(type(a), (shape, element))
    if is_subtype(a, b):
        return b
    if is_subtype(b, a):
        return a
    if NONE in (a, b):
        return optional_of(b if a == NONE else a)
    if {a, b} <= {INT, FLOAT, NUMBER, BOOL}:
        return NUMBER
    if isinstance(a, OptionalType) or isinstance(b, OptionalType):
        inner = [t.element_type if isinstance(t, OptionalType) else t for t in (a, b)]
        return optional_of(join_types(inner[0], inner[1]))
    return intern(UnionType, (a, b))


def _joined(a: SSAValue | Uninitialized, b: SSAValue | Uninitialized) -> Attribute:
    if isinstance(a, Uninitialized) or isinstance(b, Uninitialized):
        return b.type if isinstance(a, Uninitialized) else a.type
    return join_types(a.type, b.type)


def _like(value: Any, other: Any) -> Any:
    """A value that nobody looks at, in the form of the one that it stands for."""
    if not isinstance(value, Uninitialized):
        return value
    if isinstance(other, Tuple):
        return Tuple((value,) * len(other.items))
    if isinstance(other, List):
        return List((value,) * len(other.content), other.depth, element_type=other.element_type)
    return value


def _same_steps(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(x.same(y) for x, y in zip(a, b, strict=True))


def _is_inside(value: SSAValue, block: Block) -> bool:
    """Whether a value is made in a block or in a region of one of its ops."""
    owner = value.owner
    at: Block | None = owner if isinstance(owner, Block) else owner.parent
    while at is not None:
        if at is block:
            return True
        around = at.parent_op()
        at = around.parent if around is not None else None
    return False


def _is_outside(view: View, block: Block) -> bool:
    """Whether the way to a tensor can be gone outside a block too."""
    return not any(_is_inside(o, block) for step in view.steps for o in step.operands)


def _has_no_effect(block: Block) -> bool:
    return all(is_side_effect_free(op) or op is block.last_op for op in block.ops)
