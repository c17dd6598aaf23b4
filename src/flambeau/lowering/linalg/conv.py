"""Convolutions, also transposed, grouped and strided, in one to three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.diagnostics import Unsupported
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.builder import LinalgBuilder, window_properties
from flambeau.lowering.linalg.pad import resize_border
from flambeau.lowering.linalg.rules import linalg_rule

_NAMED = {1: "conv_1d_ncw_fcw", 2: "conv_2d_nchw_fchw", 3: "conv_3d_ncdhw_fcdhw"}


def per_dim(values: Any, n: int) -> list[Any]:
    """A parameter of a window op for each of n dims; one value counts for all."""
    listed = list(values) if isinstance(values, (list, tuple)) else [values]
    return listed * n if len(listed) == 1 else listed


@linalg_rule("aten.convolution", "aten.convolution_overrideable")
def convolution(
    b: LinalgBuilder,
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
    result = _convolve(b, batched, weight, stride, dilation, groups)
    result = _finish(b, result, bias, x)
    return result if x.rank == n + 2 else b.squeeze(result, [0])


def _finish(b: LinalgBuilder, result: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    """Add the bias of each channel and leave the accumulator's dtype."""
    if bias is None:
        return b.to(result, x.dtype)
    column = b.reshape(bias, [b.size(bias, 0), *[1] * (result.rank - 2)])

    def add(e: Element, c: Element) -> Element:
        return e + c

    return b.elementwise([result, column], add, x.dtype, b.sizes(result))  # type: ignore[no-any-return]


def _convolve(
    b: LinalgBuilder, x: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int], groups: int
) -> Tensor:
    """The convolution of an input that is padded already, in the accumulator's dtype."""
    n = len(stride)
    kernel = b.sizes(weight)[2:]
    out = [
        b.add(b.floordiv(b.sub(b.sub(size, b.mul(d, b.sub(k, 1))), 1), s), 1)
        for size, k, s, d in zip(b.sizes(x)[2:], kernel, stride, dilation, strict=True)
    ]
    if all(isinstance(k, int) and k == 1 for k in kernel) and any(s > 1 for s in stride):
        # The elements between the steps are never read; a dense 1x1 convolution is a matmul, a strided one is slow.
        x = b.slice(x, [0] * x.rank, [*b.sizes(x)[:2], *out], [1, 1, *stride])
        stride = [1] * n
    batch, features = b.size(x, 0), b.size(weight, 0)
    if groups == 1:
        b.same_size(b.size(x, 1), b.size(weight, 1), "the input's channels are not those of the weight")
        return b.contract(_NAMED[n], [x, weight], [batch, features, *out], window_properties(stride, dilation))
    return _grouped(b, x, weight, [batch, features, *out], stride, dilation, groups)


def _grouped(
    b: LinalgBuilder,
    x: Tensor,
    weight: Tensor,
    sizes: Sequence[Size],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Channels and features in groups that do not see each other."""
    n = len(stride)
    channels, features = b.size(weight, 1), b.floordiv(sizes[1], groups)
    split = b.expand(x, [[0], [1, 2], *([i + 3] for i in range(n))], [sizes[0], groups, channels, *b.sizes(x)[2:]])
    split_weight = b.expand(
        weight, [[0, 1], *([i + 2] for i in range(n + 1))], [groups, features, *b.sizes(weight)[1:]]
    )
    # Loops: batch, group, feature, places; channel, window.
    batch, group, feature, channel = 0, 1, 2, n + 3
    window = range(n + 4, 2 * n + 4)
    places = tuple(((3 + i, stride[i]), (w, dilation[i])) for i, w in enumerate(window))
    dtype = x.dtype.compute
    out = b.full([sizes[0], groups, features, *sizes[2:]], 0, dtype)
    result = b.generic(
        [split, split_weight],
        [(batch, group, channel, *places), (group, feature, channel, *window)],
        [out],
        [tuple(range(n + 3))],
        2 * n + 4,
        lambda a, w, c: c + a.to(dtype) * w.to(dtype),
        reduced=range(n + 3, 2 * n + 4),
    )[0]
    return b.collapse(result, [[0], [1, 2], *([i + 3] for i in range(n))])


def _spread(
    b: LinalgBuilder,
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


def _zeros_after_each(b: LinalgBuilder, x: Tensor, stride: Sequence[int]) -> Tensor:
    """`stride - 1` zeros after each element of the last dims: a border in a dim of its own."""
    sizes, n = b.sizes(x), len(stride)
    groups = [[0], [1], *([2 * i + 2, 2 * i + 3] for i in range(n))]
    split: list[Size] = sizes[:2] + [s for size in sizes[2:] for s in (size, 1)]
    high: list[Size] = [0, 0] + [h for s in stride for h in (0, s - 1)]
    return b.collapse(b.pad(b.expand(x, groups, split), [0] * len(high), high, 0), groups)


def _flipped(b: LinalgBuilder, weight: Tensor, groups: int) -> Tensor:
    """The weight of a transposed convolution (in, out/groups, ...) as that of an ordinary one (out, in/groups, ...)."""
    total, features, *kernel = b.sizes(weight)
    channels = b.floordiv(total, groups)

    def at(o: Size, c: Size, *window: Size) -> Element:
        group, feature = (b.floordiv(o, features), b.mod(o, features)) if groups > 1 else (0, o)
        places = [b.sub(b.sub(k, 1), w) for k, w in zip(kernel, window, strict=True)]
        return b.load(weight, [b.add(b.mul(group, channels), c), feature, *places])

    return b.generate([b.mul(features, groups), channels, *kernel], weight.dtype, at)


# --- The other names of it ---


@linalg_rule("aten._convolution", "aten._convolution.deprecated")
def _convolution(b: LinalgBuilder, *args: Any) -> Tensor:
    return convolution(b, *args[:9])


@linalg_rule("aten.conv1d", "aten.conv2d", "aten.conv3d")
def conv(
    b: LinalgBuilder, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    return convolution(b, x, weight, bias, stride, padding, dilation, False, [0], groups)


@linalg_rule("aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding")
def conv_padding(
    b: LinalgBuilder, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: str, dilation: Any, groups: int
) -> Tensor:
    if padding == "same":
        n = weight.rank - 2
        totals = [b.mul(d, b.sub(k, 1)) for k, d in zip(b.sizes(weight)[2:], per_dim(dilation, n), strict=True)]
        low = [b.floordiv(t, 2) for t in totals]
        high = [b.sub(t, lo) for t, lo in zip(totals, low, strict=True)]
        rest: list[Size] = [0] * (x.rank - n)
        x = b.pad(x, rest + low, rest + high, 0)
    return convolution(b, x, weight, bias, stride, [0], dilation, False, [0], groups)


@linalg_rule("aten.conv_transpose1d", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def conv_transpose(
    b: LinalgBuilder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    return convolution(b, x, weight, bias, stride, padding, dilation, True, output_padding, groups)
