"""From a Python call to a flat list of arguments, and from a flat list of results back to Python objects."""

from __future__ import annotations

import operator
from collections import namedtuple
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flambeau.ir.arrays import dtype_of, is_array, is_numpy, numpy_dtype, overwrite, prefers_torch
from flambeau.ir.module import Argument, ScalarSpec, Signature, TensorSpec
from flambeau.ir.trees import Tree, flatten

_INT64 = range(-(1 << 63), 1 << 63)


def check_signature(name: str, signature: Signature, weights: Mapping[str, Any]) -> None:
    """Raise ValueError if some argument of a function would never get a value."""
    fed = set(_leaf_arguments(signature))
    for i, argument in enumerate(signature.arguments):
        if argument.state is not None and argument.state not in weights:
            raise ValueError(
                f"argument {argument.name!r} of {name!r} is the weight {argument.state!r}, which is missing"
            )
        if argument.state is None and i not in fed:
            raise ValueError(f"argument {argument.name!r} of {name!r} is neither an input nor a weight")


def bind(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any], weights: Mapping[str, Any]) -> list[Any]:
    """The value of each argument of the function: what the caller passed, checked, and the state."""
    leaves = _flatten(signature, args, kwargs)
    values: list[Any] = [None if a.state is None else weights[a.state] for a in signature.arguments]
    for leaf, position in zip(leaves, _leaf_arguments(signature), strict=True):
        if position is not None:
            values[position] = _check(signature.arguments[position], leaf)
    return values


def answer_in_torch(signature: Signature, values: Sequence[Any], weights: Mapping[str, Any]) -> bool:
    """Whether results should be torch tensors: as the caller's arguments, else as the weights, else as the tree."""
    passed = (v for v, a in zip(values, signature.arguments, strict=True) if a.state is None)
    for group in (passed, weights.values()):
        if (found := prefers_torch(group)) is not None:
            return found
    return any(spec is not None and not isinstance(spec, Tree) for spec in (signature.in_spec, signature.out_spec))


def finish(signature: Signature, values: Sequence[Any], results: Sequence[Any]) -> Any:
    """Write results into what they are the new values of, and build what the caller gets back."""
    for mutation in signature.mutations:
        overwrite(values[mutation.argument], results[mutation.result])
    leaves = [o.constant if o.result is None else results[o.result] for o in signature.outputs]
    if isinstance(signature.out_spec, Tree):
        return signature.out_spec.unflatten(leaves)
    if signature.out_spec is not None:
        from torch.utils._pytree import tree_unflatten

        return tree_unflatten(leaves, signature.out_spec)
    return leaves[0] if len(leaves) == 1 else leaves


def _leaf_arguments(signature: Signature) -> Sequence[int | None]:
    """For each leaf that the caller passes, the argument that it feeds."""
    if signature.inputs is not None:
        return signature.inputs
    return [i for i, a in enumerate(signature.arguments) if a.state is None]


def _flatten(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    if signature.in_spec is None:
        return _flatten_by_name(signature, args, kwargs)
    try:
        leaves: list[Any] = signature.in_spec.flatten_up_to((args, kwargs))
    except (ValueError, TypeError) as error:
        expected, given = describe_call(signature.in_spec), describe_call(_structure(signature.in_spec, (args, kwargs)))
        reason = "" if expected != given else f": {error}"
        raise TypeError(f"the program takes {expected} but was called with {given}{reason}") from None
    return leaves


def _flatten_by_name(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    positions = _leaf_arguments(signature)
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


def describe_call(spec: Any) -> str:
    """The tree spec of `(args, kwargs)` as one would write the call: `(*, [*, *], mask=*)`."""
    args, kwargs = spec.children()
    positional = [_describe(child) for child in args.children()]
    named = [f"{key}={_describe(child)}" for key, child in zip(kwargs.context, kwargs.children(), strict=True)]
    return f"({', '.join(positional + named)})"


def _describe(spec: Any) -> str:
    if spec.is_leaf():
        return "*"
    children = [_describe(child) for child in spec.children()]
    if spec.type is dict:
        return "{" + ", ".join(f"{k!r}: {c}" for k, c in zip(spec.context, children, strict=True)) + "}"
    if spec.type is list:
        return f"[{', '.join(children)}]"
    if spec.type is tuple:
        return f"({', '.join(children)}{',' * (len(children) == 1)})"
    kind = spec.context if spec.type is namedtuple else spec.type  # PyTorch's way of writing named tuples
    return f"{kind.__name__}({', '.join(children)})"


def _check(argument: Argument, value: Any) -> Any:
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
    dtype = dtype_of(value)
    if dtype is not spec.dtype:
        if not is_numpy(value) or spec.dtype.numpy is not None or value.dtype != spec.dtype.storage:
            raise TypeError(f"argument {argument.name!r}: expected a tensor {spec}, got {_type(value)}")
        value = value.view(numpy_dtype(spec.dtype))  # the bits of a type that numpy lacks
    shape = tuple(value.shape)
    if len(shape) != len(spec.shape) or any(d is not None and d != n for d, n in zip(spec.shape, shape, strict=True)):
        raise ValueError(f"argument {argument.name!r}: expected a tensor {spec}, got {_type(value)}")
    return value


def _type(value: Any) -> str:
    if not is_array(value):
        return f"{value!r} ({type(value).__name__})" if isinstance(value, (int, float, str)) else type(value).__name__
    dtype = dtype_of(value)
    return str(TensorSpec(tuple(value.shape), dtype)) if dtype else f"{tuple(value.shape)} {value.dtype}"
