"""`flambeau.nn.init`: initialisers of parameters, in place, on numpy. Their random numbers follow `manual_seed`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flambeau.frontends.nn.core import seed as initialize
from flambeau.frontends.nn.core.lazy import np
from flambeau.frontends.nn.core.values import StoredTensor

if TYPE_CHECKING:
    from numpy.random import Generator

__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_",
    "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip

GAINS = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}
LINEAR = (
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid"
)  # fmt: skip


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple((tensor.data if isinstance(tensor, StoredTensor) else tensor).shape)


def _fill(tensor: Any, contents: Any) -> Any:
    """Give a parameter, buffer or array new contents. A parameter gets a new array: its old one may be a file."""
    if isinstance(tensor, StoredTensor):
        tensor.data = np.broadcast_to(np.asarray(contents), tensor.data.shape).astype(tensor.data.dtype)
    elif isinstance(tensor, np.ndarray):
        tensor[...] = contents
    else:
        raise TypeError(f"an initialiser takes a parameter, a buffer or an array, not {type(tensor).__name__}")
    return tensor


def _fans(tensor: Any) -> tuple[int, int]:
    shape = _shape(tensor)
    if len(shape) < 2:
        raise ValueError("fan in and fan out can not be computed for a tensor with fewer than 2 dimensions")
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return a nonlinearity's factor on the standard deviation; `param` is the slope of a leaky ReLU."""
    if nonlinearity in LINEAR:
        return 1
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return GAINS[nonlinearity]


def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Any:
    return _fill(tensor, (generator or initialize.generator()).uniform(a, b, _shape(tensor)))


def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Any:
    return _fill(tensor, (generator or initialize.generator()).normal(mean, std, _shape(tensor)))


def trunc_normal_(
    tensor: Any, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
    generator: Generator | None = None,
) -> Any:  # fmt: skip
    """Draw from the normal distribution truncated to [a, b], by rejection; from a uniform one where few lie inside."""
    source, shape = generator or initialize.generator(), _shape(tensor)
    low, high = (a - mean) / std, (b - mean) / std
    inside = (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2))) / 2
    peak = min(max(low, 0.0), high) if low <= high else low
    found, missing = np.empty(shape), np.ones(shape, bool)
    while count := int(missing.sum()):
        if inside > 0.3:
            drawn = source.standard_normal(count)
            kept = (drawn >= low) & (drawn <= high)
        else:
            drawn = source.uniform(low, high, count)
            kept = source.random(count) <= np.exp((peak**2 - drawn**2) / 2)
        places = np.flatnonzero(missing)[kept]
        found.reshape(-1)[places] = drawn[kept]
        missing.reshape(-1)[places] = False
    return _fill(tensor, np.clip(found * std + mean, a, b))


def constant_(tensor: Any, val: float) -> Any:
    return _fill(tensor, val)


def ones_(tensor: Any) -> Any:
    return _fill(tensor, 1)


def zeros_(tensor: Any) -> Any:
    return _fill(tensor, 0)


def eye_(tensor: Any) -> Any:
    """Fill with the identity matrix."""
    if len(_shape(tensor)) != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return _fill(tensor, np.eye(_shape(tensor)[0], _shape(tensor)[1]))


def dirac_(tensor: Any, groups: int = 1) -> Any:
    """Fill a convolution's weight so that each group passes its input on (Dirac delta)."""
    shape = _shape(tensor)
    if len(shape) not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if shape[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    found, size = np.zeros(shape), shape[0] // groups
    middle = tuple(d // 2 for d in shape[2:])
    for group in range(groups):
        for i in range(min(size, shape[1])):
            found[(group * size + i, i, *middle)] = 1
    return _fill(tensor, found)


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Generator | None = None) -> Any:
    """Draw uniformly in ±gain*sqrt(6 / (fan_in + fan_out)), which keeps the variance of signals and gradients."""
    bound = gain * math.sqrt(6.0 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Generator | None = None) -> Any:
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_fans(tensor))), generator)


def _kaiming_std(tensor: Any, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return calculate_gain(nonlinearity, a) / math.sqrt(_fans(tensor)[mode == "fan_out"])


def kaiming_uniform_(
    tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Any:  # fmt: skip
    """Draw uniformly in ±gain*sqrt(3 / fan), which keeps the variance through rectifiers."""
    if 0 in _shape(tensor):
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Any:  # fmt: skip
    if 0 in _shape(tensor):
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Any, gain: float = 1, generator: Generator | None = None) -> Any:
    """Draw a random matrix with orthogonal rows or columns, whichever are fewer; later dims count as columns."""
    shape = _shape(tensor)
    if len(shape) < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if 0 in shape:
        return tensor
    rows, columns = shape[0], math.prod(shape[1:])
    drawn = (generator or initialize.generator()).standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(drawn)
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)  # one of each pair of signs: all such matrices are as likely
    return _fill(tensor, gain * (q if rows >= columns else q.T).reshape(shape))


def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Any:
    """Draw from a normal distribution, then set a share of each column to zero."""
    shape = _shape(tensor)
    if len(shape) != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    source = generator or initialize.generator()
    found = source.normal(0.0, std, shape)
    for column in range(shape[1]):
        found[source.permutation(shape[0])[: math.ceil(sparsity * shape[0])], column] = 0
    return _fill(tensor, found)
