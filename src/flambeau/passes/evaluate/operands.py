"""Values of an evaluation as SSA values of the new function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Attribute, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.ops import DictConstructOp, TupleConstructOp
from flambeau.dialects.torch.types import (
    BOOL,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    ListType,
    NonValueTensorType,
    OptionalType,
    TensorType,
    TupleType,
    VTensorType,
    intern,
    to_value,
    tuple_of,
)
from flambeau.dialects.torch.values import UninitializedOp
from flambeau.passes.evaluate.state import Evaluation
from flambeau.passes.evaluate.storages import look, read
from flambeau.passes.evaluate.values import Both, Dict, Either, Known, List, Maybe, Tuple, Uninitialized, View


def materialize(e: Evaluation, value: Any) -> SSAValue:
    """Make a value an operand: an SSA value in the program."""
    match value:
        case SSAValue():
            return value
        case Known(constant):
            return e.t.constant(constant)
        case View():
            return read(e, value)
        case Tuple(items):
            elements = [materialize(e, v) for v in items]
            return e.t.value(TupleConstructOp, elements, tuple_of([v.type for v in elements]))
        case List():
            look(value)
            elements = [materialize(e, v) for v in value.content]
            return e.t.list(elements, _element_type(e, value, elements))
        case Dict():
            look(value)
            pairs = [(materialize(e, k), materialize(e, v)) for k, v in value.content]
            operands = [*(k for k, _ in pairs), *(v for _, v in pairs)]
            return e.t.value(DictConstructOp, operands, value.type)
        case Maybe():
            raise Unsupported("whether this is None is known only at run time")
        case Either(options):
            first, *others = [materialize(e, option) for option in options]
            for flag in others:
                (first,) = e.t.op("aten.__or__.bool", (first, flag), (BOOL,))
            return first
        case Both(flags):
            first, *rest = flags
            for flag in rest:
                (first,) = e.t.op("aten.__and__.bool", (first, flag), (BOOL,))
            return first
        case Uninitialized(type_):
            return e.t.value(UninitializedOp, (), to_value(type_) if e.features.tensors else type_)
        case _:
            raise Unsupported(f"a {type(value).__name__.lower()} cannot be passed here")


def _element_type(e: Evaluation, value: List, elements: Sequence[SSAValue]) -> Attribute:
    declared = value.element_type
    if isinstance(declared, OptionalType) and not isinstance(declared.element_type, TensorType):
        return declared
    if isinstance(declared, TensorType | OptionalType):
        types = {v.type for v in elements}
        if len(types) == 1 and isinstance(next(iter(types)), TensorType):
            return types.pop()
        plain = intern(VTensorType, (None, None)) if e.features.tensors else declared
        if isinstance(declared, OptionalType) and e.features.tensors:
            return intern(OptionalType, (plain,))
        return plain
    if isinstance(declared, TupleType) and elements:
        return elements[0].type
    return declared


def fit(e: Evaluation, value: Any, type_: Attribute) -> SSAValue:
    """Make a value an SSA value of exactly this type."""
    if isinstance(value, View) and isinstance(type_, NonValueTensorType):
        storage = value.storage
        if storage.argument is not None and not value.steps and storage.stale is None:
            return storage.argument
        return e.t.cast(read(e, value), type_)
    if isinstance(value, Tuple) and isinstance(type_, TupleType):
        elements = [fit(e, v, t) for v, t in zip(value.items, type_.data, strict=True)]
        return e.t.value(TupleConstructOp, elements, type_)
    if isinstance(value, List) and isinstance(type_, ListType):
        look(value)
        return e.t.list([fit(e, v, type_.element_type) for v in value.content], type_.element_type)
    if isinstance(value, Known) and isinstance(type_, OptionalType) and value.value is not None:
        return e.t.cast(fit(e, value, type_.element_type), type_)
    return e.t.cast(materialize(e, value), type_)


def fit_or_placeholder(e: Evaluation, value: Any, type_: Attribute) -> SSAValue:
    """Make a value one of exactly this type; for a value that nobody looks at, any will do."""
    return placeholder(e, type_) if isinstance(value, Uninitialized) else fit(e, value, type_)


def placeholder(e: Evaluation, type_: Attribute) -> SSAValue:
    """Make a value of a type for a place whose value is never read."""
    if type_ in _ZEROS:
        return e.t.constant(_ZEROS[type_])
    if isinstance(type_, TensorType) and type_.shape is not None and type_.dtype is not None:
        none = e.t.constant(None)
        sizes = e.t.ints([d or 0 for d in type_.shape])
        made = intern(type(type_), (tuple(d or 0 for d in type_.shape), type_.element_type))
        zeros = e.t.op("aten.zeros", (sizes, e.t.constant(type_.dtype.code), none, none, none), (made,))[0]
        return e.t.cast(zeros, type_)
    return e.t.value(UninitializedOp, (), type_)


def negated(e: Evaluation, flag: SSAValue) -> SSAValue:
    """Negate a bool of the program."""
    return e.t.op("aten.__not__", (flag,), (BOOL,))[0]


_ZEROS: dict[Attribute, Any] = {INT: 0, FLOAT: 0.0, BOOL: False, NONE: None, NUMBER: 0}
