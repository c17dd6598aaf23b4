"""Softmax and its kin: they subtract the maximum, so that any finite number does for rows of nothing but -inf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flambeau.lowering.linalg.lower import rules as linalg_rules
from flambeau.lowering.tosa.ops import TosaBuilder
from flambeau.lowering.tosa.rules import tosa_rule

OPS = (
    "aten.softmax.int", "aten._softmax", "aten.log_softmax.int", "aten._log_softmax", "aten._safe_softmax",
    "aten.scaled_dot_product_attention",
)  # fmt: skip


def _relaxed(rule: Callable[..., Any]) -> Callable[..., Any]:
    def apply(b: TosaBuilder, *args: Any) -> Any:
        with b.within(replace(b.context, exact_extremes=False)):
            return rule(b, *args)

    return apply


for _name in OPS:
    _found = linalg_rules().get(_name)
    if _found is not None:
        tosa_rule(_name)(_relaxed(_found))
