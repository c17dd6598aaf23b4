"""Arithmetic on sizes and places, by the names that PyTorch's interpreter of symbolic expressions uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.diagnostics import Unsupported

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

    def constant(self, value: Any, dtype: Any) -> Size:
        return int(value)

    def neg(self, a: Size) -> Size:
        return self.b.sub(0, a)

    def pow_by_natural(self, base: Size, exponent: Size) -> Size:
        if not isinstance(exponent, int):
            raise Unsupported("a power whose exponent only the running kernel knows")
        return self.b.product([base] * exponent)

    def eq(self, x: Size, y: Size) -> Any:
        return self.b.compare("eq", x, y)

    def ne(self, x: Size, y: Size) -> Any:
        return self.b.compare("ne", x, y)

    def lt(self, x: Size, y: Size) -> Any:
        return self.b.compare("slt", x, y)

    def le(self, x: Size, y: Size) -> Any:
        return self.b.compare("sle", x, y)

    def gt(self, x: Size, y: Size) -> Any:
        return self.b.compare("sgt", x, y)

    def ge(self, x: Size, y: Size) -> Any:
        return self.b.compare("sge", x, y)
