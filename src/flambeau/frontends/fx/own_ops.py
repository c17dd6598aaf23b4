"""Ops of our own in traced programs, for what PyTorch has no op for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from flambeau.dialects.torch import registry


@contextmanager
def whole_permutations() -> Iterator[None]:
    """Make a traced `permute_tensor` say where each rank sends its tensor.

    PyTorch has no op for it. It calls `all_to_all_single` with the sizes that the rank which traces sends and receives,
    from which nobody can tell what the other ranks do. Only while TRACING is held: the hook is PyTorch's own module.
    """
    collectives: Any = sys.modules.get("torch.distributed._functional_collectives")
    if collectives is None:
        yield
        return
    original = collectives.all_to_all_single

    def all_to_all_single(x: Any, outputs: Any, inputs: Any, group: Any, tag: str = "") -> Any:
        caller = sys._getframe(1)
        if caller.f_code is not collectives.permute_tensor.__code__:
            return original(x, outputs, inputs, group, tag)
        name = collectives._resolve_group_name(group, tag)
        return own_op("permute_tensor")(x, list(caller.f_locals["src_dst"]), str(name))

    collectives.all_to_all_single = all_to_all_single
    try:
        yield
    finally:
        collectives.all_to_all_single = original


@cache
def own_op(base: str) -> Any:
    """Declare an op of our own to PyTorch, which traces it: `flambeau::permute_tensor`.

    It gives a tensor like its first argument.
    """
    library = torch.library.Library("flambeau", "FRAGMENT")
    library.define(f"{base}{registry.OWN[f'flambeau.{base}']}")
    library.impl(base, lambda x, *args: torch.empty_like(x), "Meta")
    _KEPT.append(library)
    return getattr(torch.ops.flambeau, base).default


_KEPT: list[Any] = []
"""Libraries, which PyTorch forgets with the last reference to them."""
