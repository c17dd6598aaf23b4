"""TorchScript's types as types of the torch dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.ir import Attribute

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch import types as dialect

_SIMPLE: dict[str, Attribute] = {
    "AnyType": dialect.ANY, "BoolType": dialect.BOOL, "DeviceObjType": dialect.DEVICE, "FloatType": dialect.FLOAT,
    "GeneratorType": dialect.GENERATOR, "IntType": dialect.INT, "LayoutType": dialect.INT,
    "MemoryFormatType": dialect.INT, "NoneType": dialect.NONE, "NumberType": dialect.NUMBER,
    "ScalarTypeType": dialect.INT, "StringType": dialect.STR, "TensorType": dialect.tensor(),
}  # fmt: skip


def _class(type_: Any) -> Attribute:
    name = type_.qualified_name()
    if name.startswith("__torch__.torch.classes."):
        raise Unsupported(f"an object of the C++ class {name} is not imported", "Write the class in Python.")
    return dialect.NnModuleType(name)


_COMPOSED: dict[str, Callable[[Any], Attribute]] = {
    "ClassType": _class,
    # A member of an enumeration is its place there, its name and its value.
    "EnumType": lambda t: dialect.tuple_of([dialect.INT, dialect.STR, *map(type_of, t.containedTypes())]),
    "DictType": lambda t: dialect.dict_of(type_of(t.getKeyType()), type_of(t.getValueType())),
    "ListType": lambda t: dialect.list_of(type_of(t.getElementType())),
    "OptionalType": lambda t: dialect.optional_of(type_of(t.getElementType())),
    "TupleType": lambda t: dialect.tuple_of([type_of(e) for e in t.elements()]),
    "UnionType": lambda t: dialect.UnionType(tuple(type_of(e) for e in t.containedTypes())),
}

_HINTS = {
    "ComplexType": "Keep complex numbers in tensors.",
    "FunctionType": "Call the function where it is named, instead of passing it around.",
    "InterfaceType": "Use the module's own class instead of an interface.",
}


def type_of(type_: Any) -> Attribute:
    """Map a TorchScript type to the torch dialect's; tensors get unknown shape and dtype, whatever a trace recorded."""
    kind = type_.kind()
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind in _COMPOSED:
        return _COMPOSED[kind](type_)
    raise Unsupported(f"the TorchScript type {type_.annotation_str} has no torch dialect type", _HINTS.get(kind, ""))


def is_importable(type_: Any) -> bool:
    """Tell whether the torch dialect has a type for this TorchScript type."""
    try:
        type_of(type_)
    except Unsupported:
        return False
    return True
