"""Python functions that a program calls, as modules of IREE's."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import iree.runtime as rt
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute

from flambeau.engines.errors import EngineError
from flambeau.engines.external import Functions, custom_calls, declared_functions, require_bound
from flambeau.engines.iree.buffers import copy_to_buffer_view, from_buffer_view
from flambeau.ir import dtypes
from flambeau.ir.arrays import dtype_of
from flambeau.ir.dtypes import BY_BUILTIN, DType

_LETTERS = {dtypes.int64: "I", dtypes.float64: "F", dtypes.bool_: "i"}
"""How IREE writes the types of numbers."""


@dataclass(frozen=True)
class Bound:
    """A Python function under the name that a program calls it by."""

    module: str
    name: str
    function: Callable[..., Any]
    arguments: tuple[DType | None, ...]
    """The dtype of each tensor that it takes; None for a number."""
    flags: tuple[bool, ...]
    """Which arguments are truth values, which come as numbers."""
    results: tuple[DType, ...]
    convention: str
    """Its type as IREE writes it."""

    def call(self, device: Any, given: tuple[Any, ...]) -> Any:
        """Call the function with torch tensors, or arrays where PyTorch is not imported; give its results to IREE."""
        as_torch = "torch" in sys.modules
        args = [
            bool(value) if flag else value if dtype is None else
            from_buffer_view(device, value.deref(rt.HalBufferView), dtype, as_torch)
            for value, dtype, flag in zip(given, self.arguments, self.flags, strict=True)
        ]  # fmt: skip
        results = self.function(*args)
        values = results if isinstance(results, (list, tuple)) else (results,)
        if len(values) != len(self.results):
            raise ValueError(f"{self.module}.{self.name} gave {len(values)} results, and {len(self.results)} are taken")
        for i, (value, dtype) in enumerate(zip(values, self.results, strict=True)):
            if (got := dtype_of(value)) is None or got.builtin != dtype.builtin:
                raise TypeError(f"result {i} of {self.module}.{self.name} is of {got}, and {dtype} is taken")
        refs = [copy_to_buffer_view(device, value).ref for value in values]
        return refs[0] if len(refs) == 1 else tuple(refs)


def bind(module: ModuleOp, functions: Functions) -> tuple[Bound, ...]:
    """Bind Python functions to those that a program declares; EngineError for one that is missing.

    `mylib.gate_1` is `mylib.gate` for other types, which is the same in Python.
    """
    if calls := custom_calls(module):
        raise EngineError(
            f"IREE takes no custom calls, and the program has {', '.join(calls)}: compile it for linalg-on-tensors, "
            "where they are functions that load(module, functions={name: function}) gives"
        )
    declared = declared_functions(module)
    bases = {name: base if (base := re.sub(r"_\d+$", "", name)) in declared else name for name in declared}
    given = {
        **functions,
        **{n: functions[base] for n, base in bases.items() if n not in functions and base in functions},
    }
    require_bound("IREE", list(declared), given, "Give them: load(module, functions={name: function})")
    return tuple(_bound(name, function, given[name]) for name, function in declared.items())


def _bound(symbol: str, declared: func.FuncOp, function: Callable[..., Any]) -> Bound:
    module, _, name = symbol.rpartition(".")
    if not module:
        raise EngineError(
            f"IREE's functions are in modules: call it 'library.{symbol}', as in external={{op: 'library.{symbol}'}}"
        )
    inputs, outputs = declared.function_type.inputs.data, declared.function_type.outputs.data
    convention = f"0{''.join(map(_letter, inputs))}_{''.join(map(_letter, outputs))}"
    return Bound(
        module,
        name,
        function,
        tuple(_dtype(t) if isinstance(t, TensorType) else None for t in inputs),
        tuple(BY_BUILTIN.get(t) is dtypes.bool_ for t in inputs),
        tuple(map(_dtype, outputs)),
        convention,
    )


def _letter(type_: Attribute) -> str:
    return "r" if isinstance(type_, TensorType) else _LETTERS[BY_BUILTIN[type_]]


def _dtype(type_: Attribute) -> DType:
    assert isinstance(type_, TensorType)
    return BY_BUILTIN[type_.element_type]


def modules(device: Any, functions: tuple[Bound, ...]) -> list[Any]:
    """Make the modules of IREE's that programs find their functions in."""
    grouped: dict[str, list[Bound]] = {}
    for bound in functions:
        grouped.setdefault(bound.module, []).append(bound)
    return [_module(device, name, members) for name, members in grouped.items()]


def _module(device: Any, name: str, members: list[Bound]) -> Any:
    interface = rt.PyModuleInterface(name, lambda _: None)
    for bound in members:
        interface.export(bound.name, bound.convention, _entry(device, bound))
    return interface.create()


def _entry(device: Any, bound: Bound) -> Callable[..., Any]:
    return lambda _, *given: bound.call(device, given)
