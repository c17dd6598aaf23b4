"""`flambeau.nn`: modules and layers as in `torch.nn`, without PyTorch."""

from __future__ import annotations

from flambeau.frontends.nn.initialize import manual_seed
from flambeau.frontends.nn.layers import (
    GELU,
    BatchNorm2d,
    Conv2d,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    MaxPool2d,
    ReLU,
)
from flambeau.frontends.nn.module import (
    Buffer,
    Module,
    ModuleDict,
    ModuleList,
    Parameter,
    ParameterDict,
    ParameterList,
    Sequential,
)
from flambeau.frontends.nn.specs import TensorSpec

__all__ = [
    "GELU", "BatchNorm2d", "Buffer", "Conv2d", "Dropout", "Embedding", "LayerNorm", "Linear", "MaxPool2d", "Module",
    "ModuleDict", "ModuleList", "Parameter", "ParameterDict", "ParameterList", "ReLU", "Sequential", "TensorSpec",
    "manual_seed",
]  # fmt: skip
