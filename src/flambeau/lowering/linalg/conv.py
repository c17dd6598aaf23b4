"""Convolutions, also transposed, grouped and strided, in one to three dimensions."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.pad import resize_border
from flambeau.lowering.linalg.rules import linalg_rule, loop_rule
from flambeau.lowering.verbs import RuleBuilder, Windows, window_properties

_NAMED = {1: "conv_1d_ncw_fcw", 2: "conv_2d_nchw_fchw", 3: "conv_3d_ncdhw_fcdhw"}


def per_dim(values: Any, n: int) -> list[Any]:
    """List a window op's parameter for each of n dims; one value counts for all."""
    listed = list(values) if isinstance(values, (list, tuple)) else [values]
    return listed * n if len(listed) == 1 else listed


def convolution(
    b: RuleBuilder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[Size],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: int,
) -> Tensor:
    """Slide the weight over the input."""
    n = weight.rank - 2
    stride, padding, dilation = per_dim(stride, n), per_dim(padding, n), per_dim(dilation, n)
    if not all(isinstance(v, int) for v in (*stride, *dilation, groups)):
        raise Unsupported("a convolution whose stride, dilation or groups are not constants")
    batched = x if x.rank == n + 2 else b.unsqueeze(x, 0)
    if transposed and max(stride) > 1 and max(dilation) == 1 and b.loads_are_cheap:
        result = _in_phases(b, batched, weight, stride, padding, per_dim(output_padding, n), groups)
        result = _finish(b, result, bias, x)
        return result if x.rank == n + 2 else b.squeeze(result, [0])
    if transposed:
        batched = _spread(b, batched, weight, stride, padding, dilation, per_dim(output_padding, n))
        weight, stride = _flipped(b, weight, groups), [1] * n
    else:
        border: list[Size] = [0, 0, *padding]
        batched = b.pad(batched, border, border, 0)
    result = convolve_padded(b, batched, weight, stride, dilation, groups)
    result = _finish(b, result, bias, x)
    return result if x.rank == n + 2 else b.squeeze(result, [0])


def _finish(b: RuleBuilder, result: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    """Add the bias of each channel and leave the accumulator's dtype."""
    if bias is None:
        return b.to(result, x.dtype)
    column = b.reshape(bias, [b.size(bias, 0), *[1] * (result.rank - 2)])

    def add(e: Element, c: Element) -> Element:
        return e + c

    return b.elementwise([result, column], add, x.dtype, b.sizes(result))


def convolve_padded(
    b: RuleBuilder, x: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int], groups: int
) -> Tensor:
    """Convolve an input that is padded already; the result is in the accumulator's dtype."""
    n = len(stride)
    kernel = b.sizes(weight)[2:]
    out: list[Size] = []
    for size, k, s, d in zip(b.sizes(x)[2:], kernel, stride, dilation, strict=True):
        b.guard(b.compare("sgt", k, 0), "the kernel has no elements")
        room = b.sub(b.sub(size, b.mul(d, b.sub(k, 1))), 1)
        b.guard(b.compare("sge", room, 0), "the kernel is larger than the padded input")
        out.append(b.add(b.floordiv(room, s), 1))
    if all(isinstance(k, int) and k == 1 for k in kernel) and any(s > 1 for s in stride):
        # The elements between the steps are never read; a dense 1x1 convolution is a matmul, a strided one is slow.
        x = b.slice(x, [0] * x.rank, [*b.sizes(x)[:2], *out], [1, 1, *stride])
        stride = [1] * n
    x = b.covered(x, Windows(kernel, out, stride, dilation))
    batch, features = b.size(x, 0), b.size(weight, 0)
    if groups == 1:
        b.same_size(b.size(x, 1), b.size(weight, 1), "the input's channels are not those of the weight")
        return b.contract(_NAMED[n], [x, weight], [batch, features, *out], window_properties(stride, dilation))
    return _grouped(b, x, weight, [batch, features, *out], stride, dilation, groups)


_MOST_TAPS = 64
_MOST_GROUPS = 32


def _grouped(
    b: RuleBuilder,
    x: Tensor,
    weight: Tensor,
    sizes: Sequence[Size],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Convolve channels and features in independent groups; linalg's own grouped op is slow on CPUs."""
    n = len(stride)
    channels, features = b.size(weight, 1), b.floordiv(sizes[1], groups)
    b.same_size(b.size(x, 1), b.mul(groups, channels), "the input's channels are not those of the weight")
    window = [channels, *b.sizes(weight)[2:]]
    if all(isinstance(k, int) for k in window) and 0 < math.prod(window) <= _MOST_TAPS:  # type: ignore[arg-type]
        convolve = _sum_of_taps
    elif groups <= _MOST_GROUPS:
        return _each_group(b, x, weight, sizes, stride, dilation, groups)
    else:
        convolve = _grouped_loops
    split = b.expand(x, [[0], [1, 2], *([i + 3] for i in range(n))], [sizes[0], groups, channels, *b.sizes(x)[2:]])
    split_weight = b.expand(weight, [[0, 1], *([i + 2] for i in range(n + 1))], [groups, features, *window])
    result = convolve(b, split, split_weight, [sizes[0], groups, features, *sizes[2:]], stride, dilation)
    return b.collapse(result, [[0], [1, 2], *([i + 3] for i in range(n))])


def _sum_of_taps(
    b: RuleBuilder, x: Tensor, weight: Tensor, sizes: Sequence[Size], stride: Sequence[int], dilation: Sequence[int]
) -> Tensor:
    """Convolve with a small window by one loop without a reduction: a sum of shifted inputs, each times its weight."""
    n, dtype = len(stride), x.dtype.compute
    groups, features, *window = b.sizes(weight)
    out = list(sizes[3:])
    phases = _phases(b, x, stride[-1])
    inputs, weights = [], []
    for channel, *place in itertools.product(*(range(k) for k in window if isinstance(k, int))):
        offset = [k * d for k, d in zip(place, dilation, strict=True)]
        shift, phase = divmod(offset[-1], stride[-1])
        tap = b.slice(
            phases[phase], [0, 0, channel, *offset[:-1], shift], [*sizes[:2], 1, *out], [1, 1, 1, *stride[:-1], 1]
        )
        inputs.append(b.squeeze(tap, [2]))
        tap_weight = b.slice(weight, [0, 0, channel, *place], [groups, features, *[1] * (n + 1)], [1] * weight.rank)
        weights.append(b.reshape(tap_weight, [groups, features]))

    def total(*elements: Element) -> Element:
        taps = [e.to(dtype) for e in elements[:-1]]
        products = [e * w for e, w in zip(taps[: len(inputs)], taps[len(inputs) :], strict=True)]
        return sum(products[1:], products[0])

    # Loops: batch, group, feature, places.
    places = tuple(range(3, 3 + n))
    maps: list[Any] = [(0, 1, *places)] * len(inputs) + [(1, 2)] * len(weights)
    return b.generic([*inputs, *weights], maps, [b.empty(sizes, dtype)], [(0, 1, 2, *places)], 3 + n, total)[0]


def _phases(b: RuleBuilder, x: Tensor, stride: int) -> list[Tensor]:
    """Split the last dim into every stride-th element from each start, so that steps are dense in memory."""
    if stride == 1:
        return [x]
    *sizes, last = b.sizes(x)
    count = b.ceildiv(last, stride)
    rest: list[Size] = [0] * len(sizes)
    padded = b.pad(x, [0] * x.rank, [*rest, b.sub(b.mul(count, stride), last)], 0)
    split = b.expand(padded, [*([i] for i in range(len(sizes))), [len(sizes), len(sizes) + 1]], [*sizes, count, stride])
    first = b.transpose(split, [x.rank, *range(x.rank)])
    return [
        b.reshape(b.slice(first, [p, *rest, 0], [1, *sizes, count], [1] * first.rank), [*sizes, count])
        for p in range(stride)
    ]


def _each_group(
    b: RuleBuilder,
    x: Tensor,
    weight: Tensor,
    sizes: Sequence[Size],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Convolve each group by one ordinary convolution."""
    n = len(stride)
    features, (_, channels, *kernel) = b.floordiv(sizes[1], groups), b.sizes(weight)
    batch, _, *places = b.sizes(x)
    rest: list[Size] = [0] * n
    result = b.empty(sizes, x.dtype.compute)
    for group in range(groups):
        first = b.mul(group, features)
        inputs = b.slice(x, [0, b.mul(group, channels), *rest], [batch, channels, *places], [1] * x.rank)
        weights = b.slice(weight, [first, 0, *rest], [features, channels, *kernel], [1] * x.rank)
        one = b.contract(
            _NAMED[n], [inputs, weights], [batch, features, *sizes[2:]], window_properties(stride, dilation)
        )
        result = b.insert_slice(one, result, [0, first, *rest], [1] * x.rank)
    return result


def _grouped_loops(
    b: RuleBuilder, x: Tensor, weight: Tensor, sizes: Sequence[Size], stride: Sequence[int], dilation: Sequence[int]
) -> Tensor:
    """Convolve by the definition as a loop nest: batch, group, feature, places; channel, window."""
    n, dtype = len(stride), x.dtype.compute
    batch, group, feature, channel = 0, 1, 2, n + 3
    window = range(n + 4, 2 * n + 4)
    places = tuple(((3 + i, stride[i]), (w, dilation[i])) for i, w in enumerate(window))
    return b.generic(
        [x, weight],
        [(batch, group, channel, *places), (group, feature, channel, *window)],
        [b.initial(sizes, 0, dtype)],
        [tuple(range(n + 3))],
        2 * n + 4,
        lambda e, w, acc: acc + e.to(dtype) * w.to(dtype),
        reduced=range(n + 3, 2 * n + 4),
    )[0]


def _spread(
    b: RuleBuilder,
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[Size],
    dilation: Sequence[int],
    output_padding: Sequence[Size],
) -> Tensor:
    """Spread the input for a transposed convolution by an ordinary one: put stride - 1 zeros between elements."""
    low: list[Size] = [0, 0]
    high: list[Size] = [0, 0]
    for k, d, p, extra in zip(b.sizes(weight)[2:], dilation, padding, output_padding, strict=True):
        reach = b.sub(b.mul(d, b.sub(k, 1)), p)
        low.append(reach)
        high.append(b.add(reach, extra))
    if any(s > 1 for s in stride):
        x = _zeros_after_each(b, x, stride)
        high = [*high[:2], *(b.sub(h, s - 1) for h, s in zip(high[2:], stride, strict=True))]
    return resize_border(b, x, low, high, 0)


def _in_phases(
    b: RuleBuilder,
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[Size],
    output_padding: Sequence[Size],
    groups: int,
) -> Tensor:
    """Compute a transposed convolution by an ordinary one that multiplies no zeros.

    Every stride-th element of the result sees the same part of the kernel: for result t = q * stride + r, these are the
    kernel's elements r, r + stride, r + 2 * stride ... So there is a feature for each r, and the results of these are
    interleaved.
    """
    n, (total, features, *kernel) = len(stride), b.sizes(weight)
    channels = b.floordiv(total, groups)
    lengths = [b.floordiv(b.add(k, s - 1), s) for k, s in zip(kernel, stride, strict=True)]

    def part(group: Size, feature: Size, *rest: Size) -> Element:
        """Load an element of the kernel's part for a phase, in reverse order; zero behind the kernel's end."""
        phase, channel, place = rest[:n], rest[n], rest[n + 1 :]
        steps = [b.sub(b.sub(m, 1), i) for m, i in zip(lengths, place, strict=True)]
        at = [b.add(b.mul(i, s), r) for i, s, r in zip(steps, stride, phase, strict=True)]
        inside = [b.scalar_bool(b.compare("slt", i, k)) for i, k in zip(at, kernel, strict=True)]
        clamped = [b.minimum(i, b.sub(k, 1)) for i, k in zip(at, kernel, strict=True)]
        value = b.load(weight, [b.add(b.mul(group, channels), channel), feature, *clamped])
        return functools.reduce(operator.and_, inside).select(value, 0)

    parts = b.generate([groups, features, *stride, channels, *lengths], weight.dtype, part)
    parts = b.collapse(parts, [list(range(n + 2)), *([i] for i in range(n + 2, 2 * n + 3))])
    border: list[Size] = [0, 0, *(b.sub(m, 1) for m in lengths)]
    result = convolve_padded(b, b.pad(x, border, border, 0), parts, [1] * n, [1] * n, groups)
    batch, _, *out = b.sizes(result)
    split = [batch, b.mul(features, groups), *stride, *out]
    spread = b.expand(result, [[0], list(range(1, n + 2)), *([i] for i in range(n + 2, 2 * n + 2))], split)
    order = [0, 1, *(d for i in range(n) for d in (n + 2 + i, 2 + i))]
    joined = b.collapse(b.transpose(spread, order), [[0], [1], *([2 * i + 2, 2 * i + 3] for i in range(n))])
    high: list[Size] = [0, 0]
    for size, k, s, q, p, extra in zip(b.sizes(x)[2:], kernel, stride, out, padding, output_padding, strict=True):
        full = b.add(b.add(b.mul(b.sub(size, 1), s), k), extra)  # of the result, with the padding on both sides
        high.append(b.sub(b.sub(full, p), b.mul(q, s)))
    return resize_border(b, joined, [0, 0, *(b.sub(0, p) for p in padding)], high, 0)


def _zeros_after_each(b: RuleBuilder, x: Tensor, stride: Sequence[int]) -> Tensor:
    """Insert `stride - 1` zeros after each element of the last dims, as padding of a dim of its own."""
    sizes, n = b.sizes(x), len(stride)
    groups = [[0], [1], *([2 * i + 2, 2 * i + 3] for i in range(n))]
    split: list[Size] = sizes[:2] + [s for size in sizes[2:] for s in (size, 1)]
    high = [0, 0] + [h for s in stride for h in (0, s - 1)]
    return b.collapse(b.pad(b.expand(x, groups, split), [0] * len(high), high, 0), groups)


def _flipped(b: RuleBuilder, weight: Tensor, groups: int) -> Tensor:
    """Turn a transposed convolution's weight (in, out/groups, ...) into an ordinary one's (out, in/groups, ...)."""
    total, features, *kernel = b.sizes(weight)
    channels = b.floordiv(total, groups)

    def at(o: Size, c: Size, *window: Size) -> Element:
        group, feature = (b.floordiv(o, features), b.mod(o, features)) if groups > 1 else (0, o)
        places = [b.sub(b.sub(k, 1), w) for k, w in zip(kernel, window, strict=True)]
        return b.load(weight, [b.add(b.mul(group, channels), c), feature, *places])

    return b.generate([b.mul(features, groups), channels, *kernel], weight.dtype, at)


# --- Its names ---

linalg_rule("aten.convolution", "aten.convolution_overrideable")(convolution)


@linalg_rule("aten._convolution", "aten._convolution.deprecated")
def _convolution(b: RuleBuilder, *args: Any) -> Tensor:
    return b.call("aten.convolution", *args[:9])


@linalg_rule("aten.conv1d", "aten.conv2d", "aten.conv3d")
def conv(
    b: RuleBuilder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    return b.call("aten.convolution", x, weight, bias, stride, padding, dilation, False, [0], groups)


@linalg_rule("aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding")
def conv_padding(
    b: RuleBuilder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: str,
    dilation: Any,
    groups: int,
) -> Tensor:
    if padding == "same":
        n = weight.rank - 2
        totals = [b.mul(d, b.sub(k, 1)) for k, d in zip(b.sizes(weight)[2:], per_dim(dilation, n), strict=True)]
        low = [b.floordiv(t, 2) for t in totals]
        high = [b.sub(t, lo) for t, lo in zip(totals, low, strict=True)]
        rest: list[Size] = [0] * (x.rank - n)
        x = b.pad(x, rest + low, rest + high, 0)
    return b.call("aten.convolution", x, weight, bias, stride, [0], dilation, False, [0], groups)


@linalg_rule("aten.conv_transpose1d", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def conv_transpose(
    b: RuleBuilder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    return b.call("aten.convolution", x, weight, bias, stride, padding, dilation, True, output_padding, groups)


@loop_rule("aten.col2im")
def col2im(
    b: RuleBuilder,
    x: Tensor,
    size: Sequence[Size],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    """Add the rows of each window up at their place in the image, one element of the kernel after the other."""
    if x.rank == 2:
        return b.squeeze(col2im(b, b.unsqueeze(x, 0), size, kernel, dilation, padding, stride), [0])
    batch, all_rows, columns = b.sizes(x)
    area = kernel[0] * kernel[1]
    channels = b.floordiv(all_rows, area)
    counts = [
        b.add(b.floordiv(b.add(n, 2 * p - d * (k - 1) - 1), s), 1)
        for n, k, d, p, s in zip(size, kernel, dilation, padding, stride, strict=True)
    ]
    b.same_size(b.mul(channels, area), all_rows, "each channel must have an element of each window")
    b.same_size(b.product(counts), columns, "there must be a column for each window")
    images = b.mul(batch, channels)
    windows = b.reshape(x, [images, *kernel, *counts])
    zero = b.element(0, x.dtype)

    def place(dim: int, tap: Size, window: Size) -> Size:
        """Compute where an element of a window is in the image."""
        return b.add(b.mul(window, stride[dim]), b.sub(b.mul(tap, dilation[dim]), padding[dim]))

    def inside(dim: int, tap: Size) -> tuple[Size, Size]:
        """Compute the first window that has an element of the kernel in the image, and the last one plus 1."""
        lower = b.ceildiv(b.sub(0, place(dim, tap, 0)), stride[dim])
        upper = b.ceildiv(b.sub(size[dim], place(dim, tap, 0)), stride[dim])
        return b.maximum(lower, 0), b.minimum(upper, counts[dim])

    def image(i: SSAValue, out: Tensor) -> list[Tensor]:
        out = b.nest(size, [out], lambda at, out: [b.store(out, [i, *at], zero)])[0]

        def add(tap: list[Size], out: Tensor) -> list[Tensor]:
            def row(h: SSAValue, out: Tensor) -> list[Tensor]:
                y = place(0, tap[0], h)

                def element(w: SSAValue, out: Tensor) -> list[Tensor]:
                    at: list[Size] = [i, y, place(1, tap[1], w)]
                    return [b.store(out, at, b.load(out, at) + b.load(windows, [i, *tap, h, w]))]

                return b.loop(*inside(1, tap[1]), [out], element)

            return b.loop(*inside(0, tap[0]), [out], row)

        return b.nest(kernel, [out], add)

    result = b.loop(0, images, [b.empty([images, *size], x.dtype)], image)[0]
    return b.reshape(result, [batch, channels, *size])
