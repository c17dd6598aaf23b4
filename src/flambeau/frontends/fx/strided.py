"""Strided views of memory in terms of values: PyTorch's fake tensors know how each tensor lies in its storage."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.emitter import TorchEmitter
from flambeau.dialects.torch.types import TensorType, vtensor
from flambeau.frontends.fx.aliasing import is_copy

STRIDED = frozenset({"aten.as_strided", "aten.as_strided_copy"})
SCATTERED = frozenset({"aten.as_strided_scatter", "prims.as_strided_scatter"})
"""Ops that ask how a tensor lies in memory."""

_HINT = "Call .clone(memory_format=torch.contiguous_format) on the tensor first."


@dataclass
class Memory:
    """A storage: the node that fills it, the order of dims in which that lies in memory, and where it begins there."""

    source: Node
    order: list[int]
    start: int

    @property
    def is_in_order(self) -> bool:
        return self.order == list(range(len(self.order)))


def memory_of(node: Node) -> Memory | None:
    """Find the tensor that fills the storage of a node's value; None where the node has no fake tensor."""
    meta = node.meta.get("val")
    if not isinstance(meta, torch.Tensor):
        return None
    source = _source_of(node, meta.untyped_storage()._cdata)
    whole = source.meta["val"]
    if whole.dtype != meta.dtype:
        raise Unsupported("a strided view of memory that holds another dtype", _HINT)
    if not _is_static(whole):
        # Sizes that only the run time knows: in order, or not at all.
        if not whole.is_contiguous():
            raise Unsupported("a strided view of a tensor that does not lie in order", _HINT)
        return Memory(source, list(range(whole.dim())), 0)
    order = _order(whole)
    if order is None:
        raise Unsupported("a strided view of a tensor with gaps or overlaps in memory", _HINT)
    return Memory(source, order, whole.storage_offset())


def _source_of(node: Node, storage: int) -> Node:
    """Find the first node of this storage among those that a node is made from, not going through copies.

    The fake tensor of a literal and that of its copy may have one storage.
    """
    reached, open_ = {node}, [node]
    while open_:
        user = open_.pop()
        if is_copy(user):
            continue
        for operand in user.all_input_nodes:
            # Lists of views have no storage, but their parts may have this one.
            if operand not in reached and _storage(operand) in (storage, None):
                reached.add(operand)
                open_.append(operand)
    return next(n for n in node.graph.nodes if n in reached and _storage(n) == storage)


def strided_arguments(
    node: Node, given: list[Any], values: Mapping[Node, Any], emitter: TorchEmitter, is_written: bool
) -> list[Any]:
    """Rewrite the arguments of `as_strided` for the tensor that fills the storage instead of a view of it."""
    memory = memory_of(given[0])
    if memory is None:
        return given
    offset = given[0].meta["val"].storage_offset() if given[3] is None else given[3]
    if memory.start:
        offset = offset - memory.start
    if isinstance(offset, int) and offset < 0:
        raise Unsupported("a strided view of memory before the tensor that the program is given", _HINT)
    whole = memory.source.meta["val"]
    if all(isinstance(n, int) for n in (*whole.shape, *given[1], *given[2], offset)):
        last = offset + sum((n - 1) * stride for n, stride in zip(given[1], given[2], strict=True))
        if 0 not in given[1] and last >= whole.numel():
            raise Unsupported("a strided view of memory behind the tensor that the program is given", _HINT)
    if is_written and not memory.is_in_order:
        raise Unsupported("a strided view of a tensor that is written and does not lie in order in memory", _HINT)
    base = values[memory.source]
    return [base if is_written else _in_memory_order(base, memory, emitter), given[1], given[2], offset]


def _in_memory_order(value: SSAValue, memory: Memory, emitter: TorchEmitter) -> SSAValue:
    """Permute a tensor's dims to their order in memory and clone it, so that it is contiguous and no view."""
    assert isinstance(value.type, TensorType)
    if memory.source.op == "placeholder" and memory.is_in_order:
        return value
    shape = value.type.shape
    if not memory.is_in_order:
        assert shape is not None
        type_ = vtensor(tuple(shape[d] for d in memory.order), value.type.element_type)
        value = emitter.op("aten.permute", [value, emitter.ints(memory.order)], [type_])[0]
    return emitter.op("aten.clone", [value, emitter.constant(0)], [value.type])[0]


def require_order(node: Node) -> None:
    """Refuse a write through strides into anything but the whole of a storage, in order."""
    memory, meta = memory_of(node), node.meta.get("val")
    if memory is None or not isinstance(meta, torch.Tensor):
        return
    is_whole = bool(memory.source.meta["val"].numel() == meta.numel())
    if not (memory.is_in_order and meta.is_contiguous() and is_whole):
        raise Unsupported("a write through strides into a tensor that does not lie in order in memory", _HINT)


def _storage(node: Node) -> int | None:
    meta = node.meta.get("val")
    return meta.untyped_storage()._cdata if isinstance(meta, torch.Tensor) else None


def _is_static(x: torch.Tensor) -> bool:
    return all(isinstance(n, int) for n in (*x.shape, *x.stride(), x.storage_offset()))


def _order(x: torch.Tensor) -> list[int] | None:
    """List the dims from the outermost in memory to the innermost; None where elements have gaps or overlaps."""
    if x.is_contiguous():
        return list(range(x.dim()))
    order = sorted(range(x.dim()), key=lambda d: (-x.stride()[d] if x.shape[d] != 1 else 0, d))
    long = [d for d in order if x.shape[d] != 1]
    for i, d in enumerate(long):
        if x.stride()[d] != math.prod(x.shape[e] for e in long[i + 1 :]):
            return None
    return order
