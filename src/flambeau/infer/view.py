"""Shapes of views, joins and fills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.infer.rules import Dim, InferenceError, Meta, broadcast, infer_rule, normal_dim, product, promoted, size
from flambeau.ir import dtypes
from flambeau.ir.dtypes import BY_CODE, DType

INT64_MAX = (1 << 63) - 1


def reshaped(old: Sequence[Dim], wanted: Sequence[Any]) -> tuple[Dim, ...]:
    """The shape of a view, with -1 worked out where that can be known."""
    shape = [size(w) for w in wanted]
    if -1 not in shape:
        return tuple(shape)
    at = shape.index(-1)
    rest = product([d for i, d in enumerate(shape) if i != at])
    total = product(old)
    if total is not None and rest:
        if total % rest:
            raise InferenceError(f"{list(old)} cannot be viewed as {list(wanted)}")
        shape[at] = total // rest
    else:
        shape[at] = None
    return tuple(shape)


@infer_rule("aten.view", "aten.reshape", "aten._unsafe_view")
def view(x: Meta, shape: list[Any]) -> Meta:
    return Meta(reshaped(x.shape, shape), x.dtype)


@infer_rule("aten.flatten.using_ints")
def flatten(x: Meta, start: int, end: int) -> Meta:
    if x.rank == 0:
        return Meta((1,), x.dtype)
    first, last = normal_dim(start, x.rank), normal_dim(end, x.rank)
    return Meta((*x.shape[:first], product(x.shape[first : last + 1]), *x.shape[last + 1 :]), x.dtype)


@infer_rule("aten.unflatten.int")
def unflatten(x: Meta, dim: int, parts: list[Any]) -> Meta:
    at = normal_dim(dim, x.rank)
    return Meta((*x.shape[:at], *reshaped([x.shape[at]], parts), *x.shape[at + 1 :]), x.dtype)


@infer_rule("aten.unsqueeze")
def unsqueeze(x: Meta, dim: int) -> Meta:
    at = normal_dim(dim, x.rank + 1)
    return Meta((*x.shape[:at], 1, *x.shape[at:]), x.dtype)


@infer_rule("aten.squeeze.dim", "aten.squeeze.dims")
def squeeze(x: Meta, dims: Any) -> Meta:
    wanted = {normal_dim(d, x.rank) for d in (dims if isinstance(dims, list) else [dims])}
    return Meta(tuple(d for i, d in enumerate(x.shape) if not (i in wanted and d == 1)), x.dtype)


@infer_rule("aten.squeeze")
def squeeze_all(x: Meta) -> Meta:
    return Meta(tuple(d for d in x.shape if d != 1), x.dtype)


@infer_rule("aten.transpose.int")
def transpose(x: Meta, first: int, second: int) -> Meta:
    shape = list(x.shape)
    if shape:
        i, j = normal_dim(first, x.rank), normal_dim(second, x.rank)
        shape[i], shape[j] = shape[j], shape[i]
    return Meta(tuple(shape), x.dtype)


@infer_rule("aten.t")
def t(x: Meta) -> Meta:
    return Meta(tuple(reversed(x.shape)), x.dtype)


@infer_rule("aten.permute")
def permute(x: Meta, dims: list[int]) -> Meta:
    return Meta(tuple(x.shape[normal_dim(d, x.rank)] for d in dims), x.dtype)


@infer_rule("aten.expand")
def expand(x: Meta, sizes: list[Any], implicit: bool) -> Meta:
    offset = len(sizes) - x.rank
    shape = [x.shape[i - offset] if s == -1 else size(s) for i, s in enumerate(sizes)]
    return Meta(broadcast(shape, x.shape), x.dtype)


@infer_rule("aten.broadcast_to")
def broadcast_to(x: Meta, sizes: list[Any]) -> Meta:
    return expand(x, sizes, False)


@infer_rule("aten.slice.Tensor")
def slice_(x: Meta, dim: int, start: Any, end: Any, step: int) -> Meta:
    at = normal_dim(dim, x.rank)
    length = x.shape[at]
    known = all(v is None or isinstance(v, int) for v in (start, end))
    if length is not None and known:
        shape: Dim = len(range(*slice(start, end, step).indices(length)))
    else:
        shape = None
    return Meta((*x.shape[:at], shape, *x.shape[at + 1 :]), x.dtype)


@infer_rule("aten.select.int")
def select(x: Meta, dim: int, index: Any) -> Meta:
    at = normal_dim(dim, x.rank)
    length = x.shape[at]
    if length is not None and isinstance(index, int) and not -length <= index < length:
        raise InferenceError(f"index {index} is out of range for size {length}")
    return Meta((*x.shape[:at], *x.shape[at + 1 :]), x.dtype)


@infer_rule("aten.repeat")
def repeat(x: Meta, times: list[Any]) -> Meta:
    shape = (1,) * (len(times) - x.rank) + x.shape
    return Meta(tuple(product([d, size(n)]) for d, n in zip(shape, times, strict=True)), x.dtype)


@infer_rule("aten.cat")
def cat(tensors: list[Meta], dim: int) -> Meta:
    parts = [m for m in tensors if m.shape != (0,)] or tensors[:1]
    at = normal_dim(dim, parts[0].rank)
    lengths = [m.shape[at] for m in parts]
    total = None if None in lengths else sum(d for d in lengths if d is not None)
    shape = list(parts[0].shape)
    for m in parts[1:]:
        for i, d in enumerate(m.shape):
            if i != at and shape[i] is None:
                shape[i] = d
    shape[at] = total
    return Meta(tuple(shape), promoted(*tensors))


@infer_rule("aten.stack")
def stack(tensors: list[Meta], dim: int) -> Meta:
    at = normal_dim(dim, tensors[0].rank + 1)
    shape = tensors[0].shape
    return Meta((*shape[:at], len(tensors), *shape[at:]), promoted(*tensors))


# --- Filled tensors ---


def _dtype(code: int | None, default: DType) -> DType:
    return default if code is None else BY_CODE[code]


@infer_rule("aten.zeros", "aten.ones", "aten.empty.memory_format")
def zeros(sizes: list[Any], dtype: int | None, *_: Any) -> Meta:
    return Meta(tuple(map(size, sizes)), _dtype(dtype, dtypes.float32))


@infer_rule("aten.full")
def full(sizes: list[Any], value: Any, dtype: int | None, *_: Any) -> Meta:
    return Meta(tuple(map(size, sizes)), _dtype(dtype, promoted(value)))


@infer_rule("aten.zeros_like", "aten.ones_like", "aten.empty_like")
def zeros_like(x: Meta, dtype: int | None, *_: Any) -> Meta:
    return Meta(x.shape, _dtype(dtype, x.dtype))


@infer_rule("aten.full_like")
def full_like(x: Meta, value: Any, dtype: int | None, *_: Any) -> Meta:
    return Meta(x.shape, _dtype(dtype, x.dtype))


@infer_rule("aten.arange")
def arange(end: Any, dtype: int | None, *_: Any) -> Meta:
    return arange_step(0, end, 1, dtype)


@infer_rule("aten.arange.start")
def arange_start(start: Any, end: Any, dtype: int | None, *_: Any) -> Meta:
    return arange_step(start, end, 1, dtype)


@infer_rule("aten.arange.start_step")
def arange_step(start: Any, end: Any, step: Any, dtype: int | None, *_: Any) -> Meta:
    import math

    known = all(isinstance(v, (int, float)) for v in (start, end, step))
    length = max(math.ceil((end - start) / step), 0) if known else None
    default = dtypes.float32 if any(isinstance(v, float) for v in (start, end, step)) else dtypes.int64
    return Meta((length,), _dtype(dtype, default))


@infer_rule("aten.scalar_tensor")
def scalar_tensor(value: Any, dtype: int | None, *_: Any) -> Meta:
    return Meta((), _dtype(dtype, dtypes.float32))
