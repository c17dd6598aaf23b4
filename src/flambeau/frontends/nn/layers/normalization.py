"""Normalisation."""

from __future__ import annotations

from typing import Any, ClassVar

from flambeau.frontends.nn import functional as F
from flambeau.frontends.nn.core.lazy import np
from flambeau.frontends.nn.core.module import Module, Parameter
from flambeau.frontends.nn.functional.vision import each_dim
from flambeau.frontends.nn.layers.linear import float_array
from flambeau.frontends.nn.layers.table import layer

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
    "LayerNorm", "LocalResponseNorm", "RMSNorm",
]  # fmt: skip


def _add_affine(module: Module, shape: Any, weight: bool, bias: bool, dtype: Any) -> None:
    """Give a module a scale `weight` and a shift `bias` of a shape, or None where they are not wanted."""
    module.register_parameter("weight", Parameter(float_array(np.ones(shape), dtype)) if weight else None)
    module.register_parameter("bias", Parameter(float_array(np.zeros(shape), dtype)) if weight and bias else None)


class _Running(Module):
    """What keeps running statistics of its channels."""

    ranks: ClassVar[tuple[int, ...]]
    """The numbers of dims that it takes."""

    def _hold_all(
        self, num_features: int, eps: float, momentum: float | None, affine: bool, track_running_stats: bool,
        dtype: Any, bias: bool,
    ) -> None:  # fmt: skip
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        _add_affine(self, num_features, affine, bias, dtype)
        kept = track_running_stats
        self.register_buffer("running_mean", float_array(np.zeros(num_features), dtype) if kept else None)
        self.register_buffer("running_var", float_array(np.ones(num_features), dtype) if kept else None)
        self.register_buffer("num_batches_tracked", np.array(0, np.int64) if kept else None)

    def _check(self, input: Any) -> None:
        if input.ndim not in self.ranks:
            wanted = " or ".join(f"{rank}D" for rank in self.ranks)
            raise ValueError(f"expected {wanted} input (got {input.ndim}D input)")

    def _factor(self) -> float:
        """Return the share of new statistics in the running ones."""
        if self.momentum is None:
            raise NotImplementedError(
                "momentum=None takes the mean over all batches, whose number only the run time knows: give a momentum"
            )
        return float(self.momentum)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.affine and self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_Running):
    """Normalisation over the batch, with running statistics that training updates."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self._hold_all(num_features, eps, momentum, affine, track_running_stats, dtype, bias)

    def forward(self, input: Any) -> Any:
        self._check(input)
        updated = self.training and self.running_mean is not None
        if updated:
            self.num_batches_tracked.add_(1)
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or self.running_mean is None, self._factor() if updated else self.momentum or 0.0, self.eps,
        )  # fmt: skip


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of vectors or sequences."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of images."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of volumes."""

    ranks = (5,)


class _InstanceNorm(_Running):
    """Normalisation of each channel of each sample."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self._hold_all(num_features, eps, momentum, affine, track_running_stats, dtype, bias)

    def forward(self, input: Any) -> Any:
        self._check(input)
        single = input.ndim == self.ranks[0]
        found = F.instance_norm(
            input.unsqueeze(0) if single else input, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats, self._factor(), self.eps,
        )  # fmt: skip
        return found.squeeze(0) if single else found


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of sequences."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of images."""

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of volumes."""

    ranks = (4, 5)


class GroupNorm(Module):
    """Normalisation of groups of channels."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None,
        dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise ValueError("num_channels must be divisible by num_groups")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        _add_affine(self, num_channels, affine, bias, dtype)

    def forward(self, input: Any) -> Any:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        text = f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
        return f"{text}, bias={self.affine and self.bias is not None}"


class LayerNorm(Module):
    """Normalisation over the last dims."""

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape, self.eps = each_dim(normalized_shape, 1), eps
        self.elementwise_affine = elementwise_affine
        _add_affine(self, self.normalized_shape, elementwise_affine, bias, dtype)

    def forward(self, input: Any) -> Any:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        text = f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        return f"{text}, bias={self.bias is not None}"


class RMSNorm(Module):
    """Division by the root of the mean square over the last dims."""

    def __init__(
        self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape, self.eps = each_dim(normalized_shape, 1), eps
        self.elementwise_affine = elementwise_affine
        _add_affine(self, self.normalized_shape, elementwise_affine, False, dtype)
        del self.bias

    def forward(self, input: Any) -> Any:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


LocalResponseNorm = layer(
    "LocalResponseNorm",
    lambda x, /, size, alpha=1e-4, beta=0.75, k=1.0: F.local_response_norm(x, size, alpha, beta, k),
    "{size}, alpha={alpha}, beta={beta}, k={k}",
)
