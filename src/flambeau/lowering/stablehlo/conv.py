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
    # IREE 3.13 dies of complex numbers that are padded inside of a convolution (a transposed one spreads them first),
    # and takes no depthwise convolution with a result that is wider than its operands.
    is_complex = transposed and x.dtype.is_complex
    is_narrow = groups != 1 and x.dtype.size < x.dtype.compute.size
    if (groups != 1 and None in x.shape) or None in weight.shape or is_complex or is_narrow:
        return by_linalg(b, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    n = weight.rank - 2
    stride, padding, dilation = per_dim(stride, n), per_dim(padding, n), per_dim(dilation, n)
    extra = per_dim(output_padding, n)
    if not all(isinstance(v, int) for v in (*stride, *padding, *dilation, *extra, groups)):
        raise Unsupported("a convolution whose parameters are not constants")
    batched = x if x.rank == n + 2 else b.unsqueeze(x, 0)
    kernel = b.sizes(weight)[2:]
    if not all(isinstance(k, int) for k in kernel):
        raise Unsupported("a convolution whose kernel size is not a constant")
    windows = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]  # type: ignore[operator]
    places = b.sizes(batched)[2:]
    if transposed:
        spread, step = stride, [1] * n
        edges = [(w - p, w - p + e) for w, p, e in zip(windows, padding, extra, strict=True)]
        weight = _turned(b, weight, groups)
        long = [b.add(b.mul(b.sub(size, 1), s), 1) for size, s in zip(places, spread, strict=True)]
    else:
        spread, step = [1] * n, list(stride)
        edges = [(p, p) for p in padding]
        long = list(places)
    out: list[Size] = []
    for size, (low, high), w, s in zip(long, edges, windows, step, strict=True):
        room = b.sub(b.add(size, low + high), w + 1)
        b.guard(b.compare("sge", room, 0), "the kernel is larger than the padded input")
        out.append(b.add(b.floordiv(room, s), 1))
    if not transposed:
        batched, edges = _cut(b, batched, edges, windows, out)
    sizes = [b.size(batched, 0), b.size(weight, 0), *out]
    b.same_size(
        b.size(batched, 1), b.mul(b.size(weight, 1), groups), "the input's channels are not those of the weight"
    )
    dtype = x.dtype.compute
    if dtype.is_complex and any(low > 0 or high > 0 for low, high in edges):
        sides = [[0, 0, *(max(e[i], 0) for e in edges)] for i in (0, 1)]
        batched = b.pad(batched, sides[0], sides[1], 0)
        edges = [(min(low, 0), min(high, 0)) for low, high in edges]
    if 0 in batched.shape or 0 in weight.shape:
        result = b.full(sizes, 0, dtype)
    else:
        result = b.target.convolve(batched, weight, step, edges, spread, dilation, groups, sizes, dtype)
    if bias is not None:
        column = b.reshape(bias, [b.size(bias, 0), *[1] * n])
        result = b.elementwise([result, column], lambda e, c: e + c, x.dtype, sizes)
    result = b.to(result, x.dtype)
    return result if x.rank == n + 2 else b.squeeze(result, [0])


def _cut(
    b: StablehloBuilder, x: Tensor, edges: list[tuple[int, int]], windows: Sequence[int], out: Sequence[Size]
) -> tuple[Tensor, list[tuple[int, int]]]:
    """The input and its padding, without what is behind a single window: IREE 3.13 trips over that."""
    kept, trimmed = list(b.sizes(x)), list(edges)
    for i, ((low, high), window) in enumerate(zip(edges, windows, strict=True)):
        size = kept[2 + i]
        if out[i] == 1 and isinstance(size, int):
            rest = size + low + high - (window + 1)
            kept[2 + i], trimmed[i] = size - max(rest - high, 0), (low, max(high - rest, 0))
    return b.slice(x, [0] * x.rank, kept, [1] * x.rank), trimmed


def _turned(b: StablehloBuilder, weight: Tensor, groups: int) -> Tensor:
    """The weight of a transposed convolution as a plain one has it: reversed, channels and features swapped."""
    n = weight.rank - 2
    flipped = b.reverse(weight, range(2, 2 + n))
    channels, features, *window = b.sizes(weight)
    split = b.reshape(flipped, [groups, b.floordiv(channels, groups), features, *window])
    swapped = b.transpose(split, [0, 2, 1, *range(3, 3 + n)])
    return b.reshape(swapped, [b.mul(groups, features), b.floordiv(channels, groups), *window])
