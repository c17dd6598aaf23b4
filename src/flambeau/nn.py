"""`flambeau.nn`: modules and layers as in `torch.nn`, without PyTorch.

`flambeau.nn.functional` and `flambeau.nn.init` are modules of their own, as PyTorch's are.
"""

from __future__ import annotations

import sys

from flambeau.frontends.nn import functional, init, layers
from flambeau.frontends.nn.core.module import (
    Buffer,
    Module,
    ModuleDict,
    ModuleList,
    Parameter,
    ParameterDict,
    ParameterList,
    Sequential,
)
from flambeau.frontends.nn.core.seed import manual_seed
from flambeau.frontends.nn.core.specs import TensorSpec
from flambeau.frontends.nn.layers import *  # noqa: F403

# Modules of this one, which is a file: `import flambeau.nn.functional as F` finds them here.
sys.modules[f"{__name__}.functional"] = functional
sys.modules[f"{__name__}.init"] = init

__all__ = [
    "Buffer", "Module", "ModuleDict", "ModuleList", "Parameter", "ParameterDict", "ParameterList", "Sequential",
    "TensorSpec", "functional", "init", "manual_seed",
]  # fmt: skip
__all__ += layers.__all__
