"""Random expressions: tensors, numbers and conditions, as text and as what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from random import Random
from typing import Any

import torch
from fuzz.script.variables import (
    FLOAT,
    LONG,
    MAX_DIMS,
    MAX_ELEMENTS,
    Block,
    Bool,
    Dead,
    Dict,
    Float,
    Helper,
    Int,
    List,
    Path,
    Tensor,
    Tuple,
    is_data_int,
    sample,
)
from fuzz.script.views import VIEWS


class Expressions:
    """The lines written so far, the variables in scope, and expressions on them."""

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

    def scalar(self, dtype: torch.dtype = FLOAT) -> str:
        if dtype is LONG:
            return self.pick(["1", "-1", "2", "0"])
        floats = self.variables(Float)
        if floats and self.chance(20):
            return self.pick(floats)[0]
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
        """Evaluate an expression on the meta device; Dead where PyTorch does not accept it."""
        names: dict[str, Any] = {"torch": torch, "self": _Self(self.buffers), **more}
        for block in self.blocks:
            for name, value in block.scope.items():
                names[name] = sample(value)
        try:
            with torch.device("meta"):
                return eval(text, names)
        except Exception as error:
            raise Dead(text) from error

    def tensor_of(self, text: str, base: Tensor | None = None, *, certain: bool = True) -> Tensor:
        """Describe the tensor that an expression gives: a part of `base`, or something new."""
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
        """Choose a valid index of a dim."""
        ints = [n for n, v in self.variables(Int) if v.sample >= 0]
        if ints and self.chance(35):
            name = self.pick(ints)
            return f"{name} % {size}"
        return str(self.number(-size, size - 1))

    def view(self, text: str, value: Tensor) -> Path:
        """Choose a view of a tensor."""

        def make() -> Path:
            suffix = self.weighted(VIEWS)(self, value.meta)
            new = text + suffix
            layout = ".view(" in suffix or ".view_as(" in suffix
            if layout and not value.is_certain:
                raise Dead
            return new, self.tensor_of(new, value)

        return self.retry(make)

    def viewed(self, start: Path, percent: int = 60) -> Path:
        """Apply up to three views to a tensor."""
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
            template, aliases = self.weighted(VALUES)
            b, _ = self.viewed(self.atom(), 20)
            meta = base.meta
            dim = self.number(-meta.dim(), meta.dim() - 1) if meta.dim() else 0
            number = self.integer(known="new_full" in template)[0]
            text = template.format(a=a, b=b, c=self.scalar(), d=dim, n=number)
            if not aliases:
                return text, self.tensor_of(text, certain=base.is_certain)
            return text, self.tensor_of(text, base)

        return self.retry(make)

    def called(self) -> Path:
        """Call a helper."""
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
        """Choose an expression of the same shape and dtype."""
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
            text = text[:-2] + "2.0)"  # A whole number would make a tensor of whole numbers.
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

    def integer(self, *, known: bool = False) -> tuple[str, Int]:
        """Choose a small whole number."""
        ints = [(n, v) for n, v in self.variables(Int) if v.is_known or not known]
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
        if kind == "length" and lists and not known:
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
        """Choose a condition; return also whether it depends on data, and what it gives where that is known."""
        kinds = [(1, "constant"), (4, "number"), (5, "data"), (1, "not"), (1, "both"), (2, "variable"), (1, "query")]
        kind = self.weighted(kinds)
        flags = self.variables(Bool)
        if kind == "variable" and flags:
            name, flag = self.pick(flags)
            return name, flag.is_data, flag.answer
        if kind == "query":
            text, value = self.viewed(self.atom(), 30)
            template, ask = self.pick(_QUERIES)
            return template.format(a=text), False, ask(value.meta)
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
            data = any(is_data_int(v) for v in (x, y))
            return f"{a} {operator} {b}", data, answer if is_known else None
        if kind in ("data", "variable"):
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


_QUERIES: list[tuple[str, Callable[[torch.Tensor], bool]]] = [
    ('{a}.device.type == "cpu"', lambda t: True), ('{a}.device == torch.device("cpu")', lambda t: True),
    ('{a}.device != torch.device("cuda:0")', lambda t: True), ("{a}.device.index is None", lambda t: True),
    ("{a}.is_cuda", lambda t: False), ("{a}.is_cpu", lambda t: True), ("{a}.is_sparse", lambda t: False),
    ("{a}.is_quantized", lambda t: False), ("{a}.requires_grad", lambda t: False),
    ("{a}.is_floating_point()", lambda t: t.is_floating_point()), ("{a}.is_complex()", lambda t: False),
    ("{a}.dtype == torch.float32", lambda t: t.dtype is FLOAT), ("{a}.dtype != torch.int64", lambda t: t.dtype != LONG),
    ("{a}.layout == torch.strided", lambda t: True), ("{a}.ndim > 1", lambda t: t.ndim > 1),
    ("{a}.element_size() == 8", lambda t: t.dtype is LONG), ("{a}.numel() > 3", lambda t: t.numel() > 3),
]  # fmt: skip
"""Questions about a tensor that have an answer before its contents are known; tensors are on the CPU when it runs."""


class _Self:
    """What `self` is while expressions are tried out."""

    def __init__(self, buffers: dict[str, Tensor]) -> None:
        for name, value in buffers.items():
            setattr(self, name, value.meta)


VALUES: list[tuple[int, tuple[str, bool]]] = [
    (3, ("{a}.relu()", False)), (2, ("torch.tanh({a})", False)), (2, ("{a}.abs()", False)), (1, ("-{a}", False)),
    (3, ("{a} + {b}", False)), (3, ("{a} - {b}", False)), (3, ("{a} * {c}", False)), (3, ("{a} + {c}", False)),
    (2, ("{a} * torch.tanh({b})", False)), (2, ("torch.maximum({a}, {b})", False)), (3, ("{a}.clone()", False)),
    (1, ("{a}.sum({d})", False)), (1, ("{a}.sum({d}, keepdim=True)", False)), (1, ("{a}.amax({d})", False)),
    (1, ("{a}.mean({d})", False)), (1, ("{a}.clamp(-1.0, 1.0)", False)), (1, ("{a} + {n}", False)),
    (2, ("torch.where({a} > 0.3, {a}, {b})", False)), (1, ("torch.cat([{a}, {b}], {d})", False)),
    (1, ("torch.stack([{a}, {b}], {d})", False)), (1, ("torch.zeros_like({a})", False)),
    (2, ("{a}.contiguous()", True)),
    (1, ("{a}.float()", True)), (1, ("{a}.to(torch.float32)", True)), (1, ("{a}.expand_as({b})", True)),
    (1, ("{a}.sum()", False)), (1, ("{a}.matmul({b}) * 0.25", False)), (1, ("{a}.cumsum({d})", False)),
    (1, ("{a}.flip({d})", False)), (1, ("{a}.repeat(2, 1)", False)), (1, ("{a}.new_zeros({a}.size())", False)),
    (1, ("{a}.new_full([{n} + 1, 2], {c})", False)),
]  # fmt: skip
"""Expressions, and whether they may be views of `a`."""
