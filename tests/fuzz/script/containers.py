"""Random statements on tuples, lists, dictionaries and optional values."""

from __future__ import annotations

from copy import copy

import torch
from fuzz.script.assignments import Assignments
from fuzz.script.variables import (
    MAX_ELEMENTS,
    Dead,
    Dict,
    Int,
    List,
    Maybe,
    Tensor,
    Tuple,
    data_int,
)


class Containers(Assignments):
    """Writes statements on containers and keeps track of what they hold."""

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
        """Bind a list of views: unbind, split, chunk."""

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
