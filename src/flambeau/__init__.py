"""Flambeau takes PyTorch programs to MLIR."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flambeau import fx as fx
    from flambeau import helion as helion
    from flambeau import lazy as lazy
    from flambeau import nn as nn
    from flambeau import ops as ops
    from flambeau import torchscript as torchscript
    from flambeau.api import Module as Module
    from flambeau.api import OutputType as OutputType
    from flambeau.api import compile as compile
    from flambeau.api import load as load
    from flambeau.custom_ops import decompose as decompose
    from flambeau.custom_ops import lower as lower
    from flambeau.custom_ops import register_dialect as register_dialect
    from flambeau.diagnostics import CompileError as CompileError
    from flambeau.diagnostics import Diagnostic as Diagnostic
    from flambeau.frontends.nn.core.context import set_default_dtype as set_default_dtype
    from flambeau.tracing import module_context as module_context
    from flambeau.tracing import trace as trace
    from flambeau.training import export_train_step as export_train_step

__version__ = "0.1.0"

_HOMES = {
    "compile": "flambeau.api",
    "export_train_step": "flambeau.training",
    "load": "flambeau.api",
    "decompose": "flambeau.custom_ops",
    "lower": "flambeau.custom_ops",
    "register_dialect": "flambeau.custom_ops",
    "Module": "flambeau.api",
    "OutputType": "flambeau.api",
    "CompileError": "flambeau.diagnostics",
    "Diagnostic": "flambeau.diagnostics",
    "module_context": "flambeau.tracing",
    "set_default_dtype": "flambeau.frontends.nn.core.context",
    "trace": "flambeau.tracing",
}
_SUBMODULES = ("fx", "helion", "lazy", "nn", "ops", "torchscript")

__all__ = [
    "CompileError", "Diagnostic", "Module", "OutputType", "compile", "decompose", "export_train_step", "fx", "load",
    "lower", "module_context", "nn", "ops", "register_dialect", "set_default_dtype", "torchscript", "trace",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `import flambeau` costs nothing.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _SUBMODULES:
        return import_module(f"flambeau.{name}")
    raise AttributeError(f"module 'flambeau' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
