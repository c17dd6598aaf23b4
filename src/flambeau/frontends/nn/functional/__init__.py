"""`flambeau.nn.functional`: the functions of `torch.nn.functional`, with its names, parameters and defaults.

A function that is an operator by the same parameters is that operator, from `flambeau.ops`; the others are here and in
the files beside this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.frontends.nn.core import ops
from flambeau.frontends.nn.core.values import named
from flambeau.frontends.nn.functional import loss, vision
from flambeau.frontends.nn.functional.attention import multi_head_attention_forward, scaled_dot_product_attention
from flambeau.frontends.nn.functional.loss import *  # noqa: F403
from flambeau.frontends.nn.functional.sparse import embedding, embedding_bag, normalize, pdist
from flambeau.frontends.nn.functional.vision import *  # noqa: F403

OPERATORS = {
    name: name
    for name in (
        "adaptive_avg_pool1d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "bilinear", "celu_", "channel_shuffle",
        "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
        "cosine_similarity", "elu_", "gelu", "hardshrink", "hardtanh_", "leaky_relu_", "linear", "one_hot",
        "pairwise_distance", "pixel_shuffle", "pixel_unshuffle", "prelu", "relu_", "selu_", "sigmoid", "softplus",
        "softshrink", "tanh", "threshold_",
    )
} | {"logsigmoid": "log_sigmoid", "native_channel_shuffle": "channel_shuffle"}  # fmt: skip
"""Functions that are operators, by the operator's name."""

__all__ = [
    "alpha_dropout", "batch_norm", "celu", "dropout", "dropout1d", "dropout2d", "dropout3d", "elu", "embedding",
    "embedding_bag", "feature_alpha_dropout", "glu", "group_norm", "hardsigmoid", "hardswish", "hardtanh",
    "instance_norm", "layer_norm", "leaky_relu", "local_response_norm", "log_softmax", "mish",
    "multi_head_attention_forward", "normalize", "pdist", "relu", "relu6", "rms_norm", "rrelu", "rrelu_",
    "scaled_dot_product_attention", "selu", "silu", "softmax", "softmin", "softsign", "tanhshrink", "threshold",
]  # fmt: skip
__all__ += loss.__all__
__all__ += vision.__all__


def __getattr__(name: str) -> Any:
    if name not in OPERATORS:
        raise AttributeError(f"flambeau.nn.functional has no {name!r}")
    return getattr(ops, OPERATORS[name])


def __dir__() -> list[str]:
    return sorted({*__all__, *OPERATORS})


# --- Activations ---


def _written(inplace: bool, name: str, input: Any, *args: Any) -> Any:
    """Call an operator, or its form in place."""
    return getattr(ops, f"{name}_" if inplace else name)(input, *args)


def _plain(name: str) -> Callable[..., Any]:
    """Make the function of an activation that has no parameters."""

    def function(input: Any, inplace: bool = False) -> Any:
        return _written(inplace, name, input)

    return named(name, function)


relu, relu6, selu, silu, mish = map(_plain, ("relu", "relu6", "selu", "silu", "mish"))
hardsigmoid, hardswish = _plain("hardsigmoid"), _plain("hardswish")


def elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    return _written(inplace, "elu", input, alpha)


def celu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    return _written(inplace, "celu", input, alpha)


def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    return _written(inplace, "hardtanh", input, min_val, max_val)


def leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    return _written(inplace, "leaky_relu", input, negative_slope)


def threshold(input: Any, threshold: float, value: float, inplace: bool = False) -> Any:
    return _written(inplace, "threshold", input, threshold, value)


def rrelu(input: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False) -> Any:
    """Compute max(x, 0) + a*min(x, 0), where a is the mean of the bounds; random slopes of training are refused."""
    if training:
        refuse_random("rrelu")
    return leaky_relu(input, (lower + upper) / 2, inplace)


def rrelu_(input: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Any:
    return rrelu(input, lower, upper, training, inplace=True)


def glu(input: Any, dim: int = -1) -> Any:
    return ops.glu(input, dim)


def softsign(input: Any) -> Any:
    return input / (input.abs() + 1)


def tanhshrink(input: Any) -> Any:
    return input - input.tanh()


def _softmax_dim(dim: int | None, rank: int) -> int:
    return dim if dim is not None else 0 if rank in (0, 1, 3) else 1


def softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    return ops.softmax(input, _softmax_dim(dim, input.ndim), dtype=dtype)


def log_softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    return ops.log_softmax(input, _softmax_dim(dim, input.ndim), dtype=dtype)


def softmin(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    return ops.softmax(-input, _softmax_dim(dim, input.ndim), dtype=dtype)


# --- Dropout ---


def refuse_random(name: str) -> None:
    """Raise: programs have no random numbers."""
    raise NotImplementedError(
        f"{name} in training needs random numbers, which programs do not have: call model.eval() before tracing, set "
        "p=0, or multiply by a mask that is an argument of the program"
    )


def _dropout(name: str, p: float, training: bool) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if training and p > 0:
        refuse_random(name)


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Return the input outside of training; refuse training, since programs have no random numbers."""
    _dropout("dropout", p, training)
    return _written(inplace, "dropout", input, p, False)


def _other_dropout(name: str, by_default: bool) -> Callable[..., Any]:
    def function(input: Any, p: float = 0.5, training: bool = by_default, inplace: bool = False) -> Any:
        _dropout(name, p, training)
        return input

    return named(name, function)


dropout1d, dropout2d, dropout3d = (_other_dropout(f"dropout{n}d", True) for n in (1, 2, 3))
alpha_dropout = _other_dropout("alpha_dropout", False)
feature_alpha_dropout = _other_dropout("feature_alpha_dropout", False)


# --- Normalisation ---


def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """Normalise over the batch; in training by the batch's statistics, which are mixed into the running ones."""
    if not training:
        return ops.batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps, False)
    if running_mean is None:
        return ops._native_batch_norm_legit.no_stats(input, weight, bias, True, momentum, eps)[0]
    result, _, _, mean, var = ops._native_batch_norm_legit_functional(
        input, weight, bias, running_mean, running_var, True, momentum, eps
    )
    running_mean.copy_(mean)
    running_var.copy_(var)
    return result


def instance_norm(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """Normalise each channel of each sample; running statistics take the mean over the samples."""
    if use_input_stats and running_mean is not None:
        dims = list(range(2, input.ndim))
        running_mean.copy_(running_mean * (1 - momentum) + input.mean(dims).mean(0) * momentum)
        running_var.copy_(running_var * (1 - momentum) + input.var(dims).mean(0) * momentum)
    kept = (None, None) if use_input_stats else (running_mean, running_var)
    return ops.instance_norm(input, weight, bias, *kept, use_input_stats, momentum, eps, False)


def layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return ops.layer_norm(input, normalized_shape, weight, bias, eps, False)


def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return ops.group_norm(input, num_groups, weight, bias, eps, False)


def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    return ops.rms_norm(input, normalized_shape, weight, eps)


def local_response_norm(input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    """Divide by (k + alpha * mean of squares over neighbouring channels)^beta."""
    if input.ndim < 3:
        raise ValueError(f"expected 3D or higher dimensionality input (got {input.ndim} dimensions)")
    squares = input * input
    before, after = size // 2, (size - 1) // 2
    if input.ndim == 3:
        squares = vision.pad(squares.unsqueeze(1), (0, 0, before, after))
        mean = ops.avg_pool2d(squares, (size, 1), stride=1).squeeze(1)
    else:
        shape = list(input.shape)
        squares = squares.view(shape[0], 1, shape[1], shape[2], -1)
        squares = vision.pad(squares, (0, 0, 0, 0, before, after))
        mean = ops.avg_pool3d(squares, (size, 1, 1), stride=1).squeeze(1).view(shape)
    return input / (mean * alpha + k).pow(beta)
