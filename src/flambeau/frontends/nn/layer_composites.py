"""Operators of layers and losses that nothing downstream takes whole, written with others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flambeau.frontends.nn import ops
from flambeau.frontends.nn.composites import composite
from flambeau.frontends.nn.values import Tensor

# --- Windows ---


def _unpool(x: Tensor, indices: Tensor, sizes: Sequence[Any]) -> Any:
    """Each element at its place among the last dims."""
    count, lead = len(sizes), list(x.shape)[: -len(sizes)]
    total: Any = math.prod(sizes)
    flat = ops.zeros([*lead, total], dtype=x.dtype)
    return flat.scatter(-1, indices.flatten(-count), x.flatten(-count)).reshape([*lead, *sizes])


@composite("aten.max_unpool2d")
def max_unpool2d(x: Tensor, indices: Tensor, sizes: Sequence[Any]) -> Any:
    return _unpool(x, indices, sizes)


@composite("aten.max_unpool3d")
def max_unpool3d(x: Tensor, indices: Tensor, sizes: Sequence[Any], stride: Any, padding: Any) -> Any:
    return _unpool(x, indices, sizes)


def _steps(size: Any, kernel: int, dilation: int, padding: int, stride: int) -> Any:
    """How many windows there are along a dim."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


@composite("aten.im2col")
def im2col(
    x: Tensor, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Any:
    """A slice of the image for each place in the window."""
    if x.ndim == 3:
        return im2col(x.unsqueeze(0), kernel, dilation, padding, stride).squeeze(0)
    batch, channels, *sizes = x.shape
    counts = [_steps(*args) for args in zip(sizes, kernel, dilation, padding, stride, strict=True)]
    x = ops.pad(x, [padding[1], padding[1], padding[0], padding[0]])
    parts = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            part = x
            for dim, start in ((2, i * dilation[0]), (3, j * dilation[1])):
                step = stride[dim - 2]
                part = ops.slice(part, dim, start, start + step * (counts[dim - 2] - 1) + 1, step)
            parts.append(part)
    return ops.stack(parts, 2).reshape([batch, channels * len(parts), counts[0] * counts[1]])


@composite("aten.col2im")
def col2im(
    x: Tensor, size: Sequence[int], kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
    stride: Sequence[int],
) -> Any:  # fmt: skip
    """A transposed convolution, by a weight that puts each row of a column at its place in the window."""
    if x.ndim == 2:
        return col2im(x.unsqueeze(0), size, kernel, dilation, padding, stride).squeeze(0)
    area, rows = math.prod(kernel), x.shape[1]
    if not isinstance(rows, int):
        raise ValueError("fold: the number of channels must be known: give it in nn.TensorSpec")
    counts = [_steps(*args) for args in zip(size, kernel, dilation, padding, stride, strict=True)]
    least = [(n - 1) * s - 2 * p + d * (k - 1) + 1
             for n, k, d, p, s in zip(counts, kernel, dilation, padding, stride, strict=True)]  # fmt: skip
    places = np.tile(np.eye(area).reshape(area, 1, *kernel), (rows // area, 1, 1, 1))
    image = x.reshape([x.shape[0], rows, *counts])
    extra = [wanted - found for wanted, found in zip(size, least, strict=True)]
    weight = ops.tensor(places, dtype=x.dtype)
    return ops.conv_transpose2d(image, weight, None, stride, padding, extra, rows // area, dilation)


# --- Resampling ---


def _cubic(a: float) -> Callable[[float], float]:
    def weight(x: float) -> float:
        x = abs(x)
        if x <= 1:
            return ((a + 2) * x - (a + 3)) * x * x + 1
        return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0

    return weight


def _cubic_matrix(before: int, after: int, align_corners: bool, factor: float | None) -> np.ndarray[Any, Any]:
    """Rows of weights of the old elements, one for each new element; beyond the border, its element counts on."""
    if align_corners:
        scale = (before - 1) / (after - 1) if after > 1 else 0.0
    else:
        scale = before / after if factor is None else 1 / factor
    found, weight = np.zeros((after, before)), _cubic(-0.75)
    for i in range(after):
        place = i * scale if align_corners else (i + 0.5) * scale - 0.5
        start = math.floor(place)
        for j in range(start - 1, start + 3):
            found[i, min(max(j, 0), before - 1)] += weight(place - j)
    return found


def _smooth_matrix(
    before: int, after: int, align_corners: bool, factor: float | None, weight: Callable[[float], float], reach: float
) -> np.ndarray[Any, Any]:
    """The same with windows that grow where the size falls, so that no old element is passed over."""
    if align_corners:
        scale = (before - 1) / (after - 1) if after > 1 else 0.0
    else:
        scale = before / after if factor is None else 1 / factor
    found, wide = np.zeros((after, before)), max(scale, 1.0)
    for i in range(after):
        centre = scale * (i + 0.5)
        first = max(int(centre - reach * wide + 0.5), 0)
        last = min(int(centre + reach * wide + 0.5), before)
        row = np.array([weight((j - centre + 0.5) / wide) for j in range(first, last)])
        found[i, first:last] = row / row.sum()
    return found


def _resampled(x: Tensor, sizes: Any, factors: Any, matrix: Callable[..., np.ndarray[Any, Any]]) -> Any:
    """A product with a matrix of weights along each of the last two dims."""
    known = x.meta.shape[-2:]
    if None in known or (sizes is not None and not all(isinstance(s, int) for s in sizes)):
        raise ValueError("this mode of interpolate needs sizes that are known: give them in nn.TensorSpec")
    if sizes is None:
        sizes = [math.floor(d * f) for d, f in zip(known, factors, strict=True)]
    factors = factors or (None, None)
    rows, columns = (ops.tensor(matrix(*args), dtype=x.dtype) for args in zip(known, sizes, factors, strict=True))
    return rows @ (x @ columns.t())


@composite("aten.upsample_bicubic2d.vec")
def bicubic_vec(x: Tensor, sizes: Any, align_corners: bool, factors: Any) -> Any:
    return _resampled(x, sizes, factors, lambda b, a, f: _cubic_matrix(b, a, align_corners, f))


@composite("aten.upsample_bicubic2d")
def bicubic(x: Tensor, sizes: Any, align_corners: bool, height: float | None, width: float | None) -> Any:
    return _resampled(x, sizes, (height, width), lambda b, a, f: _cubic_matrix(b, a, align_corners, f))


@composite("aten._upsample_bilinear2d_aa")
def bilinear_smooth(x: Tensor, sizes: Any, align_corners: bool, height: float | None, width: float | None) -> Any:
    def weight(x: float) -> float:
        return max(1 - abs(x), 0.0)

    return _resampled(x, sizes, (height, width), lambda b, a, f: _smooth_matrix(b, a, align_corners, f, weight, 1.0))


@composite("aten._upsample_bicubic2d_aa")
def bicubic_smooth(x: Tensor, sizes: Any, align_corners: bool, height: float | None, width: float | None) -> Any:
    weight = _cubic(-0.5)
    return _resampled(x, sizes, (height, width), lambda b, a, f: _smooth_matrix(b, a, align_corners, f, weight, 2.0))


# --- Places in an image ---

BILINEAR, NEAREST = 0, 1
ZEROS, REFLECTION = 0, 2


@composite("aten.grid_sampler")
def grid_sampler(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Any:
    sample = ops.grid_sampler_3d if x.ndim == 5 else grid_sampler_2d
    return sample(x, grid, mode, padding, align_corners)


@composite("aten.grid_sampler_2d")
def grid_sampler_2d(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Any:
    """The elements around each place, by their weights."""
    height, width = x.meta.shape[-2:]
    if height is None or width is None:
        raise ValueError("grid_sample needs the sizes of the image: give them in nn.TensorSpec")
    sizes = (width, height)  # a place is x, y
    places = [_unscaled(grid[..., i], size, align_corners) for i, size in enumerate(sizes)]

    def bordered(place: Any, size: int) -> Any:
        return place if padding == ZEROS else _bordered(place, size, padding == REFLECTION, align_corners)

    if mode in (BILINEAR, NEAREST):
        places = [bordered(p, size) for p, size in zip(places, sizes, strict=True)]
    taps = [_taps(p, mode) for p in places]
    total: Any = None
    for row, of_row in taps[1]:
        for column, of_column in taps[0]:
            at = (column, row)
            if mode not in (BILINEAR, NEAREST):
                at = (bordered(column, width), bordered(row, height))
            part = _picked(x, at[0], at[1], height, width)
            if of_row is not None:
                part = part * (of_row * of_column).unsqueeze(1)
            total = part if total is None else total + part
    return total


def _unscaled(place: Any, size: int, align_corners: bool) -> Any:
    """From -1 to 1, to the numbers of elements."""
    return (place + 1) * ((size - 1) / 2) if align_corners else ((place + 1) * size - 1) / 2


def _bordered(place: Any, size: int, reflected: bool, align_corners: bool) -> Any:
    low, span = (0.0, float(size - 1)) if align_corners else (-0.5, float(size))
    if reflected and span:
        far = (place - low).abs()
        rest = far.fmod(span)
        place = ops.where((far / span).floor().fmod(2.0) == 0, rest + low, span - rest + low)
    return place.clamp(0, size - 1)


def _taps(place: Any, mode: int) -> list[tuple[Any, Any]]:
    """Elements along a dim, each with its weight, or None where one counts alone."""
    if mode == NEAREST:
        return [(place.round(), None)]
    start = place.floor()
    rest = place - start
    if mode == BILINEAR:
        return [(start, 1 - rest), (start + 1, rest)]
    a = -0.75

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [(start - 1, far(rest + 1)), (start, near(rest)), (start + 1, near(1 - rest)), (start + 2, far(2 - rest))]


def _picked(x: Tensor, column: Any, row: Any, height: int, width: int) -> Any:
    """The elements at places, and zeros beyond the border."""
    inside = (column >= 0) & (column <= width - 1) & (row >= 0) & (row <= height - 1)
    at = row.clamp(0, height - 1).long() * width + column.clamp(0, width - 1).long()
    batch, channels, rows, columns = x.shape[0], x.shape[1], at.shape[1], at.shape[2]
    index = at.reshape([batch, 1, rows * columns]).expand([batch, channels, rows * columns])
    found = x.flatten(2).gather(2, index).reshape([batch, channels, rows, columns])
    return ops.where(inside.unsqueeze(1), found, 0.0)
