"""How each op runs: structural ops by hand, registry ops by PyTorch, and those on containers in Python."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import torch
from xdsl.dialects import func
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, DenseResourceAttr
from xdsl.ir import Attribute, Operation
from xdsl.ir.affine import AffineSymExpr

from flambeau.dialects.specs import spec_of
from flambeau.dialects.torch.ops import (
    BindSymbolicShapeOp,
    CalculateOp,
    CallMethodOp,
    ConstantDeviceOp,
    ConstantOp,
    CopyOp,
    CreateObjectOp,
    DictConstructOp,
    GetAttrOp,
    GlobalSlotGetOp,
    GlobalSlotSetOp,
    IfOp,
    LiteralOp,
    LoopOp,
    NnModuleOp,
    OperatorOp,
    RuntimeAssertOp,
    SetAttrOp,
    SymbolicIntOp,
    TorchOp,
    ValueTensorLiteralOp,
)
from flambeau.dialects.torch.schema import Argument, Schema
from flambeau.dialects.torch.types import ContainerType, NnModuleType, TensorType, VTensorType
from flambeau.dialects.torch.values import LoadOp, StoreOp
from flambeau.engines.eager.interpreter import Frame, Rule, ScriptObject, explain
from flambeau.engines.eager.random import philox
from flambeau.engines.errors import RunError
from flambeau.ir.dtypes import BY_CODE, DType, from_torch
from flambeau.ir.module import TensorSpec

Values = Sequence[Any]


def find_rule(op: Operation) -> Rule:
    """Find the rule of an op: by its name, by its class, or PyTorch's own operator."""
    overload = getattr(op, "overload", "") or op.name
    if overload in RULES:
        return RULES[overload]
    for kind, rule in RULES_BY_CLASS.items():
        if isinstance(op, kind):
            return rule
    if not isinstance(op, TorchOp) or (op.schema is None and not isinstance(op, OperatorOp)):
        raise NotImplementedError("the eager engine has no rule for this op")
    schema = op.schema
    if schema is not None and _is_generic(schema):
        in_python = IN_PYTHON.get(f"{schema.namespace}.{schema.base_name}")
        if in_python is None:
            raise NotImplementedError("the eager engine has no rule for this op")
        return lambda frame, op, args: in_python(*args)
    return _registry_rule(op)


# --- Constants and literals ---


def _constant(frame: Frame, op: Operation, args: Values) -> Any:
    assert isinstance(op, ConstantOp)
    value = op.python_value
    return torch.device(value) if isinstance(op, ConstantDeviceOp) else value


def _literal(frame: Frame, op: Operation, args: Values) -> torch.Tensor:
    """Return a literal: a value is made once and shared, a mutable tensor is a fresh copy each time."""
    assert isinstance(op, LiteralOp)
    contents = frame.run.literals.get(op)
    if contents is None:
        contents = frame.run.literals[op] = _contents(frame, op)
    return contents if isinstance(op, ValueTensorLiteralOp) else contents.clone()


def _contents(frame: Frame, op: LiteralOp) -> torch.Tensor:
    result, value = op.results[0].type, op.value
    assert isinstance(result, TensorType)
    spec = spec_of(getattr(value, "type", result))
    assert isinstance(spec, TensorSpec)
    dtype = result.dtype or spec.dtype
    shape = tuple(d or 0 for d in spec.shape)
    if isinstance(value, DenseResourceAttr):
        name = value.resource_handle.data
        weight = frame.run.weight(name)
        if tuple(weight.shape) != shape or weight.dtype != dtype.torch:
            given = f"{tuple(weight.shape)} {str(weight.dtype).removeprefix('torch.')}"
            raise RunError(explain(op, f"the weight {name!r} is {given}, and the program was made for {shape} {dtype}"))
        return weight
    if not isinstance(value, DenseIntOrFPElementsAttr):
        raise NotImplementedError(f"the eager engine cannot read {value}")
    return _dense(value, dtype, shape)


def _dense(value: DenseIntOrFPElementsAttr, dtype: DType, shape: tuple[int, ...]) -> torch.Tensor:
    elements = torch.from_numpy(np.frombuffer(value.data.data, dtype.storage).copy()).view(dtype.torch)
    count = int(np.prod(shape))
    # Equal elements are stored once.
    return elements.expand(count).reshape(shape) if elements.numel() == 1 else elements.reshape(shape)


# --- Functions, branches, loops ---


def _call(frame: Frame, op: Operation, args: Values) -> Any:
    assert isinstance(op, func.CallOp)
    return _results(op, _call_function(frame, op.callee.root_reference.data, args))


def _call_function(frame: Frame, name: str, args: Values) -> list[Any]:
    if name not in frame.run.functions:
        raise ValueError(f"there is no function @{name}")
    return frame.run.run(frame.run.functions[name], args)


def _results(op: Operation, values: list[Any]) -> Any:
    return values[0] if len(op.results) == 1 else values


def _if(frame: Frame, op: Operation, args: Values) -> Any:
    return _results(op, frame.block(op.regions[0 if args[0] else 1].block))


def _loop(frame: Frame, op: Operation, args: Values) -> Any:
    limit, goes_on, *carried = args
    count = 0
    while goes_on and count < limit:
        goes_on, *carried = frame.block(op.regions[0].block, [count, *carried])
        count += 1
    return _results(op, carried)


def _calculate(frame: Frame, op: Operation, args: Values) -> Any:
    """Run the first region, the computation itself; what the op says about shapes and dtypes is not needed."""
    return _results(op, frame.block(op.regions[0].block))


def _assert(frame: Frame, op: Operation, args: Values) -> None:
    assert isinstance(op, RuntimeAssertOp)
    if not args[0]:
        raise RunError(op.properties["message"].data)  # type: ignore[attr-defined]


def _raise(frame: Frame, op: Operation, args: Values) -> None:
    raise RunError(explain(op, str(args[0])))


# --- Objects and slots ---


def _nn_module(frame: Frame, op: Operation, args: Values) -> ScriptObject:
    assert isinstance(op, NnModuleOp)
    return ScriptObject(_class_of(op.results[0].type), {s.slot_name: frame.values[s.value] for s in op.slots})


def _create_object(frame: Frame, op: Operation, args: Values) -> ScriptObject:
    return ScriptObject(_class_of(op.results[0].type))


def _class_of(type_: Attribute) -> str:
    assert isinstance(type_, NnModuleType)
    return type_.data


def _get_attr(frame: Frame, op: Operation, args: Values) -> Any:
    assert isinstance(op, GetAttrOp)
    attributes = args[0].attributes
    if op.member not in attributes:
        raise ValueError(f"the attribute '{op.member}' of a {args[0].class_name} is not set")
    return attributes[op.member]


def _set_attr(frame: Frame, op: Operation, args: Values) -> None:
    assert isinstance(op, SetAttrOp)
    args[0].attributes[op.member] = args[1]


def _call_method(frame: Frame, op: Operation, args: Values) -> Any:
    assert isinstance(op, CallMethodOp)
    name = frame.run.methods.get(args[0].class_name, {}).get(op.member)
    if name is None:
        raise ValueError(f"the class {args[0].class_name} has no method '{op.member}'")
    return _results(op, _call_function(frame, name, args))


def _get_slot(frame: Frame, op: Operation, args: Values) -> Any:
    assert isinstance(op, GlobalSlotGetOp)
    if op.slot_name not in frame.run.slots:
        raise ValueError(f"the slot @{op.slot_name} has no value")
    return frame.run.slots[op.slot_name]


def _set_slot(frame: Frame, op: Operation, args: Values) -> None:
    assert isinstance(op, GlobalSlotSetOp)
    frame.run.slots[op.slot_name] = args[0]


def _load(frame: Frame, op: Operation, args: Values) -> Any:
    return frame.variables[op.properties["name"].data]  # type: ignore[attr-defined]


def _store(frame: Frame, op: Operation, args: Values) -> None:
    frame.variables[op.properties["name"].data] = args[0]  # type: ignore[attr-defined]


# --- Values ---


def _same(frame: Frame, op: Operation, args: Values) -> Any:
    return args[0]


def _copy(frame: Frame, op: Operation, args: Values) -> torch.Tensor:
    copy: torch.Tensor = args[0].clone()
    return copy


def _overwrite(frame: Frame, op: Operation, args: Values) -> None:
    value, target = args
    if value.shape != target.shape:
        raise ValueError(f"a tensor of shape {tuple(value.shape)} does not fit over one of {tuple(target.shape)}")
    target.copy_(value)


def _list(frame: Frame, op: Operation, args: Values) -> list[Any]:
    return list(args)


def _tuple(frame: Frame, op: Operation, args: Values) -> tuple[Any, ...]:
    return tuple(args)


def _dict(frame: Frame, op: Operation, args: Values) -> dict[Any, Any]:
    assert isinstance(op, DictConstructOp)
    half = len(args) // 2
    return dict(zip(args[:half], args[half:], strict=True))


def _unpack(frame: Frame, op: Operation, args: Values) -> Any:
    if len(args[0]) != len(op.results):
        raise ValueError(f"{len(args[0])} elements where {len(op.results)} are expected")
    return _results(op, list(args[0]))


def _nothing(frame: Frame, op: Operation, args: Values) -> None:
    return None


class UnknownSize:
    """A symbolic size before some tensor's shape has told it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"the size {self.name}, which no tensor of the program tells"


def _symbolic_int(frame: Frame, op: Operation, args: Values) -> UnknownSize:
    assert isinstance(op, SymbolicIntOp)
    return UnknownSize(op.symbol)


def _bind_shape(frame: Frame, op: Operation, args: Values) -> None:
    """Bind symbols to the tensor's sizes, where these are plain symbols."""
    assert isinstance(op, BindSymbolicShapeOp)
    for size, expression in zip(args[0].shape, op.expressions.data.results, strict=True):
        if isinstance(expression, AffineSymExpr):
            frame.values[op.operands[1 + expression.position]] = int(size)


RULES_BY_CLASS: dict[type[Operation], Rule] = {
    ConstantOp: _constant, LiteralOp: _literal, func.CallOp: _call, IfOp: _if, LoopOp: _loop, CalculateOp: _calculate,
    RuntimeAssertOp: _assert, NnModuleOp: _nn_module, CreateObjectOp: _create_object, GetAttrOp: _get_attr,
    SetAttrOp: _set_attr, CallMethodOp: _call_method, GlobalSlotGetOp: _get_slot, GlobalSlotSetOp: _set_slot,
    CopyOp: _copy, SymbolicIntOp: _symbolic_int, BindSymbolicShapeOp: _bind_shape, LoadOp: _load, StoreOp: _store,
}  # fmt: skip
"""Ops that have classes of their own."""


def _print(frame: Frame, op: Operation, args: Values) -> None:
    print(*args)


def _warn(frame: Frame, op: Operation, args: Values) -> None:
    warnings.warn(str(args[0]), stacklevel=2)


def _tolist(frame: Frame, op: Operation, args: Values) -> Any:
    return args[0].tolist()


def _bernoulli(frame: Frame, op: Operation, args: Values) -> torch.Tensor:
    self, p, generator = args
    return torch.bernoulli(self, p, generator=generator)


def _tensor(frame: Frame, op: Operation, args: Values) -> torch.Tensor:
    data, dtype, device, _ = args
    return torch.tensor(data, dtype=None if dtype is None else BY_CODE[dtype].torch, device=device)


def _quantized(frame: Frame, op: Operation, args: Values) -> torch.Tensor:
    return torch._make_per_tensor_quantized_tensor(*args)


def _device(frame: Frame, op: Operation, args: Values) -> torch.device:
    return torch.device(*args)


RULES: dict[str, Rule] = {
    "prim.ListConstruct": _list, "prim.TupleConstruct": _tuple, "prim.DictConstruct": _dict,
    "prim.ListUnpack": _unpack, "prim.TupleUnpack": _unpack, "derefine": _same, "tensor_static_info_cast": _same,
    "overwrite.tensor.contents": _overwrite, "prim.Uninitialized": _nothing, "prim.Enter": _nothing,
    "prim.Exit": _nothing, "prim.RaiseException": _raise, "prim.Print": _print, "aten.warn": _warn,
    "prim.tolist": _tolist, "aten.tensor": _tensor, "valsem.aten.bernoulli.float": _bernoulli,
    "flambeau.philox": lambda frame, op, args: philox(*args)[0],
    "flambeau.philox.pair": lambda frame, op, args: tuple(philox(*args[:3])[args[3] : args[3] + 2]),
    "per_tensor_affine.create": _quantized, "aten.device.with_index": _device,
}  # fmt: skip
"""Ops by name."""


# --- Containers: PyTorch's operators would work on copies of Python's lists and dictionaries ---


def _is_generic(schema: Schema) -> bool:
    """Tell whether an op is about any type of elements, or changes a list or dictionary."""
    return schema.is_vararg or any(
        a.type.base in _ANY
        or a.type.base.startswith("Dict(")
        or (a.alias is not None and a.alias.is_write and not a.type.is_tensor)
        for a in (*schema.arguments, *schema.returns)
    )


_ANY = frozenset({"t", "t1", "t2", "tVal", "Any", "AnyList", "AnyEnumType"})


def _changes(method: str) -> Callable[..., Any]:
    """Make a function that calls a container's method and returns the container."""

    def change(container: Any, *args: Any) -> Any:
        getattr(container, method)(*args)
        return container

    return change


def _set_item(container: Any, key: Any, value: Any) -> Any:
    container[key] = value
    return container


def _sort(values: list[Any], reverse: bool = False) -> None:
    values.sort(reverse=reverse)


def _set_default(container: dict[Any, Any], key: Any, default: Any) -> Any:
    return container.setdefault(key, default)


def _slice(values: list[Any], start: int | None, end: int | None, step: int) -> list[Any]:
    return values[start:end:step]


def _unwrap(value: Any) -> Any:
    if value is None:
        raise ValueError("the value is None")
    return value


def _make_dict(*args: Any) -> dict[Any, Any]:
    return dict(*args)


IN_PYTHON: dict[str, Callable[..., Any]] = {
    "aten.append": _changes("append"), "aten.extend": _changes("extend"), "aten.insert": _changes("insert"),
    "aten.clear": _changes("clear"), "aten.reverse": _changes("reverse"), "aten.remove": _changes("remove"),
    "aten.update": _changes("update"), "aten.add_": _changes("__iadd__"), "aten.mul_": _changes("__imul__"),
    "aten._set_item": _set_item, "aten.Delete": operator.delitem, "aten.pop": lambda c, *args: c.pop(*args),
    "aten.popitem": lambda c: c.popitem(), "aten.setdefault": _set_default, "aten.sort": _sort,
    "aten.sorted": sorted, "aten.copy": lambda c: c.copy(), "aten.list": list, "aten.dict": _make_dict,
    "aten.__getitem__": operator.getitem, "aten.select": operator.getitem, "aten.get": lambda c, *args: c.get(*args),
    "aten.__contains__": operator.contains, "aten.len": len, "aten.keys": list, "aten.values": lambda c: [*c.values()],
    "aten.items": lambda c: [*c.items()], "aten.slice": _slice, "aten.add": operator.add, "aten.mul": operator.mul,
    "aten.__is__": operator.is_, "aten.__isnot__": operator.is_not, "aten.str": str, "aten.hash": hash,
    "aten.format": lambda text, *args: text.format(*args), "aten.percentFormat": lambda text, *args: text % args,
    "aten._unwrap_optional": _unwrap, "prim.unchecked_unwrap_optional": lambda value: value,
    "prim.unchecked_cast": lambda value: value, "prim.TupleIndex": operator.getitem, "prim.id": id,
    "prim.IfThenElse": lambda condition, a, b: a if condition else b,
}  # fmt: skip
"""Operators, without their overloads, on Python's own containers."""


# --- Registry ops ---


@cache
def _operator(name: str) -> Any:
    """Return PyTorch's operator for `aten.add.Tensor`; NotImplementedError if there is none."""
    namespace, _, rest = name.partition(".")
    base, _, overload = rest.partition(".")
    if not rest:
        raise NotImplementedError("the eager engine has no rule for this op")
    if namespace == "quantized_decomposed":
        import_module("torch.ao.quantization.fx._decomposed")  # which registers them
    try:
        return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    except AttributeError:
        raise NotImplementedError(f"PyTorch has no operator {namespace}::{rest}") from None


_NEEDS_CONTIGUOUS = frozenset(
    {
        "aten.view", "aten.view.dtype", "aten._unsafe_view", "aten._reshape_alias",
        "aten.view_as_complex",
    }
)  # fmt: skip
"""Ops that look at how a tensor lies in memory. A value lies nowhere in particular: they see it in order."""
_HIDDEN_WRITES = frozenset({"running_mean", "running_var"})
"""Arguments that normalisations write when they train, though their schemas do not say so."""


def _registry_rule(op: TorchOp) -> Rule:
    call = _operator(op.overload)
    arguments = _arguments(op, call)
    positional = sum(not kwarg_only for _, kwarg_only in arguments)
    names = [name for name, _ in arguments[positional:]]
    guards = list(_guards(op))

    def rule(frame: Frame, op: Operation, args: Values) -> Any:
        values = list(args)
        for i, guard in guards:
            values[i] = guard(values[i])
        return _plain(call(*values[:positional], **dict(zip(names, values[positional:], strict=True))))

    return rule


def _arguments(op: TorchOp, call: Any) -> list[tuple[str, bool]]:
    """List the names of the arguments, and whether they can be given only by name."""
    if op.schema is not None:
        found = [(a.name, a.kwarg_only) for a in op.schema.arguments]
    else:
        found = [(a.name, a.kwarg_only) for a in call._schema.arguments]
    return found[: len(op.operands)]


def _guards(op: TorchOp) -> list[tuple[int, Callable[[Any], Any]]]:
    """List what must be done, at which position, to operands that are values before PyTorch gets them."""
    declared: Sequence[Argument | None] = (None,) * len(op.operands) if op.schema is None else op.schema.arguments
    found: list[tuple[int, Callable[[Any], Any]]] = []
    for i, (operand, argument) in enumerate(zip(op.operands, declared, strict=True)):
        if not _holds_value(operand.type):
            continue
        writes = argument is not None and argument.alias is not None and argument.alias.is_write
        if writes or (argument is not None and argument.name in _HIDDEN_WRITES):
            found.append((i, _cloned))
        elif i == 0 and op.overload in _NEEDS_CONTIGUOUS:
            found.append((i, torch.Tensor.contiguous))
    return found


def _holds_value(type_: Attribute) -> bool:
    if isinstance(type_, ContainerType):
        return any(map(_holds_value, type_.data))
    return isinstance(type_, VTensorType)


def _cloned(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    return [_cloned(v) for v in value] if isinstance(value, list) else value


def _plain(result: Any) -> Any:
    """Convert a result to what the torch dialect has: dtypes become their codes."""
    if isinstance(result, torch.dtype):
        dtype = from_torch(result)
        assert dtype is not None
        return dtype.code
    return result
