"""The text of a random view, as it stands behind a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from fuzz.script.variables import Dead


class Chooser(Protocol):
    """Who makes the choices."""

    def chance(self, percent: int) -> bool: ...
    def pick(self, options: Sequence[Any]) -> Any: ...
    def number(self, low: int, high: int) -> int: ...
    def weighted(self, table: Sequence[tuple[int, Any]]) -> Any: ...
    def index(self, size: int) -> str: ...


def _dim(g: Chooser, meta: torch.Tensor) -> int:
    if not meta.dim():
        raise Dead
    return g.number(0, meta.dim() - 1)


def _signed(g: Chooser, meta: torch.Tensor, dim: int) -> int:
    return dim - meta.dim() if g.chance(30) else dim


def _bounds(g: Chooser, size: int) -> str:
    start = g.number(0, size - 1)
    return g.pick([f"{start}:", f":{start + 1}", f"{start}:{g.number(start + 1, size)}", "::2", f"-{size - start}:"])


def subscript(g: Chooser, meta: torch.Tensor) -> str:
    """`[1:, 0]`"""
    if not meta.dim():
        raise Dead
    parts: list[str] = []
    for size in meta.shape[: g.number(1, meta.dim())]:
        parts.append(g.weighted([(4, ":"), (4, g.index(size)), (4, _bounds(g, size))]))
    if g.chance(10):
        parts.insert(0, "...")
    return f"[{', '.join(parts)}]"


def _select(g: Chooser, meta: torch.Tensor) -> str:
    dim = _dim(g, meta)
    return f".select({_signed(g, meta, dim)}, {g.index(meta.size(dim))})"


def _narrow(g: Chooser, meta: torch.Tensor) -> str:
    dim = _dim(g, meta)
    length = g.number(1, meta.size(dim))
    room = meta.size(dim) - length
    start = f"{g.index(room + 1)}" if room else "0"
    if start.startswith("-"):
        start = "0"
    return f".narrow({dim}, {start}, {length})"


def _transpose(g: Chooser, meta: torch.Tensor) -> str:
    a, b = _dim(g, meta), _dim(g, meta)
    return f".{g.pick(['transpose', 'swapaxes', 'movedim'])}({_signed(g, meta, a)}, {b})"


def _permute(g: Chooser, meta: torch.Tensor) -> str:
    dims = list(range(meta.dim()))
    for i in range(len(dims) - 1, 0, -1):
        j = g.number(0, i)
        dims[i], dims[j] = dims[j], dims[i]
    return f".permute({dims})"


def _shape(g: Chooser, meta: torch.Tensor) -> list[int]:
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


def _squeeze(g: Chooser, meta: torch.Tensor) -> str:
    return g.pick([".squeeze()", f".squeeze({_dim(g, meta)})"])


def _expand(g: Chooser, meta: torch.Tensor) -> str:
    sizes = [g.pick([2, 3]) if s == 1 else g.pick([s, -1]) for s in meta.shape]
    front = [2] if g.chance(40) else []
    return f".expand({[*front, *sizes]})"


def _flatten(g: Chooser, meta: torch.Tensor) -> str:
    if meta.dim() > 1 and g.chance(50):
        start = g.number(0, meta.dim() - 2)
        return f".flatten({start}, {g.number(start + 1, meta.dim() - 1)})"
    return ".flatten()"


def _diagonal(g: Chooser, meta: torch.Tensor) -> str:
    if meta.dim() < 2:
        raise Dead
    return g.pick([".diagonal()", ".diagonal(1)", ".diagonal(0, -1, -2)"])


def _part(g: Chooser, meta: torch.Tensor) -> str:
    dim = _dim(g, meta)
    size = meta.size(dim)
    step = g.number(1, size)
    op = g.pick([f".split({step}, {dim})", f".chunk({step}, {dim})", f".unbind({dim})"])
    return f"{op}[{g.pick([0, -1])}]"


def _t(g: Chooser, meta: torch.Tensor) -> str:
    if meta.dim() == 2:
        return g.pick([".t()", ".mT", ".T"])
    return ".t()"


VIEWS: list[tuple[int, Callable[[Chooser, torch.Tensor], str]]] = [
    (8, subscript), (3, _select), (3, _narrow), (3, _transpose), (3, _permute), (3, _t), (3, _squeeze), (3, _expand),
    (3, _flatten), (3, _diagonal), (4, _part),
    (3, lambda g, m: f".view({_shape(g, m)})"),
    (3, lambda g, m: f".reshape({_shape(g, m)})"),
    (3, lambda g, m: f".unsqueeze({g.number(-m.dim() - 1, m.dim())})"),
    (1, lambda g, m: "[None]"),
    (1, lambda g, m: "[..., None]"),
    (1, lambda g, m: ".detach()"),
    (1, lambda g, m: f".view({m.size(0) if m.dim() else 1}, -1)"),
]  # fmt: skip
