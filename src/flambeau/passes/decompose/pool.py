"""The inverse of pooling, and pooling at random places, in terms of indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition, minus, require_size, times


@decomposition("aten.max_unpool3d")
def max_unpool3d(
    t: TorchBuilder, x: SSAValue, indices: SSAValue, sizes: Sequence[Any], stride: Any, padding: Any
) -> SSAValue:
    """Put each element at its place, which is counted over the dims of the image, among zeros."""
    count = len(sizes)
    if not t.dtype(x).is_float or t.dtype(indices) is not dtypes.int64:
        raise Unsupported(f"max_unpool of {t.dtype(x)} at places of {t.dtype(indices)}")
    for one, other in zip(t.shape(x), t.shape(indices), strict=True):
        require_size(t, one, "eq", other, "there must be a place for each element")
    lead = t.shape(x)[:-count]
    flat = t.zeros([*lead, times(t, *sizes)], dtype=t.dtype(x))
    placed = t.scatter(flat, -1, t.flatten(indices, -count, -1), t.flatten(x, -count, -1))
    return t.reshape(placed, [*lead, *sizes])


decomposition("aten.max_unpool2d")(lambda t, x, indices, sizes: max_unpool3d(t, x, indices, sizes, None, None))


# --- Windows at random places ---


def _starts(t: TorchBuilder, sample: SSAValue, size: Any, windows: int, kernel: int) -> SSAValue:
    """Compute where windows along a dim begin: steps between them are `floor` or `ceil` of their mean length."""
    last = minus(t, size, kernel)
    if windows == 1:
        return t.full([*t.shape(sample), 1], last, dtype=dtypes.int64)
    alpha = t.div(t.full([], last, dtype=t.dtype(sample)), windows - 1)
    offset = t.unsqueeze(sample, -1)
    place = t.trunc(t.mul(t.add(t.arange(windows - 1, dtype=t.dtype(sample)), offset), alpha))
    first = t.to(t.sub(place, t.trunc(t.mul(offset, alpha))), dtypes.int64)
    return t.cat([first, t.full([*t.shape(sample), 1], last, dtype=dtypes.int64)], -1)


def _fractional(
    t: TorchBuilder, x: SSAValue, kernel: Sequence[int], output: Sequence[int], samples: Sequence[SSAValue]
) -> tuple[SSAValue, SSAValue]:
    """Take the largest of each window; `samples` has a number for each image and each dim."""
    rank, images = len(kernel), t.shape(samples[0])
    sizes = t.shape(x)[-rank:]
    for size, window, count in zip(sizes, kernel, output, strict=True):
        require_size(t, size, "ge", window + count - 1, "fractional_max_pool: pools are larger than the input")
    at: SSAValue | None = None
    for dim, (size, window, count) in enumerate(zip(sizes, kernel, output, strict=True)):
        starts = _starts(t, samples[dim], size, count, window)
        places = t.add(t.unsqueeze(starts, -1), t.arange(window, dtype=dtypes.int64))
        # Dims of the result first, then those of a window.
        shape = [*images, *[1] * (2 * rank)]
        shape[len(images) + dim], shape[len(images) + rank + dim] = count, window
        places = t.reshape(places, shape)
        at = places if at is None else t.add(t.mul(at, size), places)
    assert at is not None
    at = t.expand(at, [*images, *output, *kernel])
    flat = t.reshape(at, [*images, -1])
    found = t.gather(t.flatten(t.reshape(x, [*images, *sizes]), -rank, -1), -1, flat)
    windows = t.reshape(found, [*images, *output, times(t, *kernel)])
    value, which = t.max(windows, -1)
    index = t.gather(t.reshape(at, [*images, *output, -1]), -1, t.unsqueeze(which, -1))
    return value, t.squeeze(index, -1)


@decomposition("aten.fractional_max_pool2d", "aten.fractional_max_pool3d")
def fractional_max_pool(
    t: TorchBuilder, x: SSAValue, kernel: Sequence[int], output: Sequence[int], samples: SSAValue
) -> tuple[SSAValue, SSAValue]:
    """Pool over windows whose places `samples` decides: numbers from 0 to 1 for each channel and dim."""
    has_batch = len(t.shape(x)) == len(kernel) + 2
    rows = samples if has_batch else t.select(samples, 0, 0)
    each = [t.select(rows, -1, i) for i in range(len(kernel))]
    # In two dimensions PyTorch takes the first number for the width.
    return _fractional(t, x, kernel, output, each[::-1] if len(kernel) == 2 else each)
