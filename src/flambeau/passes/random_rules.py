"""Random ops in terms of Philox's words: each distribution as PyTorch's CUDA kernels compute it.

A rule is called with a `Stream`, from which it draws, and the op's arguments; None says that this call draws nothing.
The formulas are those of PyTorch's `TransformationHelper.h` and of cuRAND's device functions, so that `rand` of the
same seed and offset has the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.ir.conversion import RuleTable
from flambeau.ir.dtypes import DType
from flambeau.passes.decompose.rules import over, plus, require_element

RANDOM = RuleTable("random ops")
random_rule = RANDOM

_WORD = 0xFFFFFFFF
_FEW_BITS = 28
"""Ranges of integers below 2 to this power are drawn from one word, as PyTorch does; larger ones from two."""


class Stream:
    """Where a rule gets its random words from: the program's state, at the place that the ops before have reached."""

    def __init__(self, t: TorchBuilder, state: SSAValue, delta: Any, dtype: DType) -> None:
        self.t = t
        self.state = state
        self.delta = delta
        """How many draws there were before, in this call of the program."""
        self.dtype = dtype
        """The dtype of the op's first result."""

    def word(self, size: Sequence[Any]) -> SSAValue:
        """Draw 32 random bits for each element, as a signed integer."""
        word: SSAValue = self.t.call("flambeau.philox", self.state, self.delta, size)
        self.delta = plus(self.t, self.delta, 1)
        return word

    def words(self, size: Sequence[Any], count: int = 2) -> list[SSAValue]:
        """Draw two or four words of 32 bits for each element."""
        t = self.t
        pairs = [t.call("flambeau.philox.pair", self.state, self.delta, size, first) for first in range(0, count, 2)]
        self.delta = plus(t, self.delta, 1)
        return [word for pair in pairs for word in pair]

    def unit(self, size: Sequence[Any]) -> SSAValue:
        """Draw floats in (0, 1], of f64 for results of f64 and else of f32."""
        if self.dtype is dtypes.float64:
            return _unit_double(self.t, *self.words(size))
        return _unit_float(self.t, self.word(size))

    def uniform(self, size: Sequence[Any], low: Any = 0.0, high: Any = 1.0, dtype: DType | None = None) -> SSAValue:
        """Draw floats in [low, high); of complex numbers both parts."""
        t, dtype = self.t, dtype or self.dtype
        if dtype.is_complex:
            part = Stream(t, self.state, self.delta, dtype.real)
            pairs = part.uniform([*size, 2], low, high)
            self.delta = part.delta
            return t.view_as_complex(pairs)
        if not dtype.is_float:
            raise Unsupported(f"random numbers of {dtype} between two floats")
        value = self.unit(size)
        if not (isinstance(low, float) and isinstance(high, float) and (low, high) == (0.0, 1.0)):
            value = t.add(t.mul(value, high - low), low)
        value = t.to(value, dtype)
        return t.where(t.eq(value, high), t.full_like(value, low), value)

    def normal(self, size: Sequence[Any]) -> SSAValue:
        """Draw from the standard normal distribution, by the transformation of Box and Muller."""
        t = self.t
        if self.dtype.is_complex:
            part = Stream(t, self.state, self.delta, self.dtype.real)
            pairs = t.mul(part.normal([*size, 2]), math.sqrt(0.5))
            self.delta = part.delta
            return t.view_as_complex(pairs)
        if not self.dtype.is_float:
            raise Unsupported(f"normal random numbers of {self.dtype}")
        if self.dtype is dtypes.float64:
            words = self.words(size, 4)
            u, v = _unit_double(t, *words[:2]), _unit_double(t, *words[2:])
        else:
            u, v = (_unit_float(t, word) for word in self.words(size))
        radius = t.sqrt(t.mul(t.log(u), -2.0))
        return t.to(t.mul(radius, t.sin(t.mul(v, 2 * math.pi))), self.dtype)

    def integers(self, size: Sequence[Any], low: Any, high: Any) -> SSAValue:
        """Draw integers in [low, high)."""
        t = self.t
        if not (isinstance(low, int) and isinstance(high, int)):
            raise Unsupported("random integers between bounds that are known only at run time")
        if low >= high:
            raise Unsupported(f"random integers from {low} to {high}: the range is empty")
        count = high - low
        if count < 1 << _FEW_BITS:
            rest = _remainder(t, [self.word(size)], count)
            return t.add(t.to(rest, self.dtype), low)
        first, second = (t.to(word, dtypes.int64) for word in self.words(size))
        if count == 1 << 63:
            whole = t.bitwise_or(t.bitwise_left_shift(first, 32), t.bitwise_and(second, _WORD))
            return t.add(t.to(t.bitwise_and(whole, (1 << 63) - 1), self.dtype), low)
        return t.add(t.to(_remainder(t, [first, second], count), self.dtype), low)


def _halves(t: TorchBuilder, word: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Split words of 32 bits into the upper and the lower 16, which are not negative."""
    return t.bitwise_and(t.bitwise_right_shift(word, 16), 0xFFFF), t.bitwise_and(word, 0xFFFF)


def _unit_float(t: TorchBuilder, word: SSAValue) -> SSAValue:
    """Compute w * 2^-32 + 2^-33 for words w without a sign: cuRAND's `curand_uniform`."""
    high, low = (t.to(half, dtypes.float32) for half in _halves(t, word))
    return t.add(t.mul(t.add(t.mul(high, 65536.0), low), 2.0**-32), 2.0**-33)


def _unit_double(t: TorchBuilder, first: SSAValue, second: SSAValue) -> SSAValue:
    """Compute z * 2^-53 + 2^-54 for the 53 bits z of two words: cuRAND's `curand_uniform2_double`."""
    x, y = (t.bitwise_and(t.to(word, dtypes.int64), _WORD) for word in (first, second))
    bits = t.bitwise_xor(x, t.bitwise_left_shift(y, 21))
    return t.add(t.mul(t.to(bits, dtypes.float64), 2.0**-53), 2.0**-54)


def _remainder(t: TorchBuilder, words: Sequence[SSAValue], divisor: int) -> SSAValue:
    """Compute the remainder of a number of several words without a sign, digit by digit as in a long division.

    A digit has as many bits as leave what is left over, with the next digit behind it, in the range of the integers.
    """
    room = t.dtype(words[0]).bits - 1
    width = 1 << max(i for i in range(5) if (1 << i) == 1 or divisor.bit_length() + (1 << i) <= room)
    if divisor.bit_length() + width > room:
        raise Unsupported(f"random integers from a range of {divisor}")
    rest: SSAValue | None = None
    for word in words:
        for shift in range(32 - width, -1, -width):
            digit = t.bitwise_and(t.bitwise_right_shift(word, shift), (1 << width) - 1)
            value = digit if rest is None else t.add(t.mul(rest, 1 << width), digit)
            rest = t.remainder(value, divisor)
    assert rest is not None
    return rest


# --- Tensors of random numbers ---

random_rule("aten.rand", "aten.rand.generator")(lambda t, draw, size, *_: draw.uniform(size))
random_rule("aten.randn", "aten.randn.generator")(lambda t, draw, size, *_: draw.normal(size))
random_rule("aten.rand_like", "aten.rand_like.generator")(lambda t, draw, x, *_: draw.uniform(t.shape(x)))
random_rule("aten.randn_like", "aten.randn_like.generator")(lambda t, draw, x, *_: draw.normal(t.shape(x)))
random_rule("aten.randint", "aten.randint.generator")(lambda t, draw, high, size, *_: draw.integers(size, 0, high))
random_rule("aten.randint.low", "aten.randint.low_generator")(
    lambda t, draw, low, high, size, *_: draw.integers(size, low, high)
)
random_rule("aten.randint_like", "aten.randint_like.generator")(
    lambda t, draw, x, high, *_: draw.integers(t.shape(x), 0, high)
)
random_rule("aten.randint_like.low_dtype", "aten.randint_like.low_generator_dtype")(
    lambda t, draw, x, low, high, *_: draw.integers(t.shape(x), low, high)
)
random_rule("prims.uniform")(lambda t, draw, size, low, high, *_: draw.uniform(size, float(low), float(high)))
random_rule("aten.uniform")(lambda t, draw, x, low, high, *_: draw.uniform(t.shape(x), low, high))
random_rule("aten.random.from")(lambda t, draw, x, low, high, *_: draw.integers(t.shape(x), low, _end(t, x, high)))
random_rule("aten.random.to")(lambda t, draw, x, high, *_: draw.integers(t.shape(x), 0, high))
random_rule("aten.random")(lambda t, draw, x, *_: draw.integers(t.shape(x), 0, _end(t, x, None)))


def _end(t: TorchBuilder, x: SSAValue, end: int | None) -> int:
    """Return where the integers end that a tensor is filled with: those that its dtype has, or can tell apart."""
    dtype = t.dtype(x)
    if end is not None:
        return end
    if dtype.is_float:
        return (1 << {2: 8 if dtype is dtypes.bfloat16 else 11, 4: 24, 8: 53}[dtype.size]) + 1
    return 2 if dtype.is_bool else 1 << (dtype.bits - int(dtype.signed))


@random_rule("aten.randperm", "aten.randperm.generator")
def randperm(t: TorchBuilder, draw: Stream, count: Any, *_: Any) -> SSAValue:
    """Sort by random keys of 64 bits: by their second half, then stably by their first."""
    first, second = draw.words([count])
    order = t.call("aten.argsort.stable", second, stable=True)
    final = t.call("aten.argsort.stable", t.index_select(first, 0, order), stable=True)
    return t.to(t.index_select(order, 0, final), draw.dtype)


# --- Distributions ---


@random_rule("aten.normal_functional", "aten.normal.Tensor_float")
def normal(t: TorchBuilder, draw: Stream, x: SSAValue, *rest: Any) -> SSAValue:
    """Draw from a normal distribution: `normal_functional(x, mean, std)`, or `normal(mean, std)` with a tensor."""
    mean, std = rest[:2] if len(rest) > 2 else (x, rest[0])
    return t.add(t.mul(draw.normal(t.shape(x)), std), mean)


@random_rule("aten.normal.Tensor_Tensor")
def normal_of_tensors(t: TorchBuilder, draw: Stream, mean: SSAValue, std: SSAValue, *_: Any) -> SSAValue:
    return t.add(t.mul(draw.normal(t.shape(t.add(mean, std))), std), mean)


random_rule("aten.normal.float_Tensor")(
    lambda t, draw, mean, std, *_: t.add(t.mul(draw.normal(t.shape(std)), std), mean)
)
random_rule("aten.normal.float_float")(lambda t, draw, mean, std, size, *_: t.add(t.mul(draw.normal(size), std), mean))


random_rule("prims.normal")(lambda t, draw, size, mean, std, *_: t.add(t.mul(draw.normal(size), std), mean))


@random_rule("aten.log_normal")
def log_normal(t: TorchBuilder, draw: Stream, x: SSAValue, mean: float, std: float, *_: Any) -> SSAValue:
    return t.exp(t.add(t.mul(draw.normal(t.shape(x)), std), mean))


@random_rule("aten.bernoulli")
def bernoulli(t: TorchBuilder, draw: Stream, probability: SSAValue, *_: Any) -> SSAValue:
    return bernoulli_like(t, draw, probability, probability)


@random_rule("aten.bernoulli.p", "aten.bernoulli.Tensor", "valsem.aten.bernoulli.float")
def bernoulli_like(t: TorchBuilder, draw: Stream, x: SSAValue, probability: Any, *_: Any) -> SSAValue:
    """Draw ones with a probability, a number or a tensor that is broadcast, and else zeros."""
    return t.to(t.lt(draw.uniform(t.shape(x), dtype=_wide(draw.dtype)), probability), draw.dtype)


def _wide(dtype: DType) -> DType:
    """Return the dtype that numbers are drawn in, to be compared with a probability."""
    return dtypes.float64 if dtype is dtypes.float64 else dtypes.float32


@random_rule("aten.exponential")
def exponential(t: TorchBuilder, draw: Stream, x: SSAValue, rate: float, *_: Any) -> SSAValue:
    """Compute -log(u) / rate; near 1 the logarithm is kept away from 0, since 0 is not in the distribution."""
    dtype = _wide(draw.dtype)
    half = 2.0**-24 if dtype is dtypes.float32 else 2.0**-53
    u = draw.unit(t.shape(x))
    log = t.where(t.ge(u, 1 - half), t.full_like(u, -half), t.log(u))
    return t.to(t.mul(log, -1.0 / rate), draw.dtype)


@random_rule("aten.geometric")
def geometric(t: TorchBuilder, draw: Stream, x: SSAValue, p: float, *_: Any) -> SSAValue:
    if not 0 < p < 1:
        raise Unsupported(f"a geometric distribution with the probability {p}: it is between 0 and 1")
    return t.to(t.ceil(t.div(t.log(draw.unit(t.shape(x))), math.log1p(-p))), draw.dtype)


@random_rule("aten.cauchy")
def cauchy(t: TorchBuilder, draw: Stream, x: SSAValue, median: float, sigma: float, *_: Any) -> SSAValue:
    angle = t.mul(t.sub(draw.unit(t.shape(x)), 0.5), math.pi)
    return t.to(t.add(t.mul(t.tan(angle), sigma), median), draw.dtype)


@random_rule("aten.multinomial")
def multinomial(t: TorchBuilder, draw: Stream, weights: SSAValue, count: int, replacement: bool, *_: Any) -> SSAValue:
    """Choose indices by their weights: the first to happen of events with these rates, or by the sums of weights."""
    fine = t.logical_and(t.ge(weights, 0.0), t.isfinite(weights))
    require_element(t, t.all(fine), "multinomial: a weight is negative, infinite or NaN")
    require_element(t, t.all(t.gt(t.sum(weights, [-1]), 0.0)), "multinomial: a row of weights is zero")
    draw.dtype = t.dtype(weights)
    if replacement and count != 1:
        sums = t.cumsum(t.to(weights, _wide(draw.dtype)), -1)
        total = t.unsqueeze(t.select(sums, -1, -1), -1)
        *lead, size = t.shape(weights)
        places = t.mul(draw.uniform([*lead, count], dtype=_wide(draw.dtype)), total)
        found = t.searchsorted(sums, places, right=True)
        return t.clamp(found, None, plus(t, size, -1))
    rates = t.div(weights, exponential(t, draw, weights, 1.0))
    return t.argmax(rates, -1, True) if count == 1 else t.topk(rates, count)[1]


# --- Dropout and activations ---


def _noise(t: TorchBuilder, draw: Stream, size: Sequence[Any], p: float) -> SSAValue:
    """Draw which elements stay, each with the probability 1 - p."""
    return t.lt(draw.uniform(size, dtype=_wide(draw.dtype)), 1.0 - p)


def _channels(t: TorchBuilder, x: SSAValue) -> list[Any]:
    """Return the sizes of noise that whole channels have in common."""
    sizes = t.shape(x)
    if len(sizes) < 2:
        raise Unsupported("dropout of channels of a tensor that has none: it must have at least 2 dims")
    return [*sizes[:2], *(1 for _ in sizes[2:])]


def _dropped(t: TorchBuilder, draw: Stream, x: SSAValue, p: float, size: Sequence[Any]) -> SSAValue:
    if not 0 <= p <= 1:
        raise Unsupported(f"dropout with the probability {p}: it is between 0 and 1")
    if p == 1:
        return t.mul(x, 0.0)
    return t.mul(x, t.div(t.to(_noise(t, draw, size, p), draw.dtype), 1.0 - p))


@random_rule("aten.dropout")
def dropout(t: TorchBuilder, draw: Stream, x: SSAValue, p: float, train: bool) -> SSAValue | None:
    return _dropped(t, draw, x, p, t.shape(x)) if train and p else None


@random_rule("aten.scaled_dot_product_attention")
def attention(
    t: TorchBuilder, draw: Stream, query: SSAValue, key: SSAValue, value: SSAValue, mask: SSAValue | None, p: float,
    causal: bool, scale: Any, gqa: bool,
) -> SSAValue | None:  # fmt: skip
    """Compute softmax(query @ keyᵀ * scale + mask), and drop of these weights before they are applied to the values."""
    if not p:
        return None
    if gqa:
        key, value = (_for_each_query(t, x, query) for x in (key, value))
    root = t.sqrt(t.full([], t.shape(query)[-1], dtype=_wide(draw.dtype)))
    scores = t.matmul(query, t.transpose(key, -2, -1))
    scores = t.to(t.div(scores, root) if scale is None else t.mul(scores, scale), draw.dtype)
    if causal:
        rows, columns = t.shape(scores)[-2:]
        mask = t.tril(t.ones([rows, columns], dtype=dtypes.bool_))
    if mask is not None and t.dtype(mask).is_bool:
        scores = t.masked_fill(scores, t.logical_not(mask), float("-inf"))
    elif mask is not None:
        scores = t.add(scores, mask)
    weights = t.call("aten._safe_softmax", scores, -1)
    return t.matmul(_dropped(t, draw, weights, p, t.shape(weights)), value)


def _for_each_query(t: TorchBuilder, x: SSAValue, query: SSAValue) -> SSAValue:
    """Repeat each head of keys or values for the queries that share it."""
    heads, own = t.shape(query)[-3], t.shape(x)[-3]
    return t.repeat_interleave(x, over(t, heads, own), -3)


@random_rule("aten.feature_dropout")
def feature_dropout(t: TorchBuilder, draw: Stream, x: SSAValue, p: float, train: bool) -> SSAValue | None:
    return _dropped(t, draw, x, p, _channels(t, x)) if train and p else None


def _self_normalizing(t: TorchBuilder, draw: Stream, x: SSAValue, p: float, size: Sequence[Any]) -> SSAValue:
    """Drop to the value that SELU has far below zero, and scale so that mean and variance stay."""
    if p == 1:
        return t.mul(x, 0.0)
    alpha = 1.7580993408473766
    scale = 1.0 / math.sqrt((alpha * alpha * p + 1.0) * (1.0 - p))
    noise = t.to(_noise(t, draw, size, p), draw.dtype)
    shift = t.add(t.mul(t.sub(noise, 1.0), alpha * scale), alpha * scale * p)
    return t.add(t.mul(x, t.mul(noise, scale)), shift)


@random_rule("aten.alpha_dropout")
def alpha_dropout(t: TorchBuilder, draw: Stream, x: SSAValue, p: float, train: bool) -> SSAValue | None:
    return _self_normalizing(t, draw, x, p, t.shape(x)) if train and p else None


@random_rule("aten.feature_alpha_dropout")
def feature_alpha_dropout(t: TorchBuilder, draw: Stream, x: SSAValue, p: float, train: bool) -> SSAValue | None:
    return _self_normalizing(t, draw, x, p, _channels(t, x)) if train and p else None


@random_rule("aten.native_dropout")
def native_dropout(t: TorchBuilder, draw: Stream, x: SSAValue, p: float, train: Any) -> tuple[SSAValue, SSAValue]:
    if train is False or p == 0:
        return x, t.ones_like(x, dtype=dtypes.bool_)
    mask = _noise(t, draw, t.shape(x), p)
    return t.mul(t.mul(x, t.to(mask, draw.dtype)), 0.0 if p == 1 else 1.0 / (1.0 - p)), mask


@random_rule("aten.rrelu")
def rrelu(
    t: TorchBuilder, draw: Stream, x: SSAValue, lower: float, upper: float, training: bool, *_: Any
) -> SSAValue | None:
    if not training:
        return None
    slopes = draw.uniform(t.shape(x), float(lower), float(upper))
    return t.where(t.le(x, 0.0), t.mul(x, slopes), x)


@random_rule("aten.rrelu_with_noise_functional")
def rrelu_with_noise(
    t: TorchBuilder, draw: Stream, x: SSAValue, noise: SSAValue, lower: float, upper: float, training: bool, *_: Any
) -> tuple[SSAValue, SSAValue]:
    if not training:
        return t.leaky_relu(x, (lower + upper) / 2), noise
    slopes = draw.uniform(t.shape(x), float(lower), float(upper))
    slopes = t.where(t.le(x, 0.0), slopes, t.ones_like(slopes))
    return t.mul(x, slopes), slopes
