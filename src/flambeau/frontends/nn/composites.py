"""Operators that nothing downstream takes whole: they are written with others, as a PyTorch user would write them.

The FX frontend has PyTorch's own decompositions for these; here is what takes their place. A composite is called with
the arguments in the order of the overload's schema.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.frontends.nn import context
from flambeau.frontends.nn.values import Tensor

COMPOSITES: dict[str, Callable[..., Any]] = {}
"""By overload, `aten.max.other`."""


def composite(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: how overloads are written with others."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        COMPOSITES.update(dict.fromkeys(names, function))
        return function

    return register


def _op(name: str, *args: Any, **kwargs: Any) -> Any:
    return context.current().invoke(f"aten.{name}", None, args, kwargs)


def _product(sizes: Sequence[Any]) -> Any:
    total: Any = 1
    for size in sizes:
        total = size if isinstance(total, int) and total == 1 else total * size
    return total


def tensordot(a: Tensor, b: Tensor, left: Sequence[int], right: Sequence[int]) -> Tensor:
    """One matrix product: the summed dims come last in the first operand, and first in the second."""
    rows = [d for d in range(a.ndim) if d not in left]
    columns = [d for d in range(b.ndim) if d not in right]
    sizes = [a.shape[d] for d in rows] + [b.shape[d] for d in columns]
    depth = _product([a.shape[d] for d in left])
    x = a.permute([*rows, *left]).reshape([_product([a.shape[d] for d in rows]), depth])
    y = b.permute([*right, *columns]).reshape([depth, _product([b.shape[d] for d in columns])])
    return _op("mm", x, y).reshape(sizes)


def einsum(equation: str, operands: Sequence[Tensor]) -> Tensor:
    """Pairs are multiplied from left to right; a pair with a summed dim is one batched matrix product."""
    inputs, output = _parse(equation, operands)
    x, labels = _diagonals(operands[0], inputs[0])
    for i in range(1, len(operands)):
        y, more = _diagonals(operands[i], inputs[i])
        later = set(output).union(*inputs[i + 1 :]) if i + 1 < len(inputs) else set(output)
        x, labels = _pair(x, labels, y, more, later)
    x, labels = _summed(x, labels, set(output))
    order = [labels.index(label) for label in output]
    return x if order == sorted(order) else x.permute(order)


def _parse(equation: str, operands: Sequence[Tensor]) -> tuple[list[str], str]:
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise ValueError(f"einsum: the equation {equation!r} is for {len(terms)} operands, got {len(operands)}")
    free = [c for c in string.ascii_letters if c not in equation]
    rests = [x.ndim - len(t.replace("...", "")) for t, x in zip(terms, operands, strict=True)]
    many = "".join(free[: max((r for t, r in zip(terms, rests, strict=True) if "..." in t), default=0)])
    inputs = [t.replace("...", many[len(many) - r :]) for t, r in zip(terms, rests, strict=True)]
    for term, x in zip(inputs, operands, strict=True):
        if len(term) != x.ndim:
            raise ValueError(f"einsum: the term {term!r} of {equation!r} does not fit a tensor of {x.ndim} dims")
    if arrow:
        return inputs, right.replace("...", many)
    every = "".join(inputs)
    return inputs, many + "".join(sorted(c for c in set(every) if every.count(c) == 1 and c not in many))


def _diagonals(x: Tensor, labels: str) -> tuple[Tensor, list[str]]:
    """A label that comes twice stands for a diagonal."""
    found = list(labels)
    while len(set(found)) != len(found):
        label = next(c for c in found if found.count(c) > 1)
        first, second = [i for i, c in enumerate(found) if c == label][:2]
        x = _op("diagonal", x, 0, first, second)
        found = [c for i, c in enumerate(found) if i not in (first, second)] + [label]
    return x, found


def _summed(x: Tensor, labels: list[str], wanted: set[str]) -> tuple[Tensor, list[str]]:
    dims = [i for i, c in enumerate(labels) if c not in wanted]
    return (_op("sum", x, dims), [c for c in labels if c in wanted]) if dims else (x, labels)


def _pair(x: Tensor, a: list[str], y: Tensor, b: list[str], later: set[str]) -> tuple[Tensor, list[str]]:
    x, a = _summed(x, a, later | set(b))
    y, b = _summed(y, b, later | set(a))
    batch = [c for c in a if c in b and c in later]
    inner = [c for c in a if c in b and c not in later]
    rows, columns = [c for c in a if c not in b], [c for c in b if c not in a]
    if not inner:
        every = [*batch, *rows, *columns]
        return _aligned(x, a, every) * _aligned(y, b, every), every
    sizes = {c: x.shape[i] for i, c in enumerate(a)} | {
        c: y.shape[i] for i, c in enumerate(b) if c not in a or x.meta.shape[a.index(c)] == 1
    }

    def matrix(t: Tensor, labels: list[str], parts: tuple[list[str], ...]) -> Tensor:
        order = [labels.index(c) for part in parts for c in part]
        t = t.permute(order)
        return t.reshape([_product([t.shape[i] for i in range(s, e)]) for s, e in _bounds(parts)])

    left, right = matrix(x, a, (batch, rows, inner)), matrix(y, b, (batch, inner, columns))
    product = _op("bmm", left, right)
    every = [*batch, *rows, *columns]
    return product.reshape([sizes[c] for c in every]), every


def _bounds(parts: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    bounds, at = [], 0
    for part in parts:
        bounds.append((at, at + len(part)))
        at += len(part)
    return bounds


def _aligned(x: Tensor, labels: list[str], every: Sequence[str]) -> Tensor:
    """The tensor with its dims in this order, and dims of size 1 where it lacks one."""
    order = [labels.index(c) for c in every if c in labels]
    x = x if order == sorted(order) else x.permute(order)
    for i, c in enumerate(every):
        if c not in labels:
            x = x.unsqueeze(i)
    return x


@composite("aten.dist")
def dist(x: Tensor, y: Tensor, p: float) -> Any:
    return _op("linalg_vector_norm", x - y, p)


@composite("aten.vdot")
def vdot(x: Tensor, y: Tensor) -> Any:
    return _op("dot", x, y)


@composite("aten.addr")
def addr(x: Tensor, a: Tensor, b: Tensor, beta: Any, alpha: Any) -> Any:
    return beta * x + alpha * _op("outer", a, b)


# --- Reads ---


@composite("aten.take_along_dim")
def take_along_dim(x: Tensor, indices: Tensor, dim: int | None) -> Any:
    if dim is None:
        x, indices, dim = x.flatten(), indices.flatten(), 0
    from flambeau.infer.rules import broadcast

    dim %= x.ndim
    pairs = zip(x.meta.shape, indices.meta.shape, strict=True)
    common = broadcast(*([1 if i == dim else d for i, d in enumerate(side)] for side in zip(*pairs, strict=True)))

    def sizes(t: Tensor, other: Tensor) -> list[Any]:
        return [
            t.shape[i] if i == dim else d if d is not None else (t if t.meta.shape[i] != 1 else other).shape[i]
            for i, d in enumerate(common)
        ]

    picked, x = indices.expand(sizes(indices, x)), x.expand(sizes(x, indices))
    return x.gather(dim, picked % x.shape[dim])


@composite("aten.trace")
def trace(x: Tensor) -> Any:
    return x.diagonal().sum()


# --- Reductions and orders ---


@composite("aten.nanmean")
def nanmean(x: Tensor, dim: Any, keepdim: bool, dtype: Any) -> Any:
    count = x.eq(x).sum(list(range(x.ndim)) if dim is None else dim, keepdim=keepdim)
    return _op("nansum", x, dim, keepdim, dtype=dtype) / count


@composite("aten.msort")
def msort(x: Tensor) -> Any:
    return _op("sort", x, 0)[0]


@composite("aten.argsort.stable")
def argsort(x: Tensor, stable: bool, dim: int, descending: bool) -> Any:
    return _op("sort", x, stable=stable, dim=dim, descending=descending)[1]


@composite("aten.linalg_vecdot")
def vecdot(x: Tensor, y: Tensor, dim: int) -> Any:
    return (x * y).sum(dim)
