"""Rearrangements in terms of views and permutations."""

from __future__ import annotations

import math
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.infer.builder import TorchBuilder
from flambeau.passes.decompose.rules import decomposition


@decomposition("aten.pixel_shuffle")
def pixel_shuffle(t: TorchBuilder, x: SSAValue, factor: int) -> SSAValue:
    *batch, channels, height, width = t.shape(x)
    n, r = len(batch), factor
    split = t.view(x, [*batch, _over(t, channels, r * r), r, r, height, width])
    mixed = t.permute(split, [*range(n), n, n + 3, n + 1, n + 4, n + 2])
    return t.reshape(mixed, [*batch, _over(t, channels, r * r), _times(t, height, r), _times(t, width, r)])


@decomposition("aten.pixel_unshuffle")
def pixel_unshuffle(t: TorchBuilder, x: SSAValue, factor: int) -> SSAValue:
    *batch, channels, height, width = t.shape(x)
    n, r = len(batch), factor
    small = [_over(t, height, r), _over(t, width, r)]
    split = t.view(x, [*batch, channels, small[0], r, small[1], r])
    mixed = t.permute(split, [*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return t.reshape(mixed, [*batch, _times(t, channels, r * r), *small])


@decomposition("aten.channel_shuffle")
def channel_shuffle(t: TorchBuilder, x: SSAValue, groups: int) -> SSAValue:
    batch, channels, *rest = t.shape(x)
    split = t.view(x, [batch, groups, _over(t, channels, groups), *rest])
    return t.reshape(t.transpose(split, 1, 2), [batch, channels, *rest])


def _times(t: TorchBuilder, size: int | SSAValue, factor: int) -> int | SSAValue:
    return size * factor if isinstance(size, int) else t.op("aten.mul.int", (size, t.constant(factor)), (size.type,))[0]


def _over(t: TorchBuilder, size: int | SSAValue, factor: int) -> int | SSAValue:
    if isinstance(size, int):
        return size // factor
    return t.op("aten.floordiv.int", (size, t.constant(factor)), (size.type,))[0]


@decomposition("aten.resize")
def resize(t: TorchBuilder, x: SSAValue, sizes: list[Any], memory_format: Any) -> SSAValue:
    """The same elements in another shape; there may be fewer, but what more of them would be is not defined."""
    old, new = t.shape(x), list(sizes)
    if not all(isinstance(n, int) for n in (*old, *new)) or math.prod(new) > math.prod(old):
        raise Unsupported("a tensor that is resized to more elements has contents that nothing defines")
    return t.reshape(t.slice(t.reshape(x, [-1]), 0, 0, math.prod(new)), new)


@decomposition("aten.resize_as")
def resize_as(t: TorchBuilder, x: SSAValue, like: SSAValue, memory_format: Any) -> SSAValue:
    return resize(t, x, t.shape(like), memory_format)
