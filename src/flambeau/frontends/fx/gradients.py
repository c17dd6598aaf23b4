"""Backward ops that PyTorch has kernels for and no decomposition: what they compute, in ops that have one.

Many are the gradient of a forward op that PyTorch decomposes: autograd takes it through the decomposition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten


def _gradients(function: Callable[..., Tensor], inputs: Sequence[Tensor], grad: Tensor) -> tuple[Tensor, ...]:
    """Differentiate a function of tensors by autograd."""
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in inputs]
        return torch.autograd.grad(function(*leaves), leaves, grad)


def _decomposed(op: Any) -> Callable[..., Any]:
    from torch._decomp import decomposition_table

    return decomposition_table[op]


# --- Linear functions: the gradient does not depend on the input, only on its size ---


def _resized(op: Any, grad: Tensor, output_size: Any, input_size: Any, *rest: Any) -> Tensor:
    """Differentiate an op that resizes images: `op(x, output_size, ...)`."""
    return _gradients(lambda x: _decomposed(op)(x, output_size, *rest), [grad.new_zeros(input_size)], grad)[0]


def _padded(op: Any, grad: Tensor, x: Tensor, padding: Any) -> Tensor:
    """Differentiate a pad that repeats what is at the edge."""
    return _gradients(lambda y: _decomposed(op)(y, padding), [x], grad)[0]


def _along(x: Tensor, dim: int, matrix: Tensor) -> Tensor:
    """Multiply the rows along a dim by a matrix."""
    return torch.matmul(x.movedim(dim, -1), matrix).movedim(-1, dim)


def _averaged(grad: Tensor, x: Tensor, dims: int) -> Tensor:
    """Differentiate an adaptive average pool: along each dim it is a product with a matrix of means."""
    for dim in range(-dims, 0):
        size, count = x.shape[dim], grad.shape[dim]
        window = torch.arange(count, dtype=torch.int64)
        start = torch.div(window * size, count, rounding_mode="floor")
        end = torch.div((window + 1) * size + count - 1, count, rounding_mode="floor")
        at = torch.arange(size, dtype=torch.int64)
        inside = (at >= start.unsqueeze(1)) & (at < end.unsqueeze(1))
        grad = _along(grad, dim, inside.to(grad.dtype) / (end - start).unsqueeze(1))
    return grad


def _antialiased(grad: Tensor, output_size: Any, input_size: Any, align: bool, *scales: Any, cubic: bool) -> Tensor:
    """Differentiate a resize whose filter grows with the scale: along each dim it is a product with a matrix."""
    scales = (*scales, None, None)
    for i, dim in enumerate((-2, -1)):
        grad = _along(grad, dim, _filter(input_size[dim], output_size[i], align, scales[i], cubic, grad.dtype))
    return grad


def _filter(size: int, count: int, align: bool, scale: float | None, cubic: bool, dtype: torch.dtype) -> Tensor:
    """Compute the weights of `size` old elements in each of `count` new ones."""
    if align:
        step = (size - 1) / (count - 1) if count > 1 else 0.0
    else:
        step = 1 / scale if scale is not None and scale > 0 else size / count
    reach = (2.0 if cubic else 1.0) * max(step, 1.0)
    centre = step * (torch.arange(count, dtype=torch.float64) + 0.5)
    first = (centre - reach + 0.5).trunc().clamp_min(0)
    last = (centre + reach + 0.5).trunc().clamp_max(size)
    at = torch.arange(size, dtype=torch.float64)
    distance = ((at - centre.unsqueeze(1) + 0.5) / max(step, 1.0)).abs()
    near = 1 - distance
    if cubic:
        a = -0.5
        inner = ((a + 2) * distance - (a + 3)) * distance * distance + 1
        outer = ((distance - 5) * distance + 8) * distance * a - 4 * a
        weight = torch.where(distance < 1, inner, torch.where(distance < 2, outer, 0.0))
    else:
        weight = near.clamp_min(0)
    weight = torch.where((at >= first.unsqueeze(1)) & (at < last.unsqueeze(1)), weight, 0.0)
    return (weight / weight.sum(1, keepdim=True)).to(dtype)


def _pool(
    dims: int,
    grad: Tensor,
    x: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil: bool,
    include: bool,
    divisor: int | None,
) -> Tensor:
    """Differentiate an average pool over the last `dims` dims: each window gives its elements an equal share."""
    kernel, stride, padding = ([*v] * (dims if len(v) == 1 else 1) for v in (kernel, stride or kernel, padding))
    sizes, counts = x.shape[-dims:], grad.shape[-dims:]
    if divisor is None:
        for i, (size, count) in enumerate(zip(sizes, counts, strict=True)):
            start = torch.arange(count, dtype=torch.int64) * stride[i] - padding[i]
            end = (start + kernel[i]).clamp_max(size + padding[i])
            if not include:
                start, end = start.clamp_min(0), end.clamp_max(size)
            grad = grad / (end - start).to(grad.dtype).reshape([-1] + [1] * (dims - 1 - i))
    else:
        grad = grad / divisor
    lead, channels = grad.shape[:-dims], math.prod(grad.shape[:-dims])
    spread = getattr(F, f"conv_transpose{dims}d")
    flat = grad.reshape(1, channels, *counts)
    whole = spread(flat, grad.new_ones(channels, 1, *kernel), stride=stride, groups=channels)
    edges = []
    for i in reversed(range(dims)):
        edges += [-padding[i], sizes[i] + padding[i] - whole.shape[2 + i]]
    return F.pad(whole, edges).reshape(*lead, *sizes)


# --- Choices: the gradient goes to the element that was chosen ---


def _chosen(grad: Tensor, x: Tensor, indices: Tensor, dims: int) -> Tensor:
    """Add each gradient to the element of its image at an index, which counts over the last `dims` dims."""
    sizes = x.shape[-dims:]
    flat = grad.new_zeros(*x.shape[:-dims], math.prod(sizes))
    return flat.scatter_add(-1, indices.flatten(-dims), grad.flatten(-dims)).reshape(x.shape)


def masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Any) -> Tensor:
    """Give the elements that were written, in order, to the source from its start."""
    mask = mask.expand(grad.shape).reshape(-1)
    place = torch.where(mask, mask.to(torch.int64).cumsum(0) - 1, 0)
    chosen = torch.where(mask, grad.reshape(-1), grad.new_zeros(()))
    return grad.new_zeros(math.prod(sizes)).scatter_add(0, place, chosen).reshape(sizes)


# --- Samples ---


def grid_sampler_2d_backward(
    grad: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, align: bool, mask: Sequence[bool]
) -> tuple[Tensor, ...]:
    forward = _decomposed(aten.grid_sampler_2d.default)
    return _gradients(lambda a, g: forward(a, g, mode, padding, align), [x, grid], grad)


def grid_sampler_3d_backward(
    grad: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, align: bool, mask: Sequence[bool]
) -> tuple[Tensor, ...]:
    return _gradients(lambda a, g: _grid_sampler_3d(a, g, mode, padding, align), [x, grid], grad)


def _grid_sampler_3d(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    """Sample volumes at points: each as a weighted sum of the eight elements around it, or the nearest one."""
    places = [_unnormalized(grid[..., i], x.shape[-1 - i], padding, align) for i in range(3)][::-1]
    sizes = x.shape[2:]
    if mode == 1:
        return _element_at(x, [p.round() for p in places], sizes)
    total: Any = 0.0
    lows = [p.floor() for p in places]
    for corner in range(8):
        ends = [low + (corner >> i & 1) for i, low in enumerate(lows)]
        weight = math.prod(1 - (p - e).abs() for p, e in zip(places, ends, strict=True))
        total = total + _element_at(x, ends, sizes) * weight.unsqueeze(1)  # type: ignore[union-attr]
    return total


def _unnormalized(at: Tensor, size: int, padding: int, align: bool) -> Tensor:
    """Convert a coordinate from -1 to 1 to a place among `size` elements, and fold it inside if `padding` says so."""
    place = (at + 1) / 2 * (size - 1) if align else ((at + 1) * size - 1) / 2
    if padding == 1:
        return place.clamp(0, size - 1)
    if padding == 2:
        low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
        if span == 0:
            return torch.zeros_like(place)
        folded = (place - low).abs()
        turns = (folded / span).floor()
        rest = folded - turns * span
        place = torch.where(turns % 2 == 0, rest, span - rest) + low
        return place.clamp(0, size - 1)
    return place


def _element_at(x: Tensor, places: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """Read the element at whole places of each image; 0 outside."""
    inside = torch.stack([(p >= 0) & (p < n) for p, n in zip(places, sizes, strict=True)]).all(0)
    index = [p.clamp(0, n - 1).to(torch.int64) for p, n in zip(places, sizes, strict=True)]
    batch = torch.arange(x.shape[0]).reshape(-1, *[1] * (places[0].dim() - 1))
    found = x.movedim(1, -1)[(batch, *index)].movedim(-1, 1)
    return torch.where(inside.unsqueeze(1), found, 0.0)


# --- Losses, distances, embeddings ---


def multi_margin_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, p: Any, margin: Any, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    forward = _decomposed(aten.multi_margin_loss.default)
    return _gradients(lambda y: forward(y, target, p, margin, weight, reduction), [x], grad)[0]


def multilabel_margin_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor:
    forward = _decomposed(aten.multilabel_margin_loss_forward.default)
    return _gradients(lambda y: forward(y, target, reduction)[0], [x], grad)[0]


def cdist_backward(grad: Tensor, x: Tensor, y: Tensor, p: float, distance: Tensor) -> Tensor:
    """Differentiate the distances of rows by those of `x`; where two are equal the gradient is 0."""
    difference = x.unsqueeze(-2) - y.unsqueeze(-3)
    return (_share(difference, p, distance) * grad.unsqueeze(-1)).sum(-2)


def _share(difference: Tensor, p: float, distance: Tensor) -> Tensor:
    """Differentiate a norm of order `p` by the elements of its vector: sign(d) |d|^(p-1) / norm^(p-1)."""
    norm = distance.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(difference)
    if p == 1:
        return difference.sign()
    if math.isinf(p):
        return difference.sign() * (difference.abs() == norm)
    if p == 2:
        return torch.where(norm == 0, 0.0, difference / norm)
    return torch.where(norm == 0, 0.0, difference.sign() * difference.abs() ** (p - 1) / norm ** (p - 1))


def pdist_backward(grad: Tensor, x: Tensor, p: float, distance: Tensor) -> Tensor:
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1)
    shares = _share(x[first] - x[second], p, distance) * grad.unsqueeze(-1)
    return torch.zeros_like(x).index_add(0, first, shares).index_add(0, second, -shares)


def weight_norm_backward(grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Differentiate `v * (g / norms)`, in which `norms` are those of `v` over all dims but one."""
    dims = [i for i in range(v.dim()) if i != dim]
    product = (grad * v).sum(dims, keepdim=True)
    shape = [v.shape[dim] if i == dim else 1 for i in range(v.dim())]
    g_, n = g.reshape(shape), norms.reshape(shape)
    return g_ / n * (grad - v * product / (n * n)), (product / n).reshape(g.shape)


SUM, MEAN, MAX = 0, 1, 2


def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bag_of: Tensor,
    bag_size: Tensor,
    largest: Tensor,
    rows: int,
    scale_by_frequency: bool,
    mode: int,
    sparse: bool,
    weights: Tensor | None,
    padding: int = -1,
) -> Tensor:
    """Add the gradient of each bag to the rows that are in it, or that the largest elements came from."""
    bag_of = _bags(bag_of, indices, offsets)
    if mode == MAX:
        chosen = torch.where(bag_size.unsqueeze(1) > 0, grad, 0.0)
        return grad.new_zeros(rows, grad.shape[1]).scatter_add(0, largest.to(torch.int64).clamp_min(0), chosen)
    shares = grad[bag_of]
    if mode == MEAN:
        shares = shares / bag_size[bag_of].clamp_min(1).to(grad.dtype).unsqueeze(1)
    if weights is not None:
        shares = shares * weights.unsqueeze(1)
    if scale_by_frequency:
        counts = torch.zeros(rows, dtype=grad.dtype).index_add(0, indices, torch.ones_like(indices, dtype=grad.dtype))
        shares = shares / counts[indices].unsqueeze(1)
    if padding >= 0:
        shares = torch.where((indices == padding).unsqueeze(1), 0.0, shares)
    return grad.new_zeros(rows, grad.shape[1]).index_add(0, indices, shares)


def _bags(bag_of: Tensor, indices: Tensor, offsets: Tensor) -> Tensor:
    """Find the bag of each index; the CPU's forward kernel leaves that out where it has no need of it."""
    if bag_of.shape[0] == indices.shape[0]:
        return bag_of
    positions = torch.arange(indices.shape[0], dtype=offsets.dtype, device=indices.device)
    return torch.searchsorted(offsets, positions, right=True) - 1


def embedding_bag_dense_backward(grad: Tensor, indices: Tensor, *rest: Any, **named: Any) -> Tensor:
    bag_of, bag_size, largest, rows, scale, mode, weights, *padding = rest
    return embedding_bag_backward(
        grad, indices, indices, bag_of, bag_size, largest, rows, scale, mode, False, weights, *padding, **named
    )


def embedding_bag_weights_backward(
    grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, bag_of: Tensor, mode: int, padding: int = -1
) -> Tensor:
    result = (grad[_bags(bag_of, indices, offsets)] * weight[indices]).sum(1)
    return torch.where(indices == padding, 0.0, result) if padding >= 0 else result


def rrelu_with_noise(x: Tensor, noise: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, *_: Any) -> Tensor:
    """Compute what the op is outside of training, where it writes no noise."""
    return F.leaky_relu(x, (lower + upper) / 2)


_RESIZES = (
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "upsample_trilinear3d", "upsample_bicubic2d",
)  # fmt: skip

BACKWARD: dict[Any, Callable[..., Any]] = {
    **{getattr(aten, f"{n}_backward").default: partial(_resized, getattr(aten, n).default) for n in _RESIZES},
    **{
        getattr(aten, f"replication_pad{n}d_backward").default: partial(
            _padded, getattr(aten, f"replication_pad{n}d").default
        )
        for n in (1, 2, 3)
    },
    aten._upsample_bilinear2d_aa_backward.default: partial(_antialiased, cubic=False),
    aten._upsample_bicubic2d_aa_backward.default: partial(_antialiased, cubic=True),
    aten._adaptive_avg_pool2d_backward.default: partial(_averaged, dims=2),
    aten._adaptive_avg_pool3d_backward.default: partial(_averaged, dims=3),
    aten.avg_pool2d_backward.default: partial(_pool, 2),
    aten.avg_pool3d_backward.default: partial(_pool, 3),
    aten.max_pool3d_with_indices_backward.default: lambda g, x, k, s, p, d, c, i: _chosen(g, x, i, 3),
    aten.adaptive_max_pool2d_backward.default: lambda g, x, i: _chosen(g, x, i, 2),
    aten.adaptive_max_pool3d_backward.default: lambda g, x, i: _chosen(g, x, i, 3),
    aten.fractional_max_pool2d_backward.default: lambda g, x, k, o, i: _chosen(g, x, i, 2),
    aten.fractional_max_pool3d_backward.default: lambda g, x, k, o, i: _chosen(g, x, i, 3),
    aten.masked_scatter_backward.default: masked_scatter_backward,
    aten.grid_sampler_2d_backward.default: grid_sampler_2d_backward,
    aten.grid_sampler_3d_backward.default: grid_sampler_3d_backward,
    aten.multi_margin_loss_backward.default: multi_margin_loss_backward,
    aten.multilabel_margin_loss_backward.default: multilabel_margin_loss_backward,
    aten._cdist_backward.default: cdist_backward,
    aten._pdist_backward.default: pdist_backward,
    aten._weight_norm_interface_backward.default: weight_norm_backward,
    aten._embedding_bag_backward.default: embedding_bag_backward,
    aten._embedding_bag_dense_backward.default: embedding_bag_dense_backward,
    aten._embedding_bag_per_sample_weights_backward.default: embedding_bag_weights_backward,
}
"""What backward ops compute, by their overloads."""
