"""The type stub of `flambeau.ops`, from the registry, so that editors complete and type checkers check."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Iterator
from typing import Any

from flambeau.dialects.torch.enums import MEMORY_FORMATS
from flambeau.dialects.torch.schema import Schema
from flambeau.frontends.nn.core import overloads, values
from flambeau.frontends.nn.core.operators import (
    function_names,
    method,
    method_names,
    operator,
    parameters,
    result_annotation,
)
from flambeau.frontends.nn.core.python_functions import FUNCTIONS, METHODS
from flambeau.ir import dtypes

_HEAD = """# Made from PyTorch's op registry by `flambeau registry stub`.
# mypy: ignore-errors
# ruff: noqa
from collections.abc import Iterator, Sequence
from typing import Any, overload

from flambeau.frontends.nn.core.seed import manual_seed as manual_seed
from flambeau.ir.dtypes import DType

_int = int
_float = float
_bool = bool
_str = str
Number = _int | _float | _bool
DTypeLike = DType | _str | type

def __getattr__(name: _str) -> Any: ...  # operators that PyTorch hides, and classes of values
"""

_OPERATORS = (
    *values._OPERATORS, "__rsub__", "__rtruediv__", "__rpow__", "__rfloordiv__", "__rmod__", "__rmatmul__",
)  # fmt: skip
_PROPERTIES = {"shape": "tuple[_int, ...]", "ndim": "_int", "dtype": "DType", "T": "Tensor", "mT": "Tensor",
               "real": "Tensor", "imag": "Tensor", "device": "_str"}  # fmt: skip


def stub_text() -> str:
    """Write the text of `ops.pyi`."""
    lines = [_HEAD, "class Tensor:"]
    lines += [f"    @property\n    def {name}(self) -> {type_}: ..." for name, type_ in _PROPERTIES.items()]
    lines += [f"    def {name}(self, other: Any) -> Tensor: ..." for name in _OPERATORS]
    lines += ["    def __getitem__(self, index: Any) -> Tensor: ...", "    def __iter__(self) -> Iterator[Tensor]: ..."]
    lines += ["    def __setitem__(self, index: Any, value: Any) -> None: ...", "    def __len__(self) -> _int: ..."]
    lines += [f"    def {name}(self) -> Tensor: ..." for name in ("__neg__", "__abs__", "__invert__")]
    for name in method_names():
        if not keyword.iskeyword(name) and name not in _PROPERTIES:
            lines += [f"    {line}" for line in _method(name)]
    lines.append("")
    lines += [f"{name}: DType" for name in dtypes.BY_NAME if name not in function_names()]
    lines += [f"{name}: _int" for name in MEMORY_FORMATS]
    for name in function_names():
        if not keyword.iskeyword(name):
            lines += _function(name)
    return "\n".join(lines) + "\n"


def _method(name: str) -> Iterator[str]:
    if name in METHODS:
        yield f"def {name}{_python_signature(METHODS[name], method=True)}: ..."
        return
    schemas = [s for s in overloads.candidates(method(name).base) if "self" in s.index]
    yield from _definitions(name, schemas, method=True)


def _function(name: str) -> Iterator[str]:
    if name in FUNCTIONS:
        yield f"def {name}{_python_signature(FUNCTIONS[name], method=False)}: ..."
        return
    found = operator(name)
    if found is None:  # a family, `linalg`
        yield f"{name}: Any"
        return
    yield from _definitions(name, overloads.candidates(found.base), method=False)


def _definitions(name: str, schemas: Any, method: bool) -> Iterator[str]:
    schemas = [s for s in schemas if not overloads.is_out(s)]
    texts = list(dict.fromkeys(f"def {name}{_signature(s, method)}: ..." for s in schemas))
    for text in texts:
        if len(texts) > 1:
            yield "@overload"
        yield text


def _signature(schema: Schema, method: bool) -> str:
    found = parameters(schema, method)
    takes_many = len(positional := [p for p in found if p.kind is p.POSITIONAL_OR_KEYWORD]) == 1 and (
        positional[0].annotation.startswith("Sequence[int]")
    )
    parts, starred, optional = ["self"] if method else [], False, False
    for parameter in found:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        text = f"{parameter.name}: {_private(parameter.annotation)}"
        if takes_many and parameter is positional[0]:
            text, starred = f"*{parameter.name}: Sequence[_int] | _int", True
        elif parameter.default is not parameter.empty:
            text, optional = f"{text} = ...", True
        elif optional and not starred:
            text = f"{text} = ..."
        parts.append(text)
    return f"({', '.join(parts)}) -> {_private(result_annotation(schema))}"


def _private(annotation: str) -> str:
    """Rename `int` to `_int` and so on in an annotation: methods of these names would hide the types."""
    words = annotation.replace("[", " [ ").replace("]", " ] ").replace(",", " , ").split(" ")
    hidden = [f"_{w}" if w in ("int", "float", "bool", "str") else w for w in words]
    return re.sub(r" ?([\[\],]) ?", r"\1", " ".join(hidden)).replace(",", ", ").replace("]|", "] |").replace("  ", " ")


def _python_signature(function: Any, method: bool) -> str:
    kinds: list[str] = []
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    for i, parameter in enumerate(inspect.signature(function).parameters.values()):
        star = stars.get(parameter.kind, "")
        if parameter.kind is parameter.KEYWORD_ONLY and not any(k.startswith("*") for k in kinds):
            kinds.append("*")
        is_self = method and i == 0
        default = "" if parameter.default is parameter.empty or star else " = ..."
        kinds.append("self" if is_self else f"{star}{parameter.name}: Any{default}")
    return f"({', '.join(kinds)}) -> Any"
