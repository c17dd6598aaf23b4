"""Products of matrices in terms of simpler ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.infer.builder import TorchBuilder, meta_of
from flambeau.infer.matmul import einsum_labels
from flambeau.infer.rules import promoted
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.passes.decompose.rules import decomposition, repeat, require_size, times


@decomposition("aten._grouped_mm")
def grouped_mm(
    t: TorchBuilder, x: SSAValue, weights: SSAValue, ends: SSAValue | None, bias: SSAValue | None, out_dtype: Any
) -> SSAValue:
    if ends is None or bias is not None or out_dtype is not None or (len(t.shape(x)), len(t.shape(weights))) != (2, 3):
        raise Unsupported("a grouped matmul other than of rows [n, k] in groups that end at given offsets")
    return experts(t, x, weights, ends)


@decomposition("transformers.grouped_mm_fallback")
def experts(t: TorchBuilder, x: SSAValue, weights: SSAValue, ends: SSAValue) -> SSAValue:
    """Multiply each row by its group's matrix; group g has the rows before `ends[g]`, and rows behind all give zero.

    Few rows bring their matrices along. Of many, all are multiplied by all matrices, and each takes the product that is
    its own: more work, but no copies of matrices.
    """
    [rows, width], [groups, _, out] = t.shape(x), t.shape(weights)
    if not isinstance(groups, int):
        raise Unsupported("a grouped matmul with a number of groups that is not known at compile time")
    position = t.unsqueeze(t.arange(rows, dtype=dtypes.int64), 1)
    group = t.sum(t.to(t.le(t.unsqueeze(ends, 0), position), dtypes.int64), [1])
    has_group = t.unsqueeze(t.lt(group, groups), 1)
    group = t.clamp(group, None, groups - 1)
    if isinstance(rows, int) and rows <= groups:
        result = t.squeeze(t.bmm(t.unsqueeze(x, 1), t.index_select(weights, 0, group)), 1)
    else:
        products = t.bmm(t.expand(t.unsqueeze(x, 0), [groups, rows, width]), weights)
        at = t.expand(t.view(group, [1, rows, 1]), [1, rows, out])
        result = t.squeeze(t.gather(products, 0, at), 0)
    return t.where(has_group, result, t.zeros_like(result))


@decomposition("aten._int_mm")
def int_mm(t: TorchBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    """Multiply matrices of 8-bit integers; products and sums have 32 bits."""
    return t.mm(t.to(x, dtypes.int32), t.to(y, dtypes.int32))


@decomposition("aten._scaled_mm")
def scaled_mm(
    t: TorchBuilder, x: SSAValue, y: SSAValue, x_scale: SSAValue, y_scale: SSAValue, bias: SSAValue | None,
    scale: SSAValue | None, out_dtype: Any, use_fast_accum: bool,
) -> SSAValue:  # fmt: skip
    """Multiply matrices of 8-bit floats, each number times its scale: one for all, or one for each row and column.

    As PyTorch does on a CPU, in f32; the bias, then the scale of the result, come before the only rounding.
    """
    [rows, _], [_, columns] = t.shape(x), t.shape(y)
    left, right = (
        _in_scale(t, t.to(side, dtypes.float32), factor, kept)
        for side, factor, kept in ((x, x_scale, (rows, 1)), (y, y_scale, (1, columns)))
    )
    result = t.mm(left, right)
    if bias is not None:
        result = t.add(result, t.to(bias, dtypes.float32))
    if scale is not None:
        result = t.mul(result, t.reshape(scale, []))
    return t.to(result, t.dtype(x) if out_dtype is None else out_dtype)


def _in_scale(t: TorchBuilder, x: SSAValue, scale: SSAValue, kept: tuple[Any, Any]) -> SSAValue:
    """Multiply a matrix by its scale, of which there is one, or one for each row or column."""
    sizes = t.shape(scale)
    if all(size == 1 for size in sizes):
        return t.mul(x, t.reshape(scale, []))
    if len(sizes) != 2 or not any(size == 1 for size in sizes):
        raise Unsupported("a scaled product with other scales than one for all, or one for each row and column")
    return t.mul(x, t.reshape(scale, list(kept)))


@decomposition("aten._weight_int8pack_mm")
def weight_int8pack_mm(t: TorchBuilder, x: SSAValue, weight: SSAValue, scales: SSAValue) -> SSAValue:
    """Multiply rows by rows of 8-bit integers, in f32; each column of the result has a scale."""
    wide = t.to(t.transpose(weight, 0, 1), dtypes.float32)
    product = t.mm(t.to(x, dtypes.float32), wide)
    return t.to(t.mul(product, t.to(scales, dtypes.float32)), t.dtype(x))


@decomposition("aten.vdot")
def vdot(t: TorchBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    if t.dtype(x) is not t.dtype(y):
        raise Unsupported(f"vdot of {t.dtype(x)} and {t.dtype(y)}")
    return t.dot(t.conj_physical(x) if t.dtype(x).is_complex else x, y)


@decomposition("aten.addr")
def addr(t: TorchBuilder, x: SSAValue, a: SSAValue, b: SSAValue, beta: Any, alpha: Any) -> SSAValue:
    """Add the outer product of two vectors; with a `beta` of 0 what it is added to does not count, even if NaN."""
    [rows], [columns] = t.shape(a), t.shape(b)
    x = t.expand(x, [rows, columns])
    dtype = promoted(meta_of(x), meta_of(a), meta_of(b))
    if dtype.is_float and dtype.bits == 16:
        return _narrow_addr(t, x, a, b, beta, alpha, dtype)
    product = t.mul(t.unsqueeze(a, 1), b)
    if dtype.is_bool:
        product = product if alpha else t.zeros_like(product)
        return t.logical_or(x, product) if beta else product
    for number in (beta, alpha):
        if dtype.is_integral and isinstance(number, float):
            raise Unsupported(f"addr of {dtype} with a factor of {number}")
    product = t.to(t.mul(product, alpha), dtype)
    return product if beta == 0 else t.add(t.mul(x, beta), product)


def _narrow_addr(
    t: TorchBuilder, x: SSAValue, a: SSAValue, b: SSAValue, beta: Any, alpha: Any, dtype: DType
) -> SSAValue:
    """Round after each step, and the factors too: this is what PyTorch does with 16-bit floats."""
    scaled, factor = (t.full([], number, dtype=dtype) for number in (beta, alpha))
    product = t.to(t.mul(t.mul(t.unsqueeze(a, 1), factor), b), dtype)
    return product if beta == 0 else t.add(t.mul(x, scaled), product)


UNROLLED = 8
"""How many products are added one after the other without a loop."""


@decomposition("aten.addbmm")
def addbmm(t: TorchBuilder, x: SSAValue, a: SSAValue, b: SSAValue, beta: Any, alpha: Any) -> SSAValue:
    """Add up products, which is one product of all columns; 16-bit floats are rounded after each, as PyTorch does."""
    count, rows, inner = t.shape(a)
    columns = t.shape(b)[-1]
    x = t.expand(x, [rows, columns])
    if not (t.dtype(x).is_float and t.dtype(x).bits == 16) or not isinstance(count, int) or count < 2:
        wide = t.reshape(t.transpose(a, 0, 1), [rows, times(t, count, inner)])
        return t.addmm(x, wide, t.reshape(b, [times(t, count, inner), columns]), beta=beta, alpha=alpha)
    if count <= UNROLLED:
        for i in range(count):
            x = t.addmm(x, t.select(a, 0, i), t.select(b, 0, i), beta=beta if i == 0 else 1, alpha=alpha)
        return x
    x = t.addmm(x, t.select(a, 0, 0), t.select(b, 0, 0), beta=beta, alpha=alpha)
    rest = t.slice(a, 0, 1), t.slice(b, 0, 1)
    return repeat(t, count - 1, [x], lambda i, x: [t.addmm(x, *(t.select(m, 0, i) for m in rest), alpha=alpha)])[0]


@decomposition("aten.bilinear")
def bilinear(t: TorchBuilder, x: SSAValue, y: SSAValue, weight: SSAValue, bias: SSAValue | None) -> SSAValue:
    """Multiply each x by all matrices at once, and what comes out by its y."""
    outputs, rows, columns = t.shape(weight)
    if not t.dtype(x) is t.dtype(y) is t.dtype(weight):
        raise Unsupported("bilinear of tensors whose dtypes differ")
    for one, other in zip(t.shape(x)[:-1], t.shape(y)[:-1], strict=True):
        require_size(t, one, "eq", other, "the inputs of bilinear must have the same batch dims")
    require_size(t, t.shape(x)[-1], "eq", rows, "the first input of bilinear must fit its weight")
    require_size(t, t.shape(y)[-1], "eq", columns, "the second input of bilinear must fit its weight")
    dtype = t.dtype(x)
    x, y, weight = (t.to(v, dtype.compute) for v in (x, y, weight))  # What is left of one product is a factor again.
    matrix = t.reshape(t.permute(weight, [1, 0, 2]), [rows, times(t, outputs, columns)])
    half = t.reshape(t.matmul(x, matrix), [*t.shape(x)[:-1], outputs, columns])
    result = t.to(t.sum(t.mul(half, t.unsqueeze(y, -2)), [-1]), dtype)
    return result if bias is None else t.add(result, bias)


@decomposition("aten.tensordot")
def tensordot(t: TorchBuilder, x: SSAValue, y: SSAValue, left: Sequence[int], right: Sequence[int]) -> SSAValue:
    """Multiply two matrices: the summed dims come last in the first operand, and first in the second."""
    if t.dtype(x) is not t.dtype(y):
        raise Unsupported(f"tensordot of {t.dtype(x)} and {t.dtype(y)}")
    left, right = ([d % len(t.shape(v)) for d in dims] for v, dims in ((x, left), (y, right)))
    for i, j in zip(left, right, strict=True):
        x, y = _one_size(t, x, i, y, j)
    rows = [d for d in range(len(t.shape(x))) if d not in left]
    columns = [d for d in range(len(t.shape(y))) if d not in right]
    sizes = [*(t.shape(x)[d] for d in rows), *(t.shape(y)[d] for d in columns)]
    a, b = _folded(t, x, (rows, left)), _folded(t, y, (right, columns))
    return t.reshape(t.mm(a, b), sizes)


def _one_size(t: TorchBuilder, x: SSAValue, i: int, y: SSAValue, j: int) -> tuple[SSAValue, SSAValue]:
    """Give two dims that are contracted one size: where one is 1 it stands for all, and the other is summed first."""
    if t.shape(x)[i] == 1 != t.shape(y)[j]:
        return x, t.sum(y, [j], True, dtype=t.dtype(y))
    if t.shape(y)[j] == 1 != t.shape(x)[i]:
        return t.sum(x, [i], True, dtype=t.dtype(x)), y
    return x, y


def _folded(t: TorchBuilder, x: SSAValue, parts: Sequence[Sequence[int]]) -> SSAValue:
    """Permute the dims, and fold each group of them into one."""
    order = [d for part in parts for d in part]
    shape = t.shape(x)
    x = x if order == sorted(order) else t.permute(x, order)
    return t.reshape(x, [times(t, *(shape[d] for d in part)) for part in parts])


# --- Einstein's notation ---

Labelled = tuple[Any, list[str]]
"""A tensor, and a label for each of its dims."""


@decomposition("aten.einsum")
def einsum(t: TorchBuilder, equation: str, tensors: Sequence[SSAValue], path: Sequence[int] | None) -> SSAValue:
    """Multiply pairs as the path says, else from left to right; a pair with a summed dim is one batched product."""
    inputs, output = einsum_labels(equation, [len(t.shape(x)) for x in tensors])
    operands = [_diagonals(t, x, labels) for x, labels in zip(tensors, inputs, strict=True)]
    pairs = [sorted(path[i : i + 2]) for i in range(0, len(path), 2)] if path else []
    while len(operands) > 1:
        i, j = pairs.pop(0) if pairs else (0, 1)
        y, x = operands.pop(j), operands.pop(i)
        later = set(output).union(*(labels for _, labels in operands))
        operands.insert(len(operands) if path else 0, _product(t, x, y, later))
    x, labels = _summed(t, operands[0], set(output))
    order = [labels.index(label) for label in output]
    return x if order == sorted(order) else t.permute(x, order)


def _diagonals(t: TorchBuilder, x: SSAValue, labels: str) -> Labelled:
    """Take the diagonal of dims that have the same label."""
    found = list(labels)
    while len(set(found)) != len(found):
        label = next(c for c in found if found.count(c) > 1)
        first, second = [i for i, c in enumerate(found) if c == label][:2]
        require_size(t, t.shape(x)[first], "eq", t.shape(x)[second], "dims with one label must have one size")
        x = t.diagonal(x, 0, first, second)
        found = [c for i, c in enumerate(found) if i not in (first, second)] + [label]
    return x, found


def _summed(t: TorchBuilder, operand: Labelled, wanted: set[str]) -> Labelled:
    x, labels = operand
    dims = [i for i, c in enumerate(labels) if c not in wanted]
    return (t.sum(x, dims), [c for c in labels if c in wanted]) if dims else operand


def _product(t: TorchBuilder, left: Labelled, right: Labelled, later: set[str]) -> Labelled:
    """Multiply two operands and sum over the labels that are not needed later."""
    x, a = _summed(t, left, later | set(right[1]))
    y, b = _summed(t, right, later | set(a))
    inner = [c for c in a if c in b and c not in later]
    for label in inner:
        x, y = _one_size(t, x, a.index(label), y, b.index(label))
    batch = [c for c in a if c in b and c in later]
    rows, columns = [c for c in a if c not in b], [c for c in b if c not in a]
    every = [*batch, *rows, *columns]
    if not inner:
        return t.mul(_aligned(t, x, a, every), _aligned(t, y, b, every)), every
    mine, others = dict(zip(a, t.shape(x), strict=True)), dict(zip(b, t.shape(y), strict=True))
    sizes = others | mine | {c: others[c] for c in batch if mine[c] == 1}
    x = t.expand(x, [sizes[c] if c in batch else mine[c] for c in a]) if _spreads(batch, mine, sizes) else x
    y = t.expand(y, [sizes[c] if c in batch else others[c] for c in b]) if _spreads(batch, others, sizes) else y
    first = _folded(t, x, [[a.index(c) for c in part] for part in (batch, rows, inner)])
    second = _folded(t, y, [[b.index(c) for c in part] for part in (batch, inner, columns)])
    return t.reshape(t.bmm(first, second), [sizes[c] for c in every]), every


def _spreads(labels: Sequence[str], have: dict[str, Any], want: dict[str, Any]) -> bool:
    """Tell whether a dim of size 1 is broadcast to more."""
    return any(have[c] == 1 and not (isinstance(want[c], int) and want[c] == 1) for c in labels)


def _aligned(t: TorchBuilder, x: Any, labels: Sequence[str], every: Sequence[str]) -> SSAValue:
    """Permute a tensor's dims to this order, with dims of size 1 where it lacks one."""
    order = [labels.index(c) for c in every if c in labels]
    x = x if order == sorted(order) else t.permute(x, order)
    for i, c in enumerate(every):
        if c not in labels:
            x = t.unsqueeze(x, i)
    return x


@decomposition("aten._trilinear")
def trilinear(
    t: TorchBuilder,
    x: SSAValue,
    y: SSAValue,
    z: SSAValue,
    expand_x: list[int],
    expand_y: list[int],
    expand_z: list[int],
    summed: list[int],
    unroll_dim: int,
) -> SSAValue:
    """Multiply three tensors that are given new dims, and add up over some dims."""

    def expanded(value: Any, dims: list[int]) -> Any:
        for dim in dims:
            value = t.unsqueeze(value, dim)
        return value

    product = t.mul(t.mul(expanded(x, expand_x), expanded(z, expand_z)), expanded(y, expand_y))
    return t.sum(product, summed) if summed else product
