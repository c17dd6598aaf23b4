"""Functions of `nn.functional` on images and volumes: padding, pooling, resampling, windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.dialects.torch.enums import GRID_MODES, GRID_PADDINGS
from flambeau.frontends.nn.core import ops
from flambeau.frontends.nn.core.values import named

__all__ = [
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices", "affine_grid", "fold", "grid_sample", "interpolate", "lp_pool1d", "lp_pool2d",
    "lp_pool3d", "max_pool1d", "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d",
    "max_pool3d_with_indices", "max_unpool1d", "max_unpool2d", "max_unpool3d", "pad", "unfold", "upsample",
    "upsample_bilinear", "upsample_nearest",
]  # fmt: skip


def each_dim(value: Any, count: int) -> tuple[Any, ...]:
    """Repeat a single number for each dim; lists become tuples."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,) * count


def pad(input: Any, pad: Sequence[Any], mode: str = "constant", value: float | None = None) -> Any:
    """Pad the last dims, given from the last dim on; negative numbers crop."""
    return ops.pad(input, list(pad), mode, value)


# --- Pooling ---


def _max_pool(
    count: int, input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: bool
) -> Any:
    stride = kernel_size if stride is None else stride
    name = f"max_pool{count}d_with_indices" if indices else f"max_pool{count}d"
    if count == 1:  # PyTorch's functions of one dim take lists of one number
        kernel_size, stride, padding, dilation = (each_dim(x, 1) for x in (kernel_size, stride, padding, dilation))
    return getattr(ops, name)(input, kernel_size, stride, padding, dilation, ceil_mode)


def _max_pooling(count: int, with_indices: bool) -> Callable[..., Any]:
    def function(
        input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:  # fmt: skip
        indices = with_indices or return_indices
        return _max_pool(count, input, kernel_size, stride, padding, dilation, ceil_mode, indices)

    return named(f"max_pool{count}d" + "_with_indices" * with_indices, function)


max_pool1d, max_pool2d, max_pool3d = (_max_pooling(n, False) for n in (1, 2, 3))
max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = (_max_pooling(n, True) for n in (1, 2, 3))


def _adaptive_sizes(input: Any, output_size: Any, count: int) -> list[Any]:
    """List the output sizes; None stands for the input's size."""
    sizes = each_dim(output_size, count)
    return [input.shape[i - count] if size is None else size for i, size in enumerate(sizes)]


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    return ops.adaptive_avg_pool2d(input, _adaptive_sizes(input, output_size, 2))


def adaptive_avg_pool3d(input: Any, output_size: Any) -> Any:
    return ops.adaptive_avg_pool3d(input, _adaptive_sizes(input, output_size, 3))


def _adaptive_max_pooling(count: int, with_indices: bool) -> Callable[..., Any]:
    def function(input: Any, output_size: Any, return_indices: bool = False) -> Any:
        found = getattr(ops, f"adaptive_max_pool{count}d")(input, _adaptive_sizes(input, output_size, count))
        return found if with_indices or return_indices else found[0]

    return named(f"adaptive_max_pool{count}d" + "_with_indices" * with_indices, function)


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (_adaptive_max_pooling(n, False) for n in (1, 2, 3))
adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices = (
    _adaptive_max_pooling(n, True) for n in (1, 2, 3)
)


def _lp_pooling(count: int) -> Callable[..., Any]:
    def function(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
        """Compute the p-norm of each window: (sum of x^p)^(1/p)."""
        kernel = each_dim(kernel_size, count)
        stride = [] if stride is None else each_dim(stride, count)
        mean = getattr(ops, f"avg_pool{count}d")(input.pow(norm_type), kernel, stride, 0, ceil_mode)
        return (mean.sign() * mean.abs().relu()).mul(math.prod(kernel)).pow(1.0 / norm_type)

    return named(f"lp_pool{count}d", function)


lp_pool1d, lp_pool2d, lp_pool3d = (_lp_pooling(n) for n in (1, 2, 3))


def _unpooled(count: int, input: Any, kernel_size: Any, stride: Any, padding: Any, output_size: Any) -> tuple[Any, ...]:
    """Return the sizes before pooling, the strides and the padding."""
    kernel, padding = each_dim(kernel_size, count), each_dim(padding, count)
    stride = kernel if stride is None else each_dim(stride, count)
    if output_size is not None:
        return list(output_size)[-count:], stride, padding
    sizes = input.shape[-count:]
    found = [(d - 1) * s + k - 2 * p for d, s, k, p in zip(sizes, stride, kernel, padding, strict=True)]
    return found, stride, padding


def max_unpool1d(
    input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Any:
    """Put each maximum at its position before pooling, and zeros elsewhere."""
    sizes, _, _ = _unpooled(1, input, kernel_size, stride, padding, output_size)
    return ops.max_unpool2d(input.unsqueeze(-1), indices.unsqueeze(-1), [*sizes, 1]).squeeze(-1)


def max_unpool2d(
    input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Any:
    sizes, _, _ = _unpooled(2, input, kernel_size, stride, padding, output_size)
    return ops.max_unpool2d(input, indices, sizes)


def max_unpool3d(
    input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Any:
    sizes, stride, padding = _unpooled(3, input, kernel_size, stride, padding, output_size)
    return ops.max_unpool3d(input, indices, sizes, stride, padding)


# --- Resampling ---

_RESAMPLERS = {
    ("nearest", 1): "upsample_nearest1d", ("nearest", 2): "upsample_nearest2d", ("nearest", 3): "upsample_nearest3d",
    ("nearest-exact", 1): "_upsample_nearest_exact1d", ("nearest-exact", 2): "_upsample_nearest_exact2d",
    ("nearest-exact", 3): "_upsample_nearest_exact3d", ("linear", 1): "upsample_linear1d",
    ("bilinear", 2): "upsample_bilinear2d", ("trilinear", 3): "upsample_trilinear3d",
    ("bicubic", 2): "upsample_bicubic2d",
}  # fmt: skip
"""Operators by mode and the number of dims that are resampled."""


def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Any:  # fmt: skip
    """Resample the input to another resolution, given as a size or as a factor."""
    count = input.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate takes either size or scale_factor")
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise ValueError("align_corners goes with the modes linear, bilinear, bicubic and trilinear")
    sizes = None if size is None else list(each_dim(size, count))
    factors = None if scale_factor is None else [float(f) for f in each_dim(scale_factor, count)]
    if factors is not None and (recompute_scale_factor or mode == "area"):
        sizes, factors = _scaled(input, factors), None
    if mode == "area":
        return (ops.adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[count - 1](input, sizes)
    if (mode, count) not in _RESAMPLERS:
        raise NotImplementedError(f"interpolate: there is no mode {mode!r} for {input.ndim} dims")
    name = _RESAMPLERS[mode, count]
    if antialias:
        if mode not in ("bilinear", "bicubic"):
            raise ValueError("antialias goes with the modes bilinear and bicubic of 4 dims")
        sizes = _scaled(input, factors) if factors is not None else sizes
        return getattr(ops, f"_{name}_aa")(input, sizes, bool(align_corners), *(factors or ()))
    corners = () if mode.startswith("nearest") else (bool(align_corners),)
    return getattr(ops, name).vec(input, sizes, *corners, factors)


def _scaled(input: Any, factors: Sequence[float]) -> list[int]:
    return [math.floor(d * f) for d, f in zip(input.shape[2:], factors, strict=True)]


def upsample(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Any:
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


def grid_sample(
    input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    """Sample the input at the positions of a grid, in coordinates from -1 to 1."""
    if mode not in GRID_MODES or padding_mode not in GRID_PADDINGS:
        raise ValueError(
            f"grid_sample: mode is one of {', '.join(GRID_MODES)}, padding_mode one of {', '.join(GRID_PADDINGS)}"
        )
    return ops.grid_sampler(input, grid, GRID_MODES[mode], GRID_PADDINGS[padding_mode], bool(align_corners))


def affine_grid(theta: Any, size: Sequence[int], align_corners: bool | None = None) -> Any:
    """Make the grid of affine maps for `grid_sample`; `theta` has a matrix for each sample."""
    count = len(size) - 2
    if tuple(theta.meta.shape[1:]) != (count, count + 1):
        raise ValueError(f"affine_grid: theta for a size of {len(size)} dims is Nx{count}x{count + 1}")
    places = []
    for length in reversed(size[2:]):  # x before y before z
        end = 1.0 if align_corners else 1.0 - 1.0 / length
        places.append(ops.linspace(-end, end, length, dtype=theta.dtype) if length > 1 else
                      ops.zeros([1], dtype=theta.dtype))  # fmt: skip
    grids = ops.meshgrid(*reversed(places), indexing="ij")[::-1]
    base = ops.stack([*grids, ops.ones_like(grids[0])], -1)
    points = base.reshape([1, -1, count + 1]) @ theta.transpose(1, 2)
    return points.reshape([size[0], *size[2:], count])


# --- Windows ---


def unfold(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """Extract the windows of an image as columns."""
    return ops.im2col(input, *(each_dim(x, 2) for x in (kernel_size, dilation, padding, stride)))


def fold(input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """Sum columns into an image where their windows overlap."""
    return ops.col2im(input, *(each_dim(x, 2) for x in (output_size, kernel_size, dilation, padding, stride)))
