"""Normalisations: softmax, and layer, group, batch, instance and RMS norm.

All are written as plain loops (statistics, then one elementwise pass), which compilers fuse better than named ops.
Statistics of 16-bit floats are in f32, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.reduce import (
    centered_squares,
    count,
    extreme,
    keep,
    mean_over,
    per_element,
    total,
)
from flambeau.lowering.linalg.rules import linalg_rule
from flambeau.lowering.verbs import RuleBuilder

# --- Softmax ---


def _shifted(b: RuleBuilder, x: Tensor, dim: int) -> tuple[Tensor, int, list[int], Tensor]:
    """Return x in the dtype to compute in, the dim, the other dims, and the largest elements along it."""
    x = b.to(x, b.out_dtype.compute)
    if not x.rank:
        x = b.reshape(x, [1])
    dim = b.dim(dim, x.rank)
    return x, dim, [i for i in range(x.rank) if i != dim], extreme(b, x, [dim], True)


def _softmax(b: RuleBuilder, x: Tensor, dim: int, safe: bool = False) -> Tensor:
    sizes = b.sizes(x)
    x, dim, around, largest = _shifted(b, x, dim)
    every = range(x.rank)

    def exp(e: Element, m: Element) -> Element:
        # A row of -inf is NaN (-inf - -inf) but for the safe variant, where it is zero.
        return (m == float("-inf")).select(e.like(0), (e - m).exp()) if safe else (e - m).exp()

    exps = b.elementwise_over([(x, every), (largest, around)], b.sizes(x), exp, x.dtype)
    sums = total(b, exps, [dim])

    def divide(e: Element, s: Element) -> Element:
        return (s == 0).select(s, e / s) if safe else e / s

    result = b.elementwise_over([(exps, every), (sums, around)], b.sizes(x), divide, b.out_dtype)
    return b.reshape(result, sizes)


@linalg_rule("aten.softmax.int", "aten._softmax")
def softmax(b: RuleBuilder, x: Tensor, dim: int, _: Any) -> Tensor:
    return _softmax(b, x, dim)


@linalg_rule("aten._safe_softmax")
def safe_softmax(b: RuleBuilder, x: Tensor, dim: int, dtype: int | None) -> Tensor:
    return _softmax(b, x, dim, safe=True)


@linalg_rule("aten.log_softmax.int", "aten._log_softmax")
def log_softmax(b: RuleBuilder, x: Tensor, dim: int, _: Any) -> Tensor:
    sizes = b.sizes(x)
    x, dim, around, largest = _shifted(b, x, dim)
    sums = total(b, x, [dim], lambda e, m: (e - m).exp(), [largest])
    logs = per_element(b, sums, lambda s: s.log(), sums.dtype)
    operands = [(x, range(x.rank)), (largest, around), (logs, around)]
    result = b.elementwise_over(operands, b.sizes(x), lambda e, m, s: e - m - s, b.out_dtype)
    return b.reshape(result, sizes)


# --- Statistics and scaling ---


def _statistics(b: RuleBuilder, x: Tensor, dims: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Compute mean, variance and 1 / sqrt(variance + eps) over dims. Of nothing the mean is 0, the others NaN."""
    n = count(b, x, dims)
    sums = total(b, x, dims)
    mean = per_element(b, sums, lambda e: e / b.element(b.maximum(n, 1), e.dtype), sums.dtype)
    squares = centered_squares(b, x, dims, mean)
    variance = per_element(b, squares, lambda e: e / b.element(n, e.dtype), squares.dtype)
    return mean, variance, _inverse_root(b, variance, eps)


def _inverse_root(b: RuleBuilder, variance: Tensor, eps: float) -> Tensor:
    return per_element(b, variance, lambda e: (e.to(e.dtype.compute) + eps).rsqrt(), variance.dtype.compute)


def _scale_and_shift(
    b: RuleBuilder,
    x: Tensor,
    mean: Tensor | None,
    inverse: Tensor,
    around: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    along: Sequence[int],
    dtype: DType,
) -> Tensor:
    """Compute `(x - mean) * inverse * weight + bias`; statistics run along the dims `around`, weights along `along`."""
    places = [(mean, around), (inverse, around), (weight, along), (bias, along)]
    compute = x.dtype.compute

    def body(e: Element, *others: Element) -> Element:
        given = iter(others)
        m, s, w, c = (next(given).to(compute) if t is not None else None for t, _ in places)
        e = e.to(compute)
        e = (e if m is None else e - m) * s
        e = e if w is None else e * w
        return e if c is None else e + c

    operands: list[tuple[Tensor, Sequence[int]]] = [(x, range(x.rank))]
    operands += [(t, dims) for t, dims in places if t is not None]
    return b.elementwise_over(operands, b.sizes(x), body, dtype)


def _last(b: RuleBuilder, x: Tensor, shape: Sequence[Size]) -> tuple[list[int], list[int]]:
    """Split dims into leading ones and trailing ones, which are guarded to have the given shape."""
    first = x.rank - len(shape)
    for dim, size in enumerate(shape, first):
        b.same_size(size, b.size(x, dim), f"dimension {dim} does not have the size that is normalised")
    return list(range(first)), list(range(first, x.rank))


# --- Layer norm and RMS norm ---


@linalg_rule("aten.native_layer_norm")
def native_layer_norm(
    b: RuleBuilder, x: Tensor, shape: Sequence[Size], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    leading, trailing = _last(b, x, shape)
    mean, _, inverse = _statistics(b, x, trailing, eps)
    result = _scale_and_shift(b, x, mean, inverse, leading, weight, bias, trailing, b.out_dtype)
    types = [dtype for _, dtype in b.context.results[1:]]
    statistics = [b.to(keep(b, t, x, trailing), dtype) for t, dtype in zip((mean, inverse), types, strict=False)]
    return (result, *statistics)  # type: ignore[return-value]


@linalg_rule("aten.layer_norm")
def layer_norm(
    b: RuleBuilder, x: Tensor, shape: Sequence[Size], weight: Tensor | None, bias: Tensor | None, eps: float, _: bool
) -> Tensor:
    return native_layer_norm(b, x, shape, weight, bias, eps)[0]


@linalg_rule("aten._fused_rms_norm")
def fused_rms_norm(
    b: RuleBuilder, x: Tensor, shape: Sequence[Size], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    leading, trailing = _last(b, x, shape)
    if eps is None:
        # The spacing of the numbers in which PyTorch computes.
        eps = 2.0**-52 if x.dtype.real is dtypes.float64 else 2.0**-23
    squares = mean_over(b, x, trailing, lambda e: e.to(e.dtype.compute) * e.to(e.dtype.compute))
    inverse = _inverse_root(b, squares, eps)
    result = _scale_and_shift(b, x, None, inverse, leading, weight, None, trailing, b.out_dtype)
    return result, keep(b, inverse, x, trailing)


@linalg_rule("aten.rms_norm")
def rms_norm(b: RuleBuilder, x: Tensor, shape: Sequence[Size], weight: Tensor | None, eps: float | None) -> Tensor:
    return fused_rms_norm(b, x, shape, weight, eps)[0]


# --- Group norm ---


@linalg_rule("aten.native_group_norm")
def native_group_norm(
    b: RuleBuilder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: Size,
    channels: Size,
    spatial: Size,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    sizes = b.sizes(x)
    each = b.floordiv(sizes[1], groups)

    def by_group(t: Tensor, dim: int) -> Tensor:
        """Split the channels into groups."""
        old = b.sizes(t)
        parts = [[i] if i < dim else [i, i + 1] if i == dim else [i + 1] for i in range(t.rank)]
        return b.expand(t, parts, [*old[:dim], groups, each, *old[dim + 1 :]])

    grouped = by_group(x, 1)
    mean, _, inverse = _statistics(b, grouped, range(2, grouped.rank), eps)
    weight, bias = (None if t is None else by_group(t, 0) for t in (weight, bias))
    scaled = _scale_and_shift(b, grouped, mean, inverse, [0, 1], weight, bias, [1, 2], b.out_dtype)
    result = b.collapse(scaled, [[0], [1, 2], *([i] for i in range(3, scaled.rank))])
    return Tensor(result.value, result.dtype, sizes), b.to(mean, x.dtype), b.to(inverse, x.dtype)


@linalg_rule("aten.group_norm")
def group_norm(
    b: RuleBuilder, x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float, _: bool
) -> Tensor:
    return native_group_norm(b, x, weight, bias, 0, 0, 0, groups, eps)[0]


# --- Batch norm and instance norm ---


def _require_channels(b: RuleBuilder, x: Tensor, *parameters: Tensor | None) -> None:
    for p in parameters:
        if p is not None:
            b.same_size(b.size(x, 1), b.size(p, 0), "a parameter does not have the size of the channels")


def _by_channel(
    b: RuleBuilder,
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    dims: Sequence[int] = (1,),
) -> Tensor:
    """Normalise with known statistics: one multiplication and one addition, whose factors are made once per channel."""
    compute = x.dtype.compute
    inverse = per_element(b, variance, lambda v: (v.to(compute) + eps).rsqrt(), compute)
    scale = inverse if weight is None else b.elementwise([inverse, weight], lambda s, w: s * w.to(compute), compute)

    def offset(m: Element, s: Element, *c: Element) -> Element:
        return (c[0].to(compute) if c else s.like(0)) - m.to(compute) * s

    shift = b.elementwise([mean, scale, *([] if bias is None else [bias])], offset, compute)
    return b.elementwise_over(
        [(x, range(x.rank)), (scale, dims), (shift, dims)],
        b.sizes(x),
        lambda e, s, t: e.to(compute) * s + t,
        b.out_dtype,
    )


def _with_batch_statistics(
    b: RuleBuilder, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Normalise by the batch's statistics; return the result, and every channel's mean, variance, inverse deviation."""
    dims = [i for i in range(x.rank) if i != 1]
    mean, variance, inverse = _statistics(b, x, dims, eps)
    result = _scale_and_shift(b, x, mean, inverse, [1], weight, bias, [1], b.out_dtype)
    return result, mean, variance, inverse


@linalg_rule("aten.batch_norm")
def batch_norm(
    b: RuleBuilder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    _: bool = False,
) -> Tensor:
    if training and mean is not None:
        raise Unsupported(
            "batch_norm with training=True writes its running statistics",
            "Call .eval() on the model before it is exported, or export the training graph in functional form.",
        )
    _require_channels(b, x, weight, bias, mean, variance)
    if not training and mean is not None and variance is not None:
        return _by_channel(b, x, mean, variance, weight, bias, eps)
    return _with_batch_statistics(b, x, weight, bias, eps)[0]


@linalg_rule("aten.native_batch_norm", "aten._native_batch_norm_legit")
def native_batch_norm(
    b: RuleBuilder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    if not training or mean is not None:
        result = batch_norm(b, x, weight, bias, mean, variance, training, momentum, eps)
        return (result, *(b.empty([0], dtype) for _, dtype in b.context.results[1:]))
    result, batch_mean, _, inverse = _with_batch_statistics(b, x, weight, bias, eps)
    return result, b.to(batch_mean, b.context.results[1][1]), b.to(inverse, b.context.results[2][1])


@linalg_rule("aten._native_batch_norm_legit_no_training")
def native_batch_norm_no_training(
    b: RuleBuilder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    return native_batch_norm(b, x, weight, bias, mean, variance, False, momentum, eps)


@linalg_rule("aten._native_batch_norm_legit.no_stats")
def native_batch_norm_no_stats(
    b: RuleBuilder, x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, ...]:
    return native_batch_norm(b, x, weight, bias, None, None, True, momentum, eps)


@linalg_rule("aten._native_batch_norm_legit_functional")
def native_batch_norm_functional(
    b: RuleBuilder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """Normalise as in training, with the new running statistics as results: (1 - momentum) * old + momentum * new."""
    _require_channels(b, x, weight, bias, mean, variance)
    if not training:
        plain = native_batch_norm(b, x, weight, bias, mean, variance, False, momentum, eps)
        return (*plain[:3], b.to(mean, b.context.results[3][1]), b.to(variance, b.context.results[4][1]))
    result, batch_mean, batch_variance, inverse = _with_batch_statistics(b, x, weight, bias, eps)
    n = count(b, x, [i for i in range(x.rank) if i != 1])

    def moved(running: Tensor, batch: Tensor, unbiased: bool) -> Tensor:
        def blend(old: Element, new: Element) -> Element:
            if unbiased:
                size = b.element(n, new.dtype)
                new = new * (size / (size - 1))
            return old.to(new.dtype) * (1 - momentum) + new * momentum

        return b.elementwise([running, batch], blend, running.dtype)

    statistics = (batch_mean, inverse, moved(mean, batch_mean, False), moved(variance, batch_variance, True))
    return (result, *(b.to(s, dtype) for s, (_, dtype) in zip(statistics, b.context.results[1:], strict=True)))


@linalg_rule("aten.instance_norm")
def instance_norm(
    b: RuleBuilder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    _: bool,
) -> Tensor:
    if not use_input_stats:
        assert mean is not None
        assert variance is not None
        return _by_channel(b, x, mean, variance, weight, bias, eps)
    if mean is not None:
        raise Unsupported(
            "instance_norm with running statistics writes them when it uses those of its input",
            "Call .eval() on the model before it is exported.",
        )
    x_mean, _variance, inverse = _statistics(b, x, range(2, x.rank), eps)
    return _scale_and_shift(b, x, x_mean, inverse, [0, 1], weight, bias, [1], b.out_dtype)
