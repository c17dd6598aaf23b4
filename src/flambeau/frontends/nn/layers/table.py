"""Layers that hold nothing but their arguments: a line each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from flambeau.frontends.nn.core.module import Module


class Layer(Module):
    """A layer that holds its arguments under their names, and computes a function of its inputs and of them."""

    compute: Callable[..., Any]
    """Takes the inputs by position, and by name what the layer holds and, if it wants it, `training`."""
    passed: tuple[str, ...] = ()
    tensors: frozenset[str] = frozenset()
    """Those of its arguments that are buffers."""
    text: str | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        bound = type(self).__signature__.bind(*args, **kwargs)  # type: ignore[attr-defined]
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            if name in self.tensors:
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        held = {name: getattr(self, name) for name in self.passed}
        return type(self).compute(*inputs, **(held | kwargs))

    def extra_repr(self) -> str:
        names = [name for name in self.passed if name != "training"]
        if self.text is None:
            shown = [f"{name}={getattr(self, name)!r}" for name in names if name != "inplace"]
        else:
            shown = [self.text.format(**self.__dict__)] if self.text else []
            names = [name for name in names if name not in self.text]
        return ", ".join([*shown, "inplace=True"] if "inplace" in names and self.inplace else shown)


def layer(
    name: str, compute: Callable[..., Any], text: str | None = None, tensors: str = "", base: type[Layer] = Layer
) -> type[Layer]:
    """Make a class of layers from a function: its inputs stand before a `/`, the arguments of the class behind it.

    `text` is what the layer shows of itself, `tensors` names the arguments that are buffers.
    """
    parameters = inspect.signature(compute).parameters.values()
    passed = [p for p in parameters if p.kind is not p.POSITIONAL_ONLY]
    attributes = {
        "__module__": "flambeau.nn",
        "__doc__": f"PyTorch's `{name}`.",
        "__signature__": inspect.Signature([p for p in passed if p.name != "training"]),
        "compute": staticmethod(compute),
        "passed": tuple(p.name for p in passed),
        "tensors": frozenset(tensors.split()),
        "text": text,
    }
    return type(name, (base,), attributes)
