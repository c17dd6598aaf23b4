"""A class for each type that schemas name: `AnyTorchTensorValue`, `AnyTorchListOfTorchIntValue`, ...

The names are those that torch-mlir's ODS has for the types, with `Value` for `Type`. `isinstance` asks whether a value
of a program is of the type; calling the class casts Python values (numbers, lists, None, arrays) to one.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.schema import SchemaType
from flambeau.frontends.nn.core import context, values
from flambeau.frontends.nn.core.overloads import accepts, describe, kind_of


class ValueType(type):
    """The class of these classes."""

    schema_type: SchemaType

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, values.Value) and accepts(cls.schema_type, value)

    def __call__(cls, value: Any = None) -> Any:
        """Convert a Python value to one of this type, in the program that is being built."""
        type_ = cls.schema_type
        if cls.__instancecheck__(value):
            return value
        if not accepts(type_, value, numbers=type_.is_tensor, literals=True):
            raise TypeError(f"{cls.__name__} is made from {describe(type_)}, not {kind_of(value)}")
        tracer = context.current()
        ssa = tracer.argument(type_, tracer.unwrap(type_, value))
        if tracer.is_wrapped(ssa):
            return tracer.wrap(ssa)
        found: Any = object.__new__(cls)  # type: ignore[arg-type]
        values.Value.__init__(found, ssa, tracer)
        return found


@cache
def value_classes() -> dict[str, type]:
    """Make the classes of typed values by name, one for each argument type of the registry's schemas."""
    found: dict[str, type] = {}
    for name in registry.snapshot().declarations:
        schema = registry.schema(name)
        for argument in () if schema is None else schema.arguments:
            title = registry.ods_type(argument.type).removesuffix("Type") + "Value"
            if title not in found:
                plain = SchemaType(
                    argument.type.base,
                    argument.type.is_optional,
                    argument.type.is_list,
                    argument.type.elements_optional,
                )
                members = {
                    "schema_type": plain,
                    "__doc__": f"A `{plain}` of PyTorch's schemas.",
                    "__module__": __name__,
                }
                found[title] = ValueType(title, (values.TypedValue,), members)
    return found
