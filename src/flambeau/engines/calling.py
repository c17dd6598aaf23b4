"""What is checked of a call, argument by argument, and what the errors say."""

from __future__ import annotations

import itertools
import operator
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flambeau.ir.arrays import (
    cannot_be_written,
    dtype_of,
    has_strides,
    is_array,
    is_numpy,
    numpy_dtype,
    overlapping,
    prefers_torch,
    shares_memory,
    span_of,
)
from flambeau.ir.module import Argument, Fixed, ScalarSpec, Signature, TensorSpec
from flambeau.ir.trees import Tree, flatten

_INT64 = range(-(1 << 63), 1 << 63)


def check_signature(name: str, signature: Signature, weights: Mapping[str, Any]) -> None:
    """Raise ValueError if some argument of a function would never get a value."""
    fed = set(leaf_arguments(signature))
    for i, argument in enumerate(signature.arguments):
        if argument.state is not None and argument.state not in weights:
            raise ValueError(
                f"argument {argument.name!r} of {name!r} is the weight {argument.state!r}, which is missing"
            )
        if argument.state is None and i not in fed:
            raise ValueError(f"argument {argument.name!r} of {name!r} is neither an input nor a weight")


def check_fixed(fixed: Fixed, value: Any) -> None:
    """Raise unless a value is the one that the program was specialised to."""
    if not same_value(fixed.value, value):
        raise ValueError(
            f"argument {fixed.name!r}: the program was compiled for {_show(fixed.value)}, and was called with "
            f"{_show(value)}; compile it again for another value, or make it a tensor"
        )


def same_value(a: Any, b: Any) -> bool:
    """Tell whether two Python values are one to a program: `True`, `1` and `1.0` differ, and so do 0.0 and -0.0."""
    b = b.item() if isinstance(b, np.generic) else b
    if a is b:
        return True
    if is_array(b) or type(a) is not type(b):
        return False
    if isinstance(a, (float, complex)):
        return repr(a) == repr(b)
    return bool(a == b)


def _show(value: Any) -> str:
    if is_array(value):
        return f"a tensor {_type(value)}"
    text = repr(value)
    return text if len(text) <= 80 else f"a {type(value).__name__}"


@dataclass(frozen=True)
class _Held:
    """A tensor that a program has while it runs."""

    name: str
    array: Any
    is_passed: bool
    is_written: bool = False


def check_writes(signature: Signature, values: Sequence[Any], weights: Mapping[str, Any]) -> None:
    """Raise if a tensor that the program writes is one that it has under another name as well, or cannot be written."""
    written = {m.argument for m in signature.mutations}
    held = [
        _Held(a.name, v, a.state is None, i in written)
        for i, (a, v) in enumerate(zip(signature.arguments, values, strict=True))
        if is_array(v)
    ]
    for one in held:
        if one.is_written and (reason := cannot_be_written(one.array)) is not None:
            raise ValueError(f"argument {one.name!r} {reason}, and the program writes it: pass a copy")
    if any(one.is_written and one.is_passed for one in held):
        held += [_Held(name, weight, False) for name, weight in weights.items() if is_array(weight)]
    # Only those that lie between addresses that overlap are compared element by element.
    spans = [(*span_of(one.array), i) for i, one in enumerate(held) if 0 not in one.array.shape]
    for group in overlapping(spans):
        members = [held[i] for _, _, i in group]
        for one, other in itertools.permutations(members, 2):
            # Two tensors of the program's own may be one, as tied weights are.
            if one.is_written and (one.is_passed or other.is_passed) and shares_memory(one.array, other.array):
                raise ValueError(
                    f"arguments {one.name!r} and {other.name!r} share memory, and the program writes "
                    f"{one.name!r}: pass a clone() of one of them"
                )


def answer_in_torch(signature: Signature, values: Sequence[Any], weights: Mapping[str, Any]) -> bool:
    """Tell whether results should be torch tensors, as the caller's arguments, else the weights, else the tree are."""
    passed = (v for v, a in zip(values, signature.arguments, strict=True) if a.state is None)
    for group in (passed, weights.values()):
        if (found := prefers_torch(group)) is not None:
            return found
    return any(spec is not None and not isinstance(spec, Tree) for spec in (signature.in_spec, signature.out_spec))


def leaf_arguments(signature: Signature) -> Sequence[int | None]:
    """List for each leaf that the caller passes the argument that it feeds; None for one that feeds none."""
    if signature.inputs is not None:
        return signature.inputs
    return [i for i, a in enumerate(signature.arguments) if a.state is None]


def flatten_call(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Flatten a call into leaves; raise TypeError if it has not the structure that the program was compiled for."""
    if signature.in_spec is None:
        return _flatten_by_name(signature, args, kwargs)
    try:
        leaves: list[Any] = signature.in_spec.flatten_up_to((args, kwargs))
    except (ValueError, TypeError) as error:
        expected = describe_call(signature.in_spec, _leaf_names(signature))
        given = describe_call(_structure(signature.in_spec, (args, kwargs)))
        reason = "" if describe_call(signature.in_spec) != given else f": {error}"
        raise TypeError(f"the program takes {expected} but was called with {given}{reason}") from None
    return leaves


def _flatten_by_name(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    positions = leaf_arguments(signature)
    names = [f"unused{i}" if p is None else signature.arguments[p].name for i, p in enumerate(positions)]
    missing = [name for name in names[len(args) :] if name not in kwargs]
    unknown = [name for name in kwargs if name not in names[len(args) :]]
    if len(args) > len(names) or missing or unknown:
        reasons = [f"missing {', '.join(missing)}"] if missing else []
        reasons += [f"unexpected {', '.join(unknown)}"] if unknown else []
        given = f"{len(args)} positional argument{'s' * (len(args) != 1)}"
        reason = "; ".join(reasons) or f"called with {given}"
        raise TypeError(f"the program takes ({', '.join(names)}): {reason}")
    return [*args, *(kwargs[name] for name in names[len(args) :])]


def _structure(like: Any, call: Any) -> Any:
    if isinstance(like, Tree):
        return flatten(call)[1]
    from torch.utils._pytree import tree_structure

    return tree_structure(call)


def _leaf_names(signature: Signature) -> list[str]:
    names = {f.leaf: f.name for f in signature.fixed}
    return [
        names.get(i, "*") if p is None else signature.arguments[p].name for i, p in enumerate(leaf_arguments(signature))
    ]


def describe_call(spec: Any, names: Sequence[str] = ()) -> str:
    """Write the tree spec of `(args, kwargs)` as a call, `(x, [*, *], mask=*)`, with names of leaves."""
    leaves = iter(names)
    args, kwargs = spec.children()
    positional = [_describe(child, leaves) for child in args.children()]
    named = [f"{key}={_describe(child, leaves)}" for key, child in zip(kwargs.context, kwargs.children(), strict=True)]
    return f"({', '.join(positional + named)})"


def _describe(spec: Any, names: Iterator[str]) -> str:
    if spec.is_leaf():
        return next(names, "*")
    children = [_describe(child, names) for child in spec.children()]
    if spec.type is dict:
        return "{" + ", ".join(f"{k!r}: {c}" for k, c in zip(spec.context, children, strict=True)) + "}"
    if spec.type is list:
        return f"[{', '.join(children)}]"
    if spec.type is tuple:
        return f"({', '.join(children)}{',' * (len(children) == 1)})"
    kind = spec.context if spec.type is namedtuple else spec.type  # PyTorch's way of writing named tuples
    return f"{kind.__name__}({', '.join(children)})"


def check_argument(argument: Argument, value: Any) -> Any:
    """Convert a value that the caller passes to what the program takes; raise if it is not of the argument's type."""
    spec = argument.spec
    return (
        _check_scalar(argument, spec, value) if isinstance(spec, ScalarSpec) else _check_tensor(argument, spec, value)
    )


def _check_scalar(argument: Argument, spec: ScalarSpec, value: Any) -> int | float | bool:
    mismatch = TypeError(f"argument {argument.name!r}: expected a Python {spec}, got {_type(value)}")
    if is_array(value):
        raise mismatch
    if spec.kind == "bool":
        if not isinstance(value, (bool, np.bool_)):
            raise mismatch
        return bool(value)
    try:
        if spec.kind == "float":
            return float(operator.index(value)) if not isinstance(value, (float, np.floating)) else float(value)
        number = operator.index(value)
    except TypeError:
        raise mismatch from None
    if number not in _INT64:
        raise ValueError(f"argument {argument.name!r}: {number} does not fit in 64 bits")
    return number


def _check_tensor(argument: Argument, spec: TensorSpec, value: Any) -> Any:
    if not is_array(value):
        raise TypeError(f"argument {argument.name!r}: expected a tensor {spec}, got {_type(value)}")
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"argument {argument.name!r}: programs know no masks; fill the masked array with filled()")
    dtype = dtype_of(value)
    if dtype is not spec.dtype:
        if not is_numpy(value) or spec.dtype.numpy is not None or value.dtype != spec.dtype.storage:
            raise TypeError(f"argument {argument.name!r}: expected a tensor {spec}, got {_type(value)}")
        value = value.view(numpy_dtype(spec.dtype))  # the bits of a type that numpy lacks
    shape = tuple(value.shape)
    if len(shape) != len(spec.shape) or any(d is not None and d != n for d, n in zip(spec.shape, shape, strict=True)):
        raise ValueError(f"argument {argument.name!r}: expected a tensor {spec}, got {_type(value)}")
    if argument.strides is not None and not has_strides(value, argument.strides):
        wanted = argument.strides if isinstance(argument.strides, str) else f"with strides {argument.strides}"
        raise ValueError(
            f"argument {argument.name!r}: the program writes through a reshape, which is a view or a copy as the "
            f"tensor lies in memory; it was compiled for one that is {wanted}. Pass such a one, or compile it again"
        )
    return value


def _type(value: Any) -> str:
    if not is_array(value):
        return f"{value!r} ({type(value).__name__})" if isinstance(value, (int, float, str)) else type(value).__name__
    dtype = dtype_of(value)
    return str(TensorSpec(tuple(value.shape), dtype)) if dtype else f"{tuple(value.shape)} {value.dtype}"
