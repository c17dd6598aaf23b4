"""The types of an FX graph's values in the torch dialect, and where in the user's source they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node
from xdsl.ir import Attribute

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.types import (
    BOOL,
    FLOAT,
    INT,
    NonValueTensorType,
    TensorType,
    optional_of,
    to_non_value,
    vtensor,
)
from flambeau.ir import dtypes
from flambeau.ir.locations import location_of_trace

Problem = Unsupported
"""A node that cannot be imported: why, and what the user can do."""


def location_of_node(node: Node) -> Attribute:
    """Make the MLIR location of a node: the user's source line, under the path of the module that it belongs to."""
    stack = node.meta.get("nn_module_stack")
    path = ""
    if stack:
        last = list(stack.values())[-1]
        path = str(last[0]) if isinstance(last, tuple) else ""
    return location_of_trace(node.meta.get("stack_trace"), path or None)


def known_size(size: Any) -> int | None:
    """Return a size as a number; None if it is known at run time only. PyTorch may have fixed a symbol to a number."""
    found: int | None = size if isinstance(size, int) else size.node.maybe_as_int()
    return found


def type_of(meta: Any, value_semantics: bool = True) -> Attribute:
    """Return the torch dialect's type of a fake tensor or symbolic number; Problem if it has none."""
    if isinstance(meta, torch.Tensor):
        dtype = dtypes.from_torch(meta.dtype)
        if dtype is None:
            raise Problem(f"dtype {meta.dtype} has no MLIR type", "Use a standard dtype.")
        if meta.layout is not torch.strided:
            raise Problem(f"a tensor of layout {meta.layout} has no MLIR type", "Use dense (strided) tensors.")
        shape = tuple(map(known_size, meta.shape))
        type_ = vtensor(shape, dtype.torch_type)
        return type_ if value_semantics else to_non_value(type_)
    if isinstance(meta, (bool, torch.SymBool)):
        return BOOL
    if isinstance(meta, (int, torch.SymInt)):
        return INT
    if isinstance(meta, (float, torch.SymFloat)):
        return FLOAT
    raise Problem(f"a value of type {type(meta).__name__} has no torch dialect type", "")


def list_element_type(types: Sequence[Attribute], optional: bool) -> Attribute:
    tensors = [t for t in types if isinstance(t, TensorType)]
    if not optional and len(set(types)) == 1:
        return types[0]
    wide: Attribute = vtensor()
    if tensors and isinstance(tensors[0], NonValueTensorType):
        wide = to_non_value(wide)
    if len(set(types)) == 1 and len(tensors) == len(types):
        return types[0]
    return optional_of(wide) if optional else wide


def known_number(value: Any) -> bool | int | float:
    """Convert a symbolic number that PyTorch has simplified to a constant; Problem if it is not constant."""
    kind = {torch.SymBool: bool, torch.SymInt: int, torch.SymFloat: float}[type(value)]
    try:
        return kind(value.node.expr)
    except (TypeError, ValueError, AttributeError):
        raise Problem(f"the size {value} is not computed in the graph", "Export the model anew.") from None
