"""Rules that are better said on whole tensors, for every target that has whole-tensor ops."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from flambeau.ir.conversion import RuleTable
from flambeau.lowering.builder import Size, Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.whole.builder import WholeBuilder

WHOLE_RULES = RuleTable("whole tensors")
whole_rule = WHOLE_RULES


def layered(name: str, *tables: RuleTable, without: Container[str] = ()) -> RuleTable:
    """One table of several; a later one wins. Ops in `without` have no rule."""
    joined = RuleTable(name)
    for table in tables:
        joined.rules.update((n, r) for n, r in table.rules.items() if n not in without)
    return joined


# --- Scans ---

Combine = Callable[[Element, Element], Element]


def scan(b: WholeBuilder, x: Tensor, dim: int, combine: Combine) -> Tensor:
    """Every element becomes the combination of all elements up to it along dim, by doubling."""
    sizes = b.sizes(x)
    length = sizes[dim]
    assert isinstance(length, int)
    reach = 1
    while reach < length:
        lead: list[Size] = [reach if i == dim else 0 for i in range(x.rank)]
        none: list[Size] = [0] * x.rank
        part = b.slice(x, none, [length - reach if i == dim else s for i, s in enumerate(sizes)], [1] * x.rank)
        before = b.pad(part, lead, none, 0)
        shift = reach

        def take_in(at: Any, here: Element, earlier: Element, shift: int = shift) -> Element:
            return b.scalar_bool(b.compare("sge", at[dim], shift)).select(combine(earlier, here), here)

        x = b.map_indexed([x, before], sizes, x.dtype, take_in)
        reach *= 2
    return x
