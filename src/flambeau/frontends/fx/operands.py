"""Operands and results of ops, as their schemas declare them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node
from xdsl.ir import Attribute, SSAValue

from flambeau.dialects.torch.emitter import Device
from flambeau.dialects.torch.enums import MEMORY_FORMATS
from flambeau.dialects.torch.ops import ListUnpackOp
from flambeau.dialects.torch.schema import Argument, Schema
from flambeau.dialects.torch.types import (
    BOOL,
    DEVICE,
    FLOAT,
    GENERATOR,
    INT,
    NONE,
    NUMBER,
    STR,
    NonValueTensorType,
    join_types,
    list_of,
    vtensor,
)
from flambeau.frontends.fx.types import Problem, known_number, list_element_type, type_of
from flambeau.ir import dtypes

if TYPE_CHECKING:
    from flambeau.frontends.fx.importer import GraphImporter


_TYPES: dict[str, Attribute] = {
    "int": INT, "float": FLOAT, "bool": BOOL, "str": STR, "Scalar": NUMBER, "Device": DEVICE, "Generator": GENERATOR,
}  # fmt: skip
"""The types of PyTorch's schema language in the dialect."""


def argument_operand(importer: GraphImporter, argument: Argument, value: Any, keep_mutable: bool) -> SSAValue:
    """Convert a resolved argument to an operand; read mutable tensors here, unless the op may alias them."""
    t = argument.type
    if t.is_list and value is not None:
        if not isinstance(value, (list, tuple)):
            value = [value] * (t.size or 1)
        return _list(importer, argument, list(value), keep_mutable)
    return _scalar(importer, t.base, value, keep_mutable)


def _scalar(importer: GraphImporter, base: str, value: Any, keep_mutable: bool) -> SSAValue:
    if isinstance(value, SSAValue):
        if isinstance(value.type, NonValueTensorType) and not keep_mutable:
            return importer.read(value)
        # The dialect counts truth values among the numbers in types only: `Scalar` operands are ints and floats.
        return (
            importer.emitter.op("aten.Int.bool", [value], [INT])[0] if (base, value.type) == ("Scalar", BOOL) else value
        )
    if value is None:
        return importer.emitter.constant(None)
    if base == "Tensor":
        return importer.tensor(torch.tensor(value), "_number")
    if isinstance(value, torch.dtype):
        dtype = dtypes.from_torch(value)
        if dtype is None:
            raise Problem(f"dtype {value} has no MLIR type", "Use a standard dtype.")
        return importer.emitter.constant(dtype)
    if isinstance(value, torch.layout):
        return importer.emitter.constant(0)
    if isinstance(value, torch.memory_format):
        return importer.emitter.constant(MEMORY_FORMATS.get(str(value).removeprefix("torch."), 0))
    if isinstance(value, torch.device):
        return importer.emitter.constant(Device(str(value)))
    if isinstance(value, complex):
        raise Problem("a complex number as an argument is not imported", "Use a complex tensor instead.")
    if isinstance(value, (torch.SymBool, torch.SymInt, torch.SymFloat)):
        value = known_number(value)
    if base == "float" and isinstance(value, int):
        value = float(value)
    if base == "Any" and hasattr(value, "group_name"):  # a process group itself, instead of its name
        value = str(value.group_name)
    return importer.emitter.constant(value)


def _list(importer: GraphImporter, argument: Argument, values: list[Any], keep_mutable: bool) -> SSAValue:
    t = argument.type
    elements = [_scalar(importer, t.base, v, keep_mutable) for v in values]
    if t.is_tensor:
        element_type = list_element_type([e.type for e in elements], t.elements_optional)
    else:
        element_type = _TYPES.get(t.base, INT)
    return importer.emitter.list(elements, element_type)


def emit_op(
    importer: GraphImporter, node: Node, name: str, schema: Schema, operands: Sequence[SSAValue], is_alias: bool
) -> Any:
    """Emit an op with the types that PyTorch gives its results; gives the results, lists taken apart."""
    meta = node.meta.get("val")
    returns = schema.returns
    if not returns:
        importer.emitter.op(name, operands, ())
        return None
    metas = meta if len(returns) > 1 and isinstance(meta, (list, tuple)) else [meta]
    types: list[Attribute] = []
    for declared, m in zip(returns, metas, strict=True):
        if declared.type.is_list:
            elements = [type_of(e, not is_alias) for e in m]
            types.append(list_of(reduce(join_types, elements) if elements else vtensor()))
        else:
            types.append(_scalar_or_tensor_type(declared, m, is_alias))
    results = list(importer.emitter.op(name, operands, types))
    out: list[Any] = []
    for declared, m, result in zip(returns, metas, results, strict=True):
        if declared.type.is_list:
            unpacked = importer.emitter.emit(ListUnpackOp, (result,), [type_of(e, not is_alias) for e in m])
            for value, e in zip(unpacked.results, m, strict=True):
                importer.bind_shape(value, e)
            out.append(list(unpacked.results))
        else:
            if isinstance(m, torch.SymBool) and result.type == INT:  # The dialect's `item` gives no truth values.
                (result,) = importer.emitter.op("aten.Bool.int", (result,), [BOOL])
            importer.bind_shape(result, m)
            out.append(None if m is None and declared.type.is_tensor else result)
    final = out[0] if len(returns) == 1 else out
    if importer.aliasing.is_mutable(node) and not is_alias:
        final = map_values(final, importer.mutable)
    return final


def _scalar_or_tensor_type(declared: Argument, meta: Any, is_alias: bool) -> Attribute:
    if declared.type.is_tensor:
        if meta is None:  # It was not asked for, as by a flag in `output_mask`.
            return NONE
        return type_of(meta, not is_alias)
    if declared.type.base == "Scalar":
        return FLOAT if isinstance(meta, (float, torch.SymFloat)) else INT
    return _TYPES.get(declared.type.base, NUMBER)


def map_values(value: Any, f: Callable[[SSAValue], SSAValue]) -> Any:
    """Apply a function to a value, or to those in a list."""
    if isinstance(value, SSAValue):
        return f(value)
    return [map_values(v, f) for v in value] if isinstance(value, list) else value
