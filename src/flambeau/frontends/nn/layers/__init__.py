"""The layers of `flambeau.nn`: one file for each family, which lists in `__all__` what it adds."""

from __future__ import annotations

from flambeau.frontends.nn.layers import (
    activation,
    convolution,
    linear,
    loss,
    normalization,
    padding,
    pooling,
    recurrent,
    transformer,
    vision,
)
from flambeau.frontends.nn.layers.activation import *  # noqa: F403
from flambeau.frontends.nn.layers.convolution import *  # noqa: F403
from flambeau.frontends.nn.layers.linear import *  # noqa: F403
from flambeau.frontends.nn.layers.loss import *  # noqa: F403
from flambeau.frontends.nn.layers.normalization import *  # noqa: F403
from flambeau.frontends.nn.layers.padding import *  # noqa: F403
from flambeau.frontends.nn.layers.pooling import *  # noqa: F403
from flambeau.frontends.nn.layers.recurrent import *  # noqa: F403
from flambeau.frontends.nn.layers.transformer import *  # noqa: F403
from flambeau.frontends.nn.layers.vision import *  # noqa: F403

__all__: list[str] = []
__all__ += activation.__all__
__all__ += convolution.__all__
__all__ += linear.__all__
__all__ += loss.__all__
__all__ += normalization.__all__
__all__ += padding.__all__
__all__ += pooling.__all__
__all__ += recurrent.__all__
__all__ += transformer.__all__
__all__ += vision.__all__
