"""Bags of rows of a table, each summed up, averaged, or searched for what is greatest, as loops over the rows."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from flambeau.ir import dtypes
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.index import OUT_OF_RANGE, first_not_below
from flambeau.lowering.linalg.rules import loop_rule
from flambeau.lowering.verbs import RuleBuilder

SUM, MEAN, MAX = 0, 1, 2
"""PyTorch's numbers for what becomes of the rows of a bag."""


@loop_rule("aten.embedding_bag.padding_idx", family="index")
def embedding_bag(
    b: RuleBuilder,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int | None,
) -> Sequence[Tensor]:
    """Reduce bags of rows by sum, mean or maximum; give three more results that PyTorch uses for gradients.

    These are the bag of each index, the number of rows in each bag, and for MAX the row that each element is from.
    """
    count, given = b.size(indices, 0), b.size(offsets, 0)
    bags = b.sub(given, 1) if include_last_offset else given
    starts = b.slice(offsets, [0], [bags], [1])
    _check_offsets(b, offsets, count)
    b.check_range(indices, b.size(weight, 0), OUT_OF_RANGE, negative=False)
    result, *counted = _fill(b, weight, indices, starts, mode, per_sample_weights, padding_idx)
    if mode == MEAN:
        members = b.unsqueeze(counted[0], 1)
        result = b.elementwise([result, members], lambda e, n: e / n.maximum(1).to(e.dtype), result.dtype)
    wide = b.to(starts, dtypes.int64)
    of_index = b.generate([count], offsets.dtype, lambda i: first_not_below(b, wide, b.scalar(i) + 1) - 1)
    nothing = b.full([bags], 0, offsets.dtype)  # PyTorch counts only where it divides.
    sizes, most = {SUM: [nothing, nothing], MEAN: counted * 2, MAX: counted}[mode]
    return b.to(result, weight.dtype), of_index, b.to(sizes, offsets.dtype), b.to(most, offsets.dtype)


def _check_offsets(b: RuleBuilder, offsets: Tensor, count: Size) -> None:
    """Guard that the first bag begins with the first index, and none behind the last."""

    def is_right(at: list[SSAValue], e: Element) -> Element:
        last = b.element(b.select(b.compare("eq", at[0], 0), 0, count), dtypes.int64)
        return e.to(dtypes.int64) <= last

    right = b.map_indexed([offsets], b.sizes(offsets), dtypes.bool_, is_right)
    b.check_elements(right, lambda e: e, "offsets must begin with 0 and not be greater than the number of indices")


def _fill(
    b: RuleBuilder,
    weight: Tensor,
    indices: Tensor,
    starts: Tensor,
    mode: int,
    scales: Tensor | None,
    padding: int | None,
) -> list[Tensor]:
    """Reduce the rows of each bag; return the result, except for SUM the number of rows, for MAX the greatest rows.

    16-bit floats are summed up in f32. Rows of the padding index do not count.
    """
    [count], [bags], [height, width] = b.sizes(indices), b.sizes(starts), b.sizes(weight)
    dtype = weight.dtype if mode == MAX else weight.dtype.compute
    last = b.sub(height, 1)

    def bag(k: SSAValue, *filled: Tensor) -> list[Tensor]:
        following = b.add(k, 1)
        is_last = b.compare("eq", following, bags)
        end = b.select(is_last, count, _position(b, starts, b.select(is_last, k, following), count))
        return b.loop(_position(b, starts, k, count), end, filled, lambda i, *filled: row(k, i, *filled))

    def row(k: SSAValue, i: SSAValue, result: Tensor, *counted: Tensor) -> list[Tensor]:
        number = b.load(indices, [i]).to(dtypes.int64)
        # The guard that makes the program fail may come later: nothing is read outside of the table.
        at = b.minimum(b.maximum(b.as_index(number), 0), last)
        counts = number != (-1 if padding is None else padding)
        scale = None if scales is None else b.load(scales, [i]).to(dtype)
        before = [b.load(c, [k]) for c in counted[:1]]

        def element(j: SSAValue, result: Tensor, *most: Tensor) -> list[Tensor]:
            old, new = b.load(result, [k, j]), b.load(weight, [at, j]).to(dtype)
            if mode == MAX:
                is_new = counts & ((before[0] == 0) | (new > old))
                row_of = is_new.select(number, b.load(most[0], [k, j]))
                return [b.store(result, [k, j], is_new.select(new, old)), b.store(most[0], [k, j], row_of)]
            term = new if scale is None else new * scale
            return [b.store(result, [k, j], old + (term if padding is None else counts.select(term, 0)))]

        result, *most = b.loop(0, width, [result, *counted[1:]], element)
        members = [b.store(c, [k], n + counts.to(dtypes.int64)) for c, n in zip(counted[:1], before, strict=True)]
        return [result, *members, *most]

    wanted: list[tuple[list[Size], DType]] = [
        ([bags, width], dtype),
        ([bags], dtypes.int64),
        ([bags, width], dtypes.int64),
    ]
    return b.loop(0, bags, [b.initial(sizes, 0, d) for sizes, d in wanted[: 1 + mode]], bag)


def _position(b: RuleBuilder, starts: Tensor, bag: Size, count: Size) -> Size:
    """Return where a bag begins, clamped to the number of indices."""
    return b.minimum(b.maximum(b.as_index(b.load(starts, [bag])), 0), count)
