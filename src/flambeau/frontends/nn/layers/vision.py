"""Resampling, shuffling, windows; distances."""

from __future__ import annotations

from typing import Any

from flambeau.frontends.nn import functional as F
from flambeau.frontends.nn.core import ops
from flambeau.frontends.nn.layers.table import Layer, layer

__all__ = [
    "ChannelShuffle", "CosineSimilarity", "Fold", "PairwiseDistance", "PixelShuffle", "PixelUnshuffle", "Unfold",
    "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d",
]  # fmt: skip

_WINDOWS = "kernel_size={kernel_size}, dilation={dilation}, padding={padding}, stride={stride}"

ChannelShuffle = layer("ChannelShuffle", lambda x, /, groups: ops.channel_shuffle(x, groups))
CosineSimilarity = layer("CosineSimilarity", lambda x, y, /, dim=1, eps=1e-8: ops.cosine_similarity(x, y, dim, eps), "")
Fold = layer(
    "Fold",
    lambda x, /, output_size, kernel_size, dilation=1, padding=0, stride=1: F.fold(
        x, output_size, kernel_size, dilation, padding, stride
    ),
    "output_size={output_size}, " + _WINDOWS,
)
PairwiseDistance = layer(
    "PairwiseDistance", lambda x, y, /, p=2.0, eps=1e-6, keepdim=False: ops.pairwise_distance(x, y, p, eps, keepdim), ""
)
PixelShuffle = layer("PixelShuffle", lambda x, /, upscale_factor: ops.pixel_shuffle(x, upscale_factor))
PixelUnshuffle = layer("PixelUnshuffle", lambda x, /, downscale_factor: ops.pixel_unshuffle(x, downscale_factor))
Unfold = layer(
    "Unfold",
    lambda x, /, kernel_size, dilation=1, padding=0, stride=1: F.unfold(x, kernel_size, dilation, padding, stride),
    _WINDOWS,
)


class _Upsample(Layer):
    """By a size or by a factor."""

    mode: str
    scale_factor: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.scale_factor is not None:
            many = isinstance(self.scale_factor, (list, tuple))
            self.scale_factor = tuple(map(float, self.scale_factor)) if many else float(self.scale_factor)

    def extra_repr(self) -> str:
        name = "size" if self.scale_factor is None else "scale_factor"
        return f"{name}={getattr(self, name)!r}, mode={self.mode!r}"


Upsample = layer(
    "Upsample",
    lambda x, /, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None: (
        F.interpolate(x, size, scale_factor, mode, align_corners, recompute_scale_factor)
    ),
    base=_Upsample,
)


def _upsampling(name: str, mode: str, align_corners: bool | None) -> type[Layer]:
    found = layer(
        name,
        lambda x, /, size=None, scale_factor=None: F.interpolate(x, size, scale_factor, mode, align_corners),
        base=_Upsample,
    )
    found.mode = mode  # type: ignore[attr-defined]
    return found


UpsamplingBilinear2d = _upsampling("UpsamplingBilinear2d", "bilinear", True)
UpsamplingNearest2d = _upsampling("UpsamplingNearest2d", "nearest", None)
