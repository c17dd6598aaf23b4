"""Tiles: which part of the host's tensors a loop is at, and reading, writing and masking there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from xdsl.dialects import scf
from xdsl.ir import Block, Region, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType

if TYPE_CHECKING:
    # What kernels are built with comes from outside (see Target): lowerings stand behind frontends.
    from flambeau.lowering.builder import Size, Tensor
    from flambeau.lowering.linalg.builder import LinalgBuilder


@dataclass(frozen=True)
class Tile:
    """Where the loop over a block is: `block` elements from `offset`, of which those before `end` exist."""

    block: int
    begin: Size
    offset: Size
    end: Size
    is_whole: bool
    """Whether all tiles of the loop are full, so that nothing is to be masked."""
    count: Size
    """How many elements exist: the block, or less at the edge."""


@dataclass(frozen=True)
class BlockRef:
    """The size of a tile, which as an index is the tile."""

    block: int


@dataclass(frozen=True)
class Part:
    """What an index says about one dim of a host tensor: `length` elements from `start` on; a number drops the dim.

    The tile has `full` elements, which is more where some do not exist.
    """

    start: Size
    length: Size
    full: int
    step: int = 1
    is_dropped: bool = False


class TileBuilder:
    """Reads, writes and masks tiles with a linalg builder."""

    def __init__(self, builder: LinalgBuilder, tensor: Callable[[SSAValue, DType], Tensor]) -> None:
        self.b = builder
        self.tensor = tensor

    # --- Reading and writing ---

    def read(self, x: Tensor, parts: Sequence[Part]) -> Tensor:
        """Read a tile from a host tensor; elements outside of the tensor are zero."""
        b = self.b
        tile = b.slice(x, [p.start for p in parts], [p.length for p in parts], [p.step for p in parts])
        missing = [b.sub(p.full, p.length) for p in parts]
        tile = b.cast(b.pad(tile, [0] * x.rank, missing, 0), [p.full for p in parts])
        return self.without(tile, [i for i, p in enumerate(parts) if p.is_dropped])

    def write(self, x: Tensor, parts: Sequence[Part], tile: Tensor) -> Tensor:
        """Write a tile into a host tensor, leaving out elements outside of it; return the new tensor."""
        b = self.b
        tile = self.with_ones(b.to(tile, x.dtype), [i for i, p in enumerate(parts) if p.is_dropped])
        existing = b.slice(tile, [0] * x.rank, [p.length for p in parts], [1] * x.rank)
        return b.insert_slice(existing, x, [p.start for p in parts], [p.step for p in parts])

    def without(self, x: Tensor, dims: Sequence[int]) -> Tensor:
        """Drop dims of size 1."""
        return self.b.reshape(x, [s for i, s in enumerate(self.b.sizes(x)) if i not in dims]) if dims else x

    def with_ones(self, x: Tensor, dims: Sequence[int]) -> Tensor:
        """Insert dims of size 1 at these positions."""
        sizes = self.b.sizes(x)
        for dim in dims:
            sizes.insert(dim, 1)
        return self.b.reshape(x, sizes) if dims else x

    def gather(
        self,
        x: Tensor,
        sizes: Sequence[int],
        place: Callable[[list[SSAValue]], Sequence[Size]],
        exists: Callable[[list[SSAValue]], Any],
    ) -> Tensor:
        """Read for each position of a tile the host tensor's element at `place`, or zero where `exists` is false."""
        b = self.b

        def body(*at: SSAValue) -> Any:
            inside = exists(list(at))
            positions = [
                b.maximum(b.minimum(p, b.sub(size, 1)), 0) for p, size in zip(place(list(at)), b.sizes(x), strict=True)
            ]
            element = b.load(x, positions)
            return element if inside is None else inside.select(element, b.element(0, x.dtype))

        return b.generate(sizes, x.dtype, body)

    def place(self, tile: Tile, what: str) -> Size:
        """Return a tile's `begin`, `end`, `extent` (elements inside the tensor), `id`, or the `count` of its loop."""
        b = self.b
        match what:
            case "begin":
                return tile.offset
            case "end":
                return b.add(tile.offset, tile.count)
            case "extent":
                return tile.count
            case "id":
                return b.floordiv(b.sub(tile.offset, tile.begin), tile.block)
            case _:
                return b.ceildiv(b.sub(tile.end, tile.begin), tile.block)

    # --- Masks ---

    def exists(self, at: Sequence[SSAValue], counts: Mapping[int, Size]) -> Any:
        """Compute, inside a body, whether a tile's element is inside the tensor, as an Element; None if all are."""
        result: Any = None
        for dim, count in counts.items():
            inside = self.b.scalar_bool(self.b.compare("slt", at[dim], count))
            result = inside if result is None else result & inside
        return result

    def mask(self, x: Tensor, counts: Mapping[int, Size], fill: Any) -> Tensor:
        """Replace by `fill` the elements at or beyond the counts of some dims."""
        if not counts:
            return x
        b = self.b

        def body(at: list[SSAValue], element: Any) -> Any:
            return self.exists(at, counts).select(element, b.element(fill, x.dtype))

        return b.map_indexed([x], b.sizes(x), x.dtype, body)

    # --- Loops and branches ---

    def loop(
        self,
        begin: Size,
        end: Size,
        step: Size,
        carried: Sequence[Tensor],
        body: Callable[[SSAValue, list[Tensor]], Sequence[Tensor]],
    ) -> list[Tensor]:
        """Emit `scf.for`: `body(offset, carried)` returns the tensors that the next iteration carries."""
        b = self.b
        types = [t.value.type for t in carried]
        bounds = [b.index(begin), b.index(end), b.index(step)]
        block = Block(arg_types=[bounds[0].type, *types])
        with self.inside(block):
            inner = [self.tensor(a, t.dtype) for a, t in zip(block.args[1:], carried, strict=True)]
            results = body(block.args[0], inner)
            b.emit(scf.YieldOp, [_same_type(r, t).value for r, t in zip(results, carried, strict=True)])
        op = b.emit(scf.ForOp, [*bounds, *(t.value for t in carried)], types, regions=(Region(block),))
        return [self.tensor(r, t.dtype) for r, t in zip(op.results, carried, strict=True)]

    def while_loop(
        self,
        carried: Sequence[Tensor],
        going: Callable[[list[Tensor]], Any],
        body: Callable[[list[Tensor]], Sequence[Tensor]],
    ) -> list[Tensor]:
        """Emit `scf.while`: `carried = body(carried)` as long as `going(carried)` holds."""
        b = self.b
        types = [t.value.type for t in carried]
        before, after = Block(arg_types=types), Block(arg_types=types)

        def inner(block: Block) -> list[Tensor]:
            return [self.tensor(a, t.dtype) for a, t in zip(block.args, carried, strict=True)]

        with self.inside(before):
            flag = b.scalar_bool(going(inner(before))).value
            b.emit(scf.ConditionOp, (flag, *before.args))
        with self.inside(after):
            results = body(inner(after))
            b.emit(scf.YieldOp, [_same_type(r, t).value for r, t in zip(results, carried, strict=True)])
        regions = (Region(before), Region(after))
        op = b.emit(scf.WhileOp, [t.value for t in carried], types, regions=regions)
        return [self.tensor(r, t.dtype) for r, t in zip(op.results, carried, strict=True)]

    def branch(self, condition: SSAValue, bodies: Sequence[Callable[[], Sequence[Tensor]]]) -> list[Tensor]:
        """Emit `scf.if` of two bodies that return tensors of the same types."""
        regions, results = [], []
        for body in bodies:
            block = Block()
            with self.inside(block):
                results = list(body())
                self.b.emit(scf.YieldOp, [r.value for r in results])
            regions.append(Region(block))
        types = [r.value.type for r in results]
        op = self.b.emit(scf.IfOp, (condition,), types, regions=regions)
        return [self.tensor(r, t.dtype) for r, t in zip(op.results, results, strict=True)]

    def inside(self, block: Block) -> _Inside:
        return _Inside(self.b, block)


class _Inside:
    """While it lasts, a builder adds to another block."""

    def __init__(self, builder: LinalgBuilder, block: Block) -> None:
        self.builder, self.block = builder, block

    def __enter__(self) -> None:
        self.outer = self.builder.block
        self.builder.block = self.block

    def __exit__(self, *_: object) -> None:
        self.builder.block = self.outer


def dtype_of(dtype: torch.dtype) -> DType:
    """Map a `torch.dtype` to our DType; Unsupported if it has no MLIR type."""
    found = dtypes.from_torch(dtype)
    if found is None:
        raise Unsupported(f"dtype {dtype} has no MLIR type", "Use a standard dtype.")
    return found


def _same_type(new: Tensor, old: Tensor) -> Tensor:
    if new.value.type != old.value.type:
        raise Unsupported(f"a loop carries {old.value.type}, and its body gives {new.value.type}")
    return new
