"""Reading images between their pixels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.emitter import dense
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition

BILINEAR, NEAREST = 0, 1
ZEROS, BORDER, REFLECTION = 0, 1, 2


def _coordinate(t: TorchBuilder, g: Any, size: int, padding: int, align_corners: bool) -> Any:
    """A coordinate in [-1, 1] in pixels, brought into the image as the padding says."""
    if align_corners:
        at = t.mul(t.add(g, 1), (size - 1) / 2)
    else:
        at = t.mul(t.sub(t.mul(t.add(g, 1), size), 1), 0.5)
    if padding == REFLECTION:
        low, span = (0.0, float(size - 1)) if align_corners else (-0.5, float(size))
        if span == 0:
            at = t.zeros_like(at)
        else:
            distance = t.abs(t.sub(at, low))
            rest = t.fmod(distance, span)
            is_even = t.eq(t.fmod(t.floor(t.div(distance, span)), 2), 0)
            at = t.add(t.where(is_even, rest, t.rsub(rest, span)), low)
    return at if padding == ZEROS else t.clamp(at, 0, size - 1)


@decomposition("aten.grid_sampler_3d")
def grid_sampler_3d(
    t: TorchBuilder, x: SSAValue, grid: SSAValue, mode: int, padding: int, align_corners: bool
) -> SSAValue:
    if mode not in (BILINEAR, NEAREST):
        raise Unsupported("volumes are sampled between pixels linearly or not at all")
    dtype = t.dtype(x)
    x, grid = t.to(x, dtype.compute), t.to(grid, dtype.compute)
    batch, channels, *sizes = t.shape(x)
    if not all(isinstance(s, int) for s in sizes):
        raise Unsupported("a grid over a volume whose size only the run time knows")
    _, *out, _ = t.shape(grid)
    # The grid's last dim is x, y, z; the volume's dims are z, y, x.
    at = [_coordinate(t, t.select(grid, -1, 2 - i), size, padding, align_corners) for i, size in enumerate(sizes)]
    flat = t.flatten(x, 2, -1)

    def read(corner: list[Any]) -> SSAValue:
        """The pixels at whole positions; zero outside."""
        number, is_inside = None, None
        for position, size in zip(corner, sizes, strict=True):
            ok = t.logical_and(t.ge(position, 0), t.le(position, size - 1))
            index = t.to(t.where(ok, position, t.zeros_like(position)), dtypes.int64)
            number = index if number is None else t.add(t.mul(number, size), index)
            is_inside = ok if is_inside is None else t.logical_and(is_inside, ok)
        index = t.expand(t.unsqueeze(t.flatten(number, 1, -1), 1), [batch, channels, -1])
        pixels = t.reshape(t.gather(flat, 2, index), [batch, channels, *out])
        return t.where(t.unsqueeze(is_inside, 1), pixels, t.zeros_like(pixels))

    if mode == NEAREST:
        return t.to(read([t.round(a) for a in at]), dtype)
    floors = [t.floor(a) for a in at]
    total: Any = None
    for corner in itertools.product((0, 1), repeat=3):
        weight: Any = None
        for a, low, up in zip(at, floors, corner, strict=True):
            part = t.sub(a, low) if up else t.sub(t.add(low, 1), a)
            weight = part if weight is None else t.mul(weight, part)
        pixels = read([t.add(low, up) if up else low for low, up in zip(floors, corner, strict=True)])
        # Where nothing is read, the weight counts for nothing either, even if it is not a number.
        term = t.where(t.eq(pixels, 0), t.zeros_like(pixels), t.mul(pixels, t.unsqueeze(weight, 1)))
        total = term if total is None else t.add(total, term)
    return t.to(total, dtype)


@decomposition("aten._upsample_bilinear2d_aa")
def upsample_bilinear2d_aa(
    t: TorchBuilder, x: SSAValue, output_size: list[int], align_corners: bool, scale_h: Any, scale_w: Any
) -> SSAValue:
    """Each pixel is a mean of those under a triangle, in one dim after the other."""
    sizes = [*t.shape(x)[-2:], *output_size]
    if not all(isinstance(s, int) for s in sizes):
        raise Unsupported("antialiasing to or from a size that only the run time knows")
    if not t.dtype(x).is_float:
        raise Unsupported("antialiasing of integers, which PyTorch computes in fixed point")
    wide = t.to(x, t.dtype(x).compute)
    wide = _weighted(t, wide, output_size[1], align_corners, scale_w)
    turned = _weighted(t, t.transpose(wide, -2, -1), output_size[0], align_corners, scale_h)
    return t.to(t.transpose(turned, -2, -1), t.dtype(x))


def _weighted(t: TorchBuilder, x: SSAValue, out: int, align_corners: bool, scale: float | None) -> SSAValue:
    """The last dim resized: what is not under a triangle is not read, since it may be infinite."""
    dtype = t.dtype(x)
    *lead, size = t.shape(x)
    if size == out:
        return x
    places, weights = _triangles(size, out, align_corners, scale)
    width = places.shape[1]
    at = t.literal(dense(places.tobytes(), dtypes.int64, places.shape), dtypes.int64, places.shape)
    data = weights.astype(np.float64 if dtype is dtypes.float64 else np.float32).tobytes()
    factors = t.literal(dense(data, dtype, weights.shape), dtype, weights.shape)
    pixels = t.view(t.index_select(x, -1, t.view(t.clamp(at, 0), [out * width])), [*lead, out, width])
    return t.sum(t.where(t.ge(at, 0), t.mul(pixels, factors), 0.0), [-1])


def _triangles(size: int, out: int, align_corners: bool, scale: float | None) -> tuple[Any, Any]:
    """For each pixel of the result the places that it is a mean of, -1 where there are no more, and their weights."""
    if align_corners:
        step = (size - 1) / (out - 1) if out > 1 else 0.0
    else:
        step = 1 / scale if scale else size / out
    width = max(step, 1.0)
    spans = []
    for i in range(out):
        center = step * (i + 0.5)
        begin, end = max(int(center - width + 0.5), 0), min(int(center + width + 0.5), size)
        found = np.maximum(0, 1 - abs((np.arange(begin, end) - center + 0.5) / width))
        spans.append((np.arange(begin, end), found / (found.sum() or 1)))
    most = max((len(at) for at, _ in spans), default=1)
    places, weights = np.full((out, most), -1, np.int64), np.zeros((out, most))
    for i, (at, found) in enumerate(spans):
        places[i, : len(at)], weights[i, : len(at)] = at, found
    return places, weights
