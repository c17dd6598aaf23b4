"""Convolutions, also transposed, grouped and strided, in one to three dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from flambeau.diagnostics import Unsupported
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.pad import resize_border
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.verbs import RuleBuilder, Windows, window_properties

_NAMED = {1: "conv_1d_ncw_fcw", 2: "conv_2d_nchw_fchw", 3: "conv_3d_ncdhw_fcdhw"}


def per_dim(values: Any, n: int) -> list[Any]:
    """A parameter of a window op for each of n dims; one value counts for all."""
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
    """The convolution of an input that is padded already, in the accumulator's dtype."""
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
    """Channels and features in groups that do not see each other; linalg's own grouped op is slow on CPUs."""
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
    """Small windows as one loop without a reduction: a sum of shifted inputs, each times its weight."""
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
    """Every stride-th element of the last dim from each start, so that steps are dense in memory."""
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
    """One ordinary convolution for each group."""
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
    """The definition as a loop nest: batch, group, feature, places; channel, window."""
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
    """The input of the ordinary convolution that a transposed one is: stride - 1 zeros between elements."""
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


def _zeros_after_each(b: RuleBuilder, x: Tensor, stride: Sequence[int]) -> Tensor:
    """`stride - 1` zeros after each element of the last dims: a border in a dim of its own."""
    sizes, n = b.sizes(x), len(stride)
    groups = [[0], [1], *([2 * i + 2, 2 * i + 3] for i in range(n))]
    split: list[Size] = sizes[:2] + [s for size in sizes[2:] for s in (size, 1)]
    high = [0, 0] + [h for s in stride for h in (0, s - 1)]
    return b.collapse(b.pad(b.expand(x, groups, split), [0] * len(high), high, 0), groups)


def _flipped(b: RuleBuilder, weight: Tensor, groups: int) -> Tensor:
    """The weight of a transposed convolution (in, out/groups, ...) as that of an ordinary one (out, in/groups, ...)."""
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
