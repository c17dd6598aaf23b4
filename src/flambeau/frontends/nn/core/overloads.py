"""Which overload a call means: PyTorch's argument parser, from the schemas alone.

The overloads of an operator are tried in PyTorch's order; the first whose parameters take the arguments is it. The
order: by the text of the signature, but a more general parameter (`Tensor` before `Scalar`, `int` before `int[]`)
comes first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.schema import REQUIRED, Argument, Schema, SchemaType
from flambeau.frontends.nn.core import values

NUMBERS_AS_TENSORS = frozenset(
    stem + suffix
    for stem in ("add", "sub", "mul", "div", "subtract", "multiply", "divide", "true_divide", "floor_divide")
    for suffix in ("", "_")
)
"""Operators that take a number wherever they take a tensor."""

_UNREACHABLE = frozenset(f"aten.{op}{_}.Scalar" for op in ("add", "sub", "mul", "div") for _ in ("", "_"))
"""Overloads that PyTorch does not offer in Python, since numbers go as tensors there."""

_SYNONYMS = {
    "input": "self",
    "axis": "dim",
    "keepdims": "keepdim",
    "x": "self",
    "a": "self",
    "x1": "self",
    "x2": "other",
}
"""Other names for parameters: what PyTorch calls them in functions, and numpy's."""

_IGNORED = frozenset({"requires_grad", "pin_memory", "non_blocking", "generator"})
"""Keywords that change nothing in a program."""

_SPELLINGS = (
    (re.compile(r"\((?:[a-z](?:\|[a-z])*!?|[a-z]!? -> \*)\)"), ""),
    (re.compile(r"\bSymInt\["), "SymIntArrayRef["),
    (re.compile(r"\bint\["), "IntArrayRef["),
    (re.compile(r"\bint\b"), "int64_t"),
    (re.compile(r"\bfloat\b"), "double"),
    (re.compile(r"\bTensor\[\]"), "TensorList"),
)
"""How PyTorch's argument parser spells types; its order is that of these texts."""


@cache
def candidates(base: str) -> tuple[Schema, ...]:
    """List the overloads of `aten.add` that a Python call can mean, in the order in which they are tried."""
    hidden = registry.snapshot().jit_only | _UNREACHABLE
    found = [s for s in registry.overloads(base) if s.name not in hidden and "Dimname" not in s.text]
    found = [s for s in found if not s.is_vararg and not _has_stream(s)]
    found.sort(key=lambda s: (is_out(s), _spelling(s)))
    order: list[Schema] = []
    while found:
        first = next((s for s in found if not any(_yields(s, other) for other in found)), found[0])
        found.remove(first)
        order.append(first)
    return tuple(order)


def _has_stream(schema: Schema) -> bool:
    return any(a.type.base == "Stream" for a in schema.arguments)


def is_out(schema: Schema) -> bool:
    """Tell whether an overload writes its result to a tensor that it is given as `out`."""
    return any(a.kwarg_only and a.alias is not None and a.alias.is_write for a in schema.arguments)


def _spelling(schema: Schema) -> str:
    text = schema.text.rsplit("->", 1)[0]
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    return text


def _yields(schema: Schema, other: Schema) -> bool:
    """Tell whether `other` is tried first: each of its parameters equals ours or is more special."""
    mine = [a.type for a in schema.arguments if not a.kwarg_only]
    theirs = [a.type for a in other.arguments if not a.kwarg_only]
    if len(mine) != len(theirs) or mine == theirs:
        return False
    return all(a == b or _is_special(str(a), str(b)) for a, b in zip(mine, theirs, strict=True))


def _is_special(a: str, b: str) -> bool:
    return (
        (a, b) in (("Scalar", "Tensor"), ("Scalar?", "Tensor?"), ("int", "Tensor"))
        or (a == "int[]" and b in ("int", "int?"))
        or (a == "Tensor[]" and "[]" in b)
    )


# --- Does a value go for a parameter? ---

_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int, np.integer, values.Int),
    "float": (int, float, np.integer, np.floating, values.Int, values.Float),
    "bool": (bool, np.bool_, values.Bool),
    "Scalar": (int, float, complex, np.number, np.bool_, values.Scalar),
    "str": (str,),
    "Layout": (int,),
    "MemoryFormat": (int,),
}

_WORDS = {
    "Tensor": "Tensor", "int": "int", "float": "float", "bool": "bool", "Scalar": "int, float or bool", "str": "str",
    "ScalarType": "dtype", "Device": "device name", "MemoryFormat": "memory format", "Layout": "layout",
}  # fmt: skip


def accepts(type_: SchemaType, value: Any, numbers: bool = False, literals: bool = False) -> bool:
    """Tell whether a value fits a parameter. Tensors may be `numbers`, or nested lists as `literals`, if allowed."""
    if value is None:
        return type_.is_optional
    if isinstance(value, values.TypedValue):
        return (value.schema_type.base, value.schema_type.is_list) == (type_.base, type_.is_list)
    if type_.is_list:
        element = SchemaType(type_.base, type_.elements_optional)
        if isinstance(value, (list, tuple)):
            return all(accepts(element, v, numbers, literals) for v in value)
        if isinstance(value, np.ndarray) and not type_.is_tensor:
            return value.ndim == 1 and value.dtype.kind in "iu"
        return type_.size is not None and accepts(SchemaType(type_.base), value, numbers)
    if type_.is_tensor:
        if isinstance(value, (values.Tensor, np.ndarray)):
            return True
        if literals and isinstance(value, (list, tuple)):
            return values.is_literal(value)
        return numbers and isinstance(value, (int, float, np.number, values.Scalar))
    if type_.base == "ScalarType":
        return values.is_dtype(value)
    if type_.base == "Device":
        return isinstance(value, str)
    if type_.base == "int" and isinstance(value, (bool, np.bool_)):
        return False
    if type_.base == "float" and isinstance(value, bool):
        return False
    return isinstance(value, _KINDS.get(type_.base, ()))


def describe(type_: SchemaType) -> str:
    """Describe a parameter's type in words, for error messages."""
    word = _WORDS.get(type_.base, type_.base)
    if type_.is_list:
        word = f"list of {word}" + (" or None" if type_.elements_optional else "")
        if type_.size is not None:
            word += f" or one {_WORDS.get(type_.base, type_.base)} for all {type_.size}"
    elif type_.is_tensor:
        word += " (or numpy array)"
    return word + (", or None" if type_.is_optional else "")


def kind_of(value: Any) -> str:
    """Describe what a caller passed in words, for error messages."""
    if isinstance(value, (list, tuple)):
        inner = ", ".join(dict.fromkeys(kind_of(v) for v in value))
        return f"{type(value).__name__} of {inner}" if inner else f"empty {type(value).__name__}"
    return "None" if value is None else type(value).__name__


# --- Binding a call ---


@dataclass
class Mismatch:
    """Why a call does not fit an overload."""

    reason: str


def bind(
    schema: Schema, receiver: Any, args: Sequence[Any], kwargs: dict[str, Any], literals: bool = False
) -> list[Any] | Mismatch:
    """Bind a call to a schema: return its arguments in order, with defaults, or a Mismatch that says why not.

    `receiver` is what the method is called on; None for a function.
    """
    numbers = schema.base_name in NUMBERS_AS_TENSORS
    named = _named(schema, kwargs)
    if isinstance(named, Mismatch):
        return named
    if receiver is not None:
        if "self" not in schema.index:
            return Mismatch("it is not a method")
        named["self"] = receiver
    positional = [a for a in schema.arguments if not a.kwarg_only and not (receiver is not None and a.name == "self")]
    if _takes_many(positional) and args and not isinstance(args[0], (list, tuple, np.ndarray)):
        args = [list(args)]  # `x.view(2, 3)`
    if len(args) > len(positional):
        count = f"{len(positional)} positional argument{'s' * (len(positional) != 1)}"
        return Mismatch(f"it takes {count}, got {len(args)}")
    for argument, value in zip(positional, args):
        if argument.name in named:
            return Mismatch(f"argument {argument.name!r} is given twice")
        named[argument.name] = value
    bound: list[Any] = []
    for argument in schema.arguments:
        value = named.get(argument.name, _default(schema, argument))
        if value is REQUIRED:
            return Mismatch(f"argument {argument.name!r} is missing")
        if argument.name in named and not accepts(argument.type, value, numbers, literals):
            return Mismatch(f"argument {argument.name!r} must be {describe(argument.type)}, not {kind_of(value)}")
        bound.append(_spread(argument, value))
    return bound


def _default(schema: Schema, argument: Argument) -> Any:
    """Return what PyTorch passes for an argument that is not given: new tensors are explicitly on the CPU."""
    if argument.name == "pin_memory" and argument.default is None:
        return False
    if argument.name == "device" and argument.default is None and not any(a.type.is_tensor for a in schema.arguments):
        return "cpu"
    return argument.default


def _named(schema: Schema, kwargs: dict[str, Any]) -> dict[str, Any] | Mismatch:
    named: dict[str, Any] = {}
    for name, value in kwargs.items():
        known = name if name in schema.index else _SYNONYMS.get(name, name)
        if known in schema.index:
            named[known] = value
        elif name not in _IGNORED and not (name == "out" and value is None):
            return Mismatch(f"it has no argument {name!r}")
    return named


def _takes_many(positional: Sequence[Argument]) -> bool:
    return len(positional) == 1 and positional[0].type.is_list and positional[0].type.base == "int"


def _spread(argument: Argument, value: Any) -> Any:
    """Repeat a single value for a list of known size; turn an array of numbers into a list."""
    if not argument.type.is_list or value is None:
        return value
    if isinstance(value, np.ndarray) and not argument.type.is_tensor:
        return value.tolist()
    if argument.type.size is not None and not isinstance(value, (list, tuple)):
        return [value] * argument.type.size
    return value


def choose(base: str, receiver: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Schema, list[Any]]:
    """Choose the overload that a call means; return it with its arguments in order, or raise TypeError."""
    schemas = candidates(base)
    refusals: list[tuple[Schema, str]] = []
    for literals in (False, True):
        refusals.clear()
        for schema in schemas:
            bound = bind(schema, receiver, args, kwargs, literals)
            if not isinstance(bound, Mismatch):
                return schema, bound
            refusals.append((schema, bound.reason))
    raise TypeError(_refusal(base.removeprefix("aten."), refusals))


def _refusal(name: str, refusals: Sequence[tuple[Schema, str]]) -> str:
    shown = [(s, reason) for s, reason in refusals if not is_out(s)] or list(refusals)
    if len(shown) == 1:
        schema, reason = shown[0]
        return f"{name}(): {reason}\n  {name}{schema.text}"
    lines = [f"{name}(): no overload takes these arguments"]
    lines += [f"  {name}{schema.text}\n    {reason}" for schema, reason in shown]
    return "\n".join(lines)
