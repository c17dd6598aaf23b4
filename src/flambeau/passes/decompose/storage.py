"""Where the elements of a value lie in memory, for the ops that ask: a strided view counts from what it is a view of.

A value of the torch dialect lies nowhere. But a program that calls `x.t().as_strided(...)` means the memory of `x`: the
chain of views from it says where each element is. Arguments and literals lie in order, and so do the results of ops
that give new tensors if their operands do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Block, SSAValue

from flambeau.dialects.torch.enums import CONTIGUOUS, PRESERVE
from flambeau.dialects.torch.ops import LiteralOp, StaticInfoCastOp, TorchOp
from flambeau.dialects.torch.types import TensorType, static_shape
from flambeau.infer.builder import python_value


@dataclass(frozen=True)
class Place:
    """How a value lies in the memory of another one, which lies in order."""

    base: SSAValue
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def is_in_order(self) -> bool:
        pairs = zip(self.shape, self.strides, contiguous_strides(self.shape), strict=True)
        return 0 in self.shape or all(d == 1 or s == c for d, s, c in pairs)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Compute the strides of a tensor that lies in row-major order."""
    return tuple(math.prod(max(d, 1) for d in shape[i + 1 :]) for i in range(len(shape)))


_SAME = frozenset({"aten.detach", "aten.alias", "aten.lift_fresh", "prim.alias"})
_NEW = frozenset(
    {
        "aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar", "aten.mul.Tensor",
        "aten.mul.Scalar", "aten.div.Tensor", "aten.div.Scalar", "aten.neg", "aten.abs", "aten.relu", "aten.sigmoid",
        "aten.tanh", "aten.exp", "aten.log", "aten.sqrt", "aten.where.self", "aten.clamp", "aten.to.dtype",
        "aten.mm", "aten.addmm", "aten.bmm",
        "aten.cat", "aten.stack", "aten.zeros", "aten.ones", "aten.full", "aten.arange", "aten.arange.start",
        "aten.zeros_like", "aten.ones_like", "aten.full_like", "aten.contiguous", "aten.clone", "aten._to_copy",
        "aten.lift_fresh_copy", "aten.pad", "aten.constant_pad_nd", "aten.reflection_pad1d", "aten.reflection_pad2d",
        "aten.reflection_pad3d", "aten.replication_pad1d", "aten.replication_pad2d", "aten.replication_pad3d",
    }
)  # fmt: skip
"""Ops whose result lies in order where their operands do."""


_FILLED = frozenset(
    {
        "aten.slice_scatter", "aten.select_scatter", "aten.as_strided_scatter", "aten.diagonal_scatter",
        "aten.index_put", "aten.index_add", "aten.index_copy", "aten.index_fill.int_Scalar",
        "aten.index_fill.int_Tensor", "aten.scatter.src", "aten.scatter.value", "aten.scatter_add", "aten.copy",
        "aten.fill.Scalar", "aten.fill.Tensor",
    }
)  # fmt: skip
"""Ops whose result lies as the tensor of which they replace a part."""

_MADE = frozenset({"aten.new_zeros", "aten.new_ones", "aten.new_full", "aten.new_empty", "aten.empty.memory_format"})
"""Ops whose result lies in order, whatever their operands do."""

_STRIDED = {"aten.new_empty_strided": 2, "aten.empty_strided": 1}
"""Ops whose result lies as an argument says, and which one."""


def place_of(value: SSAValue) -> Place | None:
    """Find how a value lies in memory; None where that is not known."""
    shape = static_shape(value.type)
    owner = value.owner
    if shape is None:
        return None
    in_order = Place(value, shape, contiguous_strides(shape), 0)
    if isinstance(owner, Block | LiteralOp):
        return in_order
    if isinstance(owner, StaticInfoCastOp):
        return place_of(owner.operands[0])
    if not isinstance(owner, TorchOp):
        return None
    name = owner.overload
    arguments = [python_value(o) for o in owner.operands]
    if name in _NEW or name in _FILLED:
        return in_order if _gives_in_order(name, arguments) else None
    if name in _MADE or (name in _STRIDED and arguments[_STRIDED[name]] == [*in_order.strides]):
        return in_order
    if not arguments or not isinstance(arguments[0], SSAValue) or _numbers(arguments[1:]) is None:
        return None
    source = place_of(arguments[0])
    return None if source is None else _through(name, source, arguments[1:], shape, in_order)


def _gives_in_order(name: str, arguments: Sequence[Any]) -> bool:
    if name in ("aten.clone", "aten.contiguous") and arguments[1] == CONTIGUOUS:
        return True
    keeps_order = (None, CONTIGUOUS, PRESERVE)
    if name in ("aten.clone", "aten.contiguous", "aten.to.dtype", "aten._to_copy") and arguments[-1] not in keeps_order:
        return False
    if name in _FILLED:
        arguments = arguments[:1]
    tensors = [v for a in arguments for v in (a if isinstance(a, list) else [a]) if isinstance(v, SSAValue)]
    places = [place_of(v) for v in tensors if isinstance(v.type, TensorType)]
    return all(p is not None and p.is_in_order for p in places)


def _through(name: str, at: Place, given: Sequence[Any], shape: tuple[int, ...], in_order: Place) -> Place | None:
    """Find where the elements of a view lie, given where those of its source do."""
    rank = len(at.shape)
    strides, offset = list(at.strides), at.offset
    match name:
        case _ if name in _SAME:
            return at
        case "aten.transpose.int":
            if rank:
                i, j = given[0] % rank, given[1] % rank
                strides[i], strides[j] = strides[j], strides[i]
        case "aten.t" | "aten.numpy_T":
            strides.reverse()
        case "aten.permute":
            strides = [strides[d] for d in given[0]]
        case "aten.select.int":
            dim = given[0] % rank
            offset += strides.pop(dim) * (given[1] % at.shape[dim])
        case "aten.slice.Tensor":
            dim, size = given[0] % rank, at.shape[given[0] % rank]
            start = given[1] or 0
            offset += strides[dim] * min(max(start + size if start < 0 else start, 0), size)
            strides[dim] *= given[3]
        case "aten.narrow":
            dim = given[0] % rank
            offset += strides[dim] * (given[1] % max(at.shape[dim], 1))
        case "aten.unsqueeze":
            strides.insert(given[0] % (rank + 1), 1)
        case "aten.squeeze":
            strides = [s for s, d in zip(strides, at.shape, strict=True) if d != 1]
        case "aten.squeeze.dim":
            if rank and at.shape[given[0] % rank] == 1:
                del strides[given[0] % rank]
        case "aten.unfold":
            if not rank:
                return None
            dim = given[0] % rank
            strides = [*strides[:dim], strides[dim] * given[2], *strides[dim + 1 :], strides[dim]]
        case "aten.diagonal":
            first, second = given[1] % rank, given[2] % rank
            offset += strides[second] * given[0] if given[0] >= 0 else -strides[first] * given[0]
            strides = [s for i, s in enumerate(strides) if i not in (first, second)] + [
                strides[first] + strides[second]
            ]
        case "aten.expand":
            lead = len(shape) - rank
            same = zip(at.shape, shape[lead:], strides, strict=True)
            strides = [0] * lead + [s if old == new else 0 for old, new, s in same]
        case "aten.view" | "aten.reshape" | "aten._unsafe_view" | "aten.flatten.using_ints" | "aten.unflatten.int":
            if at.is_in_order:
                strides = list(contiguous_strides(shape))
            else:
                return None
        case "aten.as_strided":
            return Place(at.base, shape, tuple(given[1]), at.offset if given[2] is None else given[2])
        case _:
            return None
    return Place(at.base, shape, tuple(strides), offset)


def _numbers(values: Sequence[Any]) -> Sequence[Any] | None:
    """Return the arguments if none of them is left to the run time, else None."""
    flat = [v for a in values for v in (a if isinstance(a, list) else [a])]
    return None if any(isinstance(v, SSAValue) for v in flat) else values
