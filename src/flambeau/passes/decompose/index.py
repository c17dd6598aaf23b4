"""Reading at indices in terms of simpler reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.types import INT
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import broadcast_sizes, decomposition, minus, plus, require_element

SUM, MEAN, MAX = 0, 1, 2

Four = tuple[SSAValue, SSAValue, SSAValue, SSAValue]


@decomposition("aten.one_hot")
def one_hot(t: TorchBuilder, x: SSAValue, classes: int) -> SSAValue:
    if classes == -1:
        raise Unsupported("as many classes as the data have", "Give one_hot the number of classes.")
    if classes < 1 and 0 not in t.shape(x):
        raise Unsupported(f"one_hot with {classes} classes")
    is_class = t.logical_and(t.ge(x, 0), t.lt(x, classes))
    require_element(t, t.all(is_class), "class values must be non-negative and smaller than num_classes")
    return t.to(t.eq(t.unsqueeze(x, -1), t.arange(classes, dtype=dtypes.int64)), dtypes.int64)


@decomposition("aten._embedding_bag")
def embedding_bag(
    t: TorchBuilder,
    weight: SSAValue,
    indices: SSAValue,
    offsets: SSAValue,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: SSAValue | None,
    include_last_offset: bool,
    padding_idx: int,
) -> Four:
    """Name the op that users call, and of its results for gradients leave what PyTorch's kernels leave."""
    padding = None if padding_idx < 0 else padding_idx
    rest = (False, mode, False, per_sample_weights, include_last_offset, padding)
    result, offset_to_bag, bag_size, most = t.call("aten.embedding_bag.padding_idx", weight, indices, offsets, *rest)
    if mode == SUM and padding is None and t.dtype(weight) in (dtypes.float32, dtypes.float16):
        offset_to_bag = t.slice(offset_to_bag, 0, 0, 0)  # PyTorch has a kernel for this case that needs none.
    if mode == SUM:
        # PyTorch counts only where it divides. How many zeros it leaves for that depends on the op that is called.
        bag_size = most = t.zeros([t.shape(result)[0]], dtype=t.dtype(offsets))
    return result, offset_to_bag, bag_size, most


@decomposition("aten.embedding_bag.padding_idx")
def rows_in_bags(
    t: TorchBuilder,
    weight: SSAValue,
    indices: SSAValue,
    offsets: SSAValue,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: SSAValue | None,
    include_last_offset: bool,
    padding_idx: int | None,
) -> Four:
    """Add up the rows of each bag; of the four results PyTorch uses the others for gradients."""
    starts = t.slice(offsets, 0, 0, -1) if include_last_offset else offsets
    [count], [bags] = t.shape(indices), t.shape(starts)
    require_element(t, t.all(t.le(offsets, count)), "offsets must not be greater than the number of indices")
    # Row i is in the last bag that begins at or before i.
    begun = t.le(t.unsqueeze(starts, 0), t.unsqueeze(t.arange(count, dtype=dtypes.int64), 1))
    bag = t.sub(t.sum(t.to(begun, dtypes.int64), [1]), 1)
    is_member = t.ne(indices, -1 if padding_idx is None else padding_idx)
    members = t.index_add(t.zeros([bags], dtype=dtypes.int64), 0, bag, t.to(is_member, dtypes.int64))
    offset_to_bag = t.to(bag, t.dtype(offsets))
    bag_size = t.to(members, t.dtype(offsets))
    if mode == MAX:
        result, most = _greatest(t, weight, indices, bag, is_member, members)
        return result, offset_to_bag, bag_size, t.to(most, t.dtype(offsets))

    is_narrow = t.dtype(weight) in (dtypes.float16, dtypes.bfloat16)
    wide = dtypes.float32 if is_narrow else t.dtype(weight)
    rows = t.to(t.embedding(weight, indices), wide)
    if per_sample_weights is not None:
        rows = t.mul(rows, t.unsqueeze(t.to(per_sample_weights, wide), 1))
    rows = t.where(t.unsqueeze(is_member, 1), rows, t.zeros_like(rows))
    result = t.index_add(t.zeros([bags, t.shape(weight)[1]], dtype=wide), 0, bag, rows)
    if mode == MEAN:
        result = t.div(result, t.to(t.unsqueeze(t.clamp(members, 1), 1), wide))
    if mode == SUM:
        bag_size = t.zeros_like(bag_size)
    return t.to(result, t.dtype(weight)), offset_to_bag, bag_size, bag_size


def _greatest(
    t: TorchBuilder, weight: SSAValue, indices: SSAValue, bag: SSAValue, is_member: SSAValue, members: SSAValue
) -> tuple[SSAValue, SSAValue]:
    """Find the greatest of each column in each bag, and the table's row that it is from; 0 and 0 of empty bags."""
    [bags], [count] = t.shape(members), t.shape(bag)
    width = t.shape(weight)[1]
    owner = t.unsqueeze(t.arange(bags, dtype=dtypes.int64), 1)
    is_in_bag = t.unsqueeze(t.logical_and(t.eq(t.unsqueeze(bag, 0), owner), t.unsqueeze(is_member, 0)), 2)
    rows = t.expand(t.unsqueeze(t.embedding(weight, indices), 0), [bags, count, width])
    values, at = t.max(t.where(is_in_bag, rows, t.full_like(rows, float("-inf"))), 1)
    is_empty = t.unsqueeze(t.eq(members, 0), 1)
    row: Any = t.index_select(indices, 0, t.reshape(at, [-1]))
    row = t.reshape(row, [bags, width])
    return t.where(is_empty, t.zeros_like(values), values), t.where(is_empty, t.zeros_like(row), row)


@decomposition("aten._embedding_bag_forward_only")
def embedding_bag_forward_only(
    t: TorchBuilder, weight: SSAValue, indices: SSAValue, offsets: SSAValue, *rest: Any
) -> Four:
    result, offset_to_bag, *_ = four = embedding_bag(t, weight, indices, offsets, *rest)
    if rest[1] == SUM:
        # Where nothing is counted, PyTorch leaves one zero for each offset, the last one too.
        nothing = t.zeros_like(offsets)
        return result, offset_to_bag, nothing, nothing
    return four


@decomposition("aten.embedding_renorm")
def embedding_renorm(
    t: TorchBuilder, weight: SSAValue, indices: SSAValue, max_norm: float, norm_type: float
) -> SSAValue:
    """Scale the rows that are looked up so that none is longer than the limit."""
    count = t.shape(weight)[0]
    is_row = t.logical_and(t.ge(indices, 0), t.lt(indices, count))
    require_element(t, t.all(is_row), "index out of range")
    norm = t.linalg_vector_norm(weight, norm_type, [1], True)
    shorter = t.mul(weight, t.mul(t.reciprocal(t.add(norm, 1e-7)), max_norm))
    rows = t.arange(count, dtype=dtypes.int64)
    flat = t.reshape(indices, [-1])
    is_used = t.any(t.eq(t.unsqueeze(rows, 1), t.unsqueeze(flat, 0)), 1, True)
    return t.where(t.logical_and(is_used, t.gt(norm, max_norm)), shorter, weight)


@decomposition("aten._unsafe_masked_index")
def masked_index(
    t: TorchBuilder, x: SSAValue, mask: SSAValue, indices: Sequence[SSAValue | None], fill: float
) -> SSAValue:
    # Indices may be anything: PyTorch brings them into range, and says by the mask which of them count.
    inside = [i if i is None else _clamped(t, i, size) for i, size in zip(indices, t.shape(x), strict=False)]
    return t.where(mask, t._unsafe_index(x, inside), fill)


def _clamped(t: TorchBuilder, index: SSAValue, size: Any) -> SSAValue:
    count = t.full([], size, dtype=dtypes.int64)
    return t.maximum(t.minimum(index, t.sub(count, 1)), t.neg(count))


@decomposition("aten.take_along_dim")
def take_along_dim(t: TorchBuilder, x: SSAValue, indices: SSAValue, dim: int | None) -> SSAValue:
    """Read one element for each index along a dim; both tensors broadcast in the others."""
    if dim is None:
        return t.gather(t.reshape(x, [-1]), 0, t.reshape(indices, [-1]))
    sizes, counts = t.shape(x), t.shape(indices)
    if len(sizes) != len(counts) or t.dtype(indices) is not dtypes.int64:
        raise Unsupported("take_along_dim wants 64-bit indices with as many dims as the tensor")
    at = dim % max(len(sizes), 1)
    common = broadcast_sizes(sizes, counts)
    picked = t.expand(indices, [*common[:at], *counts[at : at + 1], *common[at + 1 :]])
    source = t.expand(x, [*common[:at], *sizes[at : at + 1], *common[at + 1 :]])
    # As in PyTorch, an index below zero counts from the end.
    return t.gather(source, dim, t.remainder(picked, sizes[at] if sizes else 1))


@decomposition("aten.bincount")
def bincount(t: TorchBuilder, x: SSAValue, weights: SSAValue | None, least: Any) -> SSAValue:
    """Count how often each number from 0 on occurs, up to the largest, or add up the weights at which it does."""
    message = "bincount only supports 1-d non-negative integral inputs."
    require_element(t, t.all(t.ge(x, 0)), message)
    # With the number below `least` among them there is always a largest one.
    most = t.amax(t.cat([t.to(x, dtypes.int64), t.full([1], minus(t, least, 1), dtype=dtypes.int64)], 0), [0])
    count = plus(t, t.op("aten.Int.Tensor", (most,), (INT,))[0], 1)
    if weights is None or t.shape(x)[0] == 0:
        dtype = dtypes.int64
        amount = t.ones_like(x, dtype=dtype)
    else:
        dtype = dtypes.float32 if t.dtype(weights) is dtypes.float32 else dtypes.float64
        amount = t.to(weights, dtype)
    return t.index_add(t.zeros([count], dtype=dtype), 0, t.to(x, dtypes.int64), amount)
