"""Random statements."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from random import Random
from typing import Any

import torch
from fuzz.expressions import Expressions
from fuzz.variables import (
    FLOAT,
    LONG,
    MAX_ELEMENTS,
    Bool,
    Dead,
    Dict,
    Float,
    Int,
    List,
    Maybe,
    Tensor,
    Tuple,
    data_int,
    is_data_int,
)
from fuzz.views import subscript


class Statements(Expressions):
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

    def new_value(self) -> None:
        text, value = self.expression()
        self.bind("v", text, value)

    def new_view(self) -> None:
        text, value = self.viewed(self.view(*self.atom()), 50)
        self.bind("v", text, value)

    def rebind(self) -> None:
        """Give an existing variable another tensor of its shape."""
        names = self.variables(Tensor)
        name, old = self.pick(names)
        text, value = self.like(old)
        if text == name:
            raise Dead
        self.emit(f"{name} = {text}")
        self.assign(name, old, value)

    def assign(self, name: str, old: Tensor, value: Tensor) -> None:
        """Remember what a variable is now, or may be."""
        if not self.is_outer(name):
            self.define(name, Tensor(value.meta, value.roots, value.is_certain))
            return
        same = old.meta.stride() == value.meta.stride()
        meta = value.meta if old.is_writable else old.meta
        merged = Tensor(meta, old.roots | value.roots, old.is_certain and value.is_certain and same)
        for block in self.blocks:
            if name in block.scope:
                block.scope[name] = merged

    def write(self) -> None:
        """Write in place, through any number of views."""

        def make() -> str:
            text, target = self.viewed(self.atom(written=True), 50)
            if not target.is_writable:
                raise Dead
            template = self.weighted(_WRITES)
            c = self.scalar(target.meta.dtype)
            line = template.format(t=text, c=c, s=self.source(target), n=self.integer()[0])
            self.evaluated(line)
            return line

        self.emit(self.retry(make))

    def write_item(self) -> None:
        """Assign to a part: `x[1:] = y`."""

        def make() -> str:
            text, base = self.atom(written=True)
            suffix = subscript(self, base.meta)
            target = self.tensor_of(text + suffix, base)
            source = self.pick([self.scalar(), self.source(target)])
            operator = self.pick(["=", "=", "+=", "-=", "*="])
            if base.meta.dtype is LONG:
                source = self.pick([str(self.number(-2, 2)), self.integer()[0]])
            if operator == "*=":
                source = "0.5" if base.meta.dtype is FLOAT else "-1"
            return f"{text}{suffix} {operator} {source}"

        self.emit(self.retry(make))

    def write_augmented(self) -> None:
        """`x += y`, where x may be an element of a list."""
        found = [
            p
            for p in self.places(written=True)
            if "(" not in p[0] and '"' not in p[0] and not self._is_in_tuple(p[0]) and "self." not in p[0]
        ]
        if not found:
            raise Dead
        text, target = self.pick(found)
        if target.meta.dtype is LONG:
            self.emit(f"{text} += {self.number(-2, 2)}")
            return
        self.emit(f"{text} {self.pick(['+=', '-='])} {self.pick([self.scalar(), self.source(target)])}")

    def _is_in_tuple(self, text: str) -> bool:
        name = text.split("[")[0]
        return any(n == name for n, _ in self.variables(Tuple))

    def alias(self) -> None:
        kinds = (Tensor, List, Dict, Tuple)
        names = [(n, v) for n, v in self.variables(object) if isinstance(v, kinds)]
        name, value = self.pick(names)
        self.bind("w", name, Tensor(value.meta, value.roots, value.is_certain) if isinstance(value, Tensor) else value)

    def new_number(self) -> None:
        if self.chance(30):
            counts = [n for n, v in self.variables(Int) if n.startswith("k")]
            if counts:
                name = self.pick(counts)
                self.bind("n", f"{name} + {self.number(0, 2)}", data_int())
                return
        text, value = self.arithmetic()
        self.bind("n", text, value)

    def rebind_number(self) -> None:
        """A number that branches and loops change."""
        names = [(n, v) for n, v in self.variables(Int) if n.startswith("n")]
        if not names:
            raise Dead
        name, old = self.pick(names)
        _, more = self.integer()
        steps = [(f"{name} + 1", old.sample + 1), (f"{name} * 2", old.sample * 2), (f"{name} % 3", old.sample % 3)]
        own = [(text, type(old)(sample, old.is_known)) for text, sample in steps]
        text, value = self.pick([*own, self.arithmetic()])
        self.emit(f"{name} = {text}")
        if not self.is_outer(name):
            self.define(name, value)
            return
        data = is_data_int(old) or is_data_int(value) or is_data_int(more) or self.is_data
        changed = data_int() if data else Int(1, False)
        for block in self.blocks:
            if name in block.scope:
                block.scope[name] = changed

    def new_float(self) -> None:
        text, _ = self.viewed(self.atom(), 30)
        self.bind("f", f"float({text}.sum()) * 0.25", Float())

    def new_bool(self) -> None:
        text, data, answer = self.condition()
        if text in ("True", "False"):
            raise Dead
        self.bind("q", text, Bool(data, answer))

    def new_metadata(self) -> None:
        """A tensor that changes its own shape."""
        text, value = self.viewed(self.view(*self.atom()), 30)
        name = self.name("v")
        # Some views of a tensor are that tensor, which others may know too.
        self.emit(f"{name} = {text}[None].squeeze(0)")
        dims = value.meta.dim()
        options = [f".unsqueeze_({self.number(0, dims)})"]
        if dims == 2:
            options.append(".t_()")
        if dims > 1:
            options.append(f".transpose_({self.number(0, dims - 1)}, {self.number(0, dims - 1)})")
        suffix = self.pick(options)
        self.emit(name + suffix)
        self.define(name, value)
        changed = self.tensor_of(f"{name}{suffix.replace('_(', '(')}", value)
        self.define(name, changed)

    # Tuples

    def new_tuple(self) -> None:
        items, texts = [], []
        for _ in range(self.number(2, 3)):
            kind = self.weighted([(5, "tensor"), (2, "number"), (2, "tuple"), (1, "list")])
            tuples, lists = self.variables(Tuple), self.variables(List)
            if kind == "tuple" and tuples:
                text, item = self.pick(tuples)
            elif kind == "list" and lists:
                text, item = self.pick(lists)
            elif kind == "number":
                text, item = self.integer()
            else:
                text, item = self.expression()
            texts.append(text)
            items.append(item)
        self.bind("t", f"({', '.join(texts)})", Tuple(items))

    def rebind_tuple(self) -> None:
        """Another tuple of the same types and shapes."""
        tuples = self.variables(Tuple)
        if not tuples:
            raise Dead
        name, value = self.pick(tuples)
        texts, items = [], []
        for i, item in enumerate(value.items):
            if isinstance(item, Tensor):
                text, new = self.like(item)
                same = new.meta.stride() == item.meta.stride()
                roots = new.roots | item.roots
                item = Tensor(item.meta, roots, item.is_certain and new.is_certain and same)
                if not new.is_writable:
                    raise Dead
            elif isinstance(item, Int):
                text, item = f"{name}[{i}] + 1", data_int()
            else:
                text = f"{name}[{i}]"
            texts.append(text)
            items.append(item)
        self.emit(f"{name} = ({', '.join(texts)})")
        for block in self.blocks:
            if name in block.scope:
                block.scope[name] = Tuple(items)

    def concatenate_tuples(self) -> None:
        tuples = self.variables(Tuple)
        if not tuples:
            raise Dead
        (a, x), (b, y) = self.pick(tuples), self.pick(tuples)
        if len(x.items) + len(y.items) > 6:
            raise Dead
        self.bind("t", f"{a} + {b}", Tuple([*x.items, *y.items]))

    def unpack_tuple(self) -> None:
        tuples = self.variables(Tuple)
        if not tuples:
            raise Dead
        name, value = self.pick(tuples)
        names = [self.name("u") for _ in value.items]
        self.emit(f"{', '.join(names)} = {name}")
        for new, item in zip(names, value.items, strict=True):
            self.define(new, copy(item) if isinstance(item, Tensor) else item)

    # Lists

    def new_list(self) -> None:
        kind = self.weighted([(4, "literal"), (3, "parts"), (1, "comprehension"), (1, "slice"), (1, "sum")])
        lists = self.variables(List)
        if kind == "literal" or (kind not in ("parts",) and not lists):
            first, value = self.expression()
            texts, roots = [first], value.roots
            certain = value.is_certain
            for _ in range(self.number(0, 2)):
                text, more = self.like(value)
                texts.append(text)
                roots |= more.roots
                certain = certain and more.is_certain and more.meta.stride() == value.meta.stride()
            element = Tensor(value.meta, roots, certain)
            if not all(self.tensor_of(t).is_writable for t in texts):
                raise Dead
            self.bind("l", f"[{', '.join(texts)}]", List(element, len(texts)))
        elif kind == "parts":
            self.new_parts()
        else:
            name, old = self.pick(lists)
            element = Tensor(old.element.meta, old.element.roots, old.element.is_certain)
            if kind == "comprehension":
                element = Tensor(old.element.meta, frozenset([next(self.roots)]), old.element.is_certain)
                body = self.pick(["e + 1", "e.abs()", "e - e", "e.clone()"])
                self.bind("l", f"[{body} for e in {name}]", List(element, old.length, old.is_exact))
            elif kind == "slice":
                if not old.is_exact or old.length < 2:
                    raise Dead
                start = self.number(0, old.length - 1)
                text, length = self.pick(
                    [(f"{name}[{start}:]", old.length - start), (f"{name}[::2]", (old.length + 1) // 2)]
                )
                self.bind("l", text, List(element, length))
            else:
                other, value = self.pick(lists)
                if value.element.key != old.element.key or value.length + old.length > 8:
                    raise Dead
                self.bind("l", f"{name} + {other}", self.both(old, value, old.length + value.length))

    def both(self, a: List, b: List, length: int) -> List:
        same = a.element.meta.stride() == b.element.meta.stride()
        certain = a.element.is_certain and b.element.is_certain and same
        element = Tensor(a.element.meta, a.element.roots | b.element.roots, certain)
        return List(element, length, a.is_exact and b.is_exact)

    def new_parts(self) -> None:
        """A list of views: unbind, split, chunk."""

        def make() -> None:
            text, value = self.viewed(self.atom(where=lambda t: t.meta.dim() > 0), 20)
            if value.meta.dim() == 0:
                raise Dead
            dim = self.number(0, value.meta.dim() - 1)
            size = value.meta.size(dim)
            kind = self.pick(["unbind", "split", "chunk"])
            step = self.pick([k for k in range(1, size + 1) if size % k == 0])
            suffix = {
                "unbind": f".unbind({dim})", "split": f".split({step}, {dim})", "chunk": f".chunk({step}, {dim})"
            }[kind]  # fmt: skip
            parts = self.evaluated(text + suffix)
            if len(parts) > 4 or any(p.shape != parts[0].shape for p in parts):
                raise Dead
            element = Tensor(parts[0], value.roots, value.is_certain)
            if not element.is_writable:
                raise Dead
            if self.chance(40):
                names = [self.name("u") for _ in parts]
                tail = "," if len(names) == 1 else ""
                self.emit(f"{', '.join(names)}{tail} = {text}{suffix}")
                for name in names:
                    self.define(name, copy(element))
            else:
                self.bind("l", f"list({text}{suffix})", List(element, len(parts)))

        self.retry(make)

    def change_list(self) -> None:
        lists = self.variables(List)
        if not lists:
            raise Dead
        name, value = self.pick(lists)
        kind = self.weighted([(4, "append"), (2, "pop"), (3, "set"), (1, "insert"), (1, "extend"), (1, "reverse")])
        grows = kind in ("append", "insert", "extend")
        if kind not in ("set", "reverse"):
            if value.is_fixed or value.length * self.times > 12:
                raise Dead
            if self.is_data and not self.chance(4):
                # In data-dependent code a list may change, but not its length.
                text, new = self.like(value.element)
                self.grow(value, new)
                self.emit(f"{name}.append({text})")
                self.emit(f"{name}.pop({self.pick(['', '0'] if value.is_exact else ['0'])})")
                return
        if kind == "pop":
            if value.length <= self.times or not self.is_certain:
                raise Dead
            value.length -= self.times
            text = f"{name}.pop({self.pick(['', '0', '-1'])})"
            if self.chance(50):
                self.bind("v", text, copy(value.element))
            else:
                self.emit(text)
            return
        if kind == "reverse":
            self.emit(f"{name}.reverse()")
            return
        if kind == "extend":
            others = [(n, v) for n, v in lists if v.element.key == value.element.key and v is not value and v.is_exact]
            if not others:
                raise Dead
            other, more = self.pick(others)
            if value.length + more.length * self.times > 12:
                raise Dead
            self.grow(value, more.element)
            self.emit(f"{name}.extend({other})")
            by = more.length
        else:
            text, new = self.like(value.element)
            if not new.is_writable:
                raise Dead
            self.grow(value, new)
            by = 1
            if kind == "append":
                self.emit(f"{name}.append({text})")
            elif kind == "insert":
                self.emit(f"{name}.insert({self.number(0, value.length)}, {text})")
            else:
                low = -value.length if value.is_exact else 0
                self.emit(f"{name}[{self.number(low, value.length - 1)}] = {text}")
        if grows:
            if self.is_certain and not self.is_data:
                value.length += by * self.times
            else:
                value.is_exact = False

    def grow(self, value: List, new: Tensor) -> None:
        old = value.element
        same = old.meta.stride() == new.meta.stride()
        value.element = Tensor(old.meta, old.roots | new.roots, old.is_certain and new.is_certain and same)

    def join_list(self) -> None:
        """One tensor of a list's elements."""
        lists = [(n, v) for n, v in self.variables(List) if v.is_exact]
        if not lists:
            raise Dead
        name, value = self.pick(lists)
        if value.length * value.element.meta.numel() > MAX_ELEMENTS:
            raise Dead
        op = "stack" if value.element.meta.dim() == 0 or self.chance(50) else "cat"
        meta = getattr(torch, op)([value.element.meta] * value.length)
        self.bind("v", f"torch.{op}({name})", self.new(meta))

    # Dictionaries

    def new_dict(self) -> None:
        first, value = self.expression()
        keys = ["a", "b", "c"][: self.number(1, 3)]
        texts, roots, certain = [f'"a": {first}'], value.roots, value.is_certain
        if not value.is_writable:
            raise Dead
        for key in keys[1:]:
            text, more = self.like(value)
            if not more.is_writable:
                raise Dead
            texts.append(f'"{key}": {text}')
            roots |= more.roots
            certain = certain and more.meta.stride() == value.meta.stride() and more.is_certain
        self.bind("d", f"{{{', '.join(texts)}}}", Dict(Tensor(value.meta, roots, certain), keys))

    def change_dict(self) -> None:
        dicts = self.variables(Dict)
        if not dicts:
            raise Dead
        name, value = self.pick(dicts)
        text, new = self.like(value.element)
        if not new.is_writable:
            raise Dead
        key = self.pick(["a", "b", "c", "e"])
        if key not in value.keys:
            if value.is_fixed or self.is_data or not self.is_certain:
                key = self.pick(value.keys)
            else:
                value.keys.append(key)
        old = value.element
        same = old.meta.stride() == new.meta.stride()
        value.element = Tensor(old.meta, old.roots | new.roots, old.is_certain and new.is_certain and same)
        self.emit(f'{name}["{key}"] = {text}')

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

    def new_optional(self) -> None:
        text, value = self.expression()
        name = self.name("o")
        self.emit(f"{name}: Optional[Tensor] = {self.pick(['None', text])}")
        self.define(name, Maybe(value))

    def set_optional(self) -> None:
        optionals = self.variables(Maybe)
        if not optionals:
            raise Dead
        name, value = self.pick(optionals)
        text, new = self.like(value.element)
        old = value.element
        same = old.meta.stride() == new.meta.stride()
        value.element = Tensor(old.meta, old.roots | new.roots, old.is_certain and new.is_certain and same)
        test, data, _ = self.condition()
        if data and not self.chance(25):
            test = f"{self.integer()[0]} > 1"
        self.emit(f"if {test}:")
        self.emit(f"    {name} = {self.pick([text, text, 'None'])}")

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
        """What containers are before a branch that is never taken."""
        values = [v for _, v in self.variables(object) if isinstance(v, List | Dict)]
        return [(v, {**vars(v), **({"keys": list(v.keys)} if isinstance(v, Dict) else {})}) for v in values]

    def restore(self, kept: list[tuple[Any, dict[str, Any]]]) -> None:
        for value, before in kept:
            vars(value).update(before)

    def bind_list_in_branch(self) -> None:
        """A list that is one or another."""
        lists = self.variables(List)
        pairs = [
            (a, b, x, y)
            for a, x in lists
            for b, y in lists
            if x is not y and x.element.key == y.element.key and x.length == y.length and x.is_exact and y.is_exact
        ]
        if not pairs:
            raise Dead
        a, b, x, y = self.pick(pairs)
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
        """A tensor that a loop makes longer; how long it is in the end may depend on data."""
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


_WRITES: list[tuple[int, str]] = [
    (4, "{t}.add_({c})"), (3, "{t}.mul_({c})"), (3, "{t}.copy_({s})"), (2, "{t}.fill_({c})"), (2, "{t}.zero_()"),
    (2, "{t}.relu_()"), (1, "{t}.tanh_()"), (3, "{t}.add_({s})"), (2, "{t}.sub_({s})"), (1, "{t}.abs_()"),
    (1, "{t}.neg_()"), (1, "{t}.clamp_(-1.0, 1.0)"), (1, "{t}.add_({s}, alpha=2)"), (1, "{t}.mul_(torch.tanh({s}))"),
    (1, "{t}.masked_fill_({t} > 0.3, 0.5)"), (1, "{t}.add_({n})"), (1, "{t}.add_({t})"), (1, "{t}.add_({t}.sum())"),
    (1, "{t}.sigmoid_()"), (1, "{t}.fill_({s}.sum())"),
]  # fmt: skip

_STATEMENTS: list[tuple[int, Callable[[Statements], None]]] = [
    (8, Statements.new_value), (8, Statements.new_view), (12, Statements.write), (10, Statements.write_item),
    (4, Statements.write_augmented), (4, Statements.alias), (6, Statements.rebind), (3, Statements.new_number),
    (2, Statements.rebind_number), (1, Statements.new_float), (1, Statements.new_bool), (2, Statements.rebind_tuple),
    (1, Statements.new_metadata), (3, Statements.new_tuple), (1, Statements.concatenate_tuples),
    (2, Statements.unpack_tuple), (4, Statements.new_list), (3, Statements.new_parts), (5, Statements.change_list),
    (2, Statements.join_list), (2, Statements.new_dict), (2, Statements.change_dict), (1, Statements.loop_over_dict),
    (2, Statements.new_optional), (2, Statements.set_optional), (2, Statements.test_optional),
    (10, Statements.branch), (1, Statements.bind_list_in_branch), (3, Statements.early_return), (9, Statements.loop),
    (2, Statements.growing_loop),
]  # fmt: skip
