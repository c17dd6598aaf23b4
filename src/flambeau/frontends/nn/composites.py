"""Operators that nothing downstream takes whole: they are written with others, as a PyTorch user would write them.

The FX frontend has PyTorch's own decompositions for these; here is what takes their place. A composite is called with
the arguments in the order of the overload's schema.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.frontends.nn import context
from flambeau.frontends.nn.values import Tensor, as_array

ALIASES = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "divide": "div", "fix": "trunc", "greater": "gt", "greater_equal": "ge",
    "less": "lt", "less_equal": "le", "linalg_matmul": "matmul", "moveaxis": "movedim", "multiply": "mul",
    "not_equal": "ne", "ravel": "flatten", "row_stack": "vstack", "subtract": "sub", "true_divide": "div",
    "unsafe_chunk": "chunk", "unsafe_split": "split", "unsafe_split_with_sizes": "split_with_sizes",
    "special_expm1": "expm1", "inverse": "linalg_inv", "det": "linalg_det",
}  # fmt: skip
"""Operators that are others by another name; so are their forms in place, with an underscore."""

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


# --- Pointwise ---


@composite("aten.max.other")
def max_other(x: Tensor, y: Tensor) -> Any:
    return _op("maximum", x, y)


@composite("aten.min.other")
def min_other(x: Tensor, y: Tensor) -> Any:
    return _op("minimum", x, y)


@composite("aten.positive")
def positive(x: Tensor) -> Any:
    return x


@composite("aten.float_power.Tensor_Scalar", "aten.float_power.Tensor_Tensor")
def float_power(x: Tensor, exponent: Any) -> Any:
    return _op("pow", x.double(), exponent.double() if isinstance(exponent, Tensor) else float(exponent))


@composite("aten.ldexp.Tensor")
def ldexp(x: Tensor, other: Tensor) -> Any:
    return x * _op("pow", 2.0, other)


@composite("aten.remainder.Scalar_Tensor")
def remainder_of_number(number: Any, x: Tensor) -> Any:
    tracer = context.current()
    return _op("remainder", tracer.wrap(tracer.literal_of(as_array(number), "constant")), x)


@composite("aten.prelu")
def prelu(x: Tensor, weight: Tensor) -> Any:
    if weight.ndim != x.ndim:
        sizes = [1] * x.ndim
        if weight.meta.shape != (1,) and x.ndim > 1:
            sizes[1] = weight.shape[0]
        weight = weight.view(sizes)
    return _op("_prelu_kernel", x, weight)


@composite("aten.dist")
def dist(x: Tensor, y: Tensor, p: float) -> Any:
    return _op("linalg_vector_norm", x - y, p)


@composite("aten.vdot")
def vdot(x: Tensor, y: Tensor) -> Any:
    return _op("dot", x, y)


@composite("aten.addr")
def addr(x: Tensor, a: Tensor, b: Tensor, beta: Any, alpha: Any) -> Any:
    return beta * x + alpha * _op("outer", a, b)


# --- Views and copies ---


@composite("aten.atleast_1d")
def atleast_1d(x: Tensor) -> Any:
    return x.reshape(1) if x.ndim == 0 else x


@composite("aten.atleast_2d")
def atleast_2d(x: Tensor) -> Any:
    return x.reshape(1, 1) if x.ndim == 0 else x.unsqueeze(0) if x.ndim == 1 else x


@composite("aten.hstack")
def hstack(tensors: Sequence[Tensor]) -> Any:
    tensors = [atleast_1d(t) for t in tensors]
    return _op("cat", tensors, 0 if tensors[0].ndim == 1 else 1)


@composite("aten.vstack")
def vstack(tensors: Sequence[Tensor]) -> Any:
    return _op("cat", [atleast_2d(t) for t in tensors], 0)


@composite("aten.column_stack")
def column_stack(tensors: Sequence[Tensor]) -> Any:
    return hstack([t.reshape([t.numel(), 1]) if t.ndim <= 1 else t for t in tensors])


@composite("aten.fliplr")
def fliplr(x: Tensor) -> Any:
    return _op("flip", x, [1])


@composite("aten.flipud")
def flipud(x: Tensor) -> Any:
    return _op("flip", x, [0])


@composite("aten.rot90")
def rot90(x: Tensor, k: int, dims: Sequence[int]) -> Any:
    a, b = dims
    match k % 4:
        case 1:
            return _op("flip", x, [b]).transpose(a, b)
        case 2:
            return _op("flip", x, [a, b])
        case 3:
            return _op("flip", x, [a]).transpose(a, b)
    return x.clone()


@composite("aten.repeat_interleave.self_int")
def repeat_interleave(x: Tensor, repeats: Any, dim: int | None, output_size: Any) -> Any:
    if dim is None:
        x, dim = x.flatten(), 0
    dim %= x.ndim
    sizes = list(x.shape)
    spread = x.unsqueeze(dim + 1).expand([*sizes[: dim + 1], repeats, *sizes[dim + 1 :]])
    return spread.clone(memory_format=0).view([*sizes[:dim], sizes[dim] * repeats, *sizes[dim + 1 :]])


@composite("aten.meshgrid")
def meshgrid(tensors: Sequence[Tensor], indexing: str = "ij") -> Any:
    swap = indexing == "xy" and len(tensors) >= 2
    listed = [tensors[1], tensors[0], *tensors[2:]] if swap else list(tensors)
    sizes = [t.numel() for t in listed]
    grids = []
    for i, t in enumerate(listed):
        shape = [1] * len(listed)
        shape[i] = -1
        grids.append(t.view(shape).expand(sizes))
    return (grids[1], grids[0], *grids[2:]) if swap else tuple(grids)


COMPOSITES["aten.meshgrid.indexing"] = meshgrid


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


@composite("aten.diag")
def diag(x: Tensor, diagonal: int) -> Any:
    return x.diagonal(diagonal) if x.ndim == 2 else _op("diag_embed", x, diagonal)


@composite("aten.diag_embed")
def diag_embed(x: Tensor, offset: int, dim1: int, dim2: int) -> Any:
    rank = x.ndim + 1
    if (dim1 % rank, dim2 % rank) != (rank - 2, rank - 1):
        return diag_embed(x, offset, -2, -1).movedim([-2, -1], [dim1, dim2])
    # Row i holds element i + min(offset, 0) in column i + offset: with zeros before or behind, one vector serves all.
    pad = abs(offset)
    column = _op("constant_pad_nd", x, [max(offset, 0), max(-offset, 0)], 0) if pad else x
    size = column.shape[-1]
    rows, columns = _op("arange", size).unsqueeze(-1), _op("arange", size)
    column = column.unsqueeze(-2)
    return _op("where", rows + offset == columns, column, _op("zeros_like", column))


@composite("aten.trace")
def trace(x: Tensor) -> Any:
    return x.diagonal().sum()


@composite("aten.atleast_3d")
def atleast_3d(x: Tensor) -> Any:
    return atleast_2d(x).unsqueeze(-1) if x.ndim < 3 else x


for _name, _one in {"1d": atleast_1d, "2d": atleast_2d, "3d": atleast_3d}.items():
    COMPOSITES[f"aten.atleast_{_name}.Sequence"] = lambda tensors, one=_one: tuple(one(t) for t in tensors)


@composite("aten.dstack")
def dstack(tensors: Sequence[Tensor]) -> Any:
    return _op("cat", [atleast_3d(t) for t in tensors], 2)


@composite("aten.diff")
def diff(x: Tensor, n: int, dim: int, prepend: Tensor | None, append: Tensor | None) -> Any:
    parts = [part for part in (prepend, x, append) if part is not None]
    x = _op("cat", parts, dim) if len(parts) > 1 else x
    for _ in range(n):
        count = x.shape[dim] - 1
        later, earlier = x.narrow(dim, 1, count), x.narrow(dim, 0, count)
        x = later.logical_xor(earlier) if x.dtype.is_bool else later - earlier
    return x


@composite("aten.tensor_split.indices")
def tensor_split(x: Tensor, indices: Sequence[Any], dim: int) -> Any:
    starts, ends = [0, *indices], [*indices, (1 << 63) - 1]
    return tuple(_op("slice", x, dim, start, end) for start, end in zip(starts, ends, strict=True))


def _splits(name: str, dim: Callable[[Tensor], int]) -> None:
    def split(x: Tensor, parts: Any) -> Any:
        return _op("tensor_split", x, parts, dim(x))

    COMPOSITES[f"aten.{name}.int"] = COMPOSITES[f"aten.{name}.array"] = split


_splits("hsplit", lambda x: 0 if x.ndim == 1 else 1)
_splits("vsplit", lambda x: 0)
_splits("dsplit", lambda x: 2)


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


@composite("aten.linalg_diagonal")
def linalg_diagonal(x: Tensor, offset: int, dim1: int, dim2: int) -> Any:
    return x.diagonal(offset, dim1, dim2)
