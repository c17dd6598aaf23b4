"""Symbolic sizes: PyTorch's sympy expressions as torch dialect symbols and affine maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import AffineMapAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from flambeau.dialects.torch.emitter import TorchEmitter
from flambeau.dialects.torch.ops import BindSymbolicShapeOp, SymbolicIntOp
from flambeau.dialects.torch.types import INT
from flambeau.frontends.fx.dims import DimNames
from flambeau.ir.dtypes import INT64_MAX


class Symbols:
    """The symbolic ints of one function and the shapes that are bound to them."""

    def __init__(self, emitter: TorchEmitter, names: DimNames) -> None:
        self.emitter = emitter
        self.names = names
        self.values: dict[Any, SSAValue] = {}

    def bind(self, value: SSAValue, dims: Sequence[Any]) -> None:
        """Say in the IR how a tensor's dynamic dims follow from symbols."""
        self.names.dims(dims)
        used: list[Any] = []
        exprs = tuple(AffineExpr.constant(d) if isinstance(d, int) else self._affine(d.node.expr, used) for d in dims)
        symbols = [self._symbol(expr) for expr in used]
        shape = AffineMapAttr(AffineMap(0, len(used), exprs))
        self.emitter.emit(BindSymbolicShapeOp, (value, *symbols), (), {"shape_expressions": shape})

    def _affine(self, expr: Any, used: list[Any]) -> AffineExpr:
        """Convert a sympy expression to an affine one; what is not affine becomes a symbol named by its formula."""
        import sympy

        if expr.is_Integer:
            return AffineExpr.constant(int(expr))
        if isinstance(expr, sympy.Add) and all(self._is_term(a) for a in expr.args):
            first, *rest = (self._affine(a, used) for a in expr.args)
            for other in rest:
                first = first + other
            return first
        if isinstance(expr, sympy.Mul) and len(expr.args) == 2 and expr.args[0].is_Integer and expr.args[1].is_Symbol:
            return self._affine(expr.args[1], used) * int(expr.args[0])
        if expr not in used:
            used.append(expr)
        return AffineExpr.symbol(used.index(expr))

    @staticmethod
    def _is_term(expr: Any) -> bool:
        return bool(
            expr.is_Integer
            or expr.is_Symbol
            or (expr.is_Mul and len(expr.args) == 2 and expr.args[0].is_Integer and expr.args[1].is_Symbol)
        )

    def _symbol(self, expr: Any) -> SSAValue:
        found = self.values.get(expr)
        if found is None:
            low, high = self._range(expr)
            properties = {
                "symbol_name": StringAttr(self.names.text(expr)),
                "min_val": IntegerAttr(low, i64),
                "max_val": IntegerAttr(high, i64),
            }
            op = SymbolicIntOp.create(result_types=(INT,), properties=properties)
            self.emitter.insert_first(op)
            found = self.values[expr] = op.results[0]
        return found

    def _range(self, expr: Any) -> tuple[int, int]:
        bounds = self.names.ranges.get(expr)
        if bounds is None:
            return 0, INT64_MAX
        low = int(bounds.lower) if bounds.lower.is_Integer else 0
        high = int(bounds.upper) if bounds.upper.is_Integer else INT64_MAX
        return max(low, 0), min(high, INT64_MAX)
