"""Helion's loads, stores and atomics, on the tensors of the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node
from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.frontends.helion.program import target_name
from flambeau.frontends.helion.rules import device_rule
from flambeau.frontends.helion.tiles import BlockRef, Part
from flambeau.ir import dtypes

if TYPE_CHECKING:
    from flambeau.frontends.helion.kernel import KernelImporter
    from flambeau.lowering.builder import Size, Tensor


@dataclass(frozen=True)
class Access:
    """Where an index leads: for each dim of the host tensor a part of it or positions, and the shape of the tile."""

    dims: tuple[Part | Positions, ...]
    sizes: tuple[int, ...]
    places: tuple[int | None, ...]
    """The dim of the tile that each part runs along; None where it is dropped."""
    counts: dict[int, Size]
    """For dims of the tile that lie over the edge, how many elements exist."""
    new_dims: tuple[int, ...]
    """Dims of the tile that are new: `None` in the index."""

    @property
    def is_block(self) -> bool:
        """Whether the tile is a block of the host tensor."""
        return len(self.parts) == len(self.dims)

    @property
    def parts(self) -> list[Part]:
        return [d for d in self.dims if isinstance(d, Part)]


@dataclass(frozen=True)
class Positions:
    """A tensor of positions, and the dim of the tile that each of its dims runs along (None for one element)."""

    tensor: Tensor
    places: tuple[int | None, ...]


ATOMICS: dict[str, Any] = {
    "atomic_xchg": None,
    "atomic_add": torch.ops.aten.add.Tensor,
    "atomic_max": torch.ops.aten.maximum.default,
    "atomic_min": torch.ops.aten.minimum.default,
    "atomic_and": torch.ops.aten.bitwise_and.Tensor,
    "atomic_or": torch.ops.aten.bitwise_or.Tensor,
    "atomic_xor": torch.ops.aten.bitwise_xor.Tensor,
}
"""What an atomic makes of the old value and the new; None for the new."""


@device_rule("load")
def load(k: KernelImporter, node: Node) -> Tensor:
    """Read a tile of a host tensor, `hl.load` or `x[tile, :]`; elements under a false mask are 0."""
    tensor, index, mask = (*k.resolve(node.args), None)[:3]
    if isinstance(tensor, k.target.tensor):
        return subscript(k, node)
    x = _host(k, tensor)
    tile = _read(k, x, access_of(k, node, x, index))
    if mask is not None:
        tile = k.aten(torch.ops.aten.where.self, mask, tile, k.b.full([], 0, x.dtype))
    k.zero_outside.add(tile.value)
    return tile


@device_rule("subscript")
def subscript(k: KernelImporter, node: Node) -> Tensor:
    """Insert new dims of size 1 into a tile: `tile[:, None]`."""
    x, index = k.resolve(node.args[:2])
    if any(item is not None and item != slice(None) for item in index):
        raise Unsupported("a part of a tile is taken", "Load that part from the host's tensor.")
    for dim in (i for i, item in enumerate(index) if item is None):
        x = k.aten(torch.ops.aten.unsqueeze.default, x, dim)
    return x


@device_rule("store")
def store(k: KernelImporter, node: Node) -> None:
    """Write a tile to a host tensor, `hl.store` or `x[tile, :] = value`; a false mask keeps the old element."""
    tensor, index, value, mask = (*k.resolve(node.args), None)[:4]
    x = _host(k, tensor)
    access = access_of(k, node, x, index)
    tile = _stored(k, value, x, access)
    if not access.is_block:
        k.tensors[tensor] = _scatter(k, x, access, tile, mask, accumulate=False)
        return
    if mask is not None:
        tile = k.aten(torch.ops.aten.where.self, mask, tile, _read(k, x, access))
    k.tensors[tensor] = _written(k, x, access, tile)


@device_rule(*ATOMICS)
def atomic(k: KernelImporter, node: Node) -> Tensor:
    """Combine a tile into a host tensor (`hl.atomic_add` etc.); return the old values. Tiles run in order here."""
    tensor, index, value = k.resolve(node.args[:3])
    x = _host(k, tensor)
    access = access_of(k, node, x, index)
    tile = _stored(k, value, x, access)
    name = target_name(node)
    combine = ATOMICS[name]
    old = _read(k, x, access)
    if access.is_block:
        new = tile if combine is None else k.aten(combine, old, tile)
        k.tensors[tensor] = _written(k, x, access, new)
    elif name == "atomic_add" and not node.users:
        k.tensors[tensor] = _scatter(k, x, access, tile, None, accumulate=True)
    else:
        raise Unsupported(f"{name} at computed positions", "Only atomic_add without its result is imported there.")
    return old


# --- Where ---


def _host(k: KernelImporter, name: Any) -> Tensor:
    if not isinstance(name, str):
        raise Unsupported("a tensor of the device is written", "Write the host's tensors.")
    return k.tensors[name]


def access_of(k: KernelImporter, node: Node, x: Tensor, index: Sequence[Any]) -> Access:
    """Analyse an index: tiles and slices take a part of a dim, numbers one element, tensors computed positions."""
    metas: list[Any] = [i.meta["val"] if isinstance(i, Node) else i for i in node.args[1]]  # type: ignore[union-attr]
    indexers = [i for i in index if isinstance(i, k.target.tensor) and i.rank]
    together = _are_together(k, metas, indexers)
    dims: list[Part | Positions] = []
    sizes: list[int] = []
    places: list[int | None] = []
    counts: dict[int, Size] = {}
    new_dims: list[int] = []
    joint: int | None = None
    for item, meta in zip(index, metas, strict=True):
        at = len(sizes)
        if item is None:
            new_dims.append(at)
            sizes.append(1)
        elif isinstance(item, k.target.tensor) and item.rank:
            shape = _joint_shape(indexers) if together else _own_shape(item)
            if not together or joint is None:
                joint = at
                sizes.extend(shape)
            along = _along(item, joint, len(shape), together)
            # Positions that lie over the edge lead nowhere.
            counts.update({p: c for d, c in k.counts(meta.shape).items() if (p := along[d]) is not None})
            dims.append(Positions(item, along))
            places.append(None)
        else:
            part = _part(k, item, x.shape[len(dims)] or 0)
            dims.append(part)
            places.append(None if part.is_dropped else at)
            if not part.is_dropped:
                sizes.append(part.full)
                if isinstance(part.length, SSAValue):
                    counts[at] = part.length
    return Access(tuple(dims), tuple(sizes), tuple(places), counts, tuple(new_dims))


def _are_together(k: KernelImporter, metas: Sequence[Any], indexers: Sequence[Tensor]) -> bool:
    """Tell whether tensors of positions are broadcast with each other; otherwise each has dims of its own."""
    if all(i.rank == 1 for i in indexers):
        return False
    with k.program.active():
        return k.program.environment.should_broadcast_tensor_indexers(metas)


def _part(k: KernelImporter, item: Any, length: int) -> Part:
    """Find the part of a dim of this length that a tile, slice or number takes."""
    if isinstance(item, BlockRef) and length == 1:
        return Part(0, 1, 1)  # Helion broadcasts dims of one element.
    if isinstance(item, BlockRef):
        tile = k.active.get(item.block)
        if tile is None:
            raise Unsupported("a tile is used outside its loop")
        if isinstance(tile.end, int) and tile.end <= length:
            return Part(tile.offset, tile.count, tile.block)
        # The loop may go further than this tensor.
        start = k.b.minimum(tile.offset, length)
        return Part(start, k.b.minimum(tile.count, k.b.sub(length, start)), tile.block)
    if isinstance(item, slice):
        bounds = [k.number(k.resolve(v)) for v in (item.start, item.stop, item.step)]
        if not all(v is None or isinstance(v, int) for v in bounds):
            raise Unsupported("a slice whose bounds only the running kernel knows", "Use a tile.")
        taken = range(*slice(*bounds).indices(length))
        if taken.step < 1:
            raise Unsupported(f"a slice with a step of {taken.step}")
        return Part(taken.start, len(taken), len(taken), taken.step)
    number = k.index(item)
    if isinstance(number, int) and number < 0:
        number += length
    if not isinstance(number, (int, SSAValue)):
        raise Unsupported(f"an index of type {type(item).__name__}")
    return Part(number, 1, 1, is_dropped=True)


# --- Reading and writing ---


def _read(k: KernelImporter, x: Tensor, access: Access) -> Tensor:
    if access.is_block:
        return k.tiles.with_ones(k.tiles.read(x, access.parts), access.new_dims)
    return k.tiles.gather(
        x, access.sizes, lambda at: _positions(k, access, at), lambda at: k.tiles.exists(at, access.counts)
    )


def _positions(k: KernelImporter, access: Access, at: Sequence[SSAValue]) -> list[Size]:
    """Compute, inside a body, the position in the host tensor of an element of the tile."""
    b = k.b
    positions: list[Size] = []
    for dim, place in zip(access.dims, access.places, strict=True):
        if isinstance(dim, Positions):
            positions.append(b.as_index(b.load(dim.tensor, [0 if p is None else at[p] for p in dim.places])))
        else:
            positions.append(dim.start if place is None else b.add(dim.start, b.mul(at[place], dim.step)))
    return positions


def _stored(k: KernelImporter, value: Any, x: Tensor, access: Access) -> Tensor:
    """Convert a stored value to the dtype of the host tensor and broadcast it to the shape of the tile."""
    value = k.number(value)
    if not isinstance(value, k.target.tensor):
        return k.b.full(access.sizes, value, x.dtype)
    return k.b.broadcast_to(k.b.to(value, x.dtype), access.sizes)


def _written(k: KernelImporter, x: Tensor, access: Access, tile: Tensor) -> Tensor:
    return k.tiles.write(x, access.parts, k.tiles.without(tile, access.new_dims))


def _scatter(
    k: KernelImporter, x: Tensor, access: Access, tile: Tensor, mask: Tensor | None, accumulate: bool
) -> Tensor:
    """Write at computed positions: in the flat tensor, with one more element for what is not to be written."""
    b = k.b
    shape = [d or 0 for d in x.shape]
    total = math.prod(shape)

    def position(*at: SSAValue) -> Any:
        flat: Size = 0
        for p, size in zip(_positions(k, access, at), shape, strict=True):
            flat = b.add(b.mul(flat, size), p)
        inside = k.tiles.exists(at, access.counts)
        if mask is not None:
            behind = at[len(at) - mask.rank :]
            allowed = b.load(mask, [0 if d == 1 else p for p, d in zip(behind, mask.shape, strict=True)])
            inside = allowed if inside is None else inside & allowed
        element = b.element(b.index(flat), dtypes.int64)
        return element if inside is None else inside.select(element, b.element(total, dtypes.int64))

    places = b.generate(access.sizes, dtypes.int64, position)
    flat = b.pad(b.reshape(x, [total]), [0], [1], 0)
    written = k.aten(torch.ops.aten.index_put.default, flat, [places], tile, accumulate)
    return b.reshape(b.slice(written, [0], [total], [1]), shape)


def _own_shape(item: Tensor) -> list[int]:
    """List the sizes of the tile's dims that a tensor of positions contributes when it is indexed by alone."""
    return [int(d or 1) for d in item.shape if d != 1 or item.rank == 1]


def _joint_shape(indexers: Sequence[Tensor]) -> list[int]:
    """List the sizes that tensors of positions contribute together: the shape that they broadcast to."""
    rank = max(i.rank for i in indexers)
    shapes = [[1] * (rank - i.rank) + [int(d or 1) for d in i.shape] for i in indexers]
    return [max(d) for d in zip(*shapes, strict=True)]


def _along(item: Tensor, at: int, rank: int, together: bool) -> tuple[int | None, ...]:
    """Map each dim of a tensor of positions to the tile's dim that it runs along; None for a dim of size 1."""
    if together:
        first = at + rank - item.rank
        return tuple(None if d == 1 else first + i for i, d in enumerate(item.shape))
    if item.rank == 1:
        return (at,)
    places: list[int | None] = []
    for size in item.shape:
        places.append(None if size == 1 else at)
        at += size != 1
    return tuple(places)
