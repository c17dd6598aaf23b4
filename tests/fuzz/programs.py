"""Random programs in the common language of Python and TorchScript.

The generator writes source text, statement by statement, and follows what each variable is: a tensor's shape and
strides (as a tensor on the meta device, on which PyTorch says whether an op is possible), what it may share memory
with, how long a list is. So nearly all programs are ones that PyTorch accepts; the few others are thrown away by
whoever runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import torch

MAX_ELEMENTS = 48
MAX_DIMS = 4
FLOAT, LONG = torch.float32, torch.int64


@dataclass(frozen=True)
class Spec:
    """A tensor that a program is called with."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    counts: bool = False
    """Whether its numbers are small and not negative, as for trip counts."""

    def make(self, generator: torch.Generator) -> torch.Tensor:
        if self.counts:
            return torch.randint(0, 4, self.shape, generator=generator)
        if self.dtype is LONG:
            return torch.randint(-4, 5, self.shape, generator=generator)
        return torch.randint(-12, 13, self.shape, generator=generator) * 0.125


@dataclass(frozen=True)
class Program:
    """Source text with what it is called with; a program with buffers is a class's methods."""

    source: str
    arguments: tuple[Spec, ...]
    buffers: tuple[Spec, ...] = ()

    @property
    def entry(self) -> str:
        return "forward" if self.buffers else "f"


# --- What is known of a variable ---


@dataclass(eq=False)
class Tensor:
    """A tensor variable: how it lies in memory, and the storages that it may be in."""

    meta: torch.Tensor
    roots: frozenset[int]
    is_certain: bool = True
    """Whether its strides are known."""

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(self.meta.shape), self.meta.dtype

    @property
    def is_writable(self) -> bool:
        sizes = zip(self.meta.shape, self.meta.stride(), strict=True)
        return not any(size > 1 and stride == 0 for size, stride in sizes)


@dataclass(eq=False)
class Int:
    """A number: its sample value, and whether it depends on data or on a loop."""

    sample: int
    is_known: bool = True


@dataclass(eq=False)
class Tuple:
    items: list[Any]


@dataclass(eq=False)
class List:
    """Tensors of one shape. Variables that are the same list have the same object here."""

    element: Tensor
    length: int
    is_exact: bool = True
    is_fixed: bool = False
    """Whether it must keep its length, because a loop runs over it or because it may be another list too."""


@dataclass(eq=False)
class Dict:
    element: Tensor
    keys: list[str]
    is_fixed: bool = False


@dataclass(eq=False)
class Maybe:
    """A tensor or None."""

    element: Tensor


@dataclass
class Helper:
    """A function that the program calls."""

    name: str
    arguments: list[Tensor]
    result: Tensor


Path = tuple[str, Tensor]
"""The text of an expression and what it is."""


@dataclass
class Block:
    """Where statements go at the moment."""

    scope: dict[str, Any] = field(default_factory=dict)
    loop: str = ""
    """`for` or `while` for a loop's body."""
    times: int = 1
    """How often the block runs for each time that the one around it runs."""
    is_certain: bool = True
    """Whether that is exact."""
    is_data: bool = False
    """Whether it depends on the numbers in tensors."""


class Dead(Exception):
    """No expression was found."""


class Generator:
    """Writes one program."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[str] = []
        self.blocks: list[Block] = []
        self.fresh = count()
        self.roots = count()
        self.left = 0
        self.helpers: list[Helper] = []
        self.buffers: dict[str, Tensor] = {}
        self.wanted: list[Any] | None = None
        """What all returns give, if there are several."""

    # --- Choices ---

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.random.randrange(len(options))]

    def number(self, low: int, high: int) -> int:
        return low + self.random.randrange(high - low + 1)

    def weighted(self, table: Sequence[tuple[int, Any]]) -> Any:
        at = self.random.randrange(sum(weight for weight, _ in table))
        for weight, option in table:
            at -= weight
            if at < 0:
                return option
        raise AssertionError

    def scalar(self) -> str:
        return self.pick(["0.5", "-0.5", "1.0", "1.25", "-0.75", "0.25", "2"])

    # --- Text and scopes ---

    def emit(self, text: str) -> None:
        self.lines.append("    " * len(self.blocks) + text)

    def name(self, prefix: str) -> str:
        return f"{prefix}{next(self.fresh)}"

    def define(self, name: str, value: Any) -> None:
        self.blocks[-1].scope[name] = value

    def bind(self, prefix: str, text: str, value: Any) -> str:
        name = self.name(prefix)
        self.emit(f"{name} = {text}")
        self.define(name, value)
        return name

    def variables(self, kind: type) -> list[tuple[str, Any]]:
        found = [(n, v) for block in self.blocks for n, v in block.scope.items() if isinstance(v, kind)]
        return found

    def is_outer(self, name: str) -> bool:
        return name not in self.blocks[-1].scope

    @property
    def is_data(self) -> bool:
        return any(b.is_data for b in self.blocks)

    @property
    def is_certain(self) -> bool:
        return all(b.is_certain for b in self.blocks)

    @property
    def times(self) -> int:
        product = 1
        for block in self.blocks:
            product *= block.times
        return product

    def new(self, meta: torch.Tensor) -> Tensor:
        return Tensor(meta, frozenset([next(self.roots)]))

    @contextmanager
    def block(self, **options: Any) -> Iterator[Block]:
        block = Block(**options)
        self.blocks.append(block)
        before = len(self.lines)
        yield block
        if len(self.lines) == before:
            self.emit("pass")
        self.blocks.pop()

    # --- Expressions ---

    def evaluated(self, text: str, **more: Any) -> Any:
        """What an expression gives on the meta device; Dead where PyTorch does not accept it."""
        names: dict[str, Any] = {"torch": torch, "self": _Self(self.buffers), **more}
        for block in self.blocks:
            for name, value in block.scope.items():
                names[name] = _sample(value)
        try:
            return eval(text, names)
        except Exception as error:
            raise Dead(text) from error

    def tensor_of(self, text: str, base: Tensor | None = None, *, certain: bool = True) -> Tensor:
        """What an expression is: a part of `base`, or something new."""
        meta = self.evaluated(text)
        if not isinstance(meta, torch.Tensor) or meta.numel() > MAX_ELEMENTS or meta.dim() > MAX_DIMS:
            raise Dead(text)
        if meta.numel() == 0 or meta.dtype not in (FLOAT, LONG):
            raise Dead(text)
        if base is None:
            return Tensor(meta, frozenset([next(self.roots)]), certain)
        return Tensor(meta, base.roots, base.is_certain and certain)

    def retry(self, make: Callable[[], Any], times: int = 12) -> Any:
        for _ in range(times):
            try:
                return make()
            except Dead:
                pass
        raise Dead

    def places(self, *, written: bool = False) -> list[Path]:
        """All the tensors that can be named."""
        found = list(self.buffer_places())
        for name, value in self.variables(object):
            found += self._places(name, value)
        return [p for p in found if not written or p[1].is_writable]

    def buffer_places(self) -> Iterator[Path]:
        for name, value in self.buffers.items():
            yield f"self.{name}", value

    def _places(self, text: str, value: Any) -> Iterator[Path]:
        if isinstance(value, Tensor):
            yield text, value
        elif isinstance(value, Tuple):
            for i, item in enumerate(value.items):
                yield from self._places(f"{text}[{i}]", item)
        elif isinstance(value, List) and value.length:
            low = -value.length if value.is_exact else 0
            yield f"{text}[{self.number(low, value.length - 1)}]", value.element
        elif isinstance(value, Dict):
            yield f'{text}["{self.pick(value.keys)}"]', value.element

    def atom(self, *, written: bool = False, where: Callable[[Tensor], bool] = lambda _: True) -> Path:
        found = [p for p in self.places(written=written) if where(p[1])]
        if not found:
            raise Dead
        # Later ones depend on more of the program.
        return found[max(self.random.randrange(len(found)), self.random.randrange(len(found)))]

    def index(self, size: int) -> str:
        """A valid index of a dim."""
        ints = [n for n, v in self.variables(Int) if v.sample >= 0]
        if ints and self.chance(35):
            name = self.pick(ints)
            return f"{name} % {size}" if self.is_known_loop(name) or self.chance(70) else f"{name} % {size}"
        return str(self.number(-size, size - 1))

    def is_known_loop(self, name: str) -> bool:
        return any(name in b.scope and b.loop == "for" for b in self.blocks)

    def view(self, text: str, value: Tensor) -> Path:
        """A view of a tensor."""

        def make() -> Path:
            suffix = self.weighted(_VIEWS)(self, value.meta)
            new = text + suffix
            layout = ".view(" in suffix or ".view_as(" in suffix
            if layout and not value.is_certain:
                raise Dead
            return new, self.tensor_of(new, value)

        return self.retry(make)

    def viewed(self, start: Path, percent: int = 60) -> Path:
        """A tensor behind some views."""
        path = start
        for _ in range(3):
            if not self.chance(percent):
                break
            try:
                path = self.view(*path)
            except Dead:
                break
        return path

    def value(self) -> Path:
        """Something computed."""

        def make() -> Path:
            a, base = self.viewed(self.atom(), 30)
            template, aliases = self.weighted(_VALUES)
            b, _ = self.viewed(self.atom(), 20)
            meta = base.meta
            dim = self.number(-meta.dim(), meta.dim() - 1) if meta.dim() else 0
            text = template.format(a=a, b=b, c=self.scalar(), d=dim, n=self.integer()[0])
            if not aliases:
                return text, self.tensor_of(text, certain=base.is_certain)
            return text, self.tensor_of(text, base)

        return self.retry(make)

    def called(self) -> Path:
        """A call of a helper."""
        if not self.helpers:
            raise Dead
        helper = self.pick(self.helpers)
        texts: list[str] = []
        used: frozenset[int] = frozenset()
        for argument in helper.arguments:
            text, value = self.like(argument)
            if value.roots & used or not value.is_writable:
                text, value = f"{text}.clone(memory_format=torch.contiguous_format)", self.new(value.meta)
            texts.append(text)
            used |= value.roots
        result = Tensor(helper.result.meta, used | {next(self.roots)}, False)
        prefix = "self." if self.buffers else ""
        return f"{prefix}{helper.name}({', '.join(texts)})", result

    def expression(self) -> Path:
        def make() -> Path:
            kind = self.weighted([(5, "value"), (4, "view"), (1, "atom"), (1, "call")])
            if kind == "value":
                return self.value()
            if kind == "call":
                return self.called()
            path = self.atom()
            return self.view(*path) if kind == "view" else path

        return self.retry(make)

    def like(self, wanted: Tensor) -> Path:
        """An expression of the same shape and dtype."""
        same = [p for p in self.places() if p[1].key == wanted.key]
        kind = self.weighted([(4, "atom"), (3, "value"), (3, "view"), (1, "full")])
        if kind == "atom" and same:
            return self.pick(same)
        if kind == "view":
            for _ in range(12):
                try:
                    path = self.view(*self.atom())
                except Dead:
                    break
                if path[1].key == wanted.key:
                    return path
        if kind != "full" and same:
            a, base = self.pick(same)
            b, _ = self.pick(same)
            text = self.pick(["{a}.clone()", "{a} + {b}", "{a} - {b}", "{a}.abs()", "{a} * 2", "{a} + 1"])
            text = text.format(a=a, b=b)
            return text, self.tensor_of(text, certain=base.is_certain)
        shape, dtype = wanted.key
        text = f"torch.full({list(shape)}, {self.scalar() if dtype is FLOAT else self.number(-2, 3)})"
        if dtype is LONG:
            text = f"torch.full({list(shape)}, {self.number(-2, 3)}, dtype=torch.int64)"
        elif text.endswith(", 2)"):
            text = text[:-2] + "2.0)"
        return text, self.tensor_of(text)

    def source(self, target: Tensor) -> str:
        """Something to write to a tensor that is not partly that tensor itself."""
        if self.chance(25) and target.meta.dim() > 1:
            small = Tensor(target.meta[0], target.roots)
            text, value = self.like(small)
        else:
            text, value = self.like(target)
        if value.roots & target.roots:
            text += self.pick([".clone()", " + 1"])
        return text

    def integer(self) -> tuple[str, Int]:
        """A small whole number."""
        ints = self.variables(Int)
        kind = self.weighted([(3, "constant"), (4, "size"), (4, "variable"), (2, "length")])
        if kind == "variable" and ints:
            name, value = self.pick(ints)
            return name, value
        if kind == "size":
            text, value = self.atom()
            if value.meta.dim():
                dim = self.number(-value.meta.dim(), value.meta.dim() - 1)
                return f"{text}.size({dim})", Int(value.meta.size(dim))
        lists = self.variables(List)
        if kind == "length" and lists:
            name, value = self.pick(lists)
            return f"len({name})", Int(value.length, value.is_exact)
        constant = self.number(0, 4)
        return str(constant), Int(constant)

    def arithmetic(self) -> tuple[str, Int]:
        (a, x), (b, y) = self.integer(), self.integer()
        template = self.pick(["{a} + {b}", "{a} * 2 + {b}", "{a} // 2", "{a} % 3", "max({a}, {b})", "{a} - {b}", "{a}"])
        text = template.format(a=a, b=b)
        sample = eval(template.format(a=x.sample, b=y.sample))
        return text, Int(sample, x.is_known and y.is_known)

    # --- Conditions ---

    def condition(self) -> tuple[str, bool, bool | None]:
        """A condition, whether it depends on data, and what it gives where that is known."""
        kind = self.weighted([(1, "constant"), (4, "number"), (5, "data"), (1, "not"), (1, "both")])
        if kind == "constant":
            answer = self.chance(50)
            return str(answer), False, answer
        if kind == "number":
            (a, x), (b, y) = self.integer(), self.integer()
            operator = self.pick([">", "<", "==", ">=", "!="])
            if self.chance(30):
                a, b = f"{a} % 2", str(self.number(0, 1))
                x, y = Int(x.sample % 2, x.is_known), Int(int(b))
            is_known = x.is_known and y.is_known
            answer = eval(f"{x.sample} {operator} {y.sample}")
            # A number of a loop is not known here, but it does not depend on data either.
            data = any(_is_data(v) for v in (x, y))
            return f"{a} {operator} {b}", data, answer if is_known else None
        if kind == "data":
            return self.test_of_data(), True, None
        a, data, known = self.condition()
        if kind == "not":
            return f"not ({a})", data, None if known is None else not known
        b, other, answer_b = self.condition()
        operator = self.pick(["and", "or"])
        if known is None or answer_b is None:
            return f"({a}) {operator} ({b})", data or other, None
        return f"({a}) {operator} ({b})", data or other, eval(f"{known} {operator} {answer_b}")

    def test_of_data(self) -> str:
        text, value = self.viewed(self.atom(), 30)
        operator = self.pick([">", "<"])
        if value.meta.dtype is LONG:
            return f"bool({text}.sum() {operator} {self.number(-2, 2)})"
        template = self.pick(["bool({a}.sum() {o} 0.3)", "bool({a}.max() {o} 0.7)", "float({a}.sum()) {o} -0.4"])
        return template.format(a=text, o=operator)

    # --- Statements ---

    def statement(self) -> None:
        self.left -= 1
        make = self.weighted(_STATEMENTS)
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
            line = template.format(t=text, c=self.scalar(), s=self.source(target), n=self.integer()[0])
            self.evaluated(line)
            return line

        self.emit(self.retry(make))

    def write_item(self) -> None:
        """Assign to a part: `x[1:] = y`."""

        def make() -> str:
            text, base = self.atom(written=True)
            suffix = self.weighted(_SUBSCRIPTS)(self, base.meta)
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
                self.bind("n", f"{name} + {self.number(0, 2)}", _data_int())
                return
        text, value = self.arithmetic()
        self.bind("n", text, value)

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
                element = Tensor(value.meta, roots, False)
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
                self.bind(
                    "l", f"{name} + {other}", self.both(old, value, old.length + value.length)
                )

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
        _, value = self.pick(dicts)
        name = next(n for n, v in dicts if v is value)
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
            if len(results) == 1:
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
        self.emit(f"while {f'({test}) and ' if test else ''}{bound}:")
        with self.block(loop="while", times=limit, is_certain=not test and not exits, is_data=bool(test)):
            self.emit(f"{step} += 1")
            self.define(step, Int(1, False))
            self.loop_body(exits)

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

    # --- Whole programs ---

    def returned(self) -> str:
        """Anything that the last return may give."""
        items: list[str] = []
        for _ in range(self.number(1, 4)):
            kind = self.weighted([(6, "tensor"), (2, "number"), (1, "float"), (1, "tuple")])
            if kind == "tensor":
                items.append(self.viewed(self.atom(), 20)[0])
            elif kind == "number":
                items.append(self.arithmetic()[0])
            elif kind == "float":
                items.append(f"float({self.atom()[0]}.sum())")
            else:
                items.append(f"({self.atom()[0]}, {self.integer()[0]})")
        return f"({', '.join([*items, self.total()])})"

    def total(self) -> str:
        """A number that depends on much of the program."""
        texts = [f"{p}.sum()" for p, v in self.places() if v.meta.dtype is FLOAT and self.chance(60)]
        return " + ".join(texts) or "torch.zeros([])"

    def return_wanted(self) -> None:
        assert self.wanted is not None
        items = [self.like(w)[0] if isinstance(w, Tensor) else self.arithmetic()[0] for w in self.wanted]
        self.emit(f"return ({', '.join([*items, self.total()])})")

    def helper(self) -> None:
        """A small function that the program calls."""
        self.helpers_open = True
        name = f"g{len(self.helpers)}"
        kept = len(self.lines)
        metas = [self.random_tensor() for _ in range(self.number(1, 2))]
        names = [f"a{i}" for i in range(len(metas))]
        head = ["self"] if self.buffers else []
        self.emit(f"def {name}({', '.join([*head, *names])}):")
        with self.block() as block:
            block.scope.update(zip(names, metas, strict=True))
            self.left = 4
            self.body(1, 3)
            text, value = self.retry(self.expression)
            self.emit(f"return {text}")
        self.helpers.append(Helper(name, metas, value))
        self.helpers_open = False
        assert len(self.lines) > kept
        self.lines.append("")

    def random_tensor(self, dtype: torch.dtype = FLOAT) -> Tensor:
        shape = self.pick([(3,), (4,), (2, 3), (2, 2), (3, 4), (1, 3), (2, 3, 2), (2, 1, 3), (2, 2, 2)])
        return self.new(torch.empty(shape, dtype=dtype, device="meta"))

    def program(self) -> Program:
        """Write a program."""
        if self.chance(30):
            self.buffers = {f"b{i}": self.random_tensor() for i in range(self.number(1, 2))}
        while self.chance(30) and len(self.helpers) < 2:
            self.helper()
        arguments = {f"x{i}": self.random_tensor() for i in range(self.number(1, 3))}
        specs = [Spec(*t.key) for t in arguments.values()]
        if self.chance(25):
            arguments["y"] = self.random_tensor(LONG)
            specs.append(Spec(*arguments["y"].key))
        head = ["self"] if self.buffers else []
        counts = self.chance(60)
        names = [*head, *arguments, *(["c"] if counts else [])]
        self.emit(f"def {'forward' if self.buffers else 'f'}({', '.join(names)}):")
        self.helpers_open = False
        with self.block() as block:
            block.scope.update(arguments)
            if counts:
                specs.append(Spec((), LONG, counts=True))
                self.emit("k = int(c.item())")
                self.define("k", _data_int())
            if self.chance(25):
                floats = [t for t in arguments.values() if t.meta.dtype is FLOAT]
                self.wanted = [self.pick([*floats, 1]) for _ in range(self.number(1, 3))]
            self.left = self.number(4, 20)
            while self.left > 0:
                self.statement()
            if self.wanted is not None:
                self.return_wanted()
            else:
                self.emit(f"return {self.returned()}")
        buffers = tuple(Spec(*t.key) for t in self.buffers.values())
        return Program("\n".join(self.lines) + "\n", tuple(specs), buffers)


class _Self:
    """What `self` is while expressions are tried out."""

    def __init__(self, buffers: dict[str, Tensor]) -> None:
        for name, value in buffers.items():
            setattr(self, name, value.meta)


@dataclass(eq=False)
class _DataInt(Int):
    """A number that depends on data."""


def _data_int() -> Int:
    return _DataInt(1, False)


def _is_data(value: Int) -> bool:
    return isinstance(value, _DataInt)


def _sample(value: Any) -> Any:
    """A variable while expressions are tried out."""
    if isinstance(value, Tensor):
        return value.meta
    if isinstance(value, Int):
        return value.sample
    if isinstance(value, Tuple):
        return tuple(map(_sample, value.items))
    if isinstance(value, List):
        return [value.element.meta] * max(value.length, 1)
    if isinstance(value, Dict):
        return dict.fromkeys(value.keys, value.element.meta)
    return None


# --- Views ---


def _dim(g: Generator, meta: torch.Tensor) -> int:
    if not meta.dim():
        raise Dead
    return g.number(0, meta.dim() - 1)


def _signed(g: Generator, meta: torch.Tensor, dim: int) -> int:
    return dim - meta.dim() if g.chance(30) else dim


def _bounds(g: Generator, size: int) -> str:
    start = g.number(0, size - 1)
    return g.pick([f"{start}:", f":{start + 1}", f"{start}:{g.number(start + 1, size)}", "::2", f"-{size - start}:"])


def _subscript(g: Generator, meta: torch.Tensor) -> str:
    """`[1:, 0]`"""
    if not meta.dim():
        raise Dead
    parts: list[str] = []
    for size in meta.shape[: g.number(1, meta.dim())]:
        parts.append(g.weighted([(4, ":"), (4, g.index(size)), (4, _bounds(g, size))]))
    if g.chance(10):
        parts.insert(0, "...") if len(parts) < meta.dim() or True else None
    return f"[{', '.join(parts)}]"


def _select(g: Generator, meta: torch.Tensor) -> str:
    dim = _dim(g, meta)
    return f".select({_signed(g, meta, dim)}, {g.index(meta.size(dim))})"


def _narrow(g: Generator, meta: torch.Tensor) -> str:
    dim = _dim(g, meta)
    length = g.number(1, meta.size(dim))
    room = meta.size(dim) - length
    start = f"{g.index(room + 1)}" if room else "0"
    if start.startswith("-"):
        start = "0"
    return f".narrow({dim}, {start}, {length})"


def _transpose(g: Generator, meta: torch.Tensor) -> str:
    a, b = _dim(g, meta), _dim(g, meta)
    return f".{g.pick(['transpose', 'swapaxes', 'movedim'])}({_signed(g, meta, a)}, {b})"


def _permute(g: Generator, meta: torch.Tensor) -> str:
    dims = list(range(meta.dim()))
    for i in range(len(dims) - 1, 0, -1):
        j = g.number(0, i)
        dims[i], dims[j] = dims[j], dims[i]
    return f".permute({dims})"


def _shape(g: Generator, meta: torch.Tensor) -> list[int]:
    """Another shape of as many elements."""
    rest, dims = meta.numel(), []
    for _ in range(g.number(0, 2)):
        size = g.pick([k for k in range(1, rest + 1) if rest % k == 0])
        dims.append(size)
        rest //= size
    dims.append(rest)
    if g.chance(40):
        dims[g.number(0, len(dims) - 1)] = -1
    return dims


def _squeeze(g: Generator, meta: torch.Tensor) -> str:
    return g.pick([".squeeze()", f".squeeze({_dim(g, meta)})"])


def _expand(g: Generator, meta: torch.Tensor) -> str:
    sizes = [g.pick([2, 3]) if s == 1 else g.pick([s, -1]) for s in meta.shape]
    front = [2] if g.chance(40) else []
    return f".expand({[*front, *sizes]})"


def _flatten(g: Generator, meta: torch.Tensor) -> str:
    if meta.dim() > 1 and g.chance(50):
        start = g.number(0, meta.dim() - 2)
        return f".flatten({start}, {g.number(start + 1, meta.dim() - 1)})"
    return ".flatten()"


def _diagonal(g: Generator, meta: torch.Tensor) -> str:
    if meta.dim() < 2:
        raise Dead
    return g.pick([".diagonal()", ".diagonal(1)", ".diagonal(0, -1, -2)"])


def _part(g: Generator, meta: torch.Tensor) -> str:
    dim = _dim(g, meta)
    size = meta.size(dim)
    step = g.number(1, size)
    op = g.pick([f".split({step}, {dim})", f".chunk({step}, {dim})", f".unbind({dim})"])
    return f"{op}[{g.pick([0, -1])}]"


def _t(g: Generator, meta: torch.Tensor) -> str:
    if meta.dim() == 2:
        return g.pick([".t()", ".mT", ".T"])
    return ".t()"


_VIEWS: list[tuple[int, Callable[[Generator, torch.Tensor], str]]] = [
    (8, _subscript), (3, _select), (3, _narrow), (3, _transpose), (3, _permute), (3, _t), (3, _squeeze), (3, _expand),
    (3, _flatten), (3, _diagonal), (4, _part),
    (3, lambda g, m: f".view({_shape(g, m)})"),
    (3, lambda g, m: f".reshape({_shape(g, m)})"),
    (3, lambda g, m: f".unsqueeze({g.number(-m.dim() - 1, m.dim())})"),
    (1, lambda g, m: "[None]"),
    (1, lambda g, m: "[..., None]"),
    (1, lambda g, m: ".detach()"),
    (1, lambda g, m: f".view({m.size(0) if m.dim() else 1}, -1)"),
]  # fmt: skip

_SUBSCRIPTS: list[tuple[int, Callable[[Generator, torch.Tensor], str]]] = [(1, _subscript)]

_VALUES: list[tuple[int, tuple[str, bool]]] = [
    (3, ("{a}.relu()", False)), (2, ("torch.tanh({a})", False)), (2, ("{a}.abs()", False)), (1, ("-{a}", False)),
    (3, ("{a} + {b}", False)), (3, ("{a} - {b}", False)), (3, ("{a} * {c}", False)), (3, ("{a} + {c}", False)),
    (2, ("{a} * torch.tanh({b})", False)), (2, ("torch.maximum({a}, {b})", False)), (3, ("{a}.clone()", False)),
    (1, ("{a}.sum({d})", False)), (1, ("{a}.sum({d}, keepdim=True)", False)), (1, ("{a}.amax({d})", False)),
    (1, ("{a}.mean({d})", False)), (1, ("{a}.clamp(-1.0, 1.0)", False)), (1, ("{a} + {n}", False)),
    (2, ("torch.where({a} > 0.3, {a}, {b})", False)), (1, ("torch.cat([{a}, {b}], {d})", False)),
    (1, ("torch.stack([{a}, {b}], {d})", False)), (1, ("torch.zeros_like({a})", False)), (2, ("{a}.contiguous()", True)),
    (1, ("{a}.float()", True)), (1, ("{a}.to(torch.float32)", True)), (1, ("{a}.expand_as({b})", True)),
    (1, ("{a}.sum()", False)), (1, ("{a}.matmul({b}) * 0.25", False)), (1, ("{a}.cumsum({d})", False)),
    (1, ("{a}.flip({d})", False)), (1, ("{a}.repeat(2, 1)", False)), (1, ("{a}.new_zeros({a}.size())", False)),
    (1, ("{a}.new_full([{n} + 1, 2], {c})", False)),
]  # fmt: skip
"""Expressions, and whether they may be views of `a`."""

_WRITES: list[tuple[int, str]] = [
    (4, "{t}.add_({c})"), (3, "{t}.mul_({c})"), (3, "{t}.copy_({s})"), (2, "{t}.fill_({c})"), (2, "{t}.zero_()"),
    (2, "{t}.relu_()"), (1, "{t}.tanh_()"), (3, "{t}.add_({s})"), (2, "{t}.sub_({s})"), (1, "{t}.abs_()"),
    (1, "{t}.neg_()"), (1, "{t}.clamp_(-1.0, 1.0)"), (1, "{t}.add_({s}, alpha=2)"), (1, "{t}.mul_(torch.tanh({s}))"),
    (1, "{t}.masked_fill_({t} > 0.3, 0.5)"), (1, "{t}.add_({n})"), (1, "{t}.add_({t})"), (1, "{t}.add_({t}.sum())"),
    (1, "{t}.sigmoid_()"), (1, "{t}.fill_({s}.sum())"),
]  # fmt: skip

_STATEMENTS: list[tuple[int, Callable[[Generator], None]]] = [
    (8, Generator.new_value), (8, Generator.new_view), (12, Generator.write), (10, Generator.write_item),
    (4, Generator.write_augmented), (4, Generator.alias), (6, Generator.rebind), (3, Generator.new_number),
    (1, Generator.new_metadata), (3, Generator.new_tuple), (1, Generator.concatenate_tuples),
    (2, Generator.unpack_tuple), (4, Generator.new_list), (3, Generator.new_parts), (5, Generator.change_list),
    (2, Generator.join_list), (2, Generator.new_dict), (2, Generator.change_dict), (1, Generator.loop_over_dict),
    (2, Generator.new_optional), (2, Generator.set_optional), (2, Generator.test_optional), (10, Generator.branch),
    (1, Generator.bind_list_in_branch), (3, Generator.early_return), (9, Generator.loop),
]  # fmt: skip


def generate(random: Random) -> Program:
    """A random program."""
    return Generator(random).program()
