"""The numbers that stand for words in PyTorch's programs."""

from __future__ import annotations

CONTIGUOUS, PRESERVE, CHANNELS_LAST, CHANNELS_LAST_3D = range(4)
MEMORY_FORMATS = {
    "contiguous_format": CONTIGUOUS, "preserve_format": PRESERVE, "channels_last": CHANNELS_LAST,
    "channels_last_3d": CHANNELS_LAST_3D,
}  # fmt: skip

NONE, MEAN, SUM = range(3)
REDUCTIONS = {"none": NONE, "mean": MEAN, "sum": SUM}
"""What a loss does with the losses of its elements."""

BILINEAR, NEAREST, BICUBIC = range(3)
GRID_MODES = {"bilinear": BILINEAR, "nearest": NEAREST, "bicubic": BICUBIC}
"""How `grid_sample` reads between pixels."""

ZEROS, BORDER, REFLECTION = range(3)
GRID_PADDINGS = {"zeros": ZEROS, "border": BORDER, "reflection": REFLECTION}
"""What `grid_sample` reads outside an image."""
