"""Convolutions, and those that undo their strides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from flambeau.frontends.nn.core import ops
from flambeau.frontends.nn.core.module import Module
from flambeau.frontends.nn.functional.vision import each_dim
from flambeau.frontends.nn.layers.linear import uniform

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Module):
    """What all of them hold."""

    dims: ClassVar[int]

    def _hold(self, shape: Sequence[int], bias: bool, dtype: Any, **arguments: Any) -> None:
        """Take the arguments under their names, and make the weights; `shape` is of the weight but for the window."""
        for name, value in arguments.items():
            setattr(self, name, value)
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ValueError("in_channels and out_channels must be divisible by groups")
        if self.padding_mode not in PADDING_MODES:
            raise ValueError(f"padding_mode must be one of {PADDING_MODES}, but got padding_mode={self.padding_mode!r}")
        fan = shape[1] * math.prod(self.kernel_size)
        bound = 1 / math.sqrt(fan) if fan else 0
        self.weight = uniform((*shape, *self.kernel_size), bound, dtype)
        self.register_parameter("bias", uniform((self.out_channels,), bound, dtype) if bias else None)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        zeros, ones = (0,) * self.dims, (1,) * self.dims
        usual = {"padding": zeros, "dilation": ones, "output_padding": zeros, "groups": 1}
        for name, value in usual.items():
            if getattr(self, name, value) != value:
                text += f", {name}={getattr(self, name)}"
        text += "" if self.bias is not None else ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


class _Conv(_Convolution):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        kernel, strides, dilations = (each_dim(x, self.dims) for x in (kernel_size, stride, dilation))
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"invalid padding string {padding!r}, should be one of 'valid', 'same'")
            if padding == "same" and set(strides) != {1}:
                raise ValueError("padding='same' is not supported for strided convolutions")
        else:
            padding = each_dim(padding, self.dims)
        self._hold(
            (out_channels, in_channels // groups), bias, dtype, in_channels=in_channels, out_channels=out_channels,
            kernel_size=kernel, stride=strides, padding=padding, dilation=dilations, groups=groups,
            padding_mode=padding_mode,
        )  # fmt: skip

    def _around(self) -> list[int]:
        """List the padding before and after each dim, from the last dim on."""
        if self.padding == "valid":
            return [0] * (2 * self.dims)
        if self.padding == "same":
            totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
            return [n for total in reversed(totals) for n in (total // 2, total - total // 2)]
        return [p for p in reversed(self.padding) for _ in range(2)]

    def forward(self, input: Any) -> Any:
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = ops.pad(input, self._around(), self.padding_mode), (0,) * self.dims
        convolve = getattr(ops, f"conv{self.dims}d")
        return convolve(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv):
    """A convolution over one dim."""

    dims = 1


class Conv2d(_Conv):
    """A convolution over two dims."""

    dims = 2


class Conv3d(_Conv):
    """A convolution over three dims."""

    dims = 3


class _ConvTranspose(_Convolution):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros",
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        sizes = {"kernel_size": kernel_size, "stride": stride, "padding": padding, "output_padding": output_padding,
                 "dilation": dilation}  # fmt: skip
        self._hold(
            (in_channels, out_channels // groups), bias, dtype, in_channels=in_channels, out_channels=out_channels,
            groups=groups, padding_mode=padding_mode, **{k: each_dim(v, self.dims) for k, v in sizes.items()},
        )  # fmt: skip

    def forward(self, input: Any, output_size: Sequence[int] | None = None) -> Any:
        extra = self.output_padding if output_size is None else self._extra(input, list(output_size))
        convolve = getattr(ops, f"conv_transpose{self.dims}d")
        return convolve(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)

    def _extra(self, input: Any, output_size: list[int]) -> list[int]:
        """Return the output padding that gives this output size; ValueError if there is none."""
        found = []
        wanted, sizes = output_size[-self.dims :], input.shape[-self.dims :]
        parts = zip(wanted, sizes, self.kernel_size, self.stride, self.padding, self.dilation, strict=True)
        for want, size, kernel, stride, padding, dilation in parts:
            least = (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1
            if not least <= want < least + stride:
                raise ValueError(
                    f"requested an output size of {wanted}, but {want} is not in {least} to {least + stride - 1}"
                )
            found.append(want - least)
        return found


class ConvTranspose1d(_ConvTranspose):
    """The transpose of a convolution over one dim."""

    dims = 1


class ConvTranspose2d(_ConvTranspose):
    """The transpose of a convolution over two dims."""

    dims = 2


class ConvTranspose3d(_ConvTranspose):
    """The transpose of a convolution over three dims."""

    dims = 3
