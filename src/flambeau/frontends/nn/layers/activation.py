"""Activations, and dropout."""

from __future__ import annotations

from typing import Any

from flambeau.frontends.nn import functional as F
from flambeau.frontends.nn.core import ops
from flambeau.frontends.nn.core.lazy import np
from flambeau.frontends.nn.core.module import Module, Parameter
from flambeau.frontends.nn.layers.linear import float_array
from flambeau.frontends.nn.layers.table import Layer, layer

__all__ = [
    "AlphaDropout", "CELU", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "ELU", "FeatureAlphaDropout", "GELU",
    "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish",
    "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus",
    "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip

CELU = layer("CELU", lambda x, /, alpha=1.0, inplace=False: F.celu(x, alpha, inplace))
ELU = layer("ELU", lambda x, /, alpha=1.0, inplace=False: F.elu(x, alpha, inplace))
GELU = layer("GELU", lambda x, /, approximate="none": ops.gelu(x, approximate=approximate))
GLU = layer("GLU", lambda x, /, dim=-1: ops.glu(x, dim))
Hardshrink = layer("Hardshrink", lambda x, /, lambd=0.5: ops.hardshrink(x, lambd), "{lambd}")
Hardsigmoid = layer("Hardsigmoid", lambda x, /, inplace=False: F.hardsigmoid(x, inplace), "")
Hardswish = layer("Hardswish", lambda x, /, inplace=False: F.hardswish(x, inplace), "")
LeakyReLU = layer(
    "LeakyReLU", lambda x, /, negative_slope=0.01, inplace=False: F.leaky_relu(x, negative_slope, inplace)
)
LogSigmoid = layer("LogSigmoid", lambda x, /: ops.log_sigmoid(x))
LogSoftmax = layer("LogSoftmax", lambda x, /, dim=None: F.log_softmax(x, dim))
Mish = layer("Mish", lambda x, /, inplace=False: F.mish(x, inplace))
RReLU = layer(
    "RReLU",
    lambda x, /, lower=1 / 8, upper=1 / 3, inplace=False, training=True: F.rrelu(x, lower, upper, training, inplace),
)
ReLU = layer("ReLU", lambda x, /, inplace=False: F.relu(x, inplace))
ReLU6 = layer("ReLU6", lambda x, /, inplace=False: F.hardtanh(x, 0.0, 6.0, inplace))
SELU = layer("SELU", lambda x, /, inplace=False: F.selu(x, inplace))
SiLU = layer("SiLU", lambda x, /, inplace=False: F.silu(x, inplace))
Sigmoid = layer("Sigmoid", lambda x, /: ops.sigmoid(x))
Softmax = layer("Softmax", lambda x, /, dim=None: F.softmax(x, dim))
Softmax2d = layer("Softmax2d", lambda x, /: ops.softmax(x, -3))
Softmin = layer("Softmin", lambda x, /, dim=None: F.softmin(x, dim))
Softplus = layer("Softplus", lambda x, /, beta=1.0, threshold=20.0: ops.softplus(x, beta, threshold))
Softshrink = layer("Softshrink", lambda x, /, lambd=0.5: ops.softshrink(x, lambd), "{lambd}")
Softsign = layer("Softsign", lambda x, /: F.softsign(x))
Tanh = layer("Tanh", lambda x, /: ops.tanh(x))
Tanhshrink = layer("Tanhshrink", lambda x, /: F.tanhshrink(x))
Threshold = layer("Threshold", lambda x, /, threshold, value, inplace=False: F.threshold(x, threshold, value, inplace))


class _Hardtanh(Layer):
    """`min_value` and `max_value` are older names of the bounds."""

    min_val: float
    max_val: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.min_val = self.min_val if self.min_value is None else self.min_value
        self.max_val = self.max_val if self.max_value is None else self.max_value


Hardtanh = layer(
    "Hardtanh",
    lambda x, /, min_val=-1.0, max_val=1.0, inplace=False, min_value=None, max_value=None: F.hardtanh(
        x, min_val, max_val, inplace
    ),
    "min_val={min_val}, max_val={max_val}",
    base=_Hardtanh,
)


class PReLU(Module):
    """A leaky ReLU with slopes that are weights: one, or one for each channel."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(float_array(np.full(num_parameters, init), dtype))

    def forward(self, input: Any) -> Any:
        return ops.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


# --- Dropout ---


class _Dropout(Layer):
    """Nothing in evaluation; in training, an error: programs have no random numbers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not 0 <= self.p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {self.p}")


def _dropout(name: str, function: str) -> type[Layer]:
    def compute(x: Any, /, p: float = 0.5, inplace: bool = False, training: bool = True) -> Any:
        return getattr(F, function)(x, p, training, inplace)

    return layer(name, compute, "p={p}, inplace={inplace}", base=_Dropout)


AlphaDropout = _dropout("AlphaDropout", "alpha_dropout")
Dropout = _dropout("Dropout", "dropout")
Dropout1d = _dropout("Dropout1d", "dropout1d")
Dropout2d = _dropout("Dropout2d", "dropout2d")
Dropout3d = _dropout("Dropout3d", "dropout3d")
FeatureAlphaDropout = _dropout("FeatureAlphaDropout", "feature_alpha_dropout")
