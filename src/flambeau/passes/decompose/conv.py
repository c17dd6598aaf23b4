"""Gradients of convolutions; windows of images, which convolutions read, as reads and writes at indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition, minus, over, plus, require_size, times


def _window_places(t: TorchBuilder, size: Any, kernel: int, dilation: int, padding: int, stride: int) -> Any:
    """Compute where in the padded image each place of each window is, and how many windows there are."""
    whole = plus(t, size, 2 * padding - dilation * (kernel - 1) - 1)
    count = plus(t, over(t, whole, stride), 1)
    require_size(t, count, "gt", 0, "there must be room for a window")
    starts = t.mul(t.arange(count, dtype=dtypes.int64), stride)
    inner = t.mul(t.arange(kernel, dtype=dtypes.int64), dilation)
    return t.reshape(t.add(t.unsqueeze(inner, 1), starts), [-1]), count


@decomposition("aten.im2col")
def im2col(
    t: TorchBuilder,
    x: SSAValue,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> SSAValue:
    """Read the rows of all windows, then the columns of all windows in those."""
    if len(t.shape(x)) == 3:
        return t.squeeze(im2col(t, t.unsqueeze(x, 0), kernel, dilation, padding, stride), 0)
    if not t.dtype(x).is_float and not t.dtype(x).is_complex and not t.dtype(x).is_bool:
        raise Unsupported(f"windows of images of {t.dtype(x)}")
    batch, channels, *sizes = t.shape(x)
    settings = zip(sizes, kernel, dilation, padding, stride, strict=True)
    (rows, high), (columns, wide) = (_window_places(t, *setting) for setting in settings)
    x = t.constant_pad_nd(x, [padding[1], padding[1], padding[0], padding[0]], 0)
    windows = t.index_select(t.index_select(x, 2, rows), 3, columns)
    windows = t.permute(t.view(windows, [batch, channels, kernel[0], high, kernel[1], wide]), [0, 1, 2, 4, 3, 5])
    return t.reshape(windows, [batch, times(t, channels, kernel[0] * kernel[1]), times(t, high, wide)])


@decomposition("aten.col2im")
def col2im(
    t: TorchBuilder,
    x: SSAValue,
    size: Sequence[Any],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> SSAValue:
    """Add each window up at its place: in the columns, then in the rows."""
    if len(t.shape(x)) == 2:
        return t.squeeze(col2im(t, t.unsqueeze(x, 0), size, kernel, dilation, padding, stride), 0)
    batch, rows_of_all, count = t.shape(x)
    area = kernel[0] * kernel[1]
    channels = over(t, rows_of_all, area)
    require_size(t, times(t, channels, area), "eq", rows_of_all, "each channel must have an element of each window")
    settings = zip(size, kernel, dilation, padding, stride, strict=True)
    (rows, high), (columns, wide) = (_window_places(t, *setting) for setting in settings)
    require_size(t, times(t, high, wide), "eq", count, "there must be a column for each window")
    windows = t.permute(t.view(x, [batch, channels, *kernel, high, wide]), [0, 1, 2, 4, 3, 5])
    height, width = (plus(t, n, 2 * p) for n, p in zip(size, padding, strict=True))
    tall = times(t, kernel[0], high)
    windows = t.reshape(windows, [batch, channels, tall, times(t, kernel[1], wide)])
    strips = t.index_add(t.zeros([batch, channels, tall, width], dtype=t.dtype(x)), 3, columns, windows)
    image = t.index_add(t.zeros([batch, channels, height, width], dtype=t.dtype(x)), 2, rows, strips)
    for dim, n, p in zip((2, 3), size, padding, strict=True):
        image = t.slice(image, dim, p, plus(t, n, p)) if p else image
    return image


@decomposition("aten.convolution_backward")
def convolution_backward(
    t: TorchBuilder,
    gradient: SSAValue,
    x: SSAValue,
    weight: SSAValue,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> tuple[SSAValue | None, ...]:
    """Compute the gradients that `mask` asks for, of the input, the weight and the bias; None for the others.

    The gradient of the input is the convolution that is transposed to the other; that of the weight is a convolution of
    the input, with the gradient for a kernel and with the stride for its dilation.
    """
    rank = len(t.shape(x)) - 2
    stride, padding, dilation, _ = settings = [
        list(v) * (rank if len(v) == 1 else 1) for v in (stride, padding, dilation, output_padding)
    ]
    of_input = of_weight = of_bias = None
    if mask[0]:
        none = [0] * rank
        extra = (
            none
            if transposed
            else _extra_sizes(t, t.shape(x)[2:], t.shape(gradient)[2:], t.shape(weight)[2:], *settings[:3])
        )
        of_input = t.convolution(gradient, weight, None, stride, padding, dilation, not transposed, extra, groups)
        if any(output_padding):  # What it added may be enough for one more window.
            for dim, size in enumerate(t.shape(x)[2:], 2):
                of_input = t.slice(of_input, dim, 0, size)
    if mask[1]:
        image, windows = (gradient, x) if transposed else (x, gradient)
        of_weight = _weight_gradient(t, image, windows, t.shape(weight)[2:], stride, padding, dilation, groups)
    if mask[2]:
        of_bias = t.sum(gradient, [0, *range(2, rank + 2)])
    return of_input, of_weight, of_bias


def _extra_sizes(
    t: TorchBuilder, sizes: Sequence[Any], windows: Sequence[Any], kernel: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int],
) -> list[Any]:  # fmt: skip
    """Compute how much of an image no window reaches at its end: the `output_padding` of the transposed convolution."""
    covered = [
        plus(t, plus(t, times(t, plus(t, n, -1), s), times(t, d, plus(t, k, -1))), 1 - 2 * p)
        for n, k, s, p, d in zip(windows, kernel, stride, padding, dilation, strict=True)
    ]
    return [minus(t, size, n) for size, n in zip(sizes, covered, strict=True)]


def _weight_gradient(
    t: TorchBuilder, image: SSAValue, windows: SSAValue, kernel: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], groups: int,
) -> SSAValue:  # fmt: skip
    """Convolve the images with the gradients of their windows, examples in the place of channels.

    Groups stay apart: both have N*groups examples, and what is summed over are the N of one group.
    """
    batch, channels, *sizes = t.shape(image)
    inner = over(t, channels, groups)
    grouped = t.view(image, [batch, groups, inner, *sizes])
    order = [2, 1, 0, *range(3, 3 + len(sizes))]
    examples = t.reshape(t.permute(grouped, order), [inner, times(t, groups, batch), *sizes])
    kernels = t.transpose(windows, 0, 1)
    none = [0] * len(sizes)
    result = t.convolution(examples, kernels, None, dilation, padding, stride, False, none, groups)
    for dim, k in enumerate(kernel, 2):  # What the windows leave over at the end of the image is no part of them.
        result = t.slice(result, dim, 0, k)
    return t.transpose(result, 0, 1)
