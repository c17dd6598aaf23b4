"""Arithmetic on sizes and places, by the names that PyTorch's interpreter of symbolic expressions uses."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from flambeau.diagnostics import Unsupported
from flambeau.ir.comparisons import SIGNED

if TYPE_CHECKING:
    from flambeau.lowering.builder import Size
    from flambeau.lowering.linalg.builder import LinalgBuilder


class SizeArithmetic:
    """Numbers are Python ints, or index values that only the running kernel knows."""

    def __init__(self, builder: LinalgBuilder) -> None:
        b = self.b = builder
        self.add, self.sub, self.mul = b.add, b.sub, b.mul
        self.floordiv = b.floordiv
        self.mod = self.python_mod = b.mod
        self.minimum, self.maximum = b.minimum, b.maximum
        for name, predicate in SIGNED.items():
            setattr(self, name, partial(b.compare, predicate))

    def constant(self, value: Any, dtype: Any) -> Size:
        return int(value)

    def neg(self, a: Size) -> Size:
        return self.b.sub(0, a)

    def pow_by_natural(self, base: Size, exponent: Size) -> Size:
        if not isinstance(exponent, int):
            raise Unsupported("a power whose exponent only the running kernel knows")
        return self.b.product([base] * exponent)
