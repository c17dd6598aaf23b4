"""Convolutions as TOSA has them: channels last, windows that end with the input, groups one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Attribute

from flambeau.diagnostics import Unsupported
from flambeau.dialects import tosa
from flambeau.ir import dtypes
from flambeau.lowering.builder import Size, Tensor, static, tensor_type
from flambeau.lowering.linalg.conv import _flipped, _spread, per_dim
from flambeau.lowering.tosa.ops import TosaBuilder
from flambeau.lowering.tosa.rules import tosa_rule
from flambeau.lowering.whole.values import element_of


@tosa_rule("aten.convolution", "aten.convolution_overrideable")
def convolution(
    b: TosaBuilder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    n = weight.rank - 2
    stride, padding, dilation, extra = (per_dim(v, n) for v in (stride, padding, dilation, output_padding))
    if not all(isinstance(v, int) for v in (*stride, *padding, *dilation, *extra, groups)):
        raise Unsupported("a convolution whose parameters are not constants")
    if None in weight.shape:
        raise Unsupported("a convolution whose kernel size is not a constant")
    batched = x if x.rank == n + 2 else b.unsqueeze(x, 0)
    own = batched.dtype
    if own.is_integral and b.context.zero_points is None:
        batched, weight = b.to(batched, dtypes.int32), b.to(weight, dtypes.int32)
        bias = None if bias is None else b.to(bias, dtypes.int32)
    if transposed and n <= 2 and groups == 1 and all(d == 1 for d in dilation) and 0 not in batched.shape:
        result = _transposed(b, batched, weight, bias, stride, padding, extra)
    else:
        if transposed:
            batched = _spread(b, batched, weight, stride, padding, dilation, extra)
            weight, stride, padding = _flipped(b, weight, groups), [1] * n, [0] * n
        result = _plain(b, batched, weight, bias, stride, padding, dilation, groups)
    if b.context.zero_points is None:
        result = b.to(result, own)
    return result if x.rank == n + 2 else b.squeeze(result, [0])


def _plain(
    b: TosaBuilder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Convolve NCHW to NCHW by TOSA's op, which takes channels last."""
    n = weight.rank - 2
    features, channels, *kernel = [k for k in weight.shape if k is not None]
    b.same_size(b.size(x, 1), channels * groups, "the input's channels are not those of the weight")
    sizes, pads, out = b.sizes(x), [], []
    for i, (k, s, p, d) in enumerate(zip(kernel, stride, padding, dilation, strict=True), 2):
        size = sizes[i]
        room = b.sub(b.add(size, 2 * p), d * (k - 1) + 1)
        b.guard(b.compare("sge", room, 0), "the kernel is larger than the padded input")
        out.append(b.add(b.floordiv(room, s), 1))
        if s > 1 and not isinstance(room, int):
            raise Unsupported("TOSA wants windows to end with the input: a stride over a size that is not known")
        over = room % s if isinstance(room, int) else 0
        pads += [p, max(p - over, 0)]
        if over > p:
            assert isinstance(size, int)
            sizes[i] = size - (over - p)
    batch = sizes[0]
    if 0 in x.shape or 0 in weight.shape:
        dtype = x.dtype if b.context.zero_points is None else dtypes.int32
        empty = b.full([batch, features, *out], 0, dtype)
        return empty if bias is None else b.elementwise([empty, b.reshape(bias, [features, *[1] * n])], _add, dtype)
    x = b.slice(x, [0] * x.rank, sizes, [1] * x.rank)
    properties = {"pad": pads, "stride": list(stride), "dilation": list(dilation)}
    if n == 1:
        x, weight = b.unsqueeze(x, 2), b.unsqueeze(weight, 2)
        properties = {"pad": [0, 0, *pads], "stride": [1, *stride], "dilation": [1, *dilation]}
    last = _channels_last(b, x)
    places: list[Size] = [1, *out] if n == 1 else out
    if groups == channels * groups and features % groups == 0 and n < 3 and groups > 1:
        split = b.reshape(weight, [groups, features // groups, *weight.shape[2:]])  # type: ignore[list-item]
        turned = b.transpose(split, [2, 3, 0, 1])
        result = _emit(b, "depthwise_conv2d", last, turned, bias, [batch, *places, features], properties)
    else:
        name = "conv3d" if n == 3 else "conv2d"
        parts = [
            _group(b, name, last, weight, bias, g, groups, [batch, *places, features // groups], properties)
            for g in range(groups)
        ]
        result = parts[0]
        if groups > 1:
            shape = tuple(map(static, [batch, *places, features]))
            type_ = tensor_type(shape, element_of(result.value))
            joined = b.target.concatenate([p.value for p in parts], last.rank - 1, type_)
            result = Tensor(joined, result.dtype, [batch, *places, features])
    return _channels_second(b, result, n)


def _group(
    b: TosaBuilder,
    name: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    group: int,
    groups: int,
    sizes: Sequence[Size],
    properties: dict[str, list[int]],
) -> Tensor:
    """Convolve one group of channels with its features."""
    if groups > 1:
        features, channels = b.sizes(weight)[:2]
        count = b.floordiv(features, groups)
        first = b.mul(group, count)
        weight = b.slice(weight, [first, *[0] * (weight.rank - 1)], [count, *b.sizes(weight)[1:]], [1] * weight.rank)
        x = b.slice(x, [*[0] * (x.rank - 1), b.mul(group, channels)], [*b.sizes(x)[:-1], channels], [1] * x.rank)
        bias = None if bias is None else b.slice(bias, [first], [count], [1])
    return _emit(b, name, x, _channels_last(b, weight), bias, sizes, properties)


def _transposed(
    b: TosaBuilder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    extra: Sequence[int],
) -> Tensor:
    """Emit `tosa.transpose_conv2d` of a weight (in, out, ...); negative padding crops the end."""
    n = weight.rank - 2
    kernel = [k for k in weight.shape[2:] if k is not None]
    batch, _, *places = b.sizes(x)
    features = b.size(weight, 1)
    pads = [v for p, e in zip(padding, extra, strict=True) for v in (-p, e - p)]
    out = [
        b.add(b.mul(b.sub(size, 1), s), k + e - 2 * p)
        for size, s, k, p, e in zip(places, stride, kernel, padding, extra, strict=True)
    ]
    b.same_size(b.size(x, 1), b.size(weight, 0), "the input's channels are not those of the weight")
    if any(p <= -k for p, k in zip(pads, [k for k in kernel for _ in "ab"], strict=True)):
        spread = _spread(b, x, weight, stride, padding, [1] * n, extra)
        return _plain(b, spread, _flipped(b, weight, 1), bias, [1] * n, [0] * n, [1] * n, 1)
    stride = list(stride)
    if n == 1:
        x, weight = b.unsqueeze(x, 2), b.unsqueeze(weight, 2)
        pads, stride, out = [0, 0, *pads], [1, *stride], [1, *out]
    turned = b.transpose(weight, [1, 2, 3, 0])
    properties = {"out_pad": pads, "stride": stride}
    result = _emit(b, "transpose_conv2d", _channels_last(b, x), turned, bias, [batch, *out, features], properties)
    return _channels_second(b, result, n)


def _emit(
    b: TosaBuilder,
    name: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    sizes: Sequence[Size],
    properties: dict[str, list[int]],
) -> Tensor:
    """Emit a convolution; 16-bit floats accumulate in f32, integers with zero points in i32."""
    dtype = x.dtype if b.context.zero_points is None else dtypes.int32
    element = element_of(x.value) if b.context.zero_points is None else dtype.builtin
    zeros = b.target.zero_points(element_of(x.value))
    start = b.target.zero_point(element) if bias is None else bias.value
    given: dict[str, Attribute] = {k: tosa.ints(v) for k, v in properties.items()}
    given["acc_type"] = dtype.compute.builtin if dtype.is_float else element
    type_ = tensor_type(tuple(map(static, sizes)), element)
    value = b.target.make(name, (x.value, weight.value, start, *zeros), type_, given)
    return Tensor(value, dtype, sizes)


def _channels_last(b: TosaBuilder, x: Tensor) -> Tensor:
    return b.transpose(x, [0, *range(2, x.rank), 1])


def _channels_second(b: TosaBuilder, x: Tensor, n: int) -> Tensor:
    back = b.transpose(x, [0, x.rank - 1, *range(1, x.rank - 1)])
    return b.squeeze(back, [2]) if n == 1 else back


def _add(x: Any, y: Any) -> Any:
    return x + y
