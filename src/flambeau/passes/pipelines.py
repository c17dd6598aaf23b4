"""Passes by name, and the pipelines made of them."""

from __future__ import annotations

from collections.abc import Container

from xdsl.dialects.builtin import ModuleOp


def decomposed_ops() -> Container[str]:
    """The ops that our own decompositions take apart."""
    return ()


def to_backend_contract(module: ModuleOp) -> ModuleOp:
    """From what a frontend gives to what every lowering takes."""
    return module
