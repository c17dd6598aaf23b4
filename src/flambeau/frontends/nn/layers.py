"""Layers: what they hold is in `__init__`, what they compute is one op of `flambeau.ops`.

Parameters have PyTorch's names, order and defaults. `device` is taken for PyTorch's sake: programs have one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from flambeau.frontends.nn import context, ops
from flambeau.frontends.nn.module import Module, Parameter
from flambeau.frontends.nn.values import Tensor


def pair(value: Any, count: int = 2) -> tuple[Any, ...]:
    """A number for each dim: one stands for all."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,) * count


def float_array(array: Any, dtype: Any = None) -> np.ndarray[Any, Any]:
    """New contents of a parameter, in the default dtype."""
    name = dtype or context.default_dtype_name()
    if name in ("float32", "float64", "float16"):  # without the table of dtypes, which takes a while to import
        return np.asarray(array).astype(name)
    from flambeau.frontends.nn.values import as_dtype
    from flambeau.ir.arrays import numpy_dtype

    found = as_dtype(name)
    if found is None:
        raise TypeError(f"argument 'dtype' must be dtype, not {dtype!r}")
    return np.asarray(array).astype(numpy_dtype(found))


def uniform(shape: Sequence[int], bound: float, dtype: Any = None) -> Parameter:
    """A parameter with uniform random numbers between -bound and bound."""
    from flambeau.frontends.nn.initialize import generator

    return Parameter(float_array(generator().uniform(-bound, bound, tuple(shape)), dtype))


class Linear(Module):
    """`x @ weight.T + bias`."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / math.sqrt(in_features) if in_features else 0
        self.weight = uniform((out_features, in_features), bound, dtype)
        self.register_parameter("bias", uniform((out_features,), bound, dtype) if bias else None)

    def forward(self, input: Tensor) -> Tensor:
        found: Tensor = ops.linear(input, self.weight, self.bias)
        return found

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Conv2d(Module):
    """A convolution over two dims."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.dilation = pair(kernel_size), pair(stride), pair(dilation)
        self.padding = padding if isinstance(padding, str) else pair(padding)
        fan = in_channels // groups * math.prod(self.kernel_size)
        bound = 1 / math.sqrt(fan) if fan else 0
        self.weight = uniform((out_channels, in_channels // groups, *self.kernel_size), bound, dtype)
        self.register_parameter("bias", uniform((out_channels,), bound, dtype) if bias else None)

    def forward(self, input: Tensor) -> Tensor:
        found: Tensor = ops.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        return found

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0, 0):
            text += f", padding={self.padding}"
        if self.dilation != (1, 1):
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        return text if self.bias is not None else f"{text}, bias=False"


class BatchNorm2d(Module):
    """Normalisation over the batch, with running statistics that training updates."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        ones, zeros = float_array(np.ones(num_features), dtype), float_array(np.zeros(num_features), dtype)
        self.register_parameter("weight", Parameter(ones) if affine else None)
        self.register_parameter("bias", Parameter(zeros) if affine and bias else None)
        self.register_buffer("running_mean", zeros.copy() if track_running_stats else None)
        self.register_buffer("running_var", ones.copy() if track_running_stats else None)
        self.register_buffer("num_batches_tracked", np.array(0, np.int64) if track_running_stats else None)

    def forward(self, input: Tensor) -> Tensor:
        if not (self.training or self.running_mean is None):
            found: Tensor = ops.batch_norm(
                input,
                self.weight,
                self.bias,
                self.running_mean,
                self.running_var,
                False,
                self.momentum,
                self.eps,
                False,
            )
            return found
        return self._train(input)

    def _train(self, input: Tensor) -> Tensor:
        if self.running_mean is None:
            found: Tensor = ops._native_batch_norm_legit.no_stats(
                input, self.weight, self.bias, True, self.momentum, self.eps
            )[0]
            return found
        self.num_batches_tracked.add_(1)
        result, _, _, mean, var = ops._native_batch_norm_legit_functional(
            input, self.weight, self.bias, self.running_mean, self.running_var, True, self.momentum, self.eps
        )
        self.running_mean.copy_(mean)
        self.running_var.copy_(var)
        found = result
        return found

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.affine and self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class LayerNorm(Module):
    """Normalisation over the last dims."""

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps = pair(normalized_shape, 1), eps
        self.elementwise_affine = elementwise_affine
        ones = float_array(np.ones(self.normalized_shape), dtype)
        self.register_parameter("weight", Parameter(ones) if elementwise_affine else None)
        self.register_parameter("bias", Parameter(np.zeros_like(ones)) if elementwise_affine and bias else None)

    def forward(self, input: Tensor) -> Tensor:
        found: Tensor = ops.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps, False)
        return found

    def extra_repr(self) -> str:
        text = f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        return f"{text}, bias={self.bias is not None}"


class Embedding(Module):
    """A table of vectors."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        from flambeau.frontends.nn.initialize import generator

        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.weight = Parameter(float_array(generator().standard_normal((num_embeddings, embedding_dim)), dtype))
        if self.padding_idx is not None:
            self.weight.data[self.padding_idx] = 0

    def forward(self, input: Tensor) -> Tensor:
        found: Tensor = ops.embedding(self.weight, input, -1 if self.padding_idx is None else self.padding_idx)
        return found

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"


class ReLU(Module):
    """`max(x, 0)`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        found: Tensor = ops.relu_(input) if self.inplace else ops.relu(input)
        return found

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class GELU(Module):
    """The Gaussian error linear unit."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        found: Tensor = ops.gelu(input, approximate=self.approximate)
        return found

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Dropout(Module):
    """Zeroes elements at random in training; nothing otherwise."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        function = ops.dropout_ if self.inplace else ops.dropout
        found: Tensor = function(input, self.p, self.training)
        return found

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class MaxPool2d(Module):
    """The greatest element of each window."""

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride if stride is not None else kernel_size
        self.padding, self.dilation, self.ceil_mode = padding, dilation, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        found: Tensor = ops.max_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode
        )
        return found

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )
