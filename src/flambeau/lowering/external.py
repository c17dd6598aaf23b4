"""Ops that are left to the engine: each becomes a call of a function that somebody else has.

In linalg that is `func.call` of a function which is declared and not defined, in StableHLO a `custom_call`, in TOSA a
`tosa.custom`. Tensors are operands of it. Numbers are operands too where a function takes them, else attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, FloatAttr, IntegerAttr, StringAttr, f64, i1, i64
from xdsl.ir import Attribute

from flambeau.diagnostics import Unsupported
from flambeau.ir.conversion import RuleFunction, RuleTable
from flambeau.lowering.builder import Tensor, tensor_type


@dataclass(frozen=True)
class External:
    """An op that is left to the engine."""

    overload: str
    """The op as the dialect spells it, `mylib.gate`."""
    symbol: str
    """What the engine calls it; the overload where nobody says otherwise."""
    parameters: tuple[str, ...] = ()
    """The names of its arguments, if they are known."""

    @staticmethod
    def parse(text: str) -> External:
        """Read `mylib.gate`, `mylib.gate=symbol` or `mylib.gate=symbol:x:y`, with the names of the arguments."""
        head, *parameters = text.split(":")
        overload, _, symbol = head.partition("=")
        return External(overload, symbol or overload, tuple(parameters))

    def __str__(self) -> str:
        return ":".join((f"{self.overload}={self.symbol}", *self.parameters))

    def name(self, position: int) -> str:
        """Name the argument at a position."""
        return self.parameters[position] if position < len(self.parameters) else f"argument{position}"


Emit = Callable[[Any, External, Sequence[Any]], Sequence[Tensor]]
"""Builds the call: from the builder, the op and its arguments come its results, as `b.context` declares them."""


def external_rules(target: str, external: Sequence[str], emit: Emit) -> RuleTable:
    """Make a rule for each op that is left to the engine, in the table of a target."""
    table = RuleTable(target)
    for text in external:
        op = External.parse(text)
        table(op.overload)(_rule(op, emit))
    return table


def _rule(external: External, emit: Emit) -> RuleFunction:
    def call(b: Any, *args: Any) -> Any:
        if not b.context.results or b.context.length is not None:
            raise Unsupported("an external function gives tensors, and this op something else")
        results = list(emit(b, external, args))
        return results[0] if len(results) == 1 else results

    return call


def result_types(b: Any) -> list[Attribute]:
    """List the types of the op's results as the program declares them."""
    return [tensor_type(shape, dtype.builtin) for shape, dtype in b.context.results]


def tensors_in(value: Any) -> list[Tensor]:
    """List the tensors of an argument: itself, or those in it."""
    if isinstance(value, Tensor):
        return [value]
    return [x for v in value for x in tensors_in(v)] if isinstance(value, (list, tuple)) else []


def constant_attribute(value: Any) -> Attribute | None:
    """Return a Python value as an attribute; None for what is no constant."""
    match value:
        case bool():
            return IntegerAttr(int(value), i1)
        case int():
            return IntegerAttr(value, i64)
        case float():
            return FloatAttr(value, f64)
        case str():
            return StringAttr(value)
        case list() | tuple():
            return _list_attribute(list(value))
    return None


def _list_attribute(values: list[Any]) -> Attribute | None:
    """Return a list of constants as an attribute: numbers of one kind are a dense array."""
    kinds = {type(v) for v in values}
    for kind, element in ((bool, i1), (int, i64), (float, f64)):
        if kinds <= {kind} and (values or kind is int):
            return DenseArrayBase.from_list(element, values)
    parts = [constant_attribute(v) for v in values]
    known = [p for p in parts if p is not None]
    return ArrayAttr(known) if len(known) == len(parts) else None
