"""From a Python call to a flat list of arguments, and from a flat list of results back to Python objects."""

from __future__ import annotations

import operator
import sys
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from flambeau.ir.arrays import (
    GradientError,
    cannot_be_written,
    dtype_of,
    has_strides,
    is_array,
    is_numpy,
    numpy_dtype,
    overwrite,
    prefers_torch,
    shares_memory,
)
from flambeau.ir.module import Argument, Fixed, ScalarSpec, Signature, TensorSpec
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
    for fixed in signature.fixed:
        _check_fixed(fixed, leaves[fixed.leaf])
    values: list[Any] = [None if a.state is None else weights[a.state] for a in signature.arguments]
    for leaf, position in zip(leaves, _leaf_arguments(signature), strict=True):
        if position is not None:
            values[position] = _check(signature.arguments[position], leaf)
    _check_gradients(signature, values)
    if signature.mutations:
        _check_writes(signature, values, weights)
    return values


def _check_fixed(fixed: Fixed, value: Any) -> None:
    """Raise unless a value is the one that the program was specialised to."""
    if not same_value(fixed.value, value):
        raise ValueError(
            f"argument {fixed.name!r}: the program was compiled for {_show(fixed.value)}, and was called with "
            f"{_show(value)}; compile it again for another value, or make it a tensor"
        )


def same_value(a: Any, b: Any) -> bool:
    """Whether two Python values are one to a program: `True`, `1` and `1.0` differ, and so do 0.0 and -0.0."""
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


def _check_gradients(signature: Signature, values: Sequence[Any]) -> None:
    """Raise where PyTorch would go on to record what a gradient needs: a compiled program records nothing."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.is_grad_enabled():
        return
    tracked = [
        a.name
        for a, v in zip(signature.arguments, values, strict=True)
        if a.state is None and isinstance(v, torch.Tensor) and v.requires_grad
    ]
    has_gradient = any(
        isinstance(r, TensorSpec) and (r.dtype.is_float or r.dtype.is_complex) for r in signature.results
    )
    if tracked and has_gradient:
        raise GradientError(
            f"argument {tracked[0]!r} requires a gradient, and a compiled program gives none: call it under "
            "torch.no_grad(), or pass detach() of the argument"
        )


def _check_writes(signature: Signature, values: Sequence[Any], weights: Mapping[str, Any]) -> None:
    """Raise if a tensor that the program writes is one that it has under another name as well, or cannot be written."""
    written = {m.argument for m in signature.mutations}
    passed = [i for i, a in enumerate(signature.arguments) if a.state is None and is_array(values[i])]
    for i in written:
        argument, value = signature.arguments[i], values[i]
        if not is_array(value):
            continue
        if (reason := cannot_be_written(value)) is not None:
            raise ValueError(f"argument {argument.name!r} {reason}, and the program writes it: pass a copy")
        others = {a.name: values[j] for j in passed if j != i for a in (signature.arguments[j],)}
        if argument.state is None:
            others |= {name: w for name, w in weights.items() if is_array(w)}
        for name, other in others.items():
            if shares_memory(value, other):
                raise ValueError(
                    f"arguments {argument.name!r} and {name!r} share memory, and the program writes "
                    f"{argument.name!r}: pass a clone() of one of them"
                )


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
        expected = describe_call(signature.in_spec, _leaf_names(signature))
        given = describe_call(_structure(signature.in_spec, (args, kwargs)))
        reason = "" if describe_call(signature.in_spec) != given else f": {error}"
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


def _leaf_names(signature: Signature) -> list[str]:
    names = {f.leaf: f.name for f in signature.fixed}
    return [
        names.get(i, "*") if p is None else signature.arguments[p].name
        for i, p in enumerate(_leaf_arguments(signature))
    ]


def describe_call(spec: Any, names: Sequence[str] = ()) -> str:
    """The tree spec of `(args, kwargs)` as one would write the call: `(x, [*, *], mask=*)`, with names of leaves."""
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
