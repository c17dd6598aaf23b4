"""Python numbers, strings and lists in the program: computed where all operands are known, of known type where not."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.schema import Schema
from flambeau.infer.rules import Dim, InferenceError, Meta, Unknown, infer_rule, known, normal_dim, product
from flambeau.ir import dtypes
from flambeau.ir.comparisons import OPERATORS


def _toward_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _round(value: float) -> float:
    return float(round(value))


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make `max` or `min` give a float where one operand is a float, whichever it chooses."""

    def apply(*args: Any) -> Any:
        found = function(*args)
        return float(found) if any(isinstance(a, float) for a in args) else found

    return apply


def _between(name: str) -> Callable[..., Any]:
    """Make a method of strings look at a part: TorchScript counts the end of one from behind the last character."""

    def apply(text: str, part: str, start: int, end: int) -> Any:
        first, last = (n if n >= 0 else n + len(text) + by for n, by in ((start, 0), (end, 1)))
        if not 0 <= first <= last <= len(text) or (name == "count" and last < len(text)):
            raise ValueError("there TorchScript does not do what Python does")
        return getattr(text, name)(part, first, last)

    return apply


def _in_list_or_string(name: str) -> Callable[..., Any]:
    """Make a method that lists and strings have."""
    return lambda values, *rest: (_between(name) if rest[1:] else getattr(list, name))(values, *rest)


PYTHON: dict[str, Callable[..., Any]] = {
    "aten.add": operator.add, "aten.sub": operator.sub, "aten.mul": operator.mul, "aten.div": operator.truediv,
    "aten.floordiv": operator.floordiv, "aten.remainder": operator.mod, "aten.fmod": math.fmod,
    "aten.mathremainder": math.remainder, "aten.__round_to_zero_floordiv": _toward_zero,
    "aten.pow": operator.pow, "aten.neg": operator.neg, "prim.abs": abs, "aten.fabs": math.fabs,
    "prim.max": _extreme(max), "prim.min": _extreme(min), "aten.sum": sum, "aten.all": all, "aten.any": any,
    **{f"aten.{name}": function for name, function in OPERATORS.items()},
    "aten.__and__": operator.and_, "aten.__or__": operator.or_, "aten.__xor__": operator.xor,
    "aten.__lshift__": operator.lshift, "aten.__rshift__": operator.rshift, "aten.__not__": operator.not_,
    "aten.Bool": bool, "aten.Int": int, "aten.Float": float,
    "aten.ceil": math.ceil, "aten.floor": math.floor, "aten.round": _round,
    "aten.sqrt": math.sqrt, "aten.exp": math.exp, "aten.expm1": math.expm1, "aten.log": math.log,
    "aten.log1p": math.log1p, "aten.log10": math.log10,
    "aten.sin": math.sin, "aten.cos": math.cos, "aten.tan": math.tan, "aten.asin": math.asin, "aten.acos": math.acos,
    "aten.atan": math.atan, "aten.atan2": math.atan2, "aten.sinh": math.sinh, "aten.cosh": math.cosh,
    "aten.tanh": math.tanh, "aten.asinh": math.asinh, "aten.acosh": math.acosh, "aten.atanh": math.atanh,
    "aten.erf": math.erf, "aten.erfc": math.erfc, "aten.gamma": math.gamma, "aten.lgamma": math.lgamma,
    "aten.degrees": math.degrees, "aten.radians": math.radians, "aten.copysign": math.copysign,
    "aten.ldexp": math.ldexp, "aten.factorial": math.factorial, "aten.gcd": math.gcd,
    "aten.isnan": math.isnan, "aten.isinf": math.isinf, "aten.isfinite": math.isfinite,
    "aten.angle": lambda x: x if x != x else math.pi if x < 0 else 0.0, "aten.divmod": divmod,
    "aten.frexp": math.frexp, "aten.modf": math.modf, "aten.count": _in_list_or_string("count"),
    "aten.index": _in_list_or_string("index"),
    "aten.__contains__": operator.contains, "aten.__range_length": lambda lo, hi, step: len(range(lo, hi, step)),
    "aten.__derive_index": lambda index, start, step: start + index * step,
    "aten.len": len, "aten.join": str.join, "aten.ord": ord, "aten.__getitem__": operator.getitem,
    "prim.StringIndex": operator.getitem, "aten.slice": lambda s, start, end, step: s[start:end:step],
    **{
        f"aten.{name}": getattr(str, name)
        for name in (
            "capitalize", "center", "expandtabs", "isalnum", "isalpha", "isdecimal", "isdigit", "isidentifier",
            "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper", "ljust", "lower", "lstrip",
            "replace", "rjust", "rstrip", "strip", "swapcase", "title", "upper", "zfill",
        )
    },
    **{f"aten.{name}": _between(name) for name in ("endswith", "find", "rfind", "rindex", "startswith")},
}  # fmt: skip
"""Operators to what they do to Python values. An operator's overloads on numbers and strings differ in types alone."""

KINDS: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str, "Scalar": object}
"""The Python types of schemas; a Scalar is an int, a float or a bool."""


def evaluate(function: Callable[..., Any], kind: type, args: tuple[Any, ...]) -> Any:
    """Apply a function to Python values, and convert the result to the kind that the schema promises."""
    if not known(*(a for a in args if a is not None)):
        return Unknown(kind if kind is not object else _kind_of(function, args))
    try:
        result = function(*args)
        if kind is not object:
            result = kind(result)
    except (ArithmeticError, LookupError, TypeError, ValueError) as e:
        spelt = ", ".join(map(repr, args))
        raise InferenceError(f"cannot compute this for {spelt}: {e}") from e
    if isinstance(result, int) and not dtypes.int64.min <= result <= dtypes.int64.max:
        raise InferenceError(f"{result} does not fit into 64 bits")
    return result


def _kind_of(function: Callable[..., Any], args: tuple[Any, ...]) -> type:
    """Find the type of a result by trying the function on ones; where it has no value there, it gives floats."""
    kinds = [a.kind if isinstance(a, Unknown) else type(a) for a in args]
    if object in kinds:
        return object
    try:
        return type(function(*(k(1) for k in kinds)))
    except ValueError:
        return float


def _is_scalar(schema: Schema) -> bool:
    if schema.is_mutable or schema.is_vararg or not schema.returns or any(r.type.is_list for r in schema.returns):
        return False
    return all(a.type.base in KINDS for a in (*schema.arguments, *schema.returns))


def _register(schema: Schema, function: Callable[..., Any]) -> None:
    kinds = [KINDS[r.type.base] for r in schema.returns]
    if len(kinds) == 1:
        infer_rule(schema.name)(lambda *args: evaluate(function, kinds[0], args))
        return

    @infer_rule(schema.name)
    def apply(*args: Any) -> tuple[Any, ...]:
        def part(i: int) -> Callable[..., Any]:
            return lambda *values: function(*values)[i]

        return tuple(evaluate(part(i), kind, args) for i, kind in enumerate(kinds))


for _base, _function in PYTHON.items():
    for _schema in registry.overloads(_base):
        if _is_scalar(_schema):
            _register(_schema, _function)


# --- What tensors tell ---


def _number(dim: Dim) -> Any:
    return Unknown(int) if dim is None else dim


@infer_rule("aten.size", "aten.sym_size")
def size_list(x: Meta) -> list[Any]:
    return [_number(d) for d in x.shape]


@infer_rule("aten.size.int", "aten.sym_size.int")
def size_int(x: Meta, dim: Any) -> Any:
    return Unknown(int) if isinstance(dim, Unknown) else _number(x.shape[normal_dim(dim, x.rank)])


@infer_rule("aten.len.Tensor")
def len_tensor(x: Meta) -> Any:
    if x.rank == 0:
        raise InferenceError("a 0-d tensor has no length")
    return _number(x.shape[0])


infer_rule("aten.numel", "aten.sym_numel")(lambda x: _number(product(x.shape)))
infer_rule("aten.dim")(lambda x: x.rank)
infer_rule("aten.is_floating_point")(lambda x: x.dtype.is_float)
infer_rule("aten.is_complex")(lambda x: x.dtype.is_complex)
infer_rule("prim.dtype")(lambda x: x.dtype.code)
infer_rule("prim.layout")(lambda x: 0)  # PyTorch's number of strided tensors.
infer_rule("aten.equal", "aten.allclose")(lambda x, y, *_: Unknown(bool))


# --- Containers ---


infer_rule("prim.TupleUnpack")(lambda values: tuple(values))


@infer_rule("aten.__getitem__.t", "prim.TupleIndex")
def getitem(values: Any, index: Any) -> Any:
    if not isinstance(index, int):
        raise InferenceError("the index of a list is not a constant")
    if not -len(values) <= index < len(values):
        raise InferenceError(f"index {index} is out of range for {len(values)} elements")
    return values[index]


@infer_rule("aten.len.t")
def len_list(values: Any) -> int:
    return len(values)


@infer_rule("aten.add.t")
def add_lists(x: list[Any], y: list[Any]) -> list[Any]:
    return [*x, *y]


@infer_rule("aten.mul.left_t")
def repeat_list(values: list[Any], times: Any) -> list[Any]:
    if not isinstance(times, int):
        raise InferenceError("how often a list is repeated is not a constant")
    return list(values) * times


@infer_rule("aten.slice.t")
def slice_list(values: list[Any], start: Any, end: Any, step: Any) -> list[Any]:
    if any(isinstance(v, Unknown) for v in (start, end, step)):
        raise InferenceError("the bounds of a list's slice are not constants")
    return list(values[start:end:step])


@infer_rule("aten.list.t")
def copy_list(values: list[Any]) -> list[Any]:
    return list(values)


@infer_rule("aten.__is__")
def is_(x: Any, y: Any) -> Any:
    return (x is None) == (y is None) if x is None or y is None else Unknown(bool)


@infer_rule("aten.__isnot__")
def is_not(x: Any, y: Any) -> Any:
    return (x is None) != (y is None) if x is None or y is None else Unknown(bool)


@infer_rule("prim.unchecked_cast")
def unchecked_cast(x: Any) -> Any:
    return x


# --- No results ---


@infer_rule(
    "aten._assert_scalar", "aten._assert_tensor_metadata", "aten.sym_constrain_range",
    "aten.sym_constrain_range_for_size", "aten.warn",
)  # fmt: skip
def nothing(*_: Any) -> tuple[()]:
    return ()
