"""Texts to mutate: small programs at every level that we print, in the pretty and the generic form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau
from flambeau import torchscript

LONGEST = 4000
"""How long a text may be, in characters: a mutation hits a short one where it matters more often."""

LEVELS = ("raw", "torch", "linalg-on-tensors", "stablehlo", "tosa")


@dataclass(frozen=True)
class Text:
    """A text that we printed."""

    level: str
    text: str


def pointwise(x: Tensor, y: Tensor) -> Tensor:
    return (x * y + 1).relu().where(x > 0, torch.tensor(0.5))


def reductions(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.softmax(-1).sum(0, keepdim=True), y.var_mean(1)[0]


def views(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x.transpose(0, 1)[1:], y.reshape(3, 2)], 0).expand(2, -1, -1).flatten(1)


def writes(x: Tensor, y: Tensor) -> Tensor:
    z = x.clone()
    z[0].add_(y[1])
    z[:, 1] = 2
    return z.exp_()


def indices(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    i = y.argmax(1)
    return x.gather(1, i[:, None]), x.index_select(1, i), x[i, i]


def sorting(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    values, order = x.sort(1, descending=True)
    return values.cumsum(0), order + torch.arange(3)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.norm = nn.BatchNorm2d(2)
        self.out = nn.Linear(8, 2)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        z = F.max_pool2d(self.norm(self.conv(torch.outer(x[0], y[0]).reshape(1, 1, 3, 3).repeat(1, 1, 2, 2))), 3, 3)
        return self.out(z.flatten(1))


def branch(x: Tensor, n: int) -> Tensor:
    if bool(x.sum() > 0) and n > 1:
        y = x + n
    else:
        y = x - 1
    return y


def loop(x: Tensor, n: int) -> Tensor:
    i = 0
    while i < n and bool(x.sum() < 100):
        x = x * 2 + i
        i += 1
    for k in range(x.size(0)):
        x[k] += k
    return x


def containers(x: Tensor, n: int) -> list[Tensor]:
    parts: list[Tensor] = []
    names = {"a": x, "b": x + 1}
    for key in ["a", "b"]:
        parts.append(names[key])
    pair = (parts[0], n)
    parts[1] = pair[0] * pair[1]
    return parts


class State(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))
        self.linear = nn.Linear(3, 3)
        self.steps = 2

    def forward(self, x: Tensor, n: int) -> Tensor:
        self.count += 1
        for _ in range(self.steps):
            x = self.linear(x)
        return x * n + self.count.sum()


EXPORTED: list[Any] = [pointwise, reductions, views, writes, indices, sorting, Net()]
SCRIPTED: list[Any] = [branch, loop, containers, State()]


@cache
def corpus(exported: int = len(EXPORTED), scripted: int = len(SCRIPTED)) -> tuple[Text, ...]:
    """All texts of the first programs of each kind."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    dynamic = ({1: torch.export.Dim("n")},) * 2
    found: list[Text] = []
    for program in EXPORTED[:exported]:
        shapes = dynamic if program in (pointwise,) else None
        raw = lambda p=program, s=shapes: flambeau.compile(p, (x, y), output_type="raw", dynamic_shapes=s)  # noqa: E731
        found += _levels(raw)
    for program in SCRIPTED[:scripted]:
        found += _levels(lambda p=program: torchscript.compile(p, (x, 3), "raw"))
    return tuple(found)


def _levels(raw: Callable[[], flambeau.Module]) -> list[Text]:
    """Compile a program to every level that it reaches; it is imported anew for each, as lowering rewrites it."""
    found = []
    for level in LEVELS:
        try:
            module = flambeau.compile(raw(), output_type=level)
        except flambeau.CompileError:
            continue
        found.append(Text(level, module.text(weights="inline")))
        found.append(Text(level, module.text(generic=True, weights="literal")))
    return [t for t in found if len(t.text) <= LONGEST]
