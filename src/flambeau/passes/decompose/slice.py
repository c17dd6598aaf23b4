"""Parts of tensors: splits into lists, and differences of neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.ir import SSAValue

from flambeau.dialects.torch.ops import StaticInfoCastOp
from flambeau.infer.builder import TorchBuilder
from flambeau.passes.decompose.rules import decomposition, listed, minus, over, require_size, times


@decomposition("prim.ListUnpack")
def unpack(t: TorchBuilder, elements: Any) -> tuple[SSAValue, ...] | None:
    """Take apart what a decomposition has built as a list; other lists stay."""
    op = t.before
    if op is None or not isinstance(elements, list) or not all(isinstance(x, SSAValue) for x in elements):
        return None
    types = [result.type for result in op.results]
    # What a frontend knows of the parts may be more than what can be inferred.
    return tuple(
        x if x.type == type_ else t.value(StaticInfoCastOp, (x,), type_)
        for x, type_ in zip(elements, types, strict=True)
    )


@decomposition("aten.tensor_split.indices")
def tensor_split(t: TorchBuilder, x: SSAValue, indices: Sequence[Any], dim: int) -> SSAValue:
    return listed(t, [t.slice(x, dim, *bounds) for bounds in zip([0, *indices], [*indices, None], strict=True)])


def _split_along(name: str, least: int, dim: Callable[[int], int]) -> None:
    """Split tensors of at least so many dims along one that their rank decides: in equal parts, or at indices."""

    def at_indices(t: TorchBuilder, x: SSAValue, indices: Sequence[Any]) -> SSAValue:
        return tensor_split(t, x, indices, along(t, x))

    def in_parts(t: TorchBuilder, x: SSAValue, sections: int) -> SSAValue:
        size = t.shape(x)[along(t, x)]
        rest = minus(t, size, times(t, over(t, size, sections), sections))
        require_size(t, rest, "eq", 0, f"{name} needs a size that its {sections} sections divide")
        return t.tensor_split(x, sections, along(t, x))

    def along(t: TorchBuilder, x: SSAValue) -> int:
        rank = len(t.shape(x))
        require_size(t, rank, "ge", least, f"{name} needs at least {least} dims")
        return dim(rank)

    decomposition(f"aten.{name}.int")(in_parts)
    decomposition(f"aten.{name}.array")(at_indices)


_split_along("hsplit", 1, lambda rank: 0 if rank == 1 else 1)
_split_along("vsplit", 2, lambda rank: 0)
_split_along("dsplit", 3, lambda rank: 2)


@decomposition("aten.diff")
def diff(t: TorchBuilder, x: SSAValue, n: int, dim: int, prepend: SSAValue | None, append: SSAValue | None) -> SSAValue:
    """Subtract from each element the one before it, n times; what is too short for that becomes empty."""
    parts = [part for part in (prepend, x, append) if part is not None]
    x = t.cat(parts, dim) if len(parts) > 1 and n else x
    size = t.shape(x)[dim]
    for _ in range(min(n, size) if isinstance(size, int) else n):
        later, earlier = t.slice(x, dim, 1), t.slice(x, dim, 0, -1)
        x = t.logical_xor(later, earlier) if t.dtype(x).is_bool else t.sub(later, earlier)
    return x
