"""Convolutions as `stablehlo.convolution`: strides, groups and transposition are its attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.diagnostics import Unsupported
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.linalg.conv import convolution as by_linalg
from flambeau.lowering.linalg.conv import per_dim
from flambeau.lowering.stablehlo.ops import StablehloBuilder
from flambeau.lowering.stablehlo.rules import stablehlo_rule


@stablehlo_rule("aten.convolution", "aten.convolution_overrideable")
def convolution(
    b: StablehloBuilder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[Any],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[Any],
    groups: int,
) -> Tensor:
    if transposed and None in weight.shape:
        # Its padding, an attribute, depends on the kernel.
        return by_linalg(b, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    n = weight.rank - 2
    stride, padding, dilation = per_dim(stride, n), per_dim(padding, n), per_dim(dilation, n)
    extra = per_dim(output_padding, n)
    if not all(isinstance(v, int) for v in (*stride, *padding, *dilation, *extra, groups)):
        raise Unsupported("a convolution whose parameters are not constants")
    batched = x if x.rank == n + 2 else b.unsqueeze(x, 0)
    windows = [b.mul(d, b.sub(k, 1)) for k, d in zip(b.sizes(weight)[2:], dilation, strict=True)]
    places = b.sizes(batched)[2:]
    if transposed:
        spread, step = stride, [1] * n
        edges = [(w - p, w - p + e) for w, p, e in zip(windows, padding, extra, strict=True)]
        weight = _turned(b, weight, groups)
        places = [b.add(b.mul(b.sub(size, 1), s), 1) for size, s in zip(places, spread, strict=True)]
    else:
        spread, step = [1] * n, list(stride)
        edges = [(p, p) for p in padding]
    sizes = [b.size(batched, 0), b.size(weight, 0), *_places(b, places, edges, windows, step)]
    channels = b.mul(b.size(weight, 1), groups)
    b.same_size(b.size(batched, 1), channels, "the input's channels are not those of the weight")
    dtype = x.dtype.compute
    if 0 in batched.shape or 0 in weight.shape:
        result = b.full(sizes, 0, dtype)
    else:
        result = b.target.convolve(batched, weight, step, edges, spread, dilation, groups, sizes, dtype)
    if bias is not None:
        column = b.reshape(bias, [b.size(bias, 0), *[1] * n])
        result = b.elementwise([result, column], lambda e, c: e + c, x.dtype, sizes)
    result = b.to(result, x.dtype)
    return result if x.rank == n + 2 else b.squeeze(result, [0])


def _places(
    b: StablehloBuilder,
    sizes: Sequence[Size],
    edges: Sequence[tuple[int, int]],
    windows: Sequence[Size],
    steps: Sequence[int],
) -> list[Size]:
    """Count windows of size `window` + 1 in the padded input: floor((size + low + high - window - 1) / step) + 1."""
    out: list[Size] = []
    for size, (low, high), window, step in zip(sizes, edges, windows, steps, strict=True):
        room = b.sub(b.sub(b.add(size, low + high), window), 1)
        b.guard(b.compare("sge", room, 0), "the kernel is larger than the padded input")
        out.append(b.add(b.floordiv(room, step), 1))
    return out


def _turned(b: StablehloBuilder, weight: Tensor, groups: int) -> Tensor:
    """Turn the weight of a transposed convolution into a plain one's: reversed, channels and features swapped."""
    n = weight.rank - 2
    flipped = b.reverse(weight, range(2, 2 + n))
    channels, features, *window = b.sizes(weight)
    split = b.reshape(flipped, [groups, b.floordiv(channels, groups), features, *window])
    swapped = b.transpose(split, [0, 2, 1, *range(3, 3 + n)])
    return b.reshape(swapped, [b.mul(groups, features), b.floordiv(channels, groups), *window])
