"""Pooling, and its inverse."""

from __future__ import annotations

from typing import Any

from flambeau.frontends.nn import functional as F
from flambeau.frontends.nn.core import ops
from flambeau.frontends.nn.functional.vision import each_dim
from flambeau.frontends.nn.layers.table import Layer, layer

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d",
    "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip


class _Windows(Layer):
    """Windows lie side by side unless a stride is given."""

    stride: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stride = self.kernel_size if self.stride is None else self.stride


def _lists(count: int) -> type[Layer]:
    """Make a base class of pooling layers that keeps window sizes for each dim."""

    class Lists(_Windows):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            for name in ("kernel_size", "stride", "padding"):
                setattr(self, name, each_dim(getattr(self, name), count))

    return Lists


_SIZES = "kernel_size={kernel_size}, stride={stride}, padding={padding}"


def _max_pool(name: str, function: str) -> type[Layer]:
    def compute(
        x: Any, /, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        return getattr(F, function)(x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)

    return layer(name, compute, _SIZES + ", dilation={dilation}, ceil_mode={ceil_mode}", base=_Windows)


def _avg_pool(name: str, function: str) -> type[Layer]:
    def compute(
        x: Any, /, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Any:  # fmt: skip
        pool = getattr(ops, function)
        return pool(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)

    return layer(name, compute, _SIZES, base=_Windows)


def _unpool(name: str, function: str, count: int) -> type[Layer]:
    class Unpool(_lists(count)):  # type: ignore[misc]
        def forward(self, input: Any, indices: Any, output_size: Any = None) -> Any:
            return super().forward(input, indices, output_size)

    return layer(
        name,
        lambda x, indices, size, /, kernel_size, stride=None, padding=0: getattr(F, function)(
            x, indices, kernel_size, stride, padding, size
        ),
        _SIZES,
        base=Unpool,
    )


def _lp_pool(name: str, function: str) -> type[Layer]:
    def compute(x: Any, /, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
        return getattr(F, function)(x, float(norm_type), kernel_size, stride, ceil_mode)

    return layer(name, compute)


def _adaptive(name: str, function: str) -> type[Layer]:
    if "max" not in function:
        return layer(name, lambda x, /, output_size: getattr(F, function)(x, output_size))
    return layer(
        name,
        lambda x, /, output_size, return_indices=False: getattr(F, function)(x, output_size, return_indices),
        "output_size={output_size}",
    )


AdaptiveAvgPool1d = _adaptive("AdaptiveAvgPool1d", "adaptive_avg_pool1d")
AdaptiveAvgPool2d = _adaptive("AdaptiveAvgPool2d", "adaptive_avg_pool2d")
AdaptiveAvgPool3d = _adaptive("AdaptiveAvgPool3d", "adaptive_avg_pool3d")
AdaptiveMaxPool1d = _adaptive("AdaptiveMaxPool1d", "adaptive_max_pool1d")
AdaptiveMaxPool2d = _adaptive("AdaptiveMaxPool2d", "adaptive_max_pool2d")
AdaptiveMaxPool3d = _adaptive("AdaptiveMaxPool3d", "adaptive_max_pool3d")
AvgPool1d = layer(
    "AvgPool1d",
    lambda x, /, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True: ops.avg_pool1d(
        x, kernel_size, stride, padding, ceil_mode, count_include_pad
    ),
    _SIZES,
    base=_lists(1),
)
AvgPool2d = _avg_pool("AvgPool2d", "avg_pool2d")
AvgPool3d = _avg_pool("AvgPool3d", "avg_pool3d")
LPPool1d = _lp_pool("LPPool1d", "lp_pool1d")
LPPool2d = _lp_pool("LPPool2d", "lp_pool2d")
LPPool3d = _lp_pool("LPPool3d", "lp_pool3d")
MaxPool1d = _max_pool("MaxPool1d", "max_pool1d")
MaxPool2d = _max_pool("MaxPool2d", "max_pool2d")
MaxPool3d = _max_pool("MaxPool3d", "max_pool3d")
MaxUnpool1d = _unpool("MaxUnpool1d", "max_unpool1d", 1)
MaxUnpool2d = _unpool("MaxUnpool2d", "max_unpool2d", 2)
MaxUnpool3d = _unpool("MaxUnpool3d", "max_unpool3d", 3)
