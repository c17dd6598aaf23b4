"""The table of decompositions, and what several of them need."""

from __future__ import annotations

import operator
from typing import Any, Literal

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.types import BOOL
from flambeau.infer.builder import TorchBuilder
from flambeau.ir.conversion import RuleTable

DECOMPOSITIONS = RuleTable("decompositions")
decomposition = DECOMPOSITIONS


def require_element(t: TorchBuilder, condition: SSAValue, message: str) -> None:
    """Make the program fail with `message` unless a tensor with one element is true."""
    flag = t.op("aten.Bool.Tensor", (condition,), (BOOL,))[0]
    t.require(flag, message)


def require_size(t: TorchBuilder, size: Any, relation: Literal["eq", "ge", "gt"], bound: Any, message: str) -> None:
    """Refuse a size for which a relation does not hold: here where it is known, else when the program runs."""
    if isinstance(size, int) and isinstance(bound, int):
        if not getattr(operator, relation)(size, bound):
            raise Unsupported(f"{message}: {size} and {bound}")
        return
    numbers = [t.constant(n) if isinstance(n, int) else n for n in (size, bound)]
    t.require(t.op(f"aten.{relation}.int", numbers, (BOOL,))[0], message)
