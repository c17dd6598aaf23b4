"""Symbolic sizes as people read them: the names that they were given, their ranges, and formulas over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from flambeau.ir.dtypes import INT64_MAX
from flambeau.ir.symbolic import Dims, Symbol, SymbolicDim

_RELATIONS = {
    "Equality": "==", "GreaterThan": ">=", "StrictGreaterThan": ">", "LessThan": "<=", "StrictLessThan": "<",
}  # fmt: skip
_QUOTIENTS = {"FloorDiv": "//", "CleanDiv": "//", "Mod": "%", "PythonMod": "%"}


class DimNames:
    """The names of a program's symbolic sizes: those of `torch.export.Dim`, and `s0`, `s1`, ... for the others."""

    def __init__(self, ranges: Mapping[Any, Any] | None = None) -> None:
        self.ranges = ranges or {}
        self._names: dict[Any, str] = {}
        self._given: set[Any] = set()
        """The symbols that are a `Dim`, whose range somebody has said."""

    def dims(self, shape: Sequence[Any]) -> Dims:
        """Describe the sizes of a fake tensor; empty if all are numbers."""
        if not any(isinstance(n, torch.SymInt) for n in shape):
            return ()
        return tuple(self._dim(n) if isinstance(n, torch.SymInt) else None for n in shape)

    def symbols(self, used: Iterable[Dims]) -> tuple[Symbol, ...]:
        """List the symbols that occur in sizes of arguments, with their ranges."""
        names = dict.fromkeys(dim.symbol for dims in used for dim in dims if dim is not None and dim.symbol is not None)
        by_name = {name: symbol for symbol, name in self._names.items()}
        return tuple(Symbol(name, *self._range(by_name[name])) for name in names)

    def text(self, expr: Any) -> str:
        """Spell a formula or a condition in Python, with the names."""
        kind = type(expr).__name__
        if expr.is_Symbol:
            return self._name(expr)
        if kind in _RELATIONS:
            return f" {_RELATIONS[kind]} ".join(map(self.text, expr.args))
        if kind in ("Add", "Mul"):
            signs = {"Add": " + ", "Mul": "*"}
            parts = sorted(expr.args, key=lambda a: (a.is_Integer == (kind == "Add"), str(a)))
            text = signs[kind].join(f"({self.text(a)})" if _binds_less(a, kind) else self.text(a) for a in parts)
            return text.replace("+ -", "- ")
        if kind in _QUOTIENTS:
            sides = [self.text(a) if a.is_Symbol or a.is_Integer else f"({self.text(a)})" for a in expr.args]
            return f" {_QUOTIENTS[kind]} ".join(sides)
        if kind in ("Max", "Min"):
            return f"{kind.lower()}({', '.join(map(self.text, expr.args))})"
        return str(expr.xreplace({s: s.func(self._name(s)) for s in expr.free_symbols}))

    def _dim(self, size: Any) -> SymbolicDim:
        expr = size.node.expr
        for symbol in expr.free_symbols:
            self._note(symbol, size.node.shape_env)
        text = self.text(expr)
        if len(expr.free_symbols) == 1:
            (symbol,) = expr.free_symbols
            sum_of_terms = expr.expand()
            factor = sum_of_terms.coeff(symbol)
            offset = sum_of_terms - factor * symbol
            if factor.is_Integer and factor > 0 and offset.is_Integer:
                return SymbolicDim(text, self._name(symbol), int(factor), int(offset))
        return SymbolicDim(text)

    def _note(self, symbol: Any, env: Any) -> None:
        """Find the name of a symbol: PyTorch keeps that of a `Dim` beside the place where the size comes from."""
        if symbol in self._names:
            return
        given = getattr(env, "source_name_to_debug_name", {})
        sources = [s.name if isinstance(s.name, str) else s.name() for s in env.var_to_sources.get(symbol, ())]
        named = [given.get(source, source) for source in sources if source in given or source.isidentifier()]
        taken = self._names.values()
        if any(source in given for source in sources):
            self._given.add(symbol)
        free = next(n for i in range(len(self._names) + 1) if (n := f"s{i}") not in taken)
        self._names[symbol] = named[0] if named and named[0].isidentifier() and named[0] not in taken else free

    def _name(self, symbol: Any) -> str:
        return self._names.get(symbol, str(symbol))

    def _range(self, symbol: Any) -> tuple[int, int | None]:
        bounds = self.ranges.get(symbol)
        if bounds is None:
            return 0, None
        low = int(bounds.lower) if bounds.lower.is_Integer else 0
        high = int(bounds.upper) if bounds.upper.is_Integer and bounds.upper < INT64_MAX else None
        # PyTorch assumes at least 2 where nobody said anything: that is no promise of the caller's.
        return (0 if low == 2 and symbol not in self._given else max(low, 0)), high


def _binds_less(expr: Any, inside: str) -> bool:
    return inside == "Mul" and (expr.is_Add or type(expr).__name__ in _QUOTIENTS)
