"""Loops under evaluation: unrolled where possible and worth it, else repeated until what they carry is stable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Attribute, Block, Region, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.ops import LoopConditionOp, LoopOp
from flambeau.dialects.torch.types import BOOL, INT, OptionalType, UnionType, join_types
from flambeau.passes.evaluate.joins import has_no_effect, is_outside, like
from flambeau.passes.evaluate.operands import fit_or_placeholder, materialize
from flambeau.passes.evaluate.state import Evaluation, Raised
from flambeau.passes.evaluate.storages import is_contiguous, link_storages, reach, wrapped
from flambeau.passes.evaluate.values import (
    SERIAL,
    Cell,
    Either,
    Known,
    List,
    Maybe,
    Stale,
    Storage,
    Tuple,
    Uninitialized,
    View,
)
from flambeau.passes.evaluate.walk import walk

UNROLLED_OPS = 2048
"""A loop whose trip count is known is unrolled when that takes at most so many ops."""
FORCED_OPS = 200_000
"""The same where the loop cannot stay one, because a list grows in it, say."""
Path = tuple[Any, ...]
ALIAS = object()
"""The start of the path of a flag that tells whether a tensor is one outside the loop."""
_FOREVER = 1 << 62


def evaluate_loop(e: Evaluation, op: LoopOp) -> None:
    """Evaluate a loop: unrolled where possible and worth it, else as a loop, else unrolled at greater cost."""
    trip, condition, *inits = [e.values[o] for o in op.operands]
    if e.features.fold:
        if condition == Known(False) or (isinstance(trip, Known) and trip.value <= 0):
            e.record(op, inits)
            return
        if unroll(e, op, trip, condition, inits, UNROLLED_OPS):
            return
    mark = e.heap.mark()
    e.attempts += 1
    try:
        e.record(op, Loop(e, op, inits).emit(trip, condition))
        return
    except Unsupported as error:
        e.heap.undo(mark)
        problem = error
    finally:
        e.attempts -= 1
    if not e.features.fold or not unroll(e, op, trip, condition, inits, FORCED_OPS):
        raise problem


def unroll(e: Evaluation, op: LoopOp, trip: Any, condition: Any, inits: Sequence[Any], limit: int) -> bool:
    """Evaluate a loop iteration by iteration; False, and nothing done, where that is not possible or too much."""
    size = max(1, sum(1 for _ in op.body.walk()))
    if not isinstance(trip, Known) or not isinstance(condition, Known):
        return False
    if trip.value < _FOREVER and trip.value * size > limit:
        return False
    mark, outer, scratch = e.heap.mark(), e.t.block, Block()
    problems = dict(e.problems)
    e.t.block = scratch
    i, going, is_done = 0, bool(condition.value), False
    try:
        while going and i < trip.value:
            e.values[op.body.args[0]] = Known(i)
            e.values.update(zip(op.body.args[1:], inits, strict=True))
            flag, *inits = walk(e, op.body)
            i += 1
            if not isinstance(flag, Known) or i * size > limit:
                e.heap.undo(mark)
                e.problems.clear()
                e.problems.update(problems)
                return False
            going = bool(flag.value)
        is_done = True
    finally:
        e.t.block = outer
        if not is_done:
            scratch.drop_all_references()
    for new in list(scratch.ops):
        new.detach()  # type: ignore[no-untyped-call]
        outer.add_op(new)
    e.record(op, inits)
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

    e: Evaluation
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
    scattered: set[Path] = field(default_factory=set)
    """Tensors that change and are not always contiguous."""
    originals: dict[Path, Any] = field(default_factory=dict)
    """What is at the places that change, before the loop."""
    grown: bool = False
    start: int = field(default_factory=SERIAL.__next__)
    """Whatever was born later was made inside the loop."""

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
                    flag, *nexts = walk(e, self.op.body)
                except Raised as raised:
                    raise Unsupported(f"the loop always raises: {raised.message}") from raised
                self.compare_all(mark, nexts)
                if not self.grown:
                    yielded = [fit_or_placeholder(e, self.at(p, nexts), self.carried.get(p, BOOL)) for p, _ in slots]
                    e.t.emit(LoopConditionOp, (materialize(e, flag), *yielded))
            e.heap.undo(mark)
            if not self.grown:
                return self.finish(trip, condition, block, slots)
            block.drop_all_references()
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
        self.assume_heap(make, slots, made)

    def assume_heap(self, make: Any, slots: Any, made: dict[Path, Storage]) -> None:
        """Assume what is on the heap at the start of an iteration, or behind the loop."""
        for cell in self.written:
            self.e.heap.set(cell, "content", self.assumed_content(cell, make, slots, made))
        for cell, stale in self.stale.items():
            self.e.heap.set(cell, "stale", stale)
        self.link_all(made, self.flags(make, slots))

    def flags(self, make: Any, slots: Any) -> dict[tuple[Path, int], SSAValue]:
        """List for each tensor that may be one outside the flag that tells whether it is."""
        found: dict[tuple[Path, int], SSAValue] = {}
        for path, aliases in self.aliases.items():
            for i, alias in enumerate(aliases):
                if alias.is_exact and path in self.carried:
                    init = self.originals.get(path)
                    slots.append(((ALIAS, path, i), Known(isinstance(init, View) and init.same(alias.view))))
                    found[path, i] = make(BOOL)
        return found

    def link_all(self, made: dict[Path, Storage], flags: dict[tuple[Path, int], SSAValue]) -> None:
        for path, aliases in self.aliases.items():
            for i, alias in enumerate(aliases):
                if path not in made:
                    continue
                flag = flags.get((path, i))
                link_storages(self.e, made[path], alias.view.storage, flag, alias.view if flag is not None else None)
        for a, b in self.peers:
            if a in made and b in made:
                link_storages(self.e, made[a], made[b])

    def assumed(self, value: Any, path: Path, make: Any, slots: Any, made: dict[Path, Storage]) -> Any:
        """Make the value that stands at a place at the start of an iteration, or behind the loop."""
        e = self.e
        if path in self.carried:
            new = make(self.carried[path])
            slots.append((path, value))
            self.originals[path] = value
            if not isinstance(value, View):
                if not isinstance(value, Uninitialized):
                    return new
                unset = wrapped(e, new, value.type)
                if isinstance(unset, View):
                    made[path] = unset.storage
                return unset
            dense = is_contiguous(e, value) and path not in self.scattered
            made[path] = Storage(new, e.depth, is_contiguous=dense, location=e.t.location)
            return View(made[path])
        if isinstance(value, Maybe):
            flag, inner = ((*path, key) for key in ("flag", "value"))
            return Maybe(
                self.assumed(value.flag, flag, make, slots, made), self.assumed(value.value, inner, make, slots, made)
            )
        if isinstance(value, Tuple):
            return Tuple(tuple(self.assumed(v, (*path, i), make, slots, made) for i, v in enumerate(value.items)))
        if isinstance(value, List) and path in self.rebound:
            items = tuple(self.assumed(v, (*path, i), make, slots, made) for i, v in enumerate(value.content))
            new_list = List(items, e.depth, element_type=value.element_type)
            link_storages(e, new_list, value)  # which it is, as long as no iteration has run
            return new_list
        return value

    def assumed_content(self, cell: Cell, make: Any, slots: Any, made: dict[Path, Storage]) -> Any:
        if isinstance(cell, Storage):
            return self.assumed(cell.content, (cell,), make, slots, made)
        if isinstance(cell, List):
            return tuple(self.assumed(v, (cell, i), make, slots, made) for i, v in enumerate(cell.content))
        return tuple((k, self.assumed(v, (cell, k), make, slots, made)) for k, v in cell.content)

    def compare_all(self, mark: int, nexts: list[Any]) -> None:
        """Find out what an iteration changed that was assumed to stay."""
        e = self.e
        self.holders: dict[Storage, Path] = {}
        self.lists: dict[List, Path] = {}
        for i, now in enumerate(nexts):
            init = self.inits[i]
            if e.features.containers:
                init = like(init, now)
                nexts[i] = now = like(now, init)
            if init is not self.inits[i]:
                self.inits[i], self.grown = init, True
            self.compare(init, now, (i,))
        for owner, name, before in list(e.heap.changed(mark)):
            if not isinstance(owner, Cell) or owner.depth >= e.depth:
                if name == "steps" and owner.born < self.start:
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
        """Find out whether the value at a place changed, and if so, carry it with a type that holds for both."""
        if path in self.carried:
            self.widen(path, self.carried[path], now)
            if isinstance(now, View):
                self.alias(path, now)
                self.check_dense(path, now)
        elif before is now or (isinstance(before, Known) and before == now):
            return
        elif isinstance(before, View) and isinstance(now, View):
            if before.same(now):
                return
            self.widen(path, before.type, now)
            self.alias(path, before)
            self.alias(path, now)
            self.check_dense(path, now)
        elif isinstance(before, Maybe) and isinstance(now, Maybe):
            self.compare(before.flag, now.flag, (*path, "flag"))
            self.compare(before.value, now.value, (*path, "value"))
        elif isinstance(before, Tuple) and isinstance(now, Tuple) and len(before.items) == len(now.items):
            for i, (a, b) in enumerate(zip(before.items, now.items, strict=True)):
                self.compare(a, b, (*path, i))
        elif isinstance(before, List) and isinstance(now, List) and len(before.content) == len(now.content):
            self.rebind(path, before, now)
            for i, (a, b) in enumerate(zip(before.content, now.content, strict=True)):
                self.compare(a, b, (*path, i))
        else:
            self.widen(path, self.type_of(before), now)

    def rebind(self, path: Path, before: List, now: List) -> None:
        """Remember that a place holds another list in each iteration; Unsupported where that one has other names."""
        if now.depth < self.e.depth or any(self.lists.setdefault(x, path) != path for x in (before, now)):
            raise Unsupported(
                "two variables name one list in a loop whose trip count is not known", "Copy it: list(l)."
            )
        if path not in self.rebound:
            self.rebound.add(path)
            self.grown = True

    def check_dense(self, path: Path, now: View) -> None:
        if path not in self.scattered and not is_contiguous(self.e, now):
            self.scattered.add(path)
            self.grown = True

    def widen(self, path: Path, have: Attribute | None, now: Any) -> None:
        """Widen the type of a place that changes from iteration to iteration until it holds for all of them."""
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
        """Find the type of a value; None for one that nobody looks at."""
        if isinstance(value, Uninitialized):
            return None
        if isinstance(value, View | Known | SSAValue):
            return value.type
        raise Unsupported(f"a {type(value).__name__.lower()} changes in a loop whose trip count is not known")

    def alias(self, path: Path, view: View) -> None:
        """Remember which tensors outside a changing one may be."""
        storage = view.storage
        if storage.depth < self.e.depth:
            self.add_alias(path, view, is_outside(view, self.e.t.block))
            return
        for other, way in reach(storage, self.e.depth - 1):
            if way is not None and not view.steps and is_outside(way.view, self.e.t.block):
                self.add_alias(path, way.view, True)
            else:
                self.add_alias(path, View(other), False)
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
        """Tell whether a tensor at the end of an iteration is one outside."""
        if not isinstance(now, View):
            return Known(False)
        if now.same(alias.view):
            return Known(True)
        if not now.steps:
            reached = reach(now.storage, self.e.depth - 1)
            ways = [way.condition for _, way in reached if way is not None and way.view.same(alias.view)]
            if ways:
                return Either(tuple(ways))
        return Known(False)

    def at(self, path: Path, nexts: Sequence[Any]) -> Any:
        """Find what is at a place at the end of an iteration."""
        first, *rest = path
        if first is ALIAS:
            place, i = rest
            return self.is_alias(self.at(place, nexts), self.aliases[place][i])
        if isinstance(first, Storage):
            return first.content
        value: Any = first if isinstance(first, Cell) else nexts[first]
        for key in rest:
            if isinstance(value, Maybe):
                value = getattr(value, key)
            elif isinstance(value, Tuple):
                value = value.items[key]
            elif isinstance(value, List):
                value = value.content[key]
            else:
                value = dict(value.content)[key]
        return value

    def finish(self, trip: Any, condition: Any, block: Block, slots: list[tuple[Path, Any]]) -> list[Any]:
        e = self.e
        types = [self.carried.get(path, BOOL) for path, _ in slots]
        inits = [fit_or_placeholder(e, value, type_) for (_, value), type_ in zip(slots, types, strict=True)]
        operands = [materialize(e, trip), materialize(e, condition), *inits]
        if not types and has_no_effect(block):
            return self.inits
        new = e.t.emit(LoopOp, operands, types, regions=[Region(block)])
        results = iter(new.results)
        made: dict[Path, Storage] = {}

        def make(_: Attribute) -> SSAValue:
            return next(results)

        finals = [self.assumed(v, (i,), make, [], made) for i, v in enumerate(self.inits)]
        self.assume_heap(make, [], made)
        return finals
