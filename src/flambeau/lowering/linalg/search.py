"""Searching sorted sequences, by bisection for each value."""

from __future__ import annotations

from xdsl.ir import SSAValue

from flambeau.infer.promotion import promote_operands
from flambeau.ir import dtypes
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.linalg.rules import loop_rule
from flambeau.lowering.verbs import RuleBuilder


@loop_rule("aten.searchsorted.Tensor")
def searchsorted(
    b: RuleBuilder,
    ascending: Tensor,
    x: Tensor,
    out_int32: bool,
    right: bool,
    side: str | None,
    sorter: Tensor | None,
) -> Tensor:
    """Count for each value the elements before it in the last dim of a sorted tensor; NaN comes last of all.

    The leading dims of the sorted tensor are those of the values, or it has none. `sorter` has the positions of its
    elements in ascending order.
    """
    common = promote_operands([(t.dtype, t.rank) for t in (ascending, x)])
    counts_equals = right or side == "right"
    count = b.size(ascending, ascending.rank - 1)

    def place(at: list[SSAValue], value: Element) -> Element:
        value, rows = value.to(common), at[: ascending.rank - 1]

        def read(position: SSAValue) -> Element:
            where: list[Size] = [*rows, position]
            if sorter is not None:
                # Positions that are none fail elsewhere, if at all: nothing is read outside of the tensor.
                chosen = b.load(sorter, where).to(dtypes.int64).maximum(0).minimum(b.element(count, dtypes.int64) - 1)
                where[-1] = b.as_index(chosen)
            return b.load(ascending, where).to(common)

        def halve(low: Element, high: Element) -> tuple[Element, Element]:
            middle = (low + high).trunc_divide(2)
            other = read(b.as_index(middle))
            is_before = (other <= value if counts_equals else other < value) | value.isnan()
            return is_before.select(middle + 1, low), is_before.select(high, middle)

        ends = [b.element(n, dtypes.int64) for n in (0, count)]
        return b.while_loop(ends, lambda low, high: low < high, halve)[0]

    return b.map_indexed([x], b.sizes(x), dtypes.int32 if out_int32 else dtypes.int64, place)
