"""Ops on Python numbers that only the run time knows, as ops on tensors without dims; and on lists of such numbers.

What sizes are computed with (`+`, `//`, comparisons) is lowered as it is. The rest is a function of a number that
PyTorch has for tensors too: `math.sin(x)` is `torch.sin` of the f64 that x is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from xdsl.ir import SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch import registry
from flambeau.dialects.torch.types import BOOL, FLOAT, INT
from flambeau.infer.builder import TorchBuilder
from flambeau.ir import dtypes
from flambeau.passes.decompose.rules import decomposition

Number = Any
"""A Python number, or the SSA value of one."""

_DTYPES = {FLOAT: dtypes.float64, INT: dtypes.int64, BOOL: dtypes.bool_}
_FROM_TENSOR = {"float": "aten.Float.Tensor", "int": "aten.Int.Tensor", "bool": "aten.Bool.Tensor"}
_TYPES = {"float": FLOAT, "int": INT, "bool": BOOL}


def _kind(x: Number) -> str:
    """Name the type of a number: `float`, `int` or `bool`."""
    if isinstance(x, SSAValue):
        return {FLOAT: "float", INT: "int", BOOL: "bool"}[x.type]
    return type(x).__name__


def _tensor(t: TorchBuilder, x: Number, kind: str | None = None) -> SSAValue:
    """Make a tensor without dims of a number: f64, i64 or bool."""
    dtype = _DTYPES[_TYPES[kind or _kind(x)]]
    tensor: SSAValue = t.scalar_tensor(x, dtype=_DTYPES[_TYPES[_kind(x)]])
    return t.to(tensor, dtype)


def _number(t: TorchBuilder, x: SSAValue, kind: str) -> SSAValue:
    """Take the number in a tensor without dims."""
    return t.op(_FROM_TENSOR[kind], (t.to(x, _DTYPES[_TYPES[kind]]),), (_TYPES[kind],))[0]


def _function(base: str, compute: Callable[..., Any], operands: str = "float", count: int | None = None) -> None:
    """Let the overloads of `base` on numbers be a function of tensors: of f64, or with "own" of what they are.

    `count` limits it to overloads of so many numbers.
    """
    for schema in registry.overloads(base):
        types = [a.type for a in (*schema.arguments, *schema.returns)]
        if any(type_.base not in ("int", "float", "bool", "Scalar") or type_.is_list for type_ in types):
            continue
        if schema.name == "aten.pow.int_to_int" or count not in (None, len(schema.arguments)):
            continue  # sizes are raised to powers too

        @decomposition(schema.name)
        def apply(t: TorchBuilder, *numbers: Number, schema: Any = schema) -> Any:
            answers = compute(t, *(_tensor(t, x, None if operands == "own" else operands) for x in numbers))
            answers = answers if isinstance(answers, tuple) else (answers,)
            return tuple(_number(t, x, _result_kind(t, r.type.base, x)) for r, x in zip(schema.returns, answers))


def _result_kind(t: TorchBuilder, promised: str, x: SSAValue) -> str:
    """Name the type of the number in a tensor: what the schema promises, which may leave it to the operands."""
    if promised != "Scalar":
        return promised
    return "float" if t.dtype(x).is_float else "bool" if t.dtype(x) is dtypes.bool_ else "int"


for _name in (
    "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "erfc", "expm1", "lgamma",
    "log10", "log1p", "sin", "sinh", "tan", "tanh",
):  # fmt: skip
    _function(f"aten.{_name}", lambda t, x, name=_name: t.call(f"aten.{name}", x))

_function("aten.fabs", lambda t, x: t.abs(x))
_function("aten.round", lambda t, x: t.round(x))
_function("aten.degrees", lambda t, x: t.mul(x, 180 / math.pi))
_function("aten.radians", lambda t, x: t.mul(x, math.pi / 180))
_function("aten.gamma", lambda t, x: _gamma(t, x))
_function("aten.atan2", lambda t, x, y: t.atan2(x, y))
_function("aten.copysign", lambda t, x, y: t.copysign(x, y))
_function("aten.pow", lambda t, x, y: t.pow(x, y))
_function("aten.log", lambda t, x, base: t.div(t.log(x), t.log(base)), count=2)
_function("aten.fmod", lambda t, x, y: t.fmod(x, y))
_function("aten.mathremainder", lambda t, x, y: t.sub(x, t.mul(t.round(t.div(x, y)), y)))
_function("aten.isnan", lambda t, x: t.isnan(x))
_function("aten.isinf", lambda t, x: t.isinf(x))
_function("aten.isfinite", lambda t, x: t.isfinite(x))
_function("aten.modf", lambda t, x: (t.sub(x, t.trunc(x)), t.trunc(x)))
_function("aten.frexp", lambda t, x: tuple(t.frexp(x)))
_function("aten.gcd", lambda t, x, y: t.gcd(x, y), "own")
_function("aten.ldexp", lambda t, x, i: t.ldexp(x, i), "own")


def _gamma(t: TorchBuilder, x: SSAValue) -> SSAValue:
    """Compute the gamma function: e to the logarithm of its absolute value, negative between -1 and 0, -3 and -2..."""
    is_negative = t.logical_and(t.lt(x, 0), t.ne(t.remainder(t.floor(x), 2), 0))
    size = t.exp(t.lgamma(x))
    return t.where(is_negative, t.neg(size), size)


# --- Lists of numbers ---


def _fold(names: Sequence[str], pair: Callable[[TorchBuilder, Number, Number], Number], empty: Number = None) -> None:
    """Let ops on a list combine its elements from left to right, from `empty` if there is a value for none."""

    @decomposition(*names)
    def apply(t: TorchBuilder, values: list[Number]) -> Any:
        if not values and empty is None:
            raise Unsupported("the greatest or least element of an empty list")
        elements = values if empty is None else [empty, *values]
        return _emitted(t, reduce(lambda a, b: pair(t, a, b), elements))


def _emitted(t: TorchBuilder, x: Number) -> SSAValue:
    return x if isinstance(x, SSAValue) else t.constant(x)


def _pairwise(base: str) -> Callable[[TorchBuilder, Number, Number], Number]:
    """Make a function that calls the overload of an op for two numbers of one kind, or of an int and a float."""

    def call(t: TorchBuilder, x: Number, y: Number) -> SSAValue:
        kinds = _kind(x), _kind(y)
        overload = kinds[0] if kinds[0] == kinds[1] else "_".join(kinds)
        return t.call(f"{base}.{overload}", _emitted(t, x), _emitted(t, y))

    return call


_add, _equal, _both, _either = map(_pairwise, ("aten.add", "aten.eq", "aten.__and__", "aten.__or__"))


def _truth(t: TorchBuilder, x: Number) -> Number:
    if not isinstance(x, SSAValue):
        return bool(x)
    return x if x.type == BOOL else t.call(f"aten.Bool.{_kind(x)}", x)


def _count(t: TorchBuilder, values: Sequence[Number], wanted: Number) -> Number:
    total: Number = 0
    for value in values:
        total = _add(t, total, t.call("aten.Int.bool", _equal(t, value, wanted)))
    return total


for _type in ("int", "float", "bool"):
    _fold([f"aten.sum.{_type}"], lambda t, a, b: _add(t, a, _as_int(t, b)), {"float": 0.0}.get(_type, 0))
    _fold([f"aten.all.{_type}"], lambda t, a, b: _both(t, a, _truth(t, b)), True)
    _fold([f"aten.any.{_type}"], lambda t, a, b: _either(t, a, _truth(t, b)), False)
    _fold([f"prim.max.self_{_type}"], _either if _type == "bool" else _pairwise("prim.max"))
    _fold([f"prim.min.self_{_type}"], _both if _type == "bool" else _pairwise("prim.min"))

    @decomposition(f"aten.count.{_type}")
    def count(t: TorchBuilder, values: list[Number], wanted: Number) -> Any:
        return _emitted(t, _count(t, values, wanted))

    @decomposition(f"aten.eq.{_type}_list")
    def equal_lists(t: TorchBuilder, a: list[Number], b: list[Number]) -> Any:
        if len(a) != len(b):
            return t.constant(False)
        return _emitted(t, reduce(lambda x, y: _both(t, x, y), (_equal(t, x, y) for x, y in zip(a, b)), True))

    @decomposition(f"aten.ne.{_type}_list")
    def unequal_lists(t: TorchBuilder, a: list[Number], b: list[Number]) -> Any:
        return t.call("aten.__not__", equal_lists(t, a, b))


@decomposition("aten.__contains__.int_list", "aten.__contains__.float_list")
def contains(t: TorchBuilder, values: list[Number], wanted: Number) -> Any:
    return _emitted(t, reduce(lambda x, y: _either(t, x, y), (_equal(t, v, wanted) for v in values), False))


@decomposition("aten.index.list_int", "aten.index.list_float", "aten.index.list_bool")
def index(t: TorchBuilder, values: list[Number], wanted: Number) -> Any:
    """Count the elements before the first one that is equal."""
    position: Number = 0
    is_before: Number = True
    for value in values:
        is_before = _both(t, is_before, t.call("aten.__not__", _equal(t, value, wanted)))
        position = _add(t, position, t.call("aten.Int.bool", is_before))
    t.require(t.call("aten.__not__", _emitted(t, is_before)), "ValueError: the list has no such element")
    return _emitted(t, position)


def _as_int(t: TorchBuilder, x: Number) -> Number:
    """Count truth values as 0 and 1."""
    if isinstance(x, SSAValue):
        return t.call("aten.Int.bool", x) if x.type == BOOL else x
    return int(x) if isinstance(x, bool) else x


# --- Quotients ---


def _quotient(base: str, compute: Callable[..., SSAValue]) -> None:
    """Let overloads with a float divide as Python does, which raises where the divisor is zero."""

    @decomposition(f"{base}.float", f"{base}.int_float", f"{base}.float_int", base)
    def apply(t: TorchBuilder, x: Number, y: Number) -> SSAValue:
        if _kind(x) == _kind(y) == "int":
            return t.call(f"{base}.int", _emitted(t, x), _emitted(t, y))
        overload = {"float": "float", "int": "int_float"}[_kind(y)]
        t.require(t.call(f"aten.ne.{overload}", _emitted(t, y), t.constant(0.0)), "ZeroDivisionError: division by zero")
        return _number(t, compute(t, _tensor(t, x, "float"), _tensor(t, y, "float")), "float")


_quotient("aten.floordiv", lambda t, x, y: t.floor_divide(x, y))
_quotient("aten.remainder", lambda t, x, y: t.remainder(x, y))


@decomposition("aten.divmod.int", "aten.divmod.float", "aten.divmod.int_float", "aten.divmod.float_int")
def quotient_and_rest(t: TorchBuilder, x: Number, y: Number) -> Any:
    return _pairwise("aten.floordiv")(t, x, y), _pairwise("aten.remainder")(t, x, y)


@decomposition("aten.__round_to_zero_floordiv.int")
def quotient_toward_zero(t: TorchBuilder, x: Number, y: Number) -> SSAValue:
    return _number(t, t.div(_tensor(t, x), _tensor(t, y), rounding_mode="trunc"), "int")


@decomposition("aten.factorial.int")
def factorial(t: TorchBuilder, x: Number) -> SSAValue:
    """Look the product of 1 to x up; those up to 20! fit into 64 bits."""
    products = t.cumprod(t.clamp_min(t.arange(21, dtype=dtypes.int64), 1), 0)
    return _number(t, t.squeeze(t.index_select(products, 0, t.unsqueeze(_tensor(t, x), 0)), 0), "int")


# --- Ranges ---


@decomposition("aten.__range_length")
def range_length(t: TorchBuilder, start: Number, end: Number, step: Number) -> SSAValue:
    """Count the elements of `range(start, end, step)`: the distance over the step, rounded up, at least 0."""
    start, end, step = (_emitted(t, x) for x in (start, end, step))
    distance = t.call("aten.sub.int", start, end)
    count = t.call("aten.neg.int", t.call("aten.floordiv.int", distance, step))
    return t.call("prim.max.int", count, t.constant(0))


@decomposition("aten.__derive_index")
def derive_index(t: TorchBuilder, index: Number, start: Number, step: Number) -> SSAValue:
    return _add(t, start, t.call("aten.mul.int", _emitted(t, index), _emitted(t, step)))
