"""Shapes of convolutions."""

from __future__ import annotations

from typing import Any

from flambeau.infer.rules import Dim, InferenceError, Meta, infer_rule, known, product, size, spread


def window_count(length: Dim, kernel: Dim, stride: Any, padding: Any, dilation: Any) -> Dim:
    """Count the positions of a window of `kernel` elements in `length`; `padding` is that of both ends together."""
    if length is None or kernel is None or not known(stride, padding, dilation):
        return None
    room = length + padding - dilation * (kernel - 1) - 1
    if room < 0:
        raise InferenceError(f"a window of {dilation * (kernel - 1) + 1} does not fit into {length + padding}")
    return room // stride + 1


def _transposed(length: Dim, kernel: Dim, stride: Any, padding: Any, dilation: Any, extra: Any) -> Dim:
    if length is None or kernel is None or not known(stride, padding, dilation, extra):
        return None
    return (length - 1) * stride - 2 * padding + dilation * (kernel - 1) + extra + 1


@infer_rule("aten.convolution", "aten.convolution_overrideable", "aten._convolution", "aten._convolution.deprecated")
def convolution(
    x: Meta, w: Meta, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, extra: Any, groups: Any,
    *_: Any,
) -> Meta:  # fmt: skip
    rank = w.rank - 2
    if x.rank not in (rank + 1, rank + 2):
        raise InferenceError(f"a convolution of {rank} dims takes tensors of rank {rank + 1} or {rank + 2}")
    settings = [spread(v, rank) for v in (stride, padding, dilation)]
    windows = zip(x.shape[-rank:], w.shape[-rank:], *settings)
    shape: list[Dim]
    if transposed:
        channels = product([w.shape[1], size(groups)])
        shape = [_transposed(d, k, s, p, dil, e) for (d, k, s, p, dil), e in zip(windows, spread(extra, rank))]
    else:
        channels = w.shape[0]
        shape = [window_count(d, k, s, 2 * p if known(p) else p, dil) for d, k, s, p, dil in windows]
    return Meta((*x.shape[: x.rank - rank - 1], channels, *shape), x.dtype)


@infer_rule("aten.conv1d", "aten.conv2d", "aten.conv3d")
def conv(x: Meta, w: Meta, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> Meta:
    return convolution(x, w, bias, stride, padding, dilation, False, [0], groups)


@infer_rule("aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding")
def conv_padding(x: Meta, w: Meta, bias: Any, stride: Any, padding: str, dilation: Any, groups: Any) -> Meta:
    if padding == "valid":
        return conv(x, w, bias, stride, [0], dilation, groups)
    if padding != "same":
        raise InferenceError(f"padding {padding!r} is neither 'same' nor 'valid'")
    rank = w.rank - 2
    return Meta((*x.shape[: x.rank - rank - 1], w.shape[0], *x.shape[-rank:]), x.dtype)


@infer_rule("aten.conv_transpose1d", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def conv_transpose(
    x: Meta, w: Meta, bias: Any, stride: Any, padding: Any, extra: Any, groups: Any, dilation: Any
) -> Meta:
    return convolution(x, w, bias, stride, padding, dilation, True, extra, groups)


@infer_rule("aten.convolution_backward")
def convolution_backward(gradient: Meta, x: Meta, w: Meta, bias_sizes: Any, *_: Any) -> tuple[Meta, Meta, Meta]:
    return x, w, Meta((gradient.shape[1],), gradient.dtype)


@infer_rule("aten.conv_tbc")
def conv_tbc(x: Meta, w: Meta, bias: Meta, pad: Any) -> Meta:
    return Meta((window_count(x.shape[0], w.shape[0], 1, 2 * pad, 1), x.shape[1], w.shape[2]), x.dtype)


@infer_rule("aten.im2col")
def im2col(x: Meta, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Meta:
    settings = (spread(v, 2) for v in (kernel, stride, padding, dilation))
    counts = [window_count(d, k, s, 2 * p, dil) for d, k, s, p, dil in zip(x.shape[-2:], *settings)]
    return Meta((*x.shape[:-3], product([x.shape[-3], *spread(kernel, 2)]), product(counts)), x.dtype)


@infer_rule("aten.col2im")
def col2im(x: Meta, output: Any, kernel: Any, *_: Any) -> Meta:
    area = product([size(k) for k in spread(kernel, 2)])
    columns = x.shape[-2]
    channels = columns // area if columns is not None and area else None
    return Meta((*x.shape[:-2], channels, *map(size, spread(output, 2))), x.dtype)
