"""Reading images between their pixels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.emitter import dense
from flambeau.dialects.torch.enums import BICUBIC, BILINEAR, NEAREST, REFLECTION, ZEROS
from flambeau.dialects.torch.types import FLOAT, INT
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition, minus, require_size

Tap = tuple[Any, Any]
"""A whole position along a dim, and its weight; None where it counts alone."""


# --- At the places of a grid ---


@decomposition("aten.grid_sampler", "aten.grid_sampler_2d", "aten.grid_sampler_3d")
def grid_sampler(
    t: TorchBuilder, x: SSAValue, grid: SSAValue, mode: int, padding: int, align_corners: bool
) -> SSAValue:
    """Add up the pixels around each place, by their weights; 16-bit floats are rounded after each step, as by PyTorch.

    The grid's last dim is x, y, z; the image's dims are z, y, x.
    """
    dtype = t.dtype(x)
    batch, _, *sizes = t.shape(x)
    n = len(sizes)
    if t.dtype(grid) is not dtype or len(t.shape(grid)) != n + 2:
        raise Unsupported(f"a grid of {t.dtype(grid)} of rank {len(t.shape(grid))} for images of {dtype}")
    if mode not in (BILINEAR, NEAREST) and (n, mode) != (2, BICUBIC):
        raise Unsupported("volumes are sampled between pixels linearly or not at all")
    require_size(t, t.shape(grid)[-1], "eq", n, "the grid must have a coordinate for each dim of the image")
    require_size(t, t.shape(grid)[0], "eq", batch, "there must be a grid for each image")
    taps = []
    for i, size in enumerate(sizes):
        place = _unscaled(t, t.select(grid, -1, n - 1 - i), size, align_corners)
        if mode == BICUBIC:  # Here it is the pixels that are brought into the image, each by itself.
            taps.append([(_inside(t, at, size, padding, align_corners), w) for at, w in _cubic_taps(t, place)])
        else:
            taps.append(_taps(t, _inside(t, place, size, padding, align_corners), mode))
    flat = t.flatten(x, 2, -1)
    total: Any = None
    for corner in itertools.product(*taps):
        pixels = _read(t, flat, [at for at, _ in corner], sizes)
        if mode != NEAREST:
            weight = corner[0][1]
            for _, other in corner[1:]:
                weight = t.mul(weight, other)
            # Where nothing is read, the weight counts for nothing either, even if it is not a number.
            pixels = t.where(t.eq(pixels, 0), t.zeros_like(pixels), t.mul(pixels, t.unsqueeze(weight, 1)))
        total = pixels if total is None else t.add(total, pixels)
    assert isinstance(total, SSAValue)
    return total


def _unscaled(t: TorchBuilder, place: SSAValue, size: Any, align_corners: bool) -> SSAValue:
    """Convert a coordinate from -1 to 1 to pixels."""
    if align_corners:
        return t.mul(t.mul(t.add(place, 1), 0.5), minus(t, size, 1))
    return t.mul(t.sub(t.mul(t.add(place, 1), size), 1), 0.5)


def _inside(t: TorchBuilder, place: Any, size: Any, padding: int, align_corners: bool) -> SSAValue:
    """Bring a place in pixels into the image as the padding mode says."""
    if padding == ZEROS:
        return place
    if padding == REFLECTION:
        low, span = (0.0, minus(t, size, 1)) if align_corners else (-0.5, size)
        # An image of one pixel has no other place for what is reflected.
        span = max(span, 1) if isinstance(span, int) else t.op("prim.max.int", (span, t.constant(1)), (INT,))[0]
        distance = t.abs(t.sub(place, low))
        rest = t.fmod(distance, span)
        is_even = t.eq(t.fmod(t.floor(t.div(distance, span)), 2), 0)
        place = t.add(t.where(is_even, rest, t.add(t.neg(rest), span)), low)
    return t.clamp(place, 0, minus(t, size, 1))


def _taps(t: TorchBuilder, place: SSAValue, mode: int) -> list[Tap]:
    """Find the whole positions that a place lies on or between, with their weights."""
    if mode == NEAREST:
        return [(t.round(place), None)]
    low = t.floor(place)
    return [(low, t.sub(t.add(low, 1), place)), (t.add(low, 1), t.sub(place, low))]


def _cubic_taps(t: TorchBuilder, place: SSAValue) -> list[Tap]:
    """Find the four whole positions around a place, with the weights of cubic convolution."""
    low = t.floor(place)
    rest = t.sub(place, low)
    a = -0.75

    def near(x: Any) -> Any:
        return t.add(t.mul(t.mul(t.sub(t.mul(x, a + 2), a + 3), x), x), 1)

    def far(x: Any) -> Any:
        return t.sub(t.mul(t.add(t.mul(t.sub(t.mul(x, a), 5 * a), x), 8 * a), x), 4 * a)

    weights = (far(t.add(rest, 1)), near(rest), near(t.rsub(rest, 1)), far(t.rsub(rest, 2)))
    return [(t.add(low, i - 1), w) for i, w in enumerate(weights)]


def _read(t: TorchBuilder, flat: SSAValue, places: Sequence[Any], sizes: Sequence[Any]) -> SSAValue:
    """Read the pixels at whole positions; outside the image they are zero."""
    batch, channels, _ = t.shape(flat)
    number: Any = None
    is_inside: Any = None
    for place, size in zip(places, sizes, strict=True):
        place = t.to(place, t.dtype(place).compute)  # 16-bit floats do not tell all sizes apart
        ok = t.logical_and(t.ge(place, 0), t.le(place, minus(t, size, 1)))
        index = t.to(t.where(ok, place, t.zeros_like(place)), dtypes.int64)
        number = index if number is None else t.add(t.mul(number, size), index)
        is_inside = ok if is_inside is None else t.logical_and(is_inside, ok)
    index = t.expand(t.unsqueeze(t.flatten(number, 1, -1), 1), [batch, channels, -1])
    pixels = t.reshape(t.gather(flat, 2, index), [batch, channels, *t.shape(number)[1:]])
    return t.where(t.unsqueeze(is_inside, 1), pixels, t.zeros_like(pixels))


# --- Images of another size ---


def _sizes(t: TorchBuilder, x: SSAValue, sizes: Any, factors: Any) -> tuple[list[Any], list[Any]]:
    """Work out the sizes of the result and the scale factors, of which only one or the other is given."""
    if sizes is not None:
        return list(sizes), [None, None]

    def scaled(size: Any, factor: float) -> Any:
        if isinstance(size, int):
            return int(size * factor)
        product = t.op("aten.mul.int_float", (size, t.constant(factor)), (FLOAT,))[0]
        return t.op("aten.Int.float", (product,), (INT,))[0]

    return [scaled(n, f) for n, f in zip(t.shape(x)[2:], factors, strict=True)], list(factors)


@decomposition("aten.upsample_bicubic2d.vec")
def bicubic_vec(t: TorchBuilder, x: SSAValue, sizes: Any, align_corners: bool, factors: Any) -> SSAValue:
    sizes, factors = _sizes(t, x, sizes, factors)
    return upsample_bicubic2d(t, x, sizes, align_corners, *factors)


@decomposition("aten.upsample_bicubic2d")
def upsample_bicubic2d(
    t: TorchBuilder, x: SSAValue, sizes: Sequence[Any], align_corners: bool, scale_h: Any, scale_w: Any
) -> SSAValue:
    """Make each pixel a weighted sum of four along one dim, then along the other; the border's pixels go on outside."""
    dtype = t.dtype(x)
    if not dtype.is_float and dtype is not dtypes.uint8:
        raise Unsupported(f"images of {dtype}")
    wide = t.to(x, dtype.compute) if dtype.is_float else x
    for dim, out, factor in ((3, sizes[1], scale_w), (2, sizes[0], scale_h)):
        wide = _cubic(t, wide, dim, out, align_corners, factor)
    return t.to(wide, dtype)


def _cubic(t: TorchBuilder, x: SSAValue, dim: int, out: Any, align_corners: bool, factor: float | None) -> SSAValue:
    size, dtype = t.shape(x)[dim], t.dtype(x) if t.dtype(x).is_float else dtypes.float32
    steps = t.arange(out, dtype=dtype)
    if align_corners:
        place = t.mul(steps, _ratio(t, minus(t, size, 1), minus(t, out, 1), dtype))
    else:
        step = 1 / factor if factor else _ratio(t, size, out, dtype)
        place = t.sub(t.mul(t.add(steps, 0.5), step), 0.5)
    taps = _cubic_taps(t, place)
    pixels = [t.index_select(x, dim, t.clamp(t.to(at, dtypes.int64), 0, minus(t, size, 1))) for at, _ in taps]
    weights = [t.view(w, [out if i == dim else 1 for i in range(dim, len(t.shape(x)))]) for _, w in taps]
    if not t.dtype(x).is_float:
        return _in_fixed_point(t, pixels, weights)
    return _dot(t, pixels, weights)


def _dot(t: TorchBuilder, values: Sequence[Any], weights: Sequence[Any]) -> Any:
    total, *others = (t.mul(v, w) for v, w in zip(values, weights, strict=True))
    for other in others:
        total = t.add(total, other)
    return total


def _in_fixed_point(t: TorchBuilder, pixels: Sequence[SSAValue], weights: Sequence[SSAValue]) -> SSAValue:
    """Sum bytes times weights rounded to 16 bits, with as many fraction bits as the greatest weight leaves."""
    greatest = t.amax(t.cat([t.flatten(w, 0, -1) for w in weights]), [0])
    bits = t.arange(1, 23, dtype=dtypes.float32)
    is_too_many = t.ge(t.add(t.mul(greatest, t.exp2(bits)), 0.5), float(1 << 15))
    precision = t.to(t.rsub(t.sum(is_too_many), 22), dtypes.int32)
    scale = t.exp2(t.to(precision, dtypes.float32))
    rounded = [t.to(t.add(t.mul(w, scale), t.mul(t.sign(w), 0.5)), dtypes.int32) for w in weights]
    half = t.to(t.mul(scale, 0.5), dtypes.int32)
    total = t.add(_dot(t, [t.to(p, dtypes.int32) for p in pixels], rounded), half)
    return t.to(t.clamp(t.bitwise_right_shift(total, precision), 0, 255), dtypes.uint8)


def _ratio(t: TorchBuilder, size: Any, other: Any, dtype: dtypes.DType) -> Any:
    """Divide a size by another that may be 0, which gives 0: as a float, or a 0-d tensor where they are dynamic."""
    if isinstance(size, int) and isinstance(other, int):
        return size / other if other else 0.0
    a, b = (t.full([], n, dtype=dtype) for n in (size, other))
    return t.where(t.eq(b, 0), t.zeros_like(a), t.div(a, b))


def _smooth(name: str, weight: Callable[[Any], Any], reach: float) -> None:
    """Add the rules of an antialiased resize: windows grow where the size falls, so that no pixel is passed over."""

    @decomposition(f"aten.{name}")
    def resize(
        t: TorchBuilder, x: SSAValue, output_size: list[int], align_corners: bool, scale_h: Any, scale_w: Any
    ) -> SSAValue:
        if not all(isinstance(s, int) for s in (*t.shape(x)[-2:], *output_size)):
            raise Unsupported("antialiasing to or from a size that only the run time knows")
        if not t.dtype(x).is_float:
            raise Unsupported("antialiasing of integers, which PyTorch computes in fixed point")
        wide = t.to(x, t.dtype(x).compute)
        for out, scale in ((output_size[1], scale_w), (output_size[0], scale_h)):
            windows = _windows(t.shape(wide)[-1], out, align_corners, scale, weight, reach)
            wide = t.transpose(_weighted(t, wide, out, *windows), -2, -1)
        return t.to(wide, t.dtype(x))

    decomposition(f"aten.{name}.vec")(
        lambda t, x, sizes, align_corners, factors: resize(
            t, x, (found := _sizes(t, x, sizes, factors))[0], align_corners, *found[1]
        )
    )


def _weighted(t: TorchBuilder, x: SSAValue, out: int, places: Any, weights: Any) -> SSAValue:
    """Resize the last dim; what is not in a window is not read, since it may be infinite."""
    dtype = t.dtype(x)
    *lead, size = t.shape(x)
    if size == out:
        return x
    width = places.shape[1]
    at = t.literal(dense(places.tobytes(), dtypes.int64, places.shape), dtypes.int64, places.shape)
    data = weights.astype(np.float64 if dtype is dtypes.float64 else np.float32).tobytes()
    factors = t.literal(dense(data, dtype, weights.shape), dtype, weights.shape)
    pixels = t.view(t.index_select(x, -1, t.view(t.clamp(at, 0), [out * width])), [*lead, out, width])
    return t.sum(t.where(t.ge(at, 0), t.mul(pixels, factors), 0.0), [-1])


def _windows(
    size: int, out: int, align_corners: bool, scale: float | None, weight: Callable[[Any], Any], reach: float
) -> tuple[Any, Any]:
    """List for each pixel of the result the places that it is a mean of, -1 where there are no more, with weights."""
    if align_corners:
        step = (size - 1) / (out - 1) if out > 1 else 0.0
    else:
        step = 1 / scale if scale else size / out
    width = max(step, 1.0)
    spans = []
    for i in range(out):
        center = step * (i + 0.5)
        begin, end = max(int(center - reach * width + 0.5), 0), min(int(center + reach * width + 0.5), size)
        found = weight(abs((np.arange(begin, end) - center + 0.5) / width))
        spans.append((np.arange(begin, end), found / (found.sum() or 1)))
    most = max((len(at) for at, _ in spans), default=1)
    places, weights = np.full((out, most), -1, np.int64), np.zeros((out, most))
    for i, (at, found) in enumerate(spans):
        places[i, : len(at)], weights[i, : len(at)] = at, found
    return places, weights


def _cubic_weight(x: Any) -> Any:
    """Evaluate the kernel of cubic convolution with a = -0.5 at distances x."""
    a = -0.5
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


_smooth("_upsample_bilinear2d_aa", lambda x: np.maximum(0, 1 - x), 1.0)
_smooth("_upsample_bicubic2d_aa", _cubic_weight, 2.0)
