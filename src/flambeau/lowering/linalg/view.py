"""Views and moves: ops that rearrange elements and compute nothing."""

from __future__ import annotations

from typing import Any

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.ir.dtypes import BY_CODE
from flambeau.lowering.builder import Size, Tensor, static, tensor_type
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.linalg.slice import slice_along
from flambeau.lowering.verbs import RuleBuilder

# --- The same tensor ---


@linalg_rule(
    "aten.detach", "aten.alias", "aten.lift", "aten.lift_fresh", "aten.lift_fresh_copy", "aten.detach_copy",
    "aten.resolve_conj", "aten.resolve_neg", "aten.alias_copy",
)  # fmt: skip
def identity(b: RuleBuilder, x: Tensor) -> Tensor:
    return x


@linalg_rule("aten.clone", "aten.contiguous")
def clone(b: RuleBuilder, x: Tensor, memory_format: Any) -> Tensor:
    return x


# --- Casts ---


@linalg_rule(
    "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device", "aten._to_copy", "aten.to.prim_Device", "aten.type_as",
    "aten.to.other", "aten.to.prim_dtype", "prims.convert_element_type", "aten._autocast_to_reduced_precision",
    "aten._autocast_to_full_precision",
)  # fmt: skip
def to(b: RuleBuilder, x: Tensor, *_: Any) -> Tensor:
    return b.to(x, b.out_dtype)


@linalg_rule("aten.view.dtype")
def view_dtype(b: RuleBuilder, x: Tensor, dtype: int) -> Tensor:
    target = BY_CODE[dtype]
    if target.builtin == x.dtype.builtin:
        return Tensor(x.value, target, x._sizes)
    if target.bits != x.dtype.bits:
        raise Unsupported(f"a view of {x.dtype} as {target}, which has another size")
    return b.elementwise([x], lambda e: e.emit(arith.BitcastOp, (e,), target), target)


@linalg_rule("aten.copy")
def copy(b: RuleBuilder, x: Tensor, src: Tensor, non_blocking: bool) -> Tensor:
    return b.broadcast_to(b.to(src, x.dtype), b.sizes(x))


# --- Shapes ---


@linalg_rule(
    "aten.view", "aten.reshape", "aten._unsafe_view", "aten.view_copy", "aten._reshape_alias", "aten._reshape_copy"
)
def view(b: RuleBuilder, x: Tensor, sizes: list[Size], *_: Any) -> Tensor:
    known = [b.out_shape[i] if b.out_shape[i] is not None else s for i, s in enumerate(sizes)]
    return _reshaped(b, x, [s for s in known if s is not None])


@linalg_rule("aten.view_as", "aten.reshape_as")
def view_as(b: RuleBuilder, x: Tensor, other: Tensor) -> Tensor:
    return _reshaped(b, x, b.sizes(other))


def _reshaped(b: RuleBuilder, x: Tensor, sizes: list[Size]) -> Tensor:
    """Reshape to sizes of which one may be -1, what remains; guard that the number of elements is the same."""
    if -1 in sizes:
        at = sizes.index(-1)
        others = sizes[:at] + sizes[at + 1 :]
        for size in others:
            b.guard(b.compare("ne", size, 0), "a view of no elements in which one size is -1 may have any size there")
        sizes = [*sizes[:at], b.divide_exact(b.sizes(x), others), *sizes[at + 1 :]]
    if not b.is_same_product(b.sizes(x), sizes):
        b.same_size(b.product(b.sizes(x)), b.product(sizes), "a view has as many elements as the tensor itself")
    return b.reshape(x, sizes)


@linalg_rule("aten.flatten.using_ints")
def flatten(b: RuleBuilder, x: Tensor, start: int, end: int) -> Tensor:
    sizes = b.sizes(x)
    if x.rank == 0:
        return b.reshape(x, [1])
    first, last = b.dim(start, x.rank), b.dim(end, x.rank)
    return b.reshape(x, [*sizes[:first], b.product(sizes[first : last + 1]), *sizes[last + 1 :]])


@linalg_rule("aten.unflatten.int")
def unflatten(b: RuleBuilder, x: Tensor, dim: int, parts: list[Size]) -> Tensor:
    sizes, at = b.sizes(x), b.dim(dim, x.rank)
    parts = list(parts)
    if -1 in parts:
        i = parts.index(-1)
        parts[i] = b.divide_exact([sizes[at]], parts[:i] + parts[i + 1 :])
    return _reshaped(b, x, [*sizes[:at], *parts, *sizes[at + 1 :]])


@linalg_rule("aten.unsqueeze", "aten.unsqueeze_copy")
def unsqueeze(b: RuleBuilder, x: Tensor, dim: int) -> Tensor:
    return b.unsqueeze(x, b.dim(dim, x.rank + 1))


@linalg_rule("aten.squeeze", "aten.squeeze_copy")
def squeeze(b: RuleBuilder, x: Tensor) -> Tensor:
    return b.squeeze(x, [i for i, s in enumerate(x.shape) if s == 1])


@linalg_rule("aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze_copy.dim", "aten.squeeze_copy.dims")
def squeeze_dims(b: RuleBuilder, x: Tensor, dims: int | list[int]) -> Tensor:
    if x.rank == 0:
        return x
    wanted = [dims] if isinstance(dims, int) else dims
    return b.squeeze(x, [d for d in (b.dim(d, x.rank) for d in wanted) if x.shape[d] == 1])


@linalg_rule("aten.transpose.int", "aten.swapaxes", "aten.swapdims", "aten.transpose_copy.int")
def transpose(b: RuleBuilder, x: Tensor, first: int, second: int) -> Tensor:
    order = list(range(x.rank))
    if order:
        i, j = b.dim(first, x.rank), b.dim(second, x.rank)
        order[i], order[j] = order[j], order[i]
    return b.transpose(x, order)


@linalg_rule("aten.t", "aten.numpy_T", "aten.t_copy")
def t(b: RuleBuilder, x: Tensor) -> Tensor:
    return b.transpose(x, list(reversed(range(x.rank))))


@linalg_rule("aten.mT")
def mt(b: RuleBuilder, x: Tensor) -> Tensor:
    return transpose(b, x, -2, -1)


@linalg_rule("aten.adjoint", "aten.mH")
def adjoint(b: RuleBuilder, x: Tensor) -> Tensor:
    turned = transpose(b, x, -2, -1) if x.rank else x
    return b.call("aten.conj", turned) if x.dtype.is_complex else turned


@linalg_rule("aten.permute", "aten.permute_copy")
def permute(b: RuleBuilder, x: Tensor, dims: list[int]) -> Tensor:
    return b.transpose(x, [b.dim(d, x.rank) for d in dims])


@linalg_rule("aten.movedim.intlist")
def movedim(b: RuleBuilder, x: Tensor, source: list[int], destination: list[int]) -> Tensor:
    moves = {b.dim(d, x.rank): b.dim(s, x.rank) for s, d in zip(source, destination, strict=True)}
    rest = iter(i for i in range(x.rank) if i not in moves.values())
    return b.transpose(x, [moves[i] if i in moves else next(rest) for i in range(x.rank)])


@linalg_rule("aten.movedim.int", "aten.moveaxis.int")
def movedim_int(b: RuleBuilder, x: Tensor, source: int, destination: int) -> Tensor:
    return movedim(b, x, [source], [destination])


@linalg_rule("aten.expand", "aten.expand_copy")
def expand(b: RuleBuilder, x: Tensor, sizes: list[Size], implicit: bool) -> Tensor:
    return broadcast_to(b, x, sizes)


@linalg_rule("aten.broadcast_to")
def broadcast_to(b: RuleBuilder, x: Tensor, sizes: list[Size]) -> Tensor:
    offset = len(sizes) - x.rank
    own = b.sizes(x)
    target = [own[i - offset] if isinstance(s, int) and s == -1 else s for i, s in enumerate(sizes)]
    for i, size in enumerate(own):
        if not (isinstance(size, int) and size == 1):
            target[offset + i] = b.same_size(target[offset + i], size, "the expanded size does not match the tensor's")
    return b.broadcast_to(x, target)


@linalg_rule("aten.expand_as")
def expand_as(b: RuleBuilder, x: Tensor, other: Tensor) -> Tensor:
    return b.broadcast_to(x, b.sizes(other))


@linalg_rule("aten.broadcast_tensors")
def broadcast_tensors(b: RuleBuilder, tensors: list[Tensor]) -> list[Tensor]:
    sizes = b.broadcast_sizes(*(b.sizes(x) for x in tensors))
    return [b.broadcast_to(x, sizes) for x in tensors]


@linalg_rule("aten.repeat", "aten.tile")
def repeat(b: RuleBuilder, x: Tensor, times: list[Size]) -> Tensor:
    rank = max(len(times), x.rank)
    times = [*[1] * (rank - len(times)), *times]
    sizes: list[Size] = [*[1] * (rank - x.rank), *b.sizes(x)]
    # [2, 3] repeated [a, b] times is [1, 2, 1, 3] broadcast to [a, 2, b, 3], then flattened pairwise.
    spread = b.reshape(x, [s for size in sizes for s in (1, size)])
    full = b.broadcast_to(spread, [s for n, size in zip(times, sizes, strict=True) for s in (n, size)])
    return b.reshape(full, [b.mul(n, size) for n, size in zip(times, sizes, strict=True)])


# --- Joining ---


@linalg_rule("aten.cat", "aten.concat", "aten.concatenate")
def cat(b: RuleBuilder, tensors: list[Tensor], dim: int) -> Tensor:
    dtype = b.out_dtype
    # A 1-d tensor without elements joins anything, whatever the others' rank.
    parts = [x for x in tensors if not (x.rank == 1 and x.shape[0] == 0)] or tensors[:1]
    rank = max(x.rank for x in parts)
    for x in parts:
        if x.rank == 1 != rank:
            b.guard(
                b.compare("eq", b.size(x, 0), 0), "tensors to concatenate must have as many dimensions, or be empty"
            )
    parts = [b.to(x, dtype) for x in parts if x.rank == rank]
    at = b.dim(dim, rank)
    sizes = b.sizes(parts[0])
    for x in parts[1:]:
        for i in range(x.rank):
            if i != at:
                sizes[i] = b.same_size(sizes[i], b.size(x, i), "sizes of tensors to concatenate must match")
            else:
                sizes[at] = b.add(sizes[at], b.size(x, at))
    parts = [x for x in parts if x.shape[at] != 0] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    # A size that one part has is that of all.
    shared = [*map(static, sizes)]
    parts = [b.cast(x, [*shared[:at], x.shape[at], *shared[at + 1 :]]) for x in parts]
    type_ = tensor_type(tuple(shared), dtype.builtin)
    value = b.value(tensor.ConcatOp, [x.value for x in parts], type_, {"dim": IntegerAttr(at, i64)})
    return Tensor(value, dtype, sizes)


@linalg_rule("aten.stack")
def stack(b: RuleBuilder, tensors: list[Tensor], dim: int) -> Tensor:
    at = b.dim(dim, tensors[0].rank + 1)
    return cat(b, [b.unsqueeze(x, at) for x in tensors], at)


# --- Reordering ---


@linalg_rule("aten.flip")
def flip(b: RuleBuilder, x: Tensor, dims: list[int]) -> Tensor:
    flipped = {b.dim(d, x.rank) for d in dims}
    sizes = b.sizes(x)
    if x.rank == 0:
        return x
    if not b.loads_are_cheap:
        return b.reverse(x, sorted(flipped))

    def source(*at: SSAValue) -> Any:
        return b.load(x, [b.sub(b.sub(sizes[i], 1), p) if i in flipped else p for i, p in enumerate(at)])

    return b.generate(sizes, x.dtype, source)


@linalg_rule("aten.roll")
def roll(b: RuleBuilder, x: Tensor, shifts: list[Size], dims: list[int]) -> Tensor:
    if not dims:
        flat = b.reshape(x, [b.product(b.sizes(x))])
        return b.reshape(_roll(b, flat, 0, shifts[0]), b.sizes(x))
    for shift, dim in zip(shifts, dims, strict=True):
        x = _roll(b, x, b.dim(dim, x.rank), shift)
    return x


def _roll(b: RuleBuilder, x: Tensor, at: int, shift: Size) -> Tensor:
    size = b.size(x, at)
    if any(isinstance(s, int) and s == 0 for s in (size, shift)):
        return x
    # The last `shift` slices come first.
    first = b.mod(b.sub(0, shift), size)
    if isinstance(first, int) and first == 0:
        return x
    moved = [slice_along(b, x, at, first, b.sub(size, first)), slice_along(b, x, at, 0, first)]
    type_ = tensor_type(x.shape, x.dtype.builtin)
    value = b.value(tensor.ConcatOp, [m.value for m in moved], type_, {"dim": IntegerAttr(at, i64)})
    return Tensor(value, x.dtype, x._sizes)


@linalg_rule("aten.diagonal", "aten.diagonal_copy")
def diagonal(b: RuleBuilder, x: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    i, j = b.dim(dim1, x.rank), b.dim(dim2, x.rank)
    kept = [d for d in range(x.rank) if d not in (i, j)]
    sizes = b.sizes(x)
    down, right = max(-offset, 0), max(offset, 0)
    length = b.maximum(b.minimum(b.sub(sizes[i], down), b.sub(sizes[j], right)), 0)

    def source(*at: SSAValue) -> Any:
        position: dict[int, Size] = dict(zip(kept, at, strict=False))
        position[i], position[j] = b.add(at[-1], down), b.add(at[-1], right)
        return b.load(x, [position[d] for d in range(x.rank)])

    return b.generate([*(sizes[d] for d in kept), length], x.dtype, source)


@linalg_rule("aten.unfold", "aten.unfold_copy")
def unfold(b: RuleBuilder, x: Tensor, dim: int, size: int, step: int) -> Tensor:
    if x.rank == 0:
        return b.reshape(x, [1])
    at = b.dim(dim, x.rank)
    sizes = b.sizes(x)
    b.guard(b.compare("sle", size, sizes[at]), "unfold(): the window is larger than the dimension")
    windows = b.add(b.floordiv(b.sub(sizes[at], size), step), 1)

    def source(*p: SSAValue) -> Any:
        return b.load(x, [b.add(b.mul(q, step), p[-1]) if i == at else q for i, q in enumerate(p[:-1])])

    return b.generate([*sizes[:at], windows, *sizes[at + 1 :], size], x.dtype, source)


def _or(b: RuleBuilder, first: bool | SSAValue, second: bool | SSAValue) -> bool | SSAValue:
    if isinstance(first, bool) and isinstance(second, bool):
        return first or second
    return (b.scalar_bool(first) | b.scalar_bool(second)).value


@linalg_rule("aten.as_strided")
def as_strided(b: RuleBuilder, x: Tensor, sizes: list[Size], strides: list[Size], offset: Any) -> Tensor:
    # What reaches this point lies in order, so that strides count elements of the flattened tensor.
    total = b.product(b.sizes(x))
    flat = b.reshape(x, [total])
    last: Size = offset or 0
    for size, stride in zip(sizes, strides, strict=True):
        last = b.add(last, b.mul(b.sub(size, 1), stride))
    if any(isinstance(s, int) and s == 0 for s in sizes):
        return b.empty(sizes, x.dtype)
    if isinstance(last, int) and isinstance(total, int):
        b.guard(last < total, f"a strided view up to element {last} of a tensor that has {total}")
    else:
        b.guard(
            _or(b, b.compare("slt", last, total), b.compare("eq", b.product(sizes), 0)),
            "a strided view that ends outside",
        )

    def source(*at: SSAValue) -> Any:
        position: Size = offset or 0
        for p, stride in zip(at, strides, strict=True):
            position = b.add(position, b.mul(p, stride))
        return b.load(flat, [position])

    return b.generate(sizes, x.dtype, source)


@linalg_rule("aten.view_as_real", "aten.view_as_real_copy")
def view_as_real(b: RuleBuilder, x: Tensor) -> Tensor:
    def part(*at: SSAValue) -> Any:
        number = b.load(x, at[:-1])
        return b.scalar_bool(b.compare("eq", at[-1], 0)).select(number.real, number.imag)

    return b.generate([*b.sizes(x), 2], x.dtype.real, part)


@linalg_rule("aten.view_as_complex", "aten.view_as_complex_copy")
def view_as_complex(b: RuleBuilder, x: Tensor) -> Tensor:
    dtype = b.out_dtype
    b.same_size(b.size(x, -1), 2, "the last dim of complex numbers has their two parts")

    def number(*at: SSAValue) -> Any:
        return b.load(x, [*at, 0]).with_imag(b.load(x, [*at, 1]), dtype)

    return b.generate(b.sizes(x)[:-1], dtype, number)
