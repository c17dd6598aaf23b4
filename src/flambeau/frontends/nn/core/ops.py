"""The functions of PyTorch, on values of a program. Each name is made from PyTorch's registry when it is asked for."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "Tensor":
        from flambeau.frontends.nn.core.values import Tensor

        return Tensor
    if name == "manual_seed":
        from flambeau.frontends.nn.core.seed import manual_seed

        return manual_seed
    from flambeau.frontends.nn.core.operators import function

    return function(name)


def __dir__() -> list[str]:
    from flambeau.frontends.nn.core.operators import function_names

    return [*function_names(), "Tensor", "manual_seed"]
