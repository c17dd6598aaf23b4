"""Slices, splits, and writing them into a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.ir.dtypes import INT64_MAX
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.verbs import RuleBuilder

# --- Slices ---


def slice_bounds(b: RuleBuilder, size: Size, start: Any, end: Any, step: int) -> tuple[Size, Size]:
    """Compute start and length of Python's `start:end:step` on a dimension."""
    if step <= 0:
        raise Unsupported(f"the step of a slice is {step}")
    first = _clamped(b, 0 if start is None else start, size)
    last = size if end is None or (isinstance(end, int) and end == INT64_MAX) else _clamped(b, end, size)
    return first, b.maximum(
        b.ceildiv(b.sub(last, first), step), 0
    ) if first != 0 or last is not size or step != 1 else size


def _clamped(b: RuleBuilder, position: Size, size: Size) -> Size:
    if isinstance(position, int):
        if position == 0:
            return 0
        if position < 0:
            return b.maximum(b.add(size, position), 0)
        return b.minimum(position, size)
    wrapped = b.select(b.compare("slt", position, 0), b.add(position, size), position)
    return b.minimum(b.maximum(wrapped, 0), size)


def slice_along(b: RuleBuilder, x: Tensor, dim: int, start: Size, length: Size, step: int = 1) -> Tensor:
    sizes = b.sizes(x)
    sizes[dim] = length
    starts: list[Size] = [0] * x.rank
    starts[dim] = start
    steps: list[Size] = [1] * x.rank
    steps[dim] = step
    return b.slice(x, starts, sizes, steps)


@linalg_rule("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(b: RuleBuilder, x: Tensor, dim: int, start: Any, end: Any, step: int) -> Tensor:
    at = b.dim(dim, x.rank)
    first, length = slice_bounds(b, b.size(x, at), start, end, step)
    known = b.out_shape[at]
    if known is not None:
        length = b.same_size(known, length, f"a part of dimension {dim} ends outside of it")
    return slice_along(b, x, at, first, length, step)


def _index(b: RuleBuilder, position: Size, size: Size) -> Size:
    """Return an index from the start; a negative one counts from the end."""
    if isinstance(position, int):
        return b.add(size, position) if position < 0 else position
    return b.select(b.compare("slt", position, 0), b.add(position, size), position)


def _index_within(b: RuleBuilder, position: Size, size: Size) -> Size:
    """Return an index from the start; guard that there is such an element."""
    first = _index(b, position, size)
    b.guard(b.compare("sge", first, 0), "select(): index out of range")
    b.guard(b.compare("slt", first, size), "select(): index out of range")
    return first


@linalg_rule("aten.select.int", "aten.select_copy.int")
def select(b: RuleBuilder, x: Tensor, dim: int, position: Size) -> Tensor:
    at = b.dim(dim, x.rank)
    size = b.size(x, at)
    return b.squeeze(slice_along(b, x, at, _index_within(b, position, size), 1), [at])


@linalg_rule("aten.narrow")
def narrow(b: RuleBuilder, x: Tensor, dim: int, start: Size, length: Size) -> Tensor:
    at = b.dim(dim, x.rank)
    size = b.size(x, at)
    first = _index(b, start, size)
    for low, high in ((0, first), (0, length), (b.add(first, length), size)):
        b.guard(b.compare("sle", low, high), "narrow(): the part ends outside of the dimension")
    return slice_along(b, x, at, first, length)


@linalg_rule("aten.split_with_sizes", "aten.split.sizes", "aten.split_with_sizes_copy")
def split_with_sizes(b: RuleBuilder, x: Tensor, sizes: list[Size], dim: int) -> list[Tensor]:
    at = b.dim(dim, x.rank)
    total: Size = 0
    for size in sizes:
        b.guard(b.compare("sge", size, 0), "the sizes of parts are not negative")
        total = b.add(total, size)
    b.same_size(b.size(x, at), total, "the sizes of parts add up to the size of the whole")
    return _parts(b, x, sizes, at)


def _parts(b: RuleBuilder, x: Tensor, sizes: Sequence[Size], at: int) -> list[Tensor]:
    """Split a dim into adjacent parts of these sizes."""
    parts: list[Tensor] = []
    start: Size = 0
    for size in sizes:
        parts.append(slice_along(b, x, at, start, size))
        start = b.add(start, size)
    return parts


def _even_parts(b: RuleBuilder, x: Tensor, at: int, part: Size, count: int | None, of_nothing: int) -> list[Tensor]:
    """Split into parts of one size, the last perhaps smaller; guard their number, `of_nothing` for an empty dim."""
    size = b.size(x, at)
    found = b.select(b.compare("eq", size, 0), of_nothing, b.ceildiv(size, part) if part != 0 else 1)
    if isinstance(found, int):
        count = found
    if count is None:
        raise Unsupported("a split of a dimension whose size is not known gives an unknown number of tensors")
    b.same_size(count, found, f"dimension {at} gives another number of parts than the program was compiled for")
    sizes = [b.minimum(part, b.maximum(b.sub(size, b.mul(part, i)), 0)) for i in range(count)]
    return _parts(b, x, sizes, at)


@linalg_rule("aten.split.Tensor")
def split(b: RuleBuilder, x: Tensor, size: Size, dim: int) -> list[Tensor]:
    return _even_parts(b, x, b.dim(dim, x.rank), size, b.context.length, 1)


@linalg_rule("aten.chunk")
def chunk(b: RuleBuilder, x: Tensor, chunks: int, dim: int) -> list[Tensor]:
    at = b.dim(dim, x.rank)
    return _even_parts(b, x, at, b.ceildiv(b.size(x, at), chunks), b.context.length or chunks, chunks)


@linalg_rule("aten.tensor_split.sections")
def tensor_split(b: RuleBuilder, x: Tensor, sections: int, dim: int) -> list[Tensor]:
    at = b.dim(dim, x.rank)
    size = b.size(x, at)
    rest = b.mod(size, sections)
    part = b.floordiv(size, sections)
    sizes = [b.select(b.compare("slt", i, rest), b.add(part, 1), part) for i in range(sections)]
    return _parts(b, x, sizes, at)


@linalg_rule("aten.unbind.int", "aten.unbind_copy.int")
def unbind(b: RuleBuilder, x: Tensor, dim: int) -> list[Tensor]:
    at = b.dim(dim, x.rank)
    count = x.shape[at] if x.shape[at] is not None else b.context.length
    if count is None:
        raise Unsupported("unbind of a dimension whose size is not known gives an unknown number of tensors")
    b.same_size(count, b.size(x, at), f"dimension {at} gives another number of parts than the program was compiled for")
    return [b.squeeze(slice_along(b, x, at, i, 1), [at]) for i in range(count)]


# --- Writing into a copy ---


def _replace(b: RuleBuilder, x: Tensor, src: Tensor, at: int, start: Size, step: int) -> Tensor:
    """Replace the slices `start`, `start + step`, ... of a dim of `x` by those of `src`."""
    starts: list[Size] = [start if i == at else 0 for i in range(x.rank)]
    return b.insert_slice(b.to(src, x.dtype), x, starts, [step if i == at else 1 for i in range(x.rank)])


def _require_sizes(b: RuleBuilder, src: Tensor, sizes: Sequence[Size]) -> None:
    for size, own in zip(sizes, b.sizes(src), strict=True):
        b.same_size(size, own, "the source does not have the size of what it replaces")


@linalg_rule("aten.slice_scatter")
def slice_scatter(b: RuleBuilder, x: Tensor, src: Tensor, dim: int, start: Any, end: Any, step: int) -> Tensor:
    at = b.dim(dim, x.rank)
    first, length = slice_bounds(b, b.size(x, at), start, end, step)
    sizes = b.sizes(x)
    if isinstance(first, int) and first == 0 and length is sizes[at]:
        _require_sizes(b, src, sizes)
        return b.to(src, x.dtype)
    sizes[at] = length
    _require_sizes(b, src, sizes)
    return _replace(b, x, src, at, first, step)


@linalg_rule("aten.select_scatter")
def select_scatter(b: RuleBuilder, x: Tensor, src: Tensor, dim: int, position: Size) -> Tensor:
    at = b.dim(dim, x.rank)
    sizes = b.sizes(x)
    _require_sizes(b, src, [*sizes[:at], *sizes[at + 1 :]])
    return _replace(b, x, b.unsqueeze(src, at), at, _index_within(b, position, sizes[at]), 1)


@linalg_rule("aten.diagonal_scatter")
def diagonal_scatter(b: RuleBuilder, x: Tensor, src: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    i, j = b.dim(dim1, x.rank), b.dim(dim2, x.rank)
    kept = [d for d in range(x.rank) if d not in (i, j)]
    down, right = max(-offset, 0), max(offset, 0)
    length = b.maximum(b.minimum(b.sub(b.size(x, i), down), b.sub(b.size(x, j), right)), 0)
    _require_sizes(b, src, [*(b.size(x, d) for d in kept), length])
    if 0 in src.shape:
        return x
    last = b.sub(length, 1)

    def place(at: Sequence[SSAValue], e: Any) -> Any:
        on_diagonal = b.compare("eq", b.sub(at[i], down), b.sub(at[j], right))
        inside = b.compare("sge", b.sub(at[i], down), 0)
        # Off the diagonal any position will do: what is loaded there is not used.
        step = b.maximum(b.minimum(b.sub(at[i], down), last), 0)
        loaded = b.load(src, [*(at[d] for d in kept), step])
        return (b.scalar_bool(on_diagonal) & b.scalar_bool(inside)).select(loaded.to(x.dtype), e)

    return b.map_indexed([x], b.sizes(x), x.dtype, place)
