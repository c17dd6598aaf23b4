"""`flambeau.ops`: PyTorch's functions on values of a program, without PyTorch."""

from __future__ import annotations

from flambeau.frontends.nn.core.ops import __dir__, __getattr__

__all__ = ["__dir__", "__getattr__"]
