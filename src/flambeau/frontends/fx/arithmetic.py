"""Arithmetic on sizes that only the run time knows, which FX graphs do with Python's own operators."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from xdsl.ir import Attribute, SSAValue

from flambeau.dialects.torch.emitter import TorchEmitter
from flambeau.dialects.torch.types import BOOL, FLOAT, INT
from flambeau.ir.comparisons import OPERATORS

_OPERATORS: dict[Any, str] = {
    operator.add: "aten.add", operator.sub: "aten.sub", operator.mul: "aten.mul", operator.floordiv: "aten.floordiv",
    operator.mod: "aten.remainder", operator.neg: "aten.neg", operator.pow: "aten.pow", operator.truediv: "aten.div",
    torch.sym_max: "prim.max", torch.sym_min: "prim.min", max: "prim.max", min: "prim.min",
    **{function: f"aten.{name}" for name, function in OPERATORS.items()},
}  # fmt: skip

_CASTS: dict[Any, tuple[str, Attribute]] = {
    torch.sym_float: ("aten.Float.Scalar", FLOAT), torch.sym_int: ("aten.Int.Scalar", INT),
    math.trunc: ("aten.Int.float", INT), math.floor: ("aten.floor.Scalar", INT), math.ceil: ("aten.ceil.Scalar", INT),
    torch.sym_not: ("aten.__not__", BOOL), operator.not_: ("aten.__not__", BOOL),
}  # fmt: skip

_BOOL_RESULT = frozenset(f"aten.{name}" for name in OPERATORS)


def is_arithmetic(target: Any) -> bool:
    """Tell whether a node's target is a Python operator or cast on numbers."""
    return target in _OPERATORS or target in _CASTS


def emit_choice(emitter: TorchEmitter, condition: Any, chosen: Any, other: Any) -> Any:
    """Emit `chosen if condition else other` on integers, as `other + (chosen - other) * condition`."""
    if not isinstance(condition, SSAValue):
        return chosen if condition else other
    number = emitter.op("aten.Int.bool", [condition], [INT])[0]
    difference = emit_arithmetic(emitter, operator.sub, [chosen, other])
    return emit_arithmetic(emitter, operator.add, [other, emit_arithmetic(emitter, operator.mul, [difference, number])])


def emit_arithmetic(emitter: TorchEmitter, target: Any, arguments: Sequence[Any]) -> Any:
    """Emit an operator on numbers; what is constant stays a Python number."""
    if not any(isinstance(a, SSAValue) for a in arguments):
        return target(*arguments)
    operands = [a if isinstance(a, SSAValue) else emitter.constant(a) for a in arguments]
    if target in _CASTS:
        name, result = _CASTS[target]
        return emitter.op(name, operands, [result])[0]
    base = _OPERATORS[target]
    kinds = ["float" if o.type == FLOAT else "int" for o in operands]
    overload = kinds[0] if len(set(kinds)) == 1 else "_".join(kinds)
    name = f"{base}.{overload}"
    if base in _BOOL_RESULT:
        result = BOOL
    elif "float" in kinds or target is operator.truediv:
        result = FLOAT
    else:
        result = INT
    return emitter.op(name, operands, [result])[0]
