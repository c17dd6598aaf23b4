"""Padding."""

from __future__ import annotations

from typing import Any

from flambeau.frontends.nn import functional as F
from flambeau.frontends.nn.functional.vision import each_dim
from flambeau.frontends.nn.layers.table import Layer, layer

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


def _pad(name: str, count: int, mode: str) -> type[Layer]:
    """Make a layer that pads `count` dims; one number stands for all sides."""

    class Pad(Layer):
        padding: Any

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.padding = each_dim(self.padding, 2 * count)

    if name.startswith("Constant"):
        return layer(name, lambda x, /, padding, value: F.pad(x, padding, mode, value), base=Pad)
    value = 0.0 if mode == "constant" else None
    return layer(name, lambda x, /, padding: F.pad(x, padding, mode, value), "{padding}", base=Pad)


CircularPad1d = _pad("CircularPad1d", 1, "circular")
CircularPad2d = _pad("CircularPad2d", 2, "circular")
CircularPad3d = _pad("CircularPad3d", 3, "circular")
ConstantPad1d = _pad("ConstantPad1d", 1, "constant")
ConstantPad2d = _pad("ConstantPad2d", 2, "constant")
ConstantPad3d = _pad("ConstantPad3d", 3, "constant")
ReflectionPad1d = _pad("ReflectionPad1d", 1, "reflect")
ReflectionPad2d = _pad("ReflectionPad2d", 2, "reflect")
ReflectionPad3d = _pad("ReflectionPad3d", 3, "reflect")
ReplicationPad1d = _pad("ReplicationPad1d", 1, "replicate")
ReplicationPad2d = _pad("ReplicationPad2d", 2, "replicate")
ReplicationPad3d = _pad("ReplicationPad3d", 3, "replicate")
ZeroPad1d = _pad("ZeroPad1d", 1, "constant")
ZeroPad2d = _pad("ZeroPad2d", 2, "constant")
ZeroPad3d = _pad("ZeroPad3d", 3, "constant")
