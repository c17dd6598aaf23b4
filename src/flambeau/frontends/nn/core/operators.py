"""`flambeau.ops`: every ATen operator as a function, and as a method of tensors, made from the registry when asked for.

What PyTorch writes in Python rather than as an operator is in `python_functions`, which comes first.
"""

from __future__ import annotations

import difflib
import inspect
import keyword
from functools import cache
from typing import Any

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.enums import MEMORY_FORMATS
from flambeau.dialects.torch.schema import REQUIRED, Schema, SchemaType
from flambeau.frontends.nn.core import context, overloads, values

_ANNOTATIONS = {
    "Tensor": "Tensor", "int": "int", "float": "float", "bool": "bool", "Scalar": "Number", "str": "str",
    "ScalarType": "DTypeLike", "Device": "str", "Layout": "int", "MemoryFormat": "int", "Generator": "None",
}  # fmt: skip


def annotation(type_: SchemaType) -> str:
    """Write the Python annotation of a schema's parameter type."""
    base = _ANNOTATIONS.get(type_.base, "Any")
    if type_.is_list:
        inner = f"{base} | None" if type_.elements_optional else base
        base = f"Sequence[{inner}]" + (f" | {base}" if type_.size is not None else "")
    return base + (" | None" if type_.is_optional else "")


def result_annotation(schema: Schema) -> str:
    """Write the Python annotation of an op's result."""
    types = [f"tuple[{_ANNOTATIONS.get(r.type.base, 'Any')}, ...]" if r.type.is_list else annotation(r.type)
             for r in schema.returns]  # fmt: skip
    if not types:
        return "None"
    return types[0] if len(types) == 1 else f"tuple[{', '.join(types)}]"


def parameters(schema: Schema, method: bool = False) -> list[inspect.Parameter]:
    """List an overload's parameters. A default that would precede a parameter without one is dropped."""
    found = []
    for argument in schema.arguments:
        if method and argument.name == "self":
            continue
        kind = inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        name = "input" if argument.name == "self" and "input" not in schema.index else argument.name
        name = f"{name}_" if keyword.iskeyword(name) else name
        default = inspect.Parameter.empty if argument.default is REQUIRED else argument.default
        found.append(inspect.Parameter(name, kind, default=default, annotation=annotation(argument.type)))
    return sorted(found, key=lambda p: p.kind)


class Operator:
    """An operator, called as PyTorch's function of that name is. Its overloads are attributes: `ops.add.Tensor`."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.__name__ = self.__qualname__ = base.removeprefix("aten.")
        self.__module__ = "flambeau.ops"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return context.current().invoke(self.base, None, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else Method(self.base, instance)

    def __getattr__(self, overload: str) -> Any:
        if overload.startswith("__"):
            raise AttributeError(overload)
        schema = registry.schema(self.base if overload == "default" else f"{self.base}.{overload}")
        if schema is None:
            names = ", ".join(s.overload_name or "default" for s in overloads.candidates(self.base))
            raise AttributeError(f"{self.__name__} has no overload {overload!r}; it has {names}")
        return Overload(schema)

    @property
    def __signature__(self) -> inspect.Signature:
        schema = overloads.candidates(self.base)[0]
        return inspect.Signature(parameters(schema), return_annotation=result_annotation(schema))

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        schemas = overloads.candidates(self.base)
        return "\n".join([f"PyTorch's `{self.__name__}`:", "", *(f"    {s.name}{s.text}" for s in schemas)])

    def __repr__(self) -> str:
        return f"<flambeau op {self.__name__}>"


class Method(Operator):
    """An operator bound to the tensor that it is called on."""

    def __init__(self, base: str, receiver: values.Tensor) -> None:
        super().__init__(base)
        self.receiver = receiver

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return context.current().invoke(self.base, self.receiver, args, kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        schema = next(s for s in overloads.candidates(self.base) if "self" in s.index)
        return inspect.Signature(parameters(schema, method=True), return_annotation=result_annotation(schema))


class Overload:
    """One overload of an operator, which is called without choosing."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.__name__ = self.__qualname__ = schema.name.removeprefix("aten.")
        self.__doc__ = f"{schema.name}{schema.text}"
        self.__signature__ = inspect.Signature(parameters(schema), return_annotation=result_annotation(schema))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return context.current().call_overload(self.schema, args, kwargs)


class Family:
    """The operators whose names begin with a prefix: `ops.linalg.norm` is `ops.linalg_norm`."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return function(self.prefix + name)


_FAMILIES = {name: Family(f"{name}_") for name in ("linalg", "fft", "special")}


@cache
def operator(name: str) -> Operator | None:
    """Return the ATen operator of this name; None if there is none."""
    return Operator(f"aten.{name}") if overloads.candidates(f"aten.{name}") else None


def function(name: str) -> Any:
    """Return what `flambeau.ops` has under this name; AttributeError if nothing."""
    from flambeau.frontends.nn.core.python_functions import FUNCTIONS
    from flambeau.ir import dtypes

    found = FUNCTIONS.get(name) or _FAMILIES.get(name) or operator(name) or dtypes.from_name(name)
    if found is None and name in MEMORY_FORMATS:
        return MEMORY_FORMATS[name]
    if found is None and name.endswith("Value"):
        from flambeau.frontends.nn.core.typed import value_classes

        found = value_classes().get(name)
    if found is None:
        close = difflib.get_close_matches(name, function_names(), 3)
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        raise AttributeError(f"flambeau.ops has no {name!r}: PyTorch has no such function{hint}")
    return found


def method(name: str) -> Any:
    """Return the tensor method of this name; None if there is none."""
    from flambeau.frontends.nn.core.python_functions import METHODS

    if name in METHODS:
        return METHODS[name]
    found = operator(name)
    return found if found is not None and any("self" in s.index for s in overloads.candidates(found.base)) else None


@cache
def function_names() -> tuple[str, ...]:
    """List the names in `flambeau.ops`, without those that PyTorch hides."""
    from flambeau.frontends.nn.core.python_functions import FUNCTIONS

    names = {n.split(".")[1] for n in registry.snapshot().declarations if n.startswith("aten.")}
    names = {n for n in names if not n.startswith("_") and overloads.candidates(f"aten.{n}")}
    return tuple(sorted({*names, *FUNCTIONS, *_FAMILIES}))


@cache
def method_names() -> tuple[str, ...]:
    """List the names of tensor methods, without those that PyTorch hides."""
    from flambeau.frontends.nn.core.python_functions import METHODS

    operators = (n for n in function_names() if method(n) is not None)
    return tuple(sorted({*operators, *METHODS}))
