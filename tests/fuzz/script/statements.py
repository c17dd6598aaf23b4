"""Random statements: which, and how they nest in branches and loops."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from random import Random
from typing import Any

from fuzz.script.containers import Containers
from fuzz.script.variables import (
    FLOAT,
    MAX_ELEMENTS,
    Dead,
    Dict,
    Int,
    List,
    Maybe,
    Tensor,
    data_int,
)


class Statements(Containers):
    """Writes statements and keeps track of what they do."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        # Each program has a mix of its own: what is rare in one is frequent in another.
        self.table = [(weight * self.pick([0, 1, 1, 1, 4]), make) for weight, make in _STATEMENTS]
        if not any(weight for weight, _ in self.table):
            self.table = _STATEMENTS

    def statement(self) -> None:
        self.left -= 1
        make = self.weighted(self.table)
        mark, scopes = len(self.lines), [dict(b.scope) for b in self.blocks]
        depth = len(self.blocks)
        try:
            make(self)
        except Dead:
            del self.lines[mark:]
            del self.blocks[depth:]
            for block, scope in zip(self.blocks, scopes, strict=True):
                block.scope = scope

    def body(self, low: int, high: int) -> None:
        for _ in range(self.number(low, high)):
            if self.left > 0:
                self.statement()

    def loop_over_dict(self) -> None:
        dicts = self.variables(Dict)
        if not dicts or self.times > 4:
            raise Dead
        name, value = self.pick(dicts)
        if value.is_fixed:
            raise Dead
        key, item = self.name("s"), self.name("v")
        self.emit(f"for {key}, {item} in {name}.items():")
        value.is_fixed = True
        with self.block(loop="items", times=len(value.keys)):
            self.define(item, copy(value.element))
            self.body(1, 2)
        value.is_fixed = False

    # Optionals

    def test_optional(self) -> None:
        optionals = self.variables(Maybe)
        if not optionals:
            raise Dead
        name, value = self.pick(optionals)
        self.emit(f"if {name} is not None:")
        with self.block(is_certain=False):
            self.bind("v", name, copy(value.element))
            self.body(1, 2)
        if self.chance(40):
            self.emit("else:")
            with self.block(is_certain=False):
                self.body(1, 2)

    # Branches

    def branch(self) -> None:
        if len(self.blocks) > 3:
            raise Dead
        test, data, answer = self.condition()
        self.emit(f"if {test}:")
        shared = None
        has_else = self.chance(60)
        if has_else and self.chance(50):
            shared = self.name("v"), self.atom()[1]
        sides = [answer, None if answer is None else not answer]
        results = []
        for taken in sides[: 1 + has_else]:
            if results:
                self.emit("else:")
            kept = self.snapshot()
            with self.block(is_certain=taken is True, is_data=data):
                self.body(1, 3)
                if shared is not None:
                    text, value = self.like(shared[1])
                    self.emit(f"{shared[0]} = {text}")
                    results.append(value)
                else:
                    results.append(None)
            if taken is False:
                self.restore(kept)
        if shared is not None:
            a, b = results
            same = a.meta.stride() == b.meta.stride()
            meta = a.meta if b.is_writable else b.meta
            certain = a.is_certain and b.is_certain and same
            self.define(shared[0], Tensor(meta, a.roots | b.roots, certain))

    def snapshot(self) -> list[tuple[Any, dict[str, Any]]]:
        """Record what containers are before a branch that is never taken."""
        values = [v for _, v in self.variables(object) if isinstance(v, List | Dict)]
        return [(v, {**vars(v), **({"keys": list(v.keys)} if isinstance(v, Dict) else {})}) for v in values]

    def restore(self, kept: list[tuple[Any, dict[str, Any]]]) -> None:
        for value, before in kept:
            vars(value).update(before)

    def two_lists(self) -> tuple[str, str, List, List]:
        """Pick two variables that are lists of as many tensors, of one shape."""
        lists = self.variables(List)
        pairs = [
            (a, b, x, y)
            for a, x in lists
            for b, y in lists
            if x is not y and x.element.key == y.element.key and x.length == y.length and x.is_exact and y.is_exact
        ]
        if not pairs:
            raise Dead
        return self.pick(pairs)

    def rebind_lists(self) -> None:
        """Let two variables name other lists, or one, which in a loop or a branch happens or does not."""
        a, b, x, y = self.two_lists()
        merged = self.both(x, y, x.length)
        kind = self.pick(["other", "new", "both"])
        if kind == "other":
            self.emit(f"{a} = {b}")
        else:
            texts = []
            for _ in range(x.length):
                text, new = self.like(x.element)
                if not new.is_writable:
                    raise Dead
                self.grow(merged, new)
                texts.append(text)
            if not texts:
                raise Dead
            self.emit(f"{a} = [{', '.join(texts)}]")
            if kind == "both":
                self.emit(f"{b} = {a}")
        x.is_fixed = y.is_fixed = merged.is_fixed = True
        x.element = y.element = merged.element
        for block in self.blocks:
            block.scope.update({name: merged for name in (a, b) if name in block.scope})

    def bind_list_in_branch(self) -> None:
        """Bind one of two lists, by a condition."""
        a, b, x, y = self.two_lists()
        test, _, _ = self.condition()
        name = self.name("l")
        self.emit(f"{name} = {a}")
        self.emit(f"if {test}:")
        self.emit(f"    {name} = {b}")
        x.is_fixed = y.is_fixed = True
        merged = self.both(x, y, x.length)
        merged.is_fixed = True
        x.element = y.element = merged.element
        self.define(name, merged)

    def early_return(self) -> None:
        if self.wanted is None or self.helpers_open:
            raise Dead
        test, _, _ = self.condition()
        self.emit(f"if {test}:")
        with self.block(is_certain=False):
            self.return_wanted()

    # Loops

    def loop(self) -> None:
        if len(self.blocks) > 3 or self.times > 4 or sum(bool(b.loop) for b in self.blocks) > 1:
            raise Dead
        kind = self.weighted([(4, "constant"), (3, "size"), (3, "data"), (2, "while"), (2, "list")])
        if kind == "list":
            self.loop_over_list()
            return
        exits = self.chance(35)
        if kind == "while":
            self.while_loop(exits)
            return
        index = self.name("i")
        if kind == "data":
            counts = [n for n, v in self.variables(Int) if n.startswith("k")]
            if not counts:
                raise Dead
            self.emit(f"for {index} in range({self.pick(counts)}):")
            with self.block(loop="for", times=3, is_certain=False, is_data=True):
                self.define(index, Int(1, False))
                self.loop_body(exits)
            return
        times = self.number(1, 3)
        text = str(times)
        if kind == "size":
            a, value = self.atom(where=lambda t: t.meta.dim() > 0)
            times = value.meta.size(0)
            text = f"{a}.size(0)"
        if self.chance(20) and times > 1:
            text, times = f"1, {text}", times - 1
        self.emit(f"for {index} in range({text}):")
        with self.block(loop="for", times=times, is_certain=not exits):
            self.define(index, Int(1, False))
            self.loop_body(exits)

    def loop_body(self, exits: bool) -> None:
        self.body(1, 3)
        if exits:
            test, data, _ = self.condition()
            if data:
                self.blocks[-1].is_data = True
            self.emit(f"if {test}:")
            with self.block(is_certain=False, is_data=data):
                self.body(0, 1)
                self.emit(self.pick(["break", "continue"]) if self.blocks[-2].loop != "while" else "break")
            self.body(0, 2)

    def while_loop(self, exits: bool) -> None:
        step = self.name("n")
        if self.chance(50):
            # The sum grows by at least one each time, and nothing else writes it.
            total, limit = self.name("z"), self.number(1, 3)
            self.emit(f"{total} = torch.zeros([2])")
            self.emit(f"while bool({total}.sum() < {limit}):")
            with self.block(loop="while", times=3, is_certain=False, is_data=True):
                self.emit(f"{total}.add_({self.pick(['0.5', '1.0'])})")
                self.loop_body(exits)
            return
        self.emit(f"{step} = 0")
        test = self.test_of_data() if self.chance(60) else ""
        limit = self.number(1, 3)
        bound = f"{step} < {limit}"
        counts = [n for n, v in self.variables(Int) if n.startswith("k")]
        if test and counts and self.chance(40):
            bound = f"{step} < {self.pick(counts)}"
        if test:
            # Whatever the test says, the loop ends: each part has a bound, or one that holds for the whole.
            bound = self.pick(
                [
                    f"({test}) and {bound}",
                    f"{bound} and ({test})",
                    f"{bound} and not ({test})",
                    f"({bound} and ({test})) or {step} < 1",
                    f"{bound} and (({test}) or {self.test_of_data()})",
                ]
            )
        self.emit(f"while {bound}:")
        with self.block(loop="while", times=limit, is_certain=not test and not exits, is_data=bool(test)):
            self.emit(f"{step} += 1")
            self.define(step, Int(1, False))
            self.loop_body(exits)

    def growing_loop(self) -> None:
        """Make a tensor longer in a loop; how long it is in the end may depend on data."""
        base, value = self.atom(where=lambda t: t.meta.dim() > 0 and t.meta.dtype is FLOAT)
        if self.times > 1 or not 0 < value.meta.numel() <= MAX_ELEMENTS // 2:
            raise Dead
        dim = self.number(0, value.meta.dim() - 1)
        grown, index = self.name("z"), self.name("i")
        counts = [n for n, v in self.variables(Int) if n.startswith("k")]
        trip = self.pick([*counts, str(self.number(1, 3))])
        part = self.pick(
            [base, f"{base} + {index}", f"{grown}.narrow({dim}, 0, 1)", f"{grown}.narrow({dim}, 0, 1) * 2"]
        )
        pair = self.pick([f"{grown}, {part}", f"{part}, {grown}"])
        self.emit(f"{grown} = {base}{self.pick(['', ' * 1.5', '.clone()'])}")
        self.emit(f"for {index} in range({trip}):")
        self.emit(f"    {grown} = torch.cat([{pair}], {dim})")
        if self.chance(30):
            self.emit(f"    if {self.condition()[0]}:")
            self.emit(f"        {grown} = {grown} * 0.5")
        reduced = self.pick([f".sum({dim})", f".amax({dim})", f".narrow({dim}, 0, 1) + 1"])
        self.bind("v", f"{grown}{reduced}", self.new(self.evaluated(f"{base}{reduced}")))
        self.bind("n", f"{grown}.size({dim})", data_int())

    def loop_over_list(self) -> None:
        lists = [(n, v) for n, v in self.variables(List) if v.is_exact and not v.is_fixed]
        if not lists:
            raise Dead
        name, value = self.pick(lists)
        item, index = self.name("v"), self.name("i")
        if self.chance(40):
            self.emit(f"for {index}, {item} in enumerate({name}):")
        else:
            index = ""
            self.emit(f"for {item} in {name}:")
        value.is_fixed = True
        with self.block(loop="list", times=value.length):
            self.define(item, copy(value.element))
            if index:
                self.define(index, Int(1, False))
            self.body(1, 3)
        value.is_fixed = False


_STATEMENTS: list[tuple[int, Callable[[Statements], None]]] = [
    (8, Statements.new_value), (8, Statements.new_view), (12, Statements.write), (10, Statements.write_item),
    (4, Statements.write_augmented), (4, Statements.alias), (6, Statements.rebind), (3, Statements.new_number),
    (2, Statements.rebind_number), (1, Statements.new_float), (1, Statements.new_bool), (2, Statements.rebind_tuple),
    (1, Statements.new_metadata), (3, Statements.new_tuple), (1, Statements.concatenate_tuples),
    (2, Statements.unpack_tuple), (4, Statements.new_list), (3, Statements.new_parts), (5, Statements.change_list),
    (2, Statements.join_list), (2, Statements.new_dict), (2, Statements.change_dict), (1, Statements.loop_over_dict),
    (2, Statements.new_optional), (2, Statements.set_optional), (2, Statements.test_optional),
    (10, Statements.branch), (1, Statements.bind_list_in_branch), (2, Statements.rebind_lists),
    (3, Statements.early_return), (9, Statements.loop), (2, Statements.growing_loop),
]  # fmt: skip
