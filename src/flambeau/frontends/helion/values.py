"""Rules for Helion's ops that make values: symbols, tiles, tensors, products."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from flambeau.diagnostics import Unsupported
from flambeau.frontends.helion.program import inner_graphs, target_name
from flambeau.frontends.helion.rules import device_rule
from flambeau.frontends.helion.tiles import BlockRef, Tile, dtype_of

if TYPE_CHECKING:
    from flambeau.frontends.helion.kernel import KernelImporter
    from flambeau.lowering.builder import Size, Tensor


@device_rule("_host_tensor")
def host_tensor(k: KernelImporter, node: Node) -> str:
    """Import a tensor of the host as its name: its contents change as it is written."""
    return k.program.name_of(node.meta["val"]) or str(node.args[0])


@device_rule("_get_symnode")
def get_symnode(k: KernelImporter, node: Node) -> Any:
    value = node.meta["val"]
    return value if isinstance(value, (int, float)) else k.symbol(value)


@device_rule("_new_var")
def new_var(k: KernelImporter, node: Node) -> Any:
    return k.resolve(node.args[0])


@device_rule("_phi")
def phi(k: KernelImporter, node: Node) -> Any:
    """Choose the value after a loop or branch: its result, which is the value before where it did not run."""
    left, right = node.args
    is_result = (
        isinstance(right, Node)
        and right.target is operator.getitem
        and isinstance(right.args[0], Node)
        and bool(inner_graphs(right.args[0]))
    )
    return k.resolve(right if is_result else left)


@device_rule("_constant_tensor")
def constant_tensor(k: KernelImporter, node: Node) -> Tensor:
    return k.b.full([], node.args[0], dtype_of(node.meta["val"].dtype))


@device_rule("full")
def full(k: KernelImporter, node: Node) -> Tensor:
    sizes, value = k.resolve(node.args[:2])
    return k.b.full([k.number(s) for s in sizes], k.number(value), dtype_of(node.meta["val"].dtype))


@device_rule("_mask_to")
def mask_to(k: KernelImporter, node: Node) -> Tensor:
    x, fill = node.args
    assert isinstance(x, Node)
    masked = k.masked(k.values[x], k.counts(x.meta["val"].shape), fill)
    if fill == 0:
        k.zero_outside.add(masked.value)
    return masked


@device_rule("split")
def split(k: KernelImporter, node: Node) -> list[Tensor]:
    x = k.resolve(node.args[0])
    return [k.aten(torch.ops.aten.select.int, x, -1, i) for i in (0, 1)]


@device_rule("join")
def join(k: KernelImporter, node: Node) -> Tensor:
    return k.aten(torch.ops.aten.stack.default, k.resolve(node.args[:2]), -1)


@device_rule("dot")
def dot(k: KernelImporter, node: Node) -> Tensor:
    """Multiply matrices as `hl.dot` does, in the dtype of the accumulator if there is one."""
    a, b, acc = k.resolve(node.args[:3])
    out = dtype_of(node.meta["val"].dtype)
    wide = acc.dtype if acc is not None else out
    multiply = torch.ops.aten.bmm.default if a.rank == 3 else torch.ops.aten.mm.default
    product = k.aten(multiply, k.b.to(a, wide), k.b.to(b, wide))
    if acc is not None:
        product = k.aten(torch.ops.aten.add.Tensor, acc, product)
    return k.b.to(product, out)


# --- Tiles ---


def tile_of(k: KernelImporter, node: Node) -> Tile:
    """Return the active tile that a node asks about; Unsupported outside of its loop."""
    ref = k.resolve(node.args[0])
    tile = k.active.get(ref.block) if isinstance(ref, BlockRef) else None
    if tile is None:
        raise Unsupported("a tile is used outside its loop")
    return tile


@device_rule("tile_index")
def tile_index(k: KernelImporter, node: Node) -> Tensor:
    tile, dtype = tile_of(k, node), dtype_of(node.meta["val"].dtype)
    return k.b.generate([tile.block], dtype, lambda at: k.b.element(k.b.add(at, tile.offset), dtype))


@device_rule("tile_begin", "tile_end", "tile_count", "tile_id")
def tile_place(k: KernelImporter, node: Node) -> Size:
    return k.tiles.place(tile_of(k, node), target_name(node).removeprefix("tile_"))


@device_rule("tile_block_size")
def tile_block_size(k: KernelImporter, node: Node) -> int:
    return tile_of(k, node).block
