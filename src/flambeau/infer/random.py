"""Shapes and dtypes of random numbers."""

from __future__ import annotations

from typing import Any

from flambeau.infer.create import strided, zeros, zeros_like
from flambeau.infer.rules import Meta, broadcast_metas, dtype_or, floating, infer_rule, same, size, sizes, with_mask
from flambeau.ir import dtypes

infer_rule(
    "aten.bernoulli", "aten.bernoulli.Tensor", "aten.bernoulli.p", "valsem.aten.bernoulli.float", "aten.exponential",
    "aten.uniform", "aten.normal_functional", "aten.random", "aten.random.from", "aten.random.to", "aten.cauchy",
    "aten.log_normal", "aten.geometric", "aten.dropout", "aten.alpha_dropout", "aten.feature_dropout",
    "aten.feature_alpha_dropout",
)(same)  # fmt: skip

infer_rule("aten.native_dropout")(with_mask)
infer_rule("aten.rrelu_with_noise_functional")(lambda x, noise, *_: (x, noise))
infer_rule("aten.rand", "aten.randn")(zeros)
infer_rule("aten.rand.generator", "aten.randn.generator")(strided)
infer_rule("aten.rand_like", "aten.randn_like")(zeros_like)
infer_rule("aten.rand_like.generator", "aten.randn_like.generator")(
    lambda x, generator, dtype, *_: zeros_like(x, dtype)
)
infer_rule("aten.randint_like")(lambda x, value, dtype, *_: zeros_like(x, dtype))
infer_rule("aten.randint_like.low_dtype")(lambda x, low, high, dtype, *_: zeros_like(x, dtype))
infer_rule("aten.randint_like.generator")(lambda x, high, generator, dtype, *_: zeros_like(x, dtype))
infer_rule("aten.randint_like.low_generator_dtype")(lambda x, low, high, generator, dtype, *_: zeros_like(x, dtype))


@infer_rule("aten.randint")
def randint(high: Any, shape: list[Any], dtype: int | None, *_: Any) -> Meta:
    return Meta(sizes(shape), dtype_or(dtype, dtypes.int64))


infer_rule("aten.randint.low")(lambda low, high, shape, dtype, *_: randint(high, shape, dtype))
infer_rule("aten.randint.generator")(lambda high, shape, generator, dtype, *_: randint(high, shape, dtype))
infer_rule("aten.randint.low_generator")(lambda low, high, shape, generator, dtype, *_: randint(high, shape, dtype))
infer_rule("aten.randperm")(lambda n, dtype, *_: randint(n, [n], dtype))
infer_rule("aten.randperm.generator")(lambda n, generator, dtype, *_: randint(n, [n], dtype))


@infer_rule("aten.multinomial")
def multinomial(x: Meta, count: Any, *_: Any) -> Meta:
    return Meta((*x.shape[:-1], size(count)), dtypes.int64)


@infer_rule("aten.normal.Tensor_Tensor", "aten.normal.Tensor_float")
def normal(mean: Meta, std: Any, generator: Any) -> Meta:
    return Meta(broadcast_metas(mean, std), mean.dtype)


infer_rule("aten.normal.float_Tensor")(lambda mean, std, generator: std)
infer_rule("aten.normal.float_float")(lambda mean, std, shape, generator, dtype, *_: zeros(shape, dtype))


@infer_rule("aten.native_dropout_backward")
def dropout_backward(gradient: Meta, mask: Meta, scale: Any) -> Meta:
    return Meta(broadcast_metas(gradient, mask), floating(gradient.dtype))


@infer_rule("flambeau.philox")
def philox(state: Meta, delta: Any, shape: list[Any]) -> Meta:
    return Meta(sizes(shape), dtypes.int32)


@infer_rule("prims.normal", "prims.uniform")
def prims_random(shape: list[Any], first: Any, second: Any, dtype: int, *_: Any) -> Meta:
    return Meta(sizes(shape), dtype_or(dtype, dtypes.float32))


infer_rule("flambeau.philox.pair")(lambda state, delta, shape, first: (philox(state, delta, shape),) * 2)
