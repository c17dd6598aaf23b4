"""Random statements that give tensors and numbers names, and write to them."""

from __future__ import annotations

from fuzz.script.expressions import Expressions
from fuzz.script.variables import (
    FLOAT,
    LONG,
    Bool,
    Dead,
    Dict,
    Float,
    Int,
    List,
    Tensor,
    Tuple,
    data_int,
    is_data_int,
)
from fuzz.script.views import subscript


class Assignments(Expressions):
    """Writes assignments and keeps track of what they do."""

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
        """Rebind a number, as branches and loops change it."""
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
        """Change the shape of a tensor in place."""
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


_WRITES: list[tuple[int, str]] = [
    (4, "{t}.add_({c})"), (3, "{t}.mul_({c})"), (3, "{t}.copy_({s})"), (2, "{t}.fill_({c})"), (2, "{t}.zero_()"),
    (2, "{t}.relu_()"), (1, "{t}.tanh_()"), (3, "{t}.add_({s})"), (2, "{t}.sub_({s})"), (1, "{t}.abs_()"),
    (1, "{t}.neg_()"), (1, "{t}.clamp_(-1.0, 1.0)"), (1, "{t}.add_({s}, alpha=2)"), (1, "{t}.mul_(torch.tanh({s}))"),
    (1, "{t}.masked_fill_({t} > 0.3, 0.5)"), (1, "{t}.add_({n})"), (1, "{t}.add_({t})"), (1, "{t}.add_({t}.sum())"),
    (1, "{t}.sigmoid_()"), (1, "{t}.fill_({s}.sum())"),
]  # fmt: skip
