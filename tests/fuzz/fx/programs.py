"""Random `nn.Module`s in Python source: state of all kinds, views and writes through them, regions, containers.

A program is grown by running it: a line that eager PyTorch does not take is left out, and one is drawn anew. Numbers
are small and dyadic, so that whatever order sums are taken in, they are exact.
"""

from __future__ import annotations

import random
from collections import namedtuple
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

Pair = namedtuple("Pair", ["left", "right"])

DTYPES = ["float32", "float32", "float32", "float32", "int64", "int32", "float64", "float16", "bool"]
SHAPES = [(), (1,), (4,), (3,), (3, 4), (4, 3), (2, 3), (3, 1), (1, 4), (2, 3, 4), (3, 3), (4, 4)]


def data(key: int, shape: tuple[int, ...], dtype: str = "float32") -> Tensor:
    """Make the same tensor for the same key, wherever it is made; every seventh has NaN and infinities in it."""
    generator = torch.Generator().manual_seed(key)
    values = torch.randint(-12, 13, shape, generator=generator)
    kind = getattr(torch, dtype)
    if kind is torch.bool:
        return values > 0
    if not kind.is_floating_point:
        return values.to(kind)
    tensor = (values / 4).to(kind)
    if key % 7 == 0 and tensor.numel():
        at = torch.randint(0, tensor.numel(), (2,), generator=generator).tolist()
        flat = tensor.view(-1)
        flat[at[0]], flat[at[1]] = float("nan"), float("inf")
    return tensor


@dataclass(frozen=True)
class Program:
    """Source of a module, line by line, and the arguments of some calls."""

    init: tuple[str, ...]
    body: tuple[str, ...]
    result: str
    calls: tuple[str, ...]
    """For each call, a tuple of its arguments in Python."""
    dynamic: bool = False

    def source(self) -> str:
        """Write the class `Model`."""
        lines = ["class Model(nn.Module):", "    def __init__(self):", "        super().__init__()"]
        lines += [f"        {line}" for line in self.init]
        lines += ["", "    def forward(self, x0, x1, more):"]
        lines += [f"        {line}" for text in self.body for line in text.split("\n")]
        return "\n".join([*lines, f"        return {self.result}", ""])

    def text(self) -> str:
        """Write the program with its calls, to be read."""
        calls = [f"call{i} = {call}" for i, call in enumerate(self.calls)]
        return "\n".join([self.source(), f"dynamic = {self.dynamic}", *calls])

    def model(self) -> nn.Module:
        """Make a fresh model."""
        scope = names()
        exec(self.source(), scope)
        found: nn.Module = scope["Model"]()
        return found

    def arguments(self, i: int) -> tuple[Any, ...]:
        """Make the arguments of a call anew."""
        found: tuple[Any, ...] = eval(self.calls[i], names())
        return found

    def smaller(self) -> list[Program]:
        """List this program with one thing less, largest steps first."""
        found = []
        for size in (8, 4, 2, 1):
            for at in range(0, len(self.body), size):
                found.append(replace(self, body=self.body[:at] + self.body[at + size :]))
        for i in range(len(self.init)):
            found.append(replace(self, init=self.init[:i] + self.init[i + 1 :]))
        if len(self.calls) > 1:
            found += [replace(self, calls=self.calls[:i]) for i in range(1, len(self.calls))]
        parts = self.result.removeprefix("(").removesuffix(",)").split(", ")
        if len(parts) > 1 and self.result.startswith("("):
            for i in range(len(parts)):
                found.append(replace(self, result=f"({', '.join(parts[:i] + parts[i + 1 :])},)"))
        for i, text in enumerate(self.body):
            head, *inner = text.split("\n")
            if inner:
                for j in range(len(inner)):
                    kept = [*inner[:j], *inner[j + 1 :]]
                    block = ("\n".join([head, *kept]),) if kept else ()
                    found.append(replace(self, body=self.body[:i] + block + self.body[i + 1 :]))
        return found


def names() -> dict[str, Any]:
    """Return what the source of a program refers to, by name."""
    return {"torch": torch, "nn": nn, "data": data, "Pair": Pair}


@dataclass
class Grower:
    """Grows a program line by line."""

    random: random.Random
    scope: dict[str, Any] = field(default_factory=names)
    tensors: list[str] = field(default_factory=list)
    """Expressions that are tensors."""
    count: int = 0

    def value(self, expression: str) -> Any:
        return eval(expression, self.scope)

    def run(self, text: str) -> bool:
        """Whether eager PyTorch takes a line here."""
        try:
            exec(text, self.scope)
        except Exception:
            return False
        return True

    def fresh(self) -> str:
        self.count += 1
        return f"y{self.count}"

    def any(self) -> str:
        # What was made last is taken more often: programs are to be chains, and not leaves.
        recent = self.tensors[-6:]
        return self.random.choice(recent if self.random.random() < 0.5 else self.tensors)

    def floating(self) -> str:
        for _ in range(8):
            if self.value(found := self.any()).is_floating_point():
                return found
        return f"{found}.float()"

    def fitting(self, target: str) -> str:
        """Find a tensor or number that can be added to another in place."""
        shape = self.value(target).shape
        for _ in range(6):
            found = self.any()
            try:
                if torch.broadcast_shapes(shape, self.value(found).shape) == shape:
                    return found
            except RuntimeError:
                continue
        return self.number()

    def number(self) -> str:
        return self.random.choice(["1", "2", "-1", "0.5", "-1.5", "0", "0.25", "3"])

    def draw(self, kinds: list[Any]) -> str:
        return str(self.random.choice(kinds)(self))


def _dim(g: Grower, tensor: str, extra: int = 0) -> int:
    rank = g.value(tensor).dim() + extra
    return g.random.randrange(-rank, rank) if rank else 0


def _index(g: Grower, tensor: str) -> str:
    parts = []
    for size in g.value(tensor).shape[: g.random.randint(1, 3)]:
        at = g.random.randrange(-size, size) if size else 0
        low = g.random.randint(0, size)
        parts.append(g.random.choice([f"{at}", f"{low}:", f":{low}", "::2", ":", "1:", f"{-low}:", "..."]))
    if parts.count("...") > 1:
        parts = [p for p in parts if p != "..."]
    return ", ".join(parts) or "..."


def _with(template: str) -> Any:
    """Make a line of a template: {t} is a tensor, {f} one of floats, {o} one that fits it, {i} an index, {d} a dim."""

    def make(g: Grower) -> str:
        t = g.floating() if "{f}" in template else g.any()
        return template.format(
            y=g.fresh(), t=t, f=t, o=g.fitting(t), i=_index(g, t), d=_dim(g, t), e=_dim(g, t), u=_dim(g, t, 1),
            n=g.number(), k=g.random.randint(0, 4), s=g.random.choice([(-1,), (2, -1), (3, -1), (-1, 1), (1, -1)]),
            q=g.random.choice(["float32", "float64", "int64", "float16", "bfloat16", "bool"]),
            c=g.random.randrange(1 << 20), m=g.any(),
        )  # fmt: skip

    return make


PURE = list(map(_with, [
    "{y} = {t} + {o}", "{y} = {t} - {o}", "{y} = ({t} * {o}).clamp(-16, 16)", "{y} = torch.maximum({t}, {m})",
    "{y} = {t}.relu()", "{y} = {t}.abs()", "{y} = -{f}", "{y} = {t}.sum({d})", "{y} = {t}.amax({d})",
    "{y} = {t} > {o}", "{y} = torch.where({t} > {n}, {t}, {o})", "{y} = {t}.cumsum({d})", "{y} = {t}.to(torch.{q})",
    "{y} = torch.cat([{t}, {m}], {d})", "{y} = torch.stack([{t}, {t}], {u})", "{y} = {t}.clone()",
    "{y} = torch.zeros_like({t})", "{y} = torch.full_like({t}, {n})", "{y} = torch.ones(3, 4)", "{y} = {f}.floor()",
    "{y} = torch.tensor([1.0, -2.0, 0.5, 4.0])", "{y} = torch.arange(4)", "{y} = {t} * {n} + {o}",
    "{y} = {t}.flip({d})", "{y} = {t}.roll(1, {d})", "{y} = {t}.sort({d}).values", "{y} = torch.tril({t})",
    "{y} = {t}.masked_fill({t} > {n}, {n})", "{y} = {t}.index_select({d}, torch.tensor([0, 0]))",
    "{y} = {t}[torch.tensor([1, 0])]", "{y} = {t}.matmul({m})", "{y} = nn.functional.linear({f}, {m})",
    "{y} = {t}.repeat(2, 1)", "{y} = torch.outer({t}, {m})", "{y} = {f}.clamp(min={n})", "{y} = {t}.any({d})",
    "{y} = {f} / 2", "{y} = torch.lerp({f}, {m}, 0.5)", "{y} = {t}.new_zeros(4)", "{y} = {t}.contiguous()",
    "{y} = torch.einsum('ij,jk->ik', {t}, {m})", "{y} = {f}.nan_to_num()", "{y} = {t}.nonzero().sum()",
    "{y} = torch.addmm({f}, {m}, {t})", "{y} = {t}.type_as({m})", "{y} = nn.functional.pad({t}, (1, 0))",
    "{y} = torch.bucketize({t}, torch.tensor([-1.0, 0.0, 2.0]))", "{y} = {t}.float().mean({d})",
]))  # fmt: skip

VIEWS = list(map(_with, [
    "{y} = {t}[{i}]", "{y} = {t}[{i}]", "{y} = {t}.t()", "{y} = {t}.transpose({d}, {e})", "{y} = {t}.unsqueeze({u})",
    "{y} = {t}.squeeze()", "{y} = {t}.squeeze({d})", "{y} = {t}.diagonal()", "{y} = {t}.diagonal(1)",
    "{y} = {t}.view(-1)", "{y} = {t}.view{s}", "{y} = {t}.reshape{s}", "{y} = {t}.reshape(-1)", "{y} = {t}.flatten()",
    "{y} = {t}.narrow({d}, 0, 2)", "{y} = {t}.select({d}, 0)", "{y} = {t}.unbind({d})[-1]",
    "{y} = {t}.split(2, {d})[0]",
    "{y} = {t}.chunk(2, {d})[-1]", "{y} = {t}.movedim({d}, {e})", "{y} = {t}.detach()", "{y} = {t}.mT",
    "{y} = {t}.expand(2, *{t}.shape)", "{y} = {t}.expand_as({m})", "{y} = {t}.view_as({t})", "{y} = {t}.T",
    "{y} = {t}.permute(*range({t}.dim() - 1, -1, -1))", "{y} = {t}.unfold({d}, 2, 1)", "{y} = {t}.swapaxes({d}, {e})",
    "{y} = {t}.to({t}.dtype)", "{y} = {t}.view(torch.int32)", "{y} = {t}.data", "{y} = {t}.ravel()",
    "{y} = {t}.unflatten(0, (2, -1))", "{y} = {t}.tensor_split(2, {d})[0]", "{y} = {t}.as_strided((2,), (1,))",
    "{y} = {t}.hsplit(2)[0]", "{y} = {t}.float()", "{y} = {t}.adjoint()", "{y} = torch.atleast_2d({t})",
]))  # fmt: skip

WRITES = list(map(_with, [
    "{t}.add_({o})", "{t}.sub_({o})", "{t}.mul_({n})", "{t}.copy_({o})", "{t}.fill_({n})", "{t}.zero_()",
    "{t}[{i}] = {n}", "{t}[{i}] = {o}", "{t}[{i}] += {n}", "{t}[{i}].mul_({n})", "{t}.masked_fill_({t} > {n}, {n})",
    "{t}.clamp_(-4, 4)", "{t}.relu_()", "{f}.neg_()", "{t}[torch.tensor([1, 0])] = {n}", "{t}[{t} > {n}] = {n}",
    "{t}.abs_()", "{f}.div_(2)", "{t}.index_fill_({d}, torch.tensor([0]), {n})", "{t}.t().add_({n})",
    "{t}.view(-1)[{k}:] -= {n}", "{t}.diagonal().fill_({n})", "{t}.transpose({d}, {e})[{i}] = {n}",
    "{t}.index_add_({d}, torch.tensor([0]), {m}.clone())", "{t}.index_copy_({d}, torch.tensor([0]), {m}.clone())",
    "torch.add({f}, {n}, out={m})", "{t} += {o}", "{t} *= {n}", "{t}.cumsum_({d})", "{t}.unbind({d})[0].add_({n})",
    "{t}.bitwise_not_()", "{t}.logical_not_()", "{t}.expand_as({m}).add_(1)", "{t}.detach().add_({n})",
    "{t}.reshape(-1)[{k}:].fill_({n})", "{t}.flatten().add_({n})", "{t}.contiguous().mul_({n})", "{t}.tril_()",
    "{t}.unsqueeze_({u})", "{f}.nan_to_num_()",
    "{t}.to({t}.dtype).add_({n})", "{t}.float().mul_({n})", "{t}.lt_({o})", "{t}.data.add_({n})",
    "{t}.masked_scatter_({t} > 0, {m}.clone())", "{t}.scatter_({d}, torch.zeros_like({t}, dtype=torch.int64), {n})",
    "{t}.index_put_((torch.tensor([0, 0]),), {m}.clone(), accumulate=True)",
]))  # fmt: skip

REGIONS = [
    "with torch.no_grad():", "with torch.no_grad():", "with torch.autocast('cpu', dtype=torch.bfloat16):",
    "with torch.set_grad_enabled(True):", "with torch.autocast('cpu', enabled=False):", "for i in range(2):",
    "if more['flag']:", "if x0.dim() > 1:",
]  # fmt: skip


def _state(g: Grower, i: int) -> str:
    """Make a line of `__init__` that creates a tensor of the model, of its own or a view of another."""
    roll, key = g.random.random(), g.random.randrange(1 << 20)
    shape, dtype = g.random.choice(SHAPES), g.random.choice(DTYPES)
    made = f"data({key}, {shape}, {dtype!r})"
    if roll < 0.35:
        return f"self.register_buffer('b{i}', {made})"
    if roll < 0.55:
        return f"self.a{i} = {made}"
    if roll < 0.7:
        return f"self.p{i} = nn.Parameter(data({key}, {shape}))"
    if roll < 0.8:
        return f"self.d{i} = {{'u': {made}, 'list': [data({key + 1}, (4,)), ({made},)]}}"
    if not g.tensors:
        return f"self.register_buffer('b{i}', {made}, persistent=False)"
    base = g.random.choice(g.tensors)
    view = g.random.choice(["", "[1:]", ".t()", ".view(-1)", ".diagonal()", "[..., 0]", "[:2]", ".detach()", ".mT"])
    if g.random.random() < 0.3:
        return f"self.p{i} = nn.Parameter({base}.detach(){view})"
    return g.random.choice(
        [f"self.register_buffer('b{i}', {base}.detach(){view})", f"self.a{i} = {base}.detach(){view}"]
    )


def state_names(line: str) -> list[str]:
    """List the tensors that a line of `__init__` makes."""
    name = line.split("'")[1] if line.startswith("self.register_buffer") else line[5:].split(" =")[0]
    return [f"self.{name}['u']", f"self.{name}['list'][0]", f"self.{name}['list'][1][0]"] if name[0] == "d" else [
        f"self.{name}"
    ]  # fmt: skip


def _input(g: Grower, rank_first: int | None) -> str:
    key, dtype = g.random.randrange(1 << 20), g.random.choice(DTYPES)
    shape = g.random.choice(SHAPES)
    if rank_first is not None and shape:
        shape = (rank_first, *shape[1:])
    made = f"data({key}, {shape}, {dtype!r})"
    roll = g.random.random()
    if len(shape) >= 2 and roll < 0.2:
        return f"data({key}, {shape[1::-1] + shape[2:]}, {dtype!r}).transpose(0, 1)"
    if shape and roll < 0.3:
        return f"data({key}, {(shape[0] * 2, *shape[1:])}, {dtype!r})[::2]"
    return made


def grow(seed: int) -> Program:
    """Grow the program of a seed."""
    g = Grower(random.Random(seed))
    g.scope["self"] = nn.Module()
    init: list[str] = []
    for i in range(g.random.randint(0, 4)):
        line = _state(g, i)
        if g.run(line):
            init.append(line)
            g.tensors += state_names(line)
    dynamic = g.random.random() < 0.2
    x0, x1, u = (_input(g, 4 if dynamic else None) for _ in range(3))
    flag, number = g.random.choice([True, False]), g.random.choice([2, 0.5, None, "mode"])
    more = g.random.choice([
        "{{'u': {u}, 'flag': {flag}, 'n': {number!r}}}",
        "{{'flag': {flag}, 'pair': Pair({u}, {number!r}), 'none': None}}",
    ])  # fmt: skip

    def call(a: str, b: str, c: str) -> str:
        return f"({a}, {b}, {more.format(u=c, flag=flag, number=number)})"

    calls = [call(x0, x1, u)]
    g.scope["x0"], g.scope["x1"], g.scope["more"] = g.value(calls[0])
    g.tensors += ["x0", "x1", "more['u']" if "'u'" in more else "more['pair'].left"]
    body = _body(g, g.random.randint(2, 10))
    for _ in range(g.random.randint(1, 3)):
        calls.append(call(*(_like(g, x, dynamic) for x in (x0, x1, u))))
    return Program(tuple(init), tuple(body), _result(g), tuple(calls), dynamic)


def _like(g: Grower, made: str, dynamic: bool) -> str:
    """Another tensor of the same type, perhaps of another first size."""
    key, rest = made.removeprefix("data(").split(",", 1)
    if dynamic and rest.startswith(" (4,") and g.random.random() < 0.7:
        rest = rest.replace(" (4,", f" ({g.random.choice([1, 2, 3, 5, 7])},", 1)
    return f"data({int(key) + g.random.randrange(1, 99)},{rest}"


def _body(g: Grower, size: int, depth: int = 0) -> list[str]:
    body: list[str] = []
    for _ in range(size * 4):
        if len(body) >= size:
            break
        roll = g.random.random()
        if roll < 0.1 and depth < 2:
            head = g.random.choice(REGIONS)
            known = list(g.tensors)
            inner = _region(g, head, depth)
            if inner:
                body.append(inner)
            if head.startswith(("if", "for")):
                g.tensors = [t for t in g.tensors if t in known]
            continue
        line = g.draw(PURE if roll < 0.4 else VIEWS if roll < 0.65 else WRITES)
        if roll > 0.97 and (buffers := [t for t in g.tensors if t.startswith("self.b")]):
            target = g.random.choice(buffers)
            line = f"{target} = {target} + {g.number()}"
        if not g.run(line):
            continue
        body.append(line)
        made = line.split(" = ")[0]
        if made.startswith("y") and made.isidentifier() and isinstance(g.value(made), Tensor):
            g.tensors.append(made)
    return body


def _region(g: Grower, head: str, depth: int) -> str:
    """Make a block; its lines have been run once, under the same mode."""
    if head.startswith("if") and not g.value(head[3:-1]):
        return ""
    scope: dict[str, Any] = {}
    if head.startswith("with"):
        exec(f"manager = {head[5:-1]}", g.scope, scope)
        with scope["manager"]:
            inner = _body(g, g.random.randint(1, 3), depth + 1)
    else:
        inner = _body(g, g.random.randint(1, 3), depth + 1)
    return "\n".join([head, *(f"    {line}" for text in inner for line in text.split("\n"))]) if inner else ""


def _result(g: Grower) -> str:
    made = [t for t in g.tensors if t.startswith("y")] or ["x0"]
    chosen = [g.random.choice(made), *(g.any() for _ in range(g.random.randint(0, 3)))]
    kind = g.random.random()
    if kind < 0.5:
        return f"({', '.join(chosen)},)"
    if kind < 0.65:
        return "{'a': " + chosen[0] + ", 'rest': [" + ", ".join(chosen[1:]) + "], 'n': None}"
    if kind < 0.8:
        return f"Pair({chosen[0]}, {chosen[-1]})"
    return chosen[0] if kind < 0.95 else f"[{chosen[0]}, 3, 'text', None]"
